//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking. `allocation` has an allocator, and so a program, of its own.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "what goes wrong in a test fails it"
)]

mod capture;
mod fanout;
mod fault;
mod fuzz_kernel_path_claims;
mod fuzz_team;
mod kept;
mod kernel_path;
mod order;
mod packet;
mod paged_headers;
mod pair;
mod relay;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod team;
mod team_ingress;
mod veth;
mod world;
mod xdp;
