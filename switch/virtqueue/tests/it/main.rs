//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what goes wrong in a test fails it, and its numbers are small"
)]

mod dirty;
mod guest;
mod hostile;
mod oracle;
mod program;
mod queue;
