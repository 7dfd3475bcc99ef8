//! Instructions of what runs once per frame, counted by Callgrind: `cargo bench -p millrace-wire`.
//!
//! Needs valgrind and `gungraun-runner` (the version of the gungraun dependency). Each bench has a
//! budget, the most instructions it may take; over it the run fails. A budget is what was measured
//! plus a tenth. Valgrind knows AVX2, so long sums take the vector loop here too.

#![allow(missing_docs, reason = "gungraun's macros make public items without docs")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::hint::black_box;
use wire::checksum::Sum;
use wire::toeplitz::{Key, Toeplitz};
use wire::{Parsed, parse};

/// Bytes from the start of a full frame that are kept.
const HEADERS: usize = 256;
const FRAME: usize = 1514;
const BURST: u64 = 256;

fn tcp_with_timestamps() -> [u8; 32] {
    *b"\0\x50\0\x51\0\0\0\x01\0\0\0\x02\x80\x10\x01\0\0\0\0\0\x01\x01\x08\x0a\0\0\0\x05\0\0\0\x06"
}

fn headers_of(parts: &[&[u8]]) -> Vec<u8> {
    let mut headers = b"\x52\x54\0\0\0\x01\x52\x54\0\0\0\x02".to_vec();
    headers.extend(parts.concat());
    headers.resize(HEADERS, 0x5a);
    headers
}

fn tcp4() -> Vec<u8> {
    let ip = b"\x08\0\x45\0\x05\xdc\0\x01\x40\0\x40\x06\0\0\x0a\0\0\x01\x0a\0\0\x02";
    headers_of(&[ip, &tcp_with_timestamps()])
}

fn tcp6() -> Vec<u8> {
    let ip = b"\x86\xdd\x60\0\0\0\x05\xb4\x06\x40";
    headers_of(&[ip, &[0xfd; 32], &tcp_with_timestamps()])
}

fn budget(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

// A full burst, so that the cost of the bench itself does not count.
#[library_benchmark]
#[bench::tcp4(args = (tcp4()), config = budget(BURST * 92))]
// The budget was 92; since parsing reads as far as the guards ask it is 95, IPv4's 88.
#[bench::tcp6(args = (tcp6()), config = budget(BURST * 96))]
fn parse_burst(headers: Vec<u8>) -> Vec<u8> {
    for _ in 0..BURST {
        black_box(parse(black_box(&headers), black_box(FRAME)));
    }
    headers
}

#[library_benchmark]
#[bench::segment(args = (vec![0x5a; 1448]), config = budget(620))]
fn sum_scalar(bytes: Vec<u8>) -> (Vec<u8>, Sum) {
    let sum = Sum::of_scalar(black_box(&bytes));
    (bytes, black_box(sum))
}

/// The first call asks the processor what it can; that is not part of a frame's cost.
fn asked(length: usize) -> Vec<u8> {
    let bytes = vec![0x5a; length];
    black_box(Sum::of(&bytes));
    bytes
}

#[library_benchmark]
#[bench::segment(args = (1448), setup = asked, config = budget(430))]
#[bench::train(args = (65160), setup = asked, config = budget(13_000))]
fn sum(bytes: Vec<u8>) -> (Vec<u8>, Sum) {
    let sum = Sum::of(black_box(&bytes));
    (bytes, black_box(sum))
}

fn flow(headers: Vec<u8>) -> (Toeplitz, Vec<u8>, Option<Parsed>) {
    let parsed = parse(&headers, FRAME);
    (Toeplitz::new(&Key::MICROSOFT), headers, parsed)
}

#[library_benchmark]
#[bench::tcp4(args = (tcp4()), setup = flow, config = budget(120))]
#[bench::tcp6(args = (tcp6()), setup = flow, config = budget(200))]
fn hash(
    flow: (Toeplitz, Vec<u8>, Option<Parsed>),
) -> ((Toeplitz, Vec<u8>, Option<Parsed>), Option<u32>) {
    let (toeplitz, headers, parsed) = &flow;
    let hash = parsed.as_ref().map(|parsed| toeplitz.hash_flow(black_box(headers), parsed));
    (flow, black_box(hash))
}

library_benchmark_group!(name = per_frame, benchmarks = [parse_burst, sum_scalar, sum, hash]);
main!(library_benchmark_groups = per_frame);
