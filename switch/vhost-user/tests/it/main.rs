//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking. `log` counts what the whole process logs, so it is a program of its own.
#![allow(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

mod commands;
mod crash;
mod fuzz_commands;
mod fuzz_session;
mod link;
mod post_copy;
mod requests;
mod session;
#[path = "../support/mod.rs"]
mod support;
mod suspend;
