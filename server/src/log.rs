//! The log on standard error, and lines on standard output.
//!
//! If a line cannot be written, because the disk is full or the pipe is closed, the line is lost.
//! `println!` and `eprintln!` would panic in that case, and end the task that calls them, such as
//! the task that loads changed limits.

use std::fmt::{self, Display};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The level and the format of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSettings {
    pub(crate) level: LevelFilter,
    pub(crate) format: Format,
}

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The time, the level and the message.
    Text,
    /// An object with the fields of envoyproxy/ratelimit: `@timestamp`, `level` and `@message`.
    Json,
}

/// Writes events of this program to standard error from now on. Events of other crates are not
/// written, because they can include header fields with secrets.
pub(crate) fn start(settings: LogSettings) {
    let lines = tracing_subscriber::fmt::layer()
        .event_format(settings.format)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let own = Targets::new().with_target("tidegate", settings.level);
    // `try_init` fails only if a log is already installed.
    let _ = tracing_subscriber::registry().with(own).with(lines).try_init();
}

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = event.metadata().level();
        let mut message = Message::default();
        event.record(&mut message);
        let Message { text, fields } = message;
        match self {
            Self::Text => {
                write!(writer, "{time} {level:>5} {text}")?;
                for (name, value) in fields {
                    write!(writer, " {name}={value}")?;
                }
                writeln!(writer)
            }
            Self::Json => {
                let mut line = fields;
                line.insert("@timestamp".to_owned(), time.into());
                line.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
                line.insert("@message".to_owned(), text.into());
                writeln!(writer, "{}", serde_json::Value::Object(line))
            }
        }
    }
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct Message {
    text: String,
    fields: serde_json::Map<String, serde_json::Value>,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            name => {
                self.fields.insert(name.to_owned(), format!("{value:?}").into());
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

/// Writes a line to standard output.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes a line to standard error. The program uses this function instead of the log before the
/// settings of the log are known, and in commands that do not start the log.
pub(crate) fn write_error(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
