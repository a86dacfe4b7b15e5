//! What lives in the sandbox, in virtual time: nothing here sleeps, and a day takes seconds.

mod controllers;
mod day;
mod kubelet;
mod stage;
