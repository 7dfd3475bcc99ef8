//! The progress line: what runs, how fast, and how long it still takes. A terminal shows one line
//! that is redrawn, everything else gets plain lines.

use crate::plan::{Step, Values};
use crate::two_paths;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Steps between two plain lines, so that the log of a long run stays short.
const PLAIN_EVERY: usize = 10;

/// Shows progress on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    phase: String,
    /// Time that later phases take.
    afterwards: Duration,
    /// Whether the remaining phases may end early.
    is_upper_bound: bool,
}

impl Progress {
    /// Creates the progress of a whole campaign; draws a bar if standard error is a terminal.
    pub(crate) fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:{BAR_WIDTH}}} {{msg}}"))
            {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar, phase: String::new(), afterwards: Duration::ZERO, is_upper_bound: false }
    }

    /// Begins a phase. Later phases take `afterwards`, or less if `is_upper_bound`.
    pub(crate) fn phase(&mut self, name: &str, afterwards: Duration, is_upper_bound: bool) {
        self.is_upper_bound = is_upper_bound;
        name.clone_into(&mut self.phase);
        self.afterwards = afterwards;
    }

    /// Shows a step of the phase.
    pub(crate) fn step(&mut self, step: &Step<'_>) {
        let text = if self.bar.is_some() { self.short(step) } else { self.text(step) };
        match &self.bar {
            Some(bar) => {
                bar.set_length(step.total as u64);
                bar.set_position(step.done as u64);
                bar.set_message(beside_bar(&text));
            }
            // A log that cannot be written is no reason to stop measuring.
            None if step.done.is_multiple_of(PLAIN_EVERY) => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            None => {}
        }
    }

    /// Returns what the bar does not show, with what matters most first, because the end may be cut
    /// off.
    fn short(&self, step: &Step<'_>) -> String {
        let arm = step.arm.map_or("warming up", |arm| arm.label.as_str());
        let rate = step.last.and_then(|values| values.get("throughput_bps"));
        let rate = rate.map_or(String::new(), |bits| format!("{:.2} Gb/s, ", bits / 1e9));
        let left = time(step.left + self.afterwards);
        let most = if self.is_upper_bound { "at most " } else { "" };
        let paths = step.last.and_then(paths).unwrap_or_default();
        format!("{most}{left} left, {rate}{arm}, {}{paths}", self.phase)
    }

    fn text(&self, step: &Step<'_>) -> String {
        let arm = step.arm.map_or("warming up", |arm| arm.label.as_str());
        let rate = step.last.and_then(|values| values.get("throughput_bps"));
        let rate = rate.map_or(String::new(), |bits| format!(", {:.2} Gb/s", bits / 1e9));
        let left = time(step.left + self.afterwards);
        let about = if self.is_upper_bound { "at most" } else { "about" };
        let paths = step.last.and_then(paths).unwrap_or_default();
        format!(
            "{}: {} of {}, {arm}{rate}, {about} {left} left{paths}",
            self.phase, step.done, step.total
        )
    }
}

/// Width of a terminal's line that is redrawn, and of the bar at its beginning, in letters. A line
/// that wraps is not redrawn but repeated.
const LINE: usize = 80;
const BAR_WIDTH: usize = 16;

/// Returns the text with its first line cut to the room beside the bar; further lines are short.
fn beside_bar(text: &str) -> String {
    // One for the space, and one because some terminals wrap at the last letter.
    let room = LINE - BAR_WIDTH - 2;
    let (first, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
    if first.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = first.chars().take(room - 1).collect();
    format!("{kept}…{rest}")
}

/// Width of the bar of a path's rate, in letters.
const BAR: usize = 30;

/// Returns a line for each of two paths that carry load at the same time, and the question; `None`
/// for other loads.
fn paths(values: &Values) -> Option<String> {
    let [one, other] = two_paths::RATES.map(|key| values.get(key).copied());
    let rates = [one?, other?];
    let most = rates[0].max(rates[1]).max(1.0);
    let line = |(label, rate): (&str, f64)| {
        let letters = (0..BAR).filter(|letter| (*letter as f64) < rate / most * BAR as f64);
        let bar = "#".repeat(letters.count());
        format!("\n  {label} {bar:BAR$} {:.2} Gb/s", rate / 1e9)
    };
    let lines: String = two_paths::LABELS.into_iter().zip(rates).map(line).collect();
    Some(lines + "\n  one of them has jumbo frames: which one is which?")
}

/// Returns a time as `45 s` or `12 min`.
fn time(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arm;

    #[test]
    fn the_line_says_what_runs_how_fast_and_how_long_all_of_it_takes() {
        let mut progress = Progress::new();
        progress.bar = None;
        progress.phase("sweep, 4 connections", Duration::from_secs(600), false);
        let arm = Arm { name: "measured".into(), label: "Measured".into() };
        let values = Values::from([("throughput_bps".into(), 2.5e9)]);
        let left = Duration::from_secs(1);
        let step = Step { arm: Some(&arm), done: 1, total: 2, left, last: Some(&values) };
        let text = progress.text(&step);
        assert_eq!(text, "sweep, 4 connections: 1 of 2, Measured, 2.50 Gb/s, about 11 min left");
    }

    /// The line of 120 letters wrapped, and each step left one behind.
    #[test]
    fn a_line_that_is_redrawn_fits_eighty_columns_and_begins_with_the_time_left() {
        let mut progress = Progress::new();
        let phase = "rsc 2 of 4, guest receives, 16 connections, receiver with GRO";
        progress.phase(phase, Duration::from_secs(40), true);
        let label = "RSC Enabled, kernel's GRO at the uplink".to_owned();
        let arm = Arm { name: "uplink_gro".into(), label };
        let keys = two_paths::RATES.map(str::to_owned);
        let rates = keys.into_iter().zip([3e9, 1e9]);
        let values = rates.chain([("throughput_bps".to_owned(), 12.5e9)]).collect();
        let left = Duration::from_secs(5);
        let step = Step { arm: Some(&arm), done: 1, total: 2, left, last: Some(&values) };
        let text = beside_bar(&progress.short(&step));
        assert!(text.starts_with("at most 45 s left, 12.50 Gb/s, RSC Enabled, kernel"), "{text}");
        for (number, line) in text.lines().enumerate() {
            let before = if number == 0 { BAR_WIDTH + 1 } else { 0 };
            assert!(before + line.chars().count() < LINE, "{line}");
        }
        assert_eq!(text.lines().count(), 4, "the paths are kept");
        assert_eq!(beside_bar("short\nand more"), "short\nand more");
    }

    #[test]
    fn two_paths_have_a_line_each_and_the_question() {
        let rates = [3e9, 1e9];
        let keys = two_paths::RATES.map(str::to_owned);
        let text = paths(&keys.into_iter().zip(rates).collect()).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines[0], format!("  Path A {} 3.00 Gb/s", "#".repeat(30)));
        assert_eq!(lines[1], format!("  Path B {}{} 1.00 Gb/s", "#".repeat(10), " ".repeat(20)));
        assert!(lines[2].ends_with("which one is which?") && lines.len() == 3);
        assert_eq!(paths(&Values::new()), None);
    }
}
