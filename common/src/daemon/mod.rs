//! The shell that every daemon lives in: flags as VPA spells them, logs, metrics, health and readiness, watched tasks
//! and a bounded stop. What a daemon does is none of its business.

mod address;
pub mod admin;
mod allocator;
mod args;
pub mod build;
mod context;
mod duration;
pub mod explain;
mod health;
mod klog;
mod logs;
pub mod metrics;
pub mod pflag;
mod process;
mod readiness;
mod shutdown;
mod tasks;

pub use address::{AddressError, ListenAddress};
pub use args::{ArgsError, Common, CommonArgs, LeaderElectionArgs, Namespaces, Settings, interval};
pub use context::{Context, DaemonError, Handles, Shell, exit};
pub use duration::{DurationError, GoDuration};
pub use health::Activity;
pub use klog::KlogArgs;
pub use logs::{Format, LogConfig, LogLevel, Verbosity, VerbosityError};
pub use pflag::{Flags, GoBool};
pub use readiness::{Part, Readiness};
pub use shutdown::Shutdown;
pub(crate) use tasks::panic_message;
pub use tasks::{TaskError, Tasks};
