//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking. `topology` is its own host and daemon, so it is a program of its own.
#![allow(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

mod fuzz_agent;
mod in_process;
