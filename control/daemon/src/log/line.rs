//! Formats a line of the log: text or a JSON object, as `log` of `[switch]` says. If standard error
//! is the journal, each line starts with its priority (sd-daemon(3)).

use config::LogFormat;
use serde_json::{Map, Value};
use std::fmt;
use std::io::stderr;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets the format from now on.
pub(crate) fn write_as(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Formats events as lines.
pub(super) struct Lines {
    text: Format,
    /// Whether standard error is the journal.
    is_journal: bool,
}

impl Lines {
    pub(super) fn new() -> Lines {
        let journal = std::env::var("JOURNAL_STREAM").ok();
        Lines { text: Format::default(), is_journal: journal.is_some_and(|file| is_stderr(&file)) }
    }
}

/// Returns whether `DEVICE:INODE` names standard error. The variable alone is no proof: a program
/// that the daemon of a service starts inherits it.
fn is_stderr(file: &str) -> bool {
    rustix::fs::fstat(stderr()).is_ok_and(|stat| file == format!("{}:{}", stat.st_dev, stat.st_ino))
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_journal {
            write!(line, "<{}>", priority(*event.metadata().level()))?;
        }
        match IS_JSON.load(Ordering::Relaxed) {
            true => writeln!(line, "{}", json(event)?),
            false => self.text.format_event(context, line, event),
        }
    }
}

/// Returns the priority as numbered by syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Returns an object with time, level, target, message and the event's other fields.
fn json(event: &Event<'_>) -> Result<Value, fmt::Error> {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let level = event.metadata().level().as_str().to_lowercase();
    let mut fields = Fields(Map::new());
    for (name, text) in
        [("time", time), ("level", level), ("target", event.metadata().target().to_owned())]
    {
        fields.0.insert(name.to_owned(), text.into());
    }
    event.record(&mut fields);
    Ok(Value::Object(fields.0))
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}
