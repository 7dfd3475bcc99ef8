// UNSAFETY: the `bpf` call takes a struct with pointers in it.
//! Runs programs on frames of tests (`BPF_PROG_TEST_RUN`).
#![allow(unsafe_code)]

use super::bpf;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const PROG_TEST_RUN: libc::c_int = 10;

/// `struct __sk_buff`, of which a run takes some fields and wants zeros in the others.
pub(crate) type Context = [u32; 48];

/// The attributes of `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct RunAttributes {
    program: u32,
    result: u32,
    input_size: u32,
    output_size: u32,
    input: u64,
    output: u64,
    repeat: u32,
    duration: u32,
    context_size: [u32; 2],
    context: [u64; 2],
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
}

/// Runs a program on a frame of at least 15 bytes without a tag beside it. Returns its result and
/// the nanoseconds of a run.
///
/// # Errors
/// Fails if the kernel refuses frame or context.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    context: Option<&Context>,
    times: u32,
) -> io::Result<(u32, u32)> {
    let size = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let context_size = context.map_or(Ok(0), |context| size(size_of_val(context)))?;
    let mut attributes = RunAttributes {
        program: program.as_raw_fd().cast_unsigned(),
        input_size: size(frame.len())?,
        input: frame.as_ptr().addr() as u64,
        repeat: times,
        context_size: [context_size, 0],
        context: [context.map_or(0, |context| context.as_ptr().addr() as u64), 0],
        ..RunAttributes::default()
    };
    // SAFETY: frame and context outlive the call, which reads as many bytes of them as they have.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
    Ok((attributes.result, attributes.duration))
}
