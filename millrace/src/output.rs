//! Prints what commands say, and sets their exit codes.

use crate::global::Global;
use api::client::ClientError;
use comfy_table::{Table, presets};
use problem::Problem;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The reason why a command failed.
pub(crate) enum Failure {
    /// Exit code 1.
    Failed(Problem),
    /// Exit code 2.
    Usage(Problem),
    /// Exit code 3.
    Unreachable(Problem),
    /// Standard output was closed: exit silently.
    Closed,
}

/// The exit code of a command that ran, or its failure. The exit code is 1, without a message, if
/// the command found something.
pub(crate) type Outcome = Result<ExitCode, Failure>;

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Failed(problem)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Unreachable(problem) => Failure::Unreachable(*problem),
            ClientError::Refused(problem) => Failure::Failed(*problem),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Failed(Problem::new("writing the output").seen(error)),
        }
    }
}

/// Turns a client's error into a failure, for `map_err`.
pub(crate) fn unreachable(error: ClientError) -> Failure {
    error.into()
}

/// Reports the outcome of a command. Returns the exit code of the program.
pub(crate) fn exit(outcome: Outcome, global: &Global) -> ExitCode {
    let (problem, code) = match outcome {
        Ok(code) => return code,
        Err(Failure::Closed) => return ExitCode::SUCCESS,
        Err(Failure::Failed(problem)) => (problem, 1),
        Err(Failure::Usage(problem)) => (problem, 2),
        Err(Failure::Unreachable(problem)) => (problem, 3),
    };
    exit_with(problem, code, global.json)
}

/// Prints a problem to standard error. Returns the exit code of the program.
pub(crate) fn exit_with(problem: Problem, code: u8, json: bool) -> ExitCode {
    let text = match serde_json::to_string(&problem) {
        Ok(text) if json => text,
        _ => format!("millrace: {problem}"),
    };
    // If standard error is closed, the problem cannot be reported.
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}

/// Prints a line of progress to standard error. A line that cannot be printed is no reason to stop.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints text, ending in a line feed.
///
/// # Errors
/// Standard output is closed or cannot be written.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Prints a body as JSON, or as the text made of it.
pub(crate) fn show<T: Serialize>(
    global: &Global,
    body: &T,
    text: impl FnOnce(&T) -> String,
) -> Outcome {
    if global.json {
        let json = serde_json::to_string_pretty(body)
            .map_err(|error| Problem::new("writing JSON").seen(error))?;
        print(&json)?;
    } else {
        print(&text(body))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a table without rules, for grep and awk.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Returns an enum's name in the API.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Returns a text such as `1.23 Gb/s`.
pub(crate) fn bits(rate: u64) -> String {
    scaled(rate, "b/s")
}

/// Returns a text such as `1 worker` or `2 workers`.
pub(crate) fn pluralized(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns a text such as `12.3 M`.
pub(crate) fn count(number: u64) -> String {
    scaled(number, "").trim_end().to_owned()
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn scaled(number: u64, unit: &str) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let value = number as f64;
    match steps.iter().find(|(step, _)| value >= *step) {
        None => format!("{number} {unit}"),
        Some((step, letter)) => {
            let value = value / step;
            let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
            format!("{value:.decimals$} {letter}{unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_say_it() {
        assert_eq!(
            (bits(0), bits(999), bits(1000)),
            ("0 b/s".into(), "999 b/s".into(), "1.00 kb/s".into())
        );
        assert_eq!(bits(12_345_678_901), "12.3 Gb/s");
        assert_eq!((count(7), count(123_456)), ("7".into(), "123 k".into()));
    }
}
