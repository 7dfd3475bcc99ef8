// UNSAFETY: system calls for asynchronous I/O, which no safe crate wraps; each takes only memory of
// its caller's stack.
//! Eventfds signalled by the completion of asynchronous I/O, which never waits for the eventfd.
#![allow(unsafe_code)]

use crate::lock::lock;
use rustix::fs::{MemfdFlags, memfd_create};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

/// Largest number of completions that the kernel keeps until they are reaped.
pub(super) const COMPLETIONS: usize = 64;
/// Number of attempts to signal, if there is no room for the completion.
const ATTEMPTS: u32 = 8;

/// `struct iocb` of `linux/aio_abi.h`, little-endian.
#[repr(C)]
#[derive(Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: u32,
    /// 0: `IOCB_CMD_PREAD`.
    opcode: u16,
    priority: u16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: u64,
    reserved: u64,
    /// 1: `IOCB_FLAG_RESFD`.
    flags: u32,
    event: u32,
}

/// `struct io_event`.
type Completion = [u64; 4];

/// The process's context for asynchronous I/O. Any thread may use it at any time.
struct Context {
    id: libc::c_ulong,
    /// An empty file.
    file: OwnedFd,
}

static CONTEXT: OnceLock<Context> = OnceLock::new();
/// Locked while the context is made, so that ports that open at the same time make only one:
/// destroying another context takes an RCU grace period.
static MAKING: Mutex<()> = Mutex::new(());

/// Makes the context for signalling eventfds. Called before a front end can send any. Fails if the
/// kernel has no asynchronous I/O or no room.
pub(crate) fn prepare() -> io::Result<()> {
    let _one = lock(&MAKING);
    if CONTEXT.get().is_none() {
        let made = Context::new()?;
        let _ = CONTEXT.set(made);
    }
    Ok(())
}

impl Context {
    fn new() -> io::Result<Context> {
        let file = memfd_create("signals", MemfdFlags::CLOEXEC)?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, the context's id, to `id`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, COMPLETIONS, &raw mut id) };
        if made < 0 {
            let error = io::Error::last_os_error();
            let remedy = "asynchronous I/O is needed to signal guests: raise fs.aio-max-nr, or allow io_setup";
            return Err(io::Error::new(error.kind(), format!("{remedy} ({error})")));
        }
        Ok(Context { id, file })
    }

    /// Submits an operation. Returns `false` if too many completions were not reaped.
    #[inline]
    fn submit(&self, event: BorrowedFd<'_>) -> bool {
        let mut block = ControlBlock {
            file: self.file.as_raw_fd().cast_unsigned(),
            flags: 1,
            event: event.as_raw_fd().cast_unsigned(),
            ..ControlBlock::default()
        };
        let list = [&raw mut block];
        // SAFETY: the kernel reads the list and the block and writes the block's key, all before it
        // returns; the read of no bytes touches no buffer.
        unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, list.as_ptr()) == 1 }
    }

    #[cold]
    fn reap(&self) {
        let mut completions = [Completion::default(); COMPLETIONS];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let to = completions.as_mut_ptr();
        // SAFETY: the kernel writes at most `COMPLETIONS` of them and reads the time.
        unsafe {
            libc::syscall(libc::SYS_io_getevents, self.id, 0, COMPLETIONS, to, &raw const now)
        };
    }
}

impl Context {
    #[cold]
    fn insist(&self, event: BorrowedFd<'_>) -> bool {
        insist(|| self.reap(), || self.submit(event))
    }
}

/// Makes room and submits, up to [`ATTEMPTS`] times because other threads may take the room.
/// Returns whether it submitted.
fn insist(mut make_room: impl FnMut(), mut submit: impl FnMut() -> bool) -> bool {
    (0..ATTEMPTS).any(|_| {
        make_room();
        submit()
    })
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Adds one to an eventfd, or leaves a full one as it is. Returns `false` if there was no room for
/// the completion, or no memory.
#[inline]
pub(super) fn signal(event: BorrowedFd<'_>) -> bool {
    let Some(context) = CONTEXT.get() else { return true };
    context.submit(event) || context.insist(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal that failed twice was lost.
    #[test]
    fn a_signal_is_tried_again_as_often_as_agreed() {
        for (successful, wanted) in [(1, true), (ATTEMPTS, true), (ATTEMPTS + 1, false)] {
            let (mut made, mut tried) = (0, 0);
            let done = insist(
                || made += 1,
                || {
                    tried += 1;
                    tried == successful
                },
            );
            assert_eq!((done, tried), (wanted, successful.min(ATTEMPTS)));
            assert_eq!(made, tried);
        }
    }
}
