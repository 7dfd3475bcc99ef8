//! The words of a command line, taken one by one, with the values of the current option.

use super::{ArgumentError, value};
use std::collections::VecDeque;
use std::str::FromStr;

#[derive(Default)]
pub(super) struct Words {
    words: VecDeque<String>,
    /// The current option, as messages name it.
    option: String,
    /// A value in the option's own word, as in `-P64` and `--xml=FILE`.
    pub(super) attached: Option<String>,
}

impl Words {
    pub(super) fn new(words: impl Iterator<Item = String>) -> Words {
        Words { words: words.collect(), ..Words::default() }
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// Begins an option; the values taken from here on belong to it.
    pub(super) fn begin(&mut self, option: &str, attached: Option<String>) {
        (self.option, self.attached) = (option.to_owned(), attached);
    }

    /// Takes the value that the option must have. It may begin with a minus, as in `-rb -1`.
    pub(super) fn value(&mut self) -> Result<String, ArgumentError> {
        let wanted = if self.option == "-m" { "THREADS,PROCESSOR,ADDRESS" } else { "see --help" };
        let word = self.attached.take().or_else(|| self.next());
        word.ok_or_else(|| ArgumentError::Missing { option: self.option.clone(), wanted })
    }

    /// Takes the value that the option must have, parsed by a function of [`value`].
    pub(super) fn take<T>(
        &mut self,
        read: impl FnOnce(&str, &str) -> Result<T, ArgumentError>,
    ) -> Result<T, ArgumentError> {
        let word = self.value()?;
        read(&self.option, &word)
    }

    pub(super) fn number<T: FromStr>(&mut self, wanted: &'static str) -> Result<T, ArgumentError> {
        self.take(|option, word| value::number(option, word, wanted))
    }

    /// Takes the option's optional value: the next word, if `fits` accepts it and it is no option.
    pub(super) fn optional(&mut self, fits: impl FnOnce(&str) -> bool) -> Option<String> {
        if self.attached.is_some() {
            return self.attached.take();
        }
        let next = self.words.front()?;
        if next.starts_with('-') || next.is_empty() || !fits(next) {
            return None;
        }
        self.next()
    }

    /// Skips a pasted `ntttcp`, `ntttcp.exe` or `.\NTttcp.exe`.
    pub(super) fn skip_program(&mut self) {
        let is_program = self.words.front().is_some_and(|word| {
            let word = word.to_ascii_lowercase();
            let name = word.rsplit(['/', '\\']).next().unwrap_or_default();
            matches!(name, "ntttcp" | "ntttcp.exe")
        });
        if is_program {
            self.next();
        }
    }
}
