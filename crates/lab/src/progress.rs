//! The line that says what runs and how long it still takes: drawn over itself on a terminal, plain lines elsewhere.

use crate::experiment::Step;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Seconds between plain lines: a log of a long run stays short.
const PLAIN_EVERY: usize = 10;

/// Shows progress on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    phase: String,
    /// Time that later phases take.
    afterwards: Duration,
}

impl Progress {
    /// For a whole validation that takes `total`.
    pub(crate) fn new(total: Duration) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar, phase: String::new(), afterwards: total }
    }

    /// Begins a phase that takes `length`.
    pub(crate) fn phase(&mut self, name: &str, length: Duration) {
        name.clone_into(&mut self.phase);
        self.afterwards = self.afterwards.saturating_sub(length);
    }

    /// One step of the phase.
    pub(crate) fn step(&mut self, step: &Step<'_>) {
        let arm = step.arm.map_or("warming up", |arm| arm.label.as_str());
        let left = (step.left + self.afterwards).as_secs();
        let text =
            format!("{}: {} of {}, {arm}, about {left} s left", self.phase, step.done, step.total);
        match &self.bar {
            Some(bar) => {
                bar.set_length(step.total as u64);
                bar.set_position(step.done as u64);
                bar.set_message(text);
            }
            // A log that cannot be written is no reason to stop measuring.
            None if step.done.is_multiple_of(PLAIN_EVERY) => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
