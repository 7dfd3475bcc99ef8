//! A line's words, taken one by one.

use super::ArgumentError;
use std::collections::VecDeque;

pub(super) struct Words {
    words: VecDeque<String>,
}

impl Words {
    pub(super) fn new(words: impl Iterator<Item = String>) -> Words {
        Words { words: words.collect() }
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// The value an option must have; it may begin with a minus, as in `-rb -1`.
    pub(super) fn value(
        &mut self,
        option: &str,
        wanted: &'static str,
    ) -> Result<String, ArgumentError> {
        self.next().ok_or_else(|| ArgumentError::Missing { option: option.into(), wanted })
    }

    /// The value an option may have: the next word, where it fits and is no option.
    pub(super) fn optional(&mut self, fits: impl FnOnce(&str) -> bool) -> Option<String> {
        let next = self.words.front()?;
        if next.starts_with('-') || next.is_empty() || !fits(next) {
            return None;
        }
        self.next()
    }

    /// Drops a pasted `ntttcp`, `ntttcp.exe` or `.\NTttcp.exe`.
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
