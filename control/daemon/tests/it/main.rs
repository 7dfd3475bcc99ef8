//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "what goes wrong in a test fails it"
)]

mod api;
mod exported;
mod flows;
mod fuzz_state;
mod history;
mod import;
mod long_plan;
mod metrics;
mod openapi;
mod reference;
mod state;
mod test_daemon;
mod trace;
mod troubleshooting;
mod uplink;
mod web;
