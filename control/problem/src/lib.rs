//! An error for people and scripts: what failed, the value seen, the value wanted, the remedy.
//!
//! The command line prints the same four parts that the API sends, so one type serves both.

pub mod token;

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use utoipa::ToSchema;

/// The ASCII unit separator joins the parts of a packed problem, for serde, which carries errors as
/// text.
const SEPARATOR: char = '\u{1f}';

/// An error for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What failed, with the name of the thing.
    pub error: String,
    /// The value seen; empty if none applies.
    #[serde(default)]
    pub seen: String,
    /// The value wanted; empty if none applies.
    #[serde(default)]
    pub wanted: String,
    /// What to do about it.
    #[serde(default)]
    pub remedy: String,
}

impl Problem {
    /// Returns a problem that has only the sentence that says what failed.
    pub fn new(error: impl Into<String>) -> Problem {
        Problem { error: error.into(), ..Problem::default() }
    }

    /// Sets the value seen.
    pub fn seen(mut self, seen: impl fmt::Display) -> Problem {
        self.seen = seen.to_string();
        self
    }

    /// Sets the value wanted.
    pub fn wanted(mut self, wanted: impl fmt::Display) -> Problem {
        self.wanted = wanted.to_string();
        self
    }

    /// Sets the remedy.
    pub fn remedy(mut self, remedy: impl fmt::Display) -> Problem {
        self.remedy = remedy.to_string();
        self
    }

    /// Prefixes the place of the error: `switch.toml:3:7: mtu is out of range`.
    pub fn at(mut self, place: impl fmt::Display) -> Problem {
        self.error = format!("{place}: {}", self.error);
        self
    }

    /// Returns the four parts as one text, for libraries that carry errors as text.
    pub fn pack(&self) -> String {
        let parts = [&self.error, &self.seen, &self.wanted, &self.remedy];
        parts.map(|part| part.replace(SEPARATOR, " ")).join(&SEPARATOR.to_string())
    }

    /// Reads [`pack`](Problem::pack)ed text back. Returns `None` if the text is not packed.
    pub fn unpack(text: &str) -> Option<Problem> {
        let mut parts = text.split(SEPARATOR).map(str::to_owned);
        let problem = Problem {
            error: parts.next()?,
            seen: parts.next()?,
            wanted: parts.next()?,
            remedy: parts.next()?,
        };
        Some(problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&harmless(&self.error))?;
        let rest = [("seen", &self.seen), ("wanted", &self.wanted), ("remedy", &self.remedy)];
        for (label, text) in rest.iter().filter(|(_, text)| !text.is_empty()) {
            write!(out, "\n  {:<8}{}", format!("{label}:"), harmless(text))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Returns a text in which control characters other than line feeds and tabs are replaced, one by
/// one: it may be of a stranger's file, and goes to a terminal.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    match text.contains(is_harmful) {
        true => Cow::Owned(text.replace(is_harmful, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_packed_unpacks(error in "[^\u{1f}]*", seen in "[^\u{1f}]*", remedy in "[^\u{1f}]*") {
            let problem = Problem::new(error).seen(seen).remedy(remedy);
            prop_assert_eq!(Problem::unpack(&problem.pack()), Some(problem));
        }
    }

    /// A name in a stranger's file set the title of the terminal.
    #[test]
    fn what_is_printed_has_no_control_characters() {
        let problem = Problem::new("a\u{1b}]0;x\u{7}").seen("b\n\t\u{9b}2J");
        assert_eq!(problem.to_string(), "a\u{fffd}]0;x\u{fffd}\n  seen:   b\n\t\u{fffd}2J");
    }

    #[test]
    fn reads_as_a_sentence_and_its_parts() {
        let problem = Problem::new("port vm1: mtu is out of range")
            .seen(20)
            .wanted("68 to 65535")
            .remedy("write a number of bytes");
        assert_eq!(
            problem.to_string(),
            "port vm1: mtu is out of range\n  seen:   20\n  wanted: 68 to 65535\n  remedy: write a number of bytes"
        );
        assert_eq!(Problem::unpack("somebody else's words"), None);
    }
}
