//! What a wait is for: on a terminal a line that is rewritten, elsewhere a line now and then, so that
//! a log of ten minutes is short.

use crate::output::tell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Longest time between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(30);

/// The progress of one wait, on standard error. Ends its line when dropped.
#[derive(Default)]
pub(super) struct Progress {
    /// What was shown last, and when.
    last: Option<(String, Instant)>,
}

impl Progress {
    /// Shows what is awaited, and figures that change all the time.
    pub(super) fn show(&mut self, what: &str, figures: &str) {
        let is_terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        if !is_terminal && !self.is_due(what, now) {
            return;
        }
        if is_terminal {
            let mut out = std::io::stderr().lock();
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(out, "\r    {what}: {figures}\x1b[K").and_then(|()| out.flush());
        } else {
            tell(&format!("    {what}: {figures}"));
        }
        self.last = Some((what.to_owned(), now));
    }

    /// Ends the line, so that the next one has its own.
    pub(super) fn end(&mut self) {
        if self.last.take().is_some() && std::io::stderr().is_terminal() {
            tell("");
        }
    }

    /// Returns whether a line is due where lines stay: something else is awaited, or the last line
    /// is old.
    fn is_due(&self, what: &str, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|(last, at)| last != what || now - *at >= EVERY)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log had 600 lines of one wait.
    #[test]
    fn a_log_has_a_line_at_the_start_at_a_change_and_each_half_minute() {
        let begin = Instant::now();
        let progress = Progress { last: Some(("2 workers".into(), begin)) };
        let is_due = |what, seconds| progress.is_due(what, begin + Duration::from_secs(seconds));
        assert!(Progress::default().is_due("2 workers", begin));
        assert_eq!([1, 29, 30].map(|seconds| is_due("2 workers", seconds)), [false, false, true]);
        assert!(is_due("3 workers", 1));
    }
}
