//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking.
#![allow(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

mod aims;
mod recordings;
