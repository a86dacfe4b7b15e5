//! What lives in the sandbox, in virtual time: nothing here sleeps, and a day takes seconds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "this is a test"
)]

mod controllers;
mod day;
mod kubelet;
mod stage;
