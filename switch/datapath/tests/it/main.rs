//! The tests of this crate as one program, for most of the time that tests take to build is
//! linking. Two that count allocations have an allocator, and so a program, of their own:
//! `allocation` and `fuzz_vhost`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "what goes wrong in a test fails it, and its numbers are small"
)]

mod absent;
mod announce;
mod answers;
mod coalesce;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod filters;
mod flows;
#[path = "../world/frames.rs"]
#[allow(dead_code, reason = "the fuzzed world uses the rest")]
mod frames;
mod fuzz_coalesce;
mod fuzz_kernel_path;
mod fuzz_segment;
mod handshakes;
mod kernel_path_once;
mod live;
mod marks;
mod merged;
mod moves;
mod offloads;
mod oracle;
mod oracles;
mod path_mtu;
mod post_copy;
mod properties;
mod rehearsal;
mod ring_reset;
mod shares;
mod stacks;
mod steering;
mod switching;
mod vhost;
mod vlan;
mod weights;
