//! Prints what commands say, and sets their exit codes.

use crate::global::Global;
use api::client::ClientError;
use comfy_table::{Table, presets};
use problem::Problem;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
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

/// Returns the width of the terminal; `None` if standard output is none, so that scripts get whole
/// lines.
pub(crate) fn width() -> Option<usize> {
    let is_terminal = io::stdout().is_terminal();
    let size = is_terminal.then(ratatui::crossterm::terminal::size)?.ok()?;
    Some(usize::from(size.0)).filter(|width| *width > 0)
}

/// Returns the text as it fits the width, if there is one: lines that are too wide are broken
/// between words.
pub(crate) fn fitted(text: &str, width: Option<usize>) -> String {
    width.map_or_else(|| text.to_owned(), |width| wrapped(text, width).join("\n"))
}

/// Returns the lines of a text, broken between words where they are too wide. Continued lines are
/// indented.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(16);
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.chars().take_while(|letter| *letter == ' ').count().min(width / 4);
        let mut rest = line.trim_end().to_owned();
        while rest.chars().count() > width {
            let end = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| at);
            let (head, tail) = rest.split_at(end);
            let space = head.rfind(' ').filter(|cut| *cut > indent + 4);
            let cut = if tail.starts_with(' ') { end } else { space.unwrap_or(end) };
            let tail = rest.split_off(cut);
            lines.push(rest.trim_end().to_owned());
            rest = format!("{}{}", " ".repeat(indent + 4), tail.trim_start());
        }
        lines.push(rest);
    }
    lines
}

/// Returns a table that fits the width, if there is one: columns are left out in this order until
/// it does, and then the last column is cut.
pub(crate) fn fitted_table(
    header: &[&str],
    rows: Vec<Vec<String>>,
    leave_out: &[&str],
    width: Option<usize>,
) -> String {
    let Some(width) = width else { return table(header, rows) };
    let longest = |column: usize, name: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default().max(name.len()) + 2
    };
    let widths: Vec<usize> =
        header.iter().enumerate().map(|(column, name)| longest(column, name)).collect();
    let last = widths.last().copied().unwrap_or_default();
    // What the last column needs at least to be of use.
    let least = last.min(22);
    let mut total = widths.iter().sum::<usize>() - last + least;
    let mut kept: Vec<usize> = (0..header.len()).collect();
    for name in leave_out {
        if total <= width + 2 {
            break;
        }
        let Some(column) = header.iter().position(|it| it == name) else { continue };
        kept.retain(|it| *it != column);
        total -= widths.get(column).copied().unwrap_or_default();
    }
    let room = (width + 2).saturating_sub(total - least).saturating_sub(2);
    let cell = |row: &Vec<String>, column: usize| {
        let text = row.get(column).cloned().unwrap_or_default();
        if column + 1 < header.len() { text } else { shortened(&text, room) }
    };
    let names: Vec<&str> = kept.iter().filter_map(|column| header.get(*column).copied()).collect();
    let rows = rows.iter().map(|row| kept.iter().map(|column| cell(row, *column)).collect());
    table(&names, rows)
}

/// Returns the text, or as many of its letters as fit and `…`.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut text: String = text.chars().take(width.saturating_sub(1)).collect();
    text.push('…');
    text
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

/// Returns a text such as `1.23 GB`.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number, "B")
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
    fn wide_lines_are_broken_between_words_and_no_letter_is_lost() {
        let text =
            "a line of several words\n  an indented one, which is longer\nunbrokenunbrokenunbroken";
        let lines = wrapped(text, 20);
        assert!(lines.iter().all(|line| line.chars().count() <= 20), "{lines:?}");
        assert_eq!(lines[..2], ["a line of several", "    words"]);
        let letters = |text: &str| text.replace(char::is_whitespace, "");
        assert_eq!(letters(&lines.concat()), letters(text));
        assert_eq!(fitted("a  b", None), "a  b");
        wrapped("öööööööööööööööööööö öööööööö", 16);
    }

    #[test]
    fn a_table_leaves_out_columns_until_it_fits_and_then_cuts_the_last() {
        let rows = vec![vec!["vm1".to_owned(), "up".to_owned(), "a".repeat(30)]];
        let header = ["PORT", "STATE", "REASON"];
        let whole = fitted_table(&header, rows.clone(), &["STATE"], None);
        assert_eq!(whole, format!("PORT  STATE  REASON\nvm1   up     {}", "a".repeat(30)));
        assert_eq!(fitted_table(&header, rows.clone(), &["STATE"], Some(43)), whole);
        let cut = fitted_table(&header, rows.clone(), &["STATE"], Some(33));
        assert_eq!(cut, format!("PORT  STATE  REASON\nvm1   up     {}…", "a".repeat(19)));
        let less = fitted_table(&header, rows, &["STATE"], Some(26));
        assert_eq!(less, format!("PORT  REASON\nvm1   {}…", "a".repeat(19)));
    }

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
