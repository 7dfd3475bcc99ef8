//! Captures what processes print, where a story reads it instead of letting it go to standard
//! error.

use std::process::{Child, Command, Output};

/// Rust prints this where a thread panics. A story in which any process printed it has failed.
pub(crate) const PANIC: &str = "panicked at";

/// Runs a process to its end.
pub(crate) trait Heard {
    /// Returns what the process printed, and repeats a panic on the story's standard error.
    fn heard(self) -> Output;
}

impl Heard for &mut Command {
    fn heard(self) -> Output {
        repeat(self.output().unwrap())
    }
}

impl Heard for Child {
    fn heard(self) -> Output {
        repeat(self.wait_with_output().unwrap())
    }
}

fn repeat(output: Output) -> Output {
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains(PANIC) {
        eprintln!("{text}");
    }
    output
}
