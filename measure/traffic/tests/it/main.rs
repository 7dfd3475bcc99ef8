//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking.
#![allow(clippy::panic, clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

mod loopback;
mod own_ports;
mod windows;
