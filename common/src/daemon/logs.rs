//! The log: text or JSON on stderr, at a level that can be changed while the daemon runs.

use std::{
    fmt,
    io::IsTerminal,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::MakeWriter,
    layer::SubscriberExt,
    reload,
    util::{SubscriberInitExt, TryInitError},
};

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One line of text for each event.
    #[default]
    Text,
    /// One JSON object for each event.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// How much.
    pub verbosity: Verbosity,
    /// How.
    pub format: Format,
    /// With time, level and module (text only).
    pub headers: bool,
    /// With source file and line.
    pub source: bool,
}

/// How much is logged: directives such as `info,updater=trace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verbosity(String);

impl Verbosity {
    /// klog's number. VPA runs with 4, which shows what our info shows; what the libraries say is a step quieter, since
    /// at debug they tell of every connection.
    #[must_use]
    pub fn from_klog(level: i32) -> Self {
        let (libraries, ours) = match level {
            ..=4 => return Self("info".to_owned()),
            5..=7 => ("info", "debug"),
            8.. => ("debug", "trace"),
        };
        let ours = ["common", "recommender", "updater", "admission"].map(|name| format!(",{name}={ours}"));
        Self(format!("{libraries}{}", ours.concat()))
    }
}

impl fmt::Display for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a verbosity is refused.
#[derive(Debug, thiserror::Error)]
#[error("invalid log level {text:?}: use a klog number, a level (info, debug), or MODULE=LEVEL,…: {source}")]
pub struct VerbosityError {
    text: String,
    source: tracing_subscriber::filter::ParseError,
}

impl FromStr for Verbosity {
    type Err = VerbosityError;

    /// A klog number, or the directives themselves.
    fn from_str(text: &str) -> Result<Self, VerbosityError> {
        let text = text.trim();
        if let Ok(level) = text.parse() {
            return Ok(Self::from_klog(level));
        }
        match EnvFilter::builder().parse(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(source) => Err(VerbosityError {
                text: text.to_owned(),
                source,
            }),
        }
    }
}

/// Changes the level of a running log.
#[derive(Clone, Debug)]
pub struct LogLevel {
    handle: reload::Handle<EnvFilter, Registry>,
    current: Arc<Mutex<Verbosity>>,
}

impl LogLevel {
    /// The level now.
    #[must_use]
    pub fn get(&self) -> Verbosity {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Changes the level; fails only when the log is gone.
    pub fn set(&self, verbosity: Verbosity) -> Result<(), reload::Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.handle.reload(EnvFilter::new(&verbosity.0))?;
        *current = verbosity;
        Ok(())
    }
}

/// Starts this process's log.
pub(super) fn init(config: &LogConfig) -> Result<LogLevel, TryInitError> {
    let (subscriber, level) = subscriber(config, std::io::stderr, std::io::stderr().is_terminal());
    subscriber.try_init()?;
    Ok(level)
}

fn subscriber<W>(
    config: &LogConfig,
    writer: W,
    colours: bool,
) -> (impl Subscriber + Send + Sync + use<W>, LogLevel)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let LogConfig {
        verbosity,
        format,
        headers,
        source,
    } = config;
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&verbosity.0));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(colours)
        .with_file(*source)
        .with_line_number(*source);
    let layer = match (format, headers) {
        (Format::Json, _) => layer
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
        (Format::Text, true) => layer.boxed(),
        (Format::Text, false) => layer.without_time().with_level(false).with_target(false).boxed(),
    };
    let level = LogLevel {
        handle,
        current: Arc::new(Mutex::new(verbosity.clone())),
    };
    (tracing_subscriber::registry().with(filter).with(layer), level)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Buffer {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
        }
    }

    fn config(format: Format, headers: bool) -> LogConfig {
        LogConfig {
            verbosity: Verbosity::from_klog(4),
            format,
            headers,
            source: false,
        }
    }

    /// A level that can be set, and the log that must live as long.
    pub(in crate::daemon) fn detached() -> (impl Subscriber, LogLevel) {
        subscriber(&config(Format::Text, true), std::io::sink, false)
    }

    #[test]
    fn klog_numbers_are_our_levels() {
        for (level, expected) in [
            (-1, "info"),
            (0, "info"),
            (4, "info"),
            (
                5,
                "info,common=debug,recommender=debug,updater=debug,admission=debug",
            ),
            (
                7,
                "info,common=debug,recommender=debug,updater=debug,admission=debug",
            ),
            (
                8,
                "debug,common=trace,recommender=trace,updater=trace,admission=trace",
            ),
            (
                100,
                "debug,common=trace,recommender=trace,updater=trace,admission=trace",
            ),
        ] {
            assert_eq!(Verbosity::from_klog(level).to_string(), expected);
            assert_eq!(
                level.to_string().parse::<Verbosity>().unwrap().to_string(),
                expected
            );
        }
        assert_eq!(
            "warn,updater=trace".parse::<Verbosity>().unwrap().to_string(),
            "warn,updater=trace"
        );
        let error = "updater=loud".parse::<Verbosity>().unwrap_err().to_string();
        assert!(
            error.starts_with("invalid log level \"updater=loud\": use a klog number"),
            "{error}"
        );
    }

    #[test]
    fn json_is_one_object_for_each_event() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (log, _level) = subscriber(&config(Format::Json, true), move || writer.clone(), false);
        tracing::subscriber::with_default(log, || tracing::info!(pods = 3, "evicted"));
        let line: Value = serde_json::from_str(&buffer.take()).unwrap();
        assert_eq!(
            (&line["message"], &line["pods"], &line["level"]),
            (&json!("evicted"), &json!(3), &json!("INFO"))
        );
    }

    #[test]
    fn text_without_headers_is_the_message_alone() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (log, _level) = subscriber(&config(Format::Text, false), move || writer.clone(), false);
        tracing::subscriber::with_default(log, || tracing::info!(pods = 3, "evicted"));
        assert_eq!(buffer.take(), "evicted pods=3\n");
    }

    #[test]
    fn the_level_changes_while_it_runs() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (log, level) = subscriber(&config(Format::Text, false), move || writer.clone(), false);
        tracing::subscriber::with_default(log, || {
            tracing::debug!("unheard");
            level.set("6".parse().unwrap()).unwrap();
            tracing::debug!("heard");
            level.set("off".parse().unwrap()).unwrap();
            tracing::error!("silenced");
        });
        assert_eq!(buffer.take(), "heard\n");
        assert_eq!(level.get().to_string(), "off");
    }
}
