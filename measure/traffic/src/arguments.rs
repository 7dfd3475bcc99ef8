//! A command line as NTttcp users type it.
//!
//! There are two dialects, Windows NTttcp's and ntttcp-for-linux's, and some letters mean different
//! things in them (`-l 64k` is a buffer here and `-l 10` are connections there). Which one a line
//! is in, is decided so:
//!
//! 1. `--dialect windows` or `--dialect linux` says it.
//! 2. Options, or values, that only one of them knows decide (`-rb`, `-wu`, `-R`, `-l 64k`; `-P`,
//!    `-W`, `-s ADDRESS`). Such options of both in one line are refused.
//! 3. Where nothing decides and a letter would mean two things (`-n 5`, `-l 10`), the line is
//!    refused, and the message says what to type.
//! 4. Otherwise a line with a mapping (`-m 8,*,ADDRESS`) is Windows's, and one without is Linux's.
//!
//! Windows options may be typed in any case, as on Windows. Long options (`--json`) belong to both.

mod dialect;
mod draft;
mod linux;
mod own;
mod value;
mod windows;
mod words;

use crate::plan::Plan;
use draft::Draft;
pub use own::HELP;
use std::path::PathBuf;
use words::Words;

/// The NTttcp program that a line is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// microsoft/ntttcp.
    Windows,
    /// microsoft/ntttcp-for-linux.
    Linux,
}

/// What a line asks for.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// `-h`, `-?` or `--help`: print [`HELP`].
    Help,
    /// A run.
    Run(Box<Request>),
}

/// A run and where its report goes.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to do.
    pub plan: Plan,
    /// How the line was read.
    pub dialect: Dialect,
    /// Where the report goes.
    pub output: Output,
}

/// Where the report goes. Without a file or `--json` it is text on standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// No progress and no table (`-Q`).
    pub quiet: bool,
    /// JSON of [`crate::report::json_schema`] is wanted.
    pub json: Option<Destination>,
    /// ntttcp-for-linux's JSON is wanted in this file (`-j`).
    pub linux_json: Option<PathBuf>,
    /// XML is wanted.
    pub xml: Option<Destination>,
    /// A copy of the text (`-O`).
    pub log: Option<PathBuf>,
    /// A receiver that starts again after each test (`-H`).
    pub repeat: bool,
}

/// A stream or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output, instead of the text.
    Standard,
    /// This file, replaced.
    File(PathBuf),
}

/// Why a line was not understood; each message says what to type instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// No such option.
    #[error("{word} is not an option of {dialect} NTttcp: --help lists them{hint}")]
    Unknown {
        /// What was typed.
        word: String,
        /// The dialect the line is read in.
        dialect: &'static str,
        /// What else it may be.
        hint: &'static str,
    },
    /// An option at the end of the line that needs a value.
    #[error("{option} needs a value: {wanted}")]
    Missing {
        /// The option.
        option: String,
        /// What it takes.
        wanted: &'static str,
    },
    /// A value that the option does not take.
    #[error("{option} {value:?}: {wanted} is wanted")]
    Value {
        /// The option.
        option: String,
        /// What was typed.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
    /// Options of both dialects in one line.
    #[error(
        "{windows} is Windows NTttcp's and {linux} is ntttcp-for-linux's: use the options of one, or say which is meant with --dialect windows or --dialect linux"
    )]
    Mixed {
        /// An option that only Windows NTttcp has.
        windows: String,
        /// An option that only ntttcp-for-linux has.
        linux: String,
    },
    /// A letter with two meanings, where no other option decides between them.
    #[error(
        "{word} is {windows} for Windows NTttcp and {linux} for ntttcp-for-linux: add --dialect windows or --dialect linux"
    )]
    Ambiguous {
        /// What was typed.
        word: String,
        /// What it would mean on Windows.
        windows: &'static str,
        /// What it would mean on Linux.
        linux: &'static str,
    },
    /// A known option that Millrace does not support.
    #[error("{option} is not supported: {reason}")]
    NotServed {
        /// The option.
        option: String,
        /// Why, and what to use instead.
        reason: &'static str,
    },
    /// Options that together do not make a run.
    #[error("{0}")]
    Plan(String),
}

/// Reads a command line without the program's own name. A first word such as `ntttcp.exe` is
/// skipped, so that lines can be pasted.
///
/// # Errors
/// [`ArgumentError`], worded for people, if an option is unknown, unsupported, ambiguous or has a
/// wrong value.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Invocation, ArgumentError> {
    let mut words = Words::new(args);
    words.skip_program();
    let mut draft = Draft::new();
    let rest = own::take(&mut words, &mut draft)?;
    if draft.help || rest.iter().any(|word| matches!(word.as_str(), "-h" | "-?" | "/?")) {
        return Ok(Invocation::Help);
    }
    let dialect = dialect::decide(&rest, &mut draft)?;
    let mut words = Words::new(rest.into_iter());
    match dialect {
        Dialect::Windows => windows::read(&mut words, &mut draft)?,
        Dialect::Linux => linux::read(&mut words, &mut draft)?,
    }
    draft.finish(dialect).map(|request| Invocation::Run(Box::new(request)))
}

#[cfg(test)]
mod tests;
