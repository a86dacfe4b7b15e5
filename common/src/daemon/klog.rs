//! klog's flags, which every manifest written for VPA may carry: the verbosity is mapped to ours, and what has no
//! meaning here is taken and said to be without effect.

use std::{fmt, str::FromStr};

use super::{
    logs::{Format, LogConfig, Verbosity},
    pflag::GoBool,
};

/// Flags of the log, with klog's names and VPA's defaults.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub struct KlogArgs {
    /// How much to log: up to 4 info, 5 to 7 debug, 8 and more trace
    #[arg(long = "v", short = 'v', value_name = "LEVEL", default_value_t = 4)]
    v: i32,
    /// How the log is written
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    /// Leave out time, level and module (text only)
    #[arg(long, default_value_t)]
    skip_headers: GoBool,
    /// Add the source file and line
    #[arg(long, default_value_t)]
    add_dir_header: GoBool,
    /// Taken for compatibility; everything is logged to stderr
    #[arg(long, default_value_t, value_name = "SEVERITY")]
    stderrthreshold: Severity,
    /// Taken for compatibility; everything is logged to stderr
    #[arg(long, default_value_t = GoBool(true))]
    logtostderr: GoBool,
    /// Taken for compatibility; everything is logged to stderr
    #[arg(long, default_value_t)]
    alsologtostderr: GoBool,
    /// Taken for compatibility; without effect
    #[arg(long, default_value = "", value_name = "DIR")]
    log_dir: String,
    /// Taken for compatibility; without effect
    #[arg(long, default_value = "", value_name = "FILE")]
    log_file: String,
    /// Taken for compatibility; without effect
    #[arg(long, default_value_t = 1800, value_name = "MB")]
    log_file_max_size: u64,
    /// Taken for compatibility; without effect
    #[arg(long, default_value_t)]
    skip_log_headers: GoBool,
    /// Taken for compatibility; without effect
    #[arg(long, default_value_t)]
    one_output: GoBool,
    /// Taken for compatibility; without effect
    #[arg(long, default_value = "", value_name = "FILE:LINE")]
    log_backtrace_at: String,
    /// Taken for compatibility; source files differ from VPA's, so use `PUT /log-level` with MODULE=LEVEL instead
    #[arg(long, default_value = "", value_name = "PATTERN=LEVEL")]
    vmodule: String,
}

impl KlogArgs {
    /// What to log, and the flags that were given and change nothing.
    #[must_use]
    pub fn resolve(self) -> (LogConfig, Vec<&'static str>) {
        let Self {
            v,
            log_format,
            skip_headers,
            add_dir_header,
            // As long as klog logs to stderr it ignores the three of these itself, so they are not worth a word.
            stderrthreshold: _,
            logtostderr,
            alsologtostderr: _,
            log_dir,
            log_file,
            log_file_max_size: _,
            skip_log_headers,
            one_output,
            log_backtrace_at,
            vmodule,
        } = self;
        let ignored = [
            ("--logtostderr=false", !logtostderr.0),
            ("--log-dir", !log_dir.is_empty()),
            ("--log-file", !log_file.is_empty()),
            ("--skip-log-headers", skip_log_headers.0),
            ("--one-output", one_output.0),
            ("--log-backtrace-at", !log_backtrace_at.is_empty()),
            ("--vmodule", !vmodule.is_empty()),
        ];
        let config = LogConfig {
            verbosity: Verbosity::from_klog(v),
            format: log_format,
            headers: !skip_headers.0,
            source: add_dir_header.0,
        };
        let given = ignored
            .into_iter()
            .filter_map(|(flag, given)| given.then_some(flag));
        (config, given.collect())
    }
}

/// klog's severities, by name or number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Severity(u8);

const SEVERITIES: [&str; 4] = ["INFO", "WARNING", "ERROR", "FATAL"];

impl FromStr for Severity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        (0..)
            .zip(SEVERITIES)
            .find(|(number, name)| name.eq_ignore_ascii_case(text) || text == number.to_string())
            .map(|(number, _)| Self(number))
            .ok_or_else(|| format!("use one of {} or a number from 0 to 3", SEVERITIES.join(", ")))
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SEVERITIES.get(usize::from(self.0)).copied().unwrap_or_default())
    }
}
