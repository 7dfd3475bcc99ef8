// UNSAFETY: the kernel reads and writes a buffer long after the call that named it has returned.
//! An io_uring (io_uring(7)) that owns its buffers: what makes `-a N` possible without unsafe code in the engine.
//!
//! A buffer is either here or lent to the kernel, and is out of reach while it is lent. Its completion brings it back. The
//! ring ends only after every lent buffer has come back; where the kernel does not give them back, they are leaked.
#![allow(unsafe_code)]

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::fd::{AsFd, AsRawFd};
use std::io;
use std::time::{Duration, Instant};

/// Requests that are handed to the kernel in one call.
const ENTRIES: u32 = 512;
/// Completions that wait to be read before the kernel keeps them in a list of its own.
const COMPLETIONS: u32 = 8192;
/// Most requests in a chain.
pub(crate) const CHAIN_MAX: u32 = 256;
/// A wait looks about at least so often.
const GLANCE: Duration = Duration::from_millis(100);
/// The kernel ends cancelled requests at once; after so long something is wrong.
const SETTLE: Duration = Duration::from_secs(5);

/// Marks the completions that bring no buffer back.
const NO_BUFFER: u64 = 1 << 63;
/// The completion of the request to cancel all.
const CANCEL: u64 = u64::MAX;

/// See the module. It belongs to the thread that has made it.
pub(crate) struct Ring {
    ring: IoUring,
    buffers: Vec<Buffer>,
    /// Requests whose completion has not been read.
    pending: usize,
}

struct Buffer {
    bytes: Box<[u8]>,
    lent: bool,
}

/// What has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The request that lent this buffer: bytes moved, or an error number below zero.
    Buffer(usize, i32),
    /// A watched descriptor is readable.
    Readable(u32),
}

impl Ring {
    /// A ring without buffers.
    ///
    /// # Errors
    /// The kernel has no io_uring, an older one than 6.0's, or does not allow it here.
    pub(crate) fn new() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_clamp();
        let plain = builder.clone();
        // Completions are made when they are asked for, not in interruptions of the thread: Linux 6.1.
        let lazy = builder.setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
        let ring = lazy.or_else(|_| plain.build(ENTRIES))?;
        // All requests can be cancelled at once since Linux 5.19, and no feature bit is nearer to it.
        if !ring.params().is_feature_linked_file() {
            return Err(io::Error::other("the io_uring of Linux 6.0 or newer is needed"));
        }
        Ok(Ring { ring, buffers: Vec::new(), pending: 0 })
    }

    /// Takes a buffer over; its number.
    pub(crate) fn keep(&mut self, bytes: Box<[u8]>) -> usize {
        self.buffers.push(Buffer { bytes, lent: false });
        self.buffers.len() - 1
    }

    /// A buffer that is not lent.
    pub(crate) fn bytes(&mut self, buffer: usize) -> Option<&mut [u8]> {
        self.buffers.get_mut(buffer).filter(|buffer| !buffer.lent).map(|buffer| &mut *buffer.bytes)
    }

    /// Makes sure that the next `requests` go to the kernel together, as those of a chain must.
    pub(crate) fn make_room(&mut self, requests: usize) -> io::Result<()> {
        let queue = self.ring.submission();
        if queue.capacity() - queue.len() < requests {
            drop(queue);
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Sends all of a buffer's first bytes; the buffer is lent. `linked`: the next request begins after this one.
    pub(crate) fn send(
        &mut self,
        socket: impl AsFd,
        buffer: usize,
        length: usize,
        linked: bool,
    ) -> io::Result<()> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let fd = Fd(socket.as_fd().as_raw_fd());
        self.lend(buffer, length, linked, |bytes, length| {
            opcode::Send::new(fd, bytes, length).flags(flags).build()
        })
    }

    /// Receives into a buffer, which is lent, whatever comes first.
    pub(crate) fn receive(
        &mut self,
        socket: impl AsFd,
        buffer: usize,
        linked: bool,
    ) -> io::Result<()> {
        let fd = Fd(socket.as_fd().as_raw_fd());
        self.lend(buffer, usize::MAX, linked, |bytes, length| {
            opcode::Recv::new(fd, bytes, length).build()
        })
    }

    /// Tells once when a descriptor is readable.
    pub(crate) fn watch(&mut self, fd: impl AsFd, number: u32) -> io::Result<()> {
        let readable = u32::from(libc::POLLIN.unsigned_abs());
        let entry = opcode::PollAdd::new(Fd(fd.as_fd().as_raw_fd()), readable).build();
        self.push(entry.user_data(NO_BUFFER | u64::from(number)))
    }

    /// Hands over what was asked for and waits until something has completed, or for a glance.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        let glance = Timespec::from(GLANCE);
        let limit = SubmitArgs::new().timespec(&glance);
        match self.ring.submitter().submit_with_args(1, &limit) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Nothing happened; a signal came; or completions must be read first, which every caller does next.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// The oldest completion.
    pub(crate) fn next(&mut self) -> Option<Done> {
        loop {
            let entry = self.ring.completion().next()?;
            self.pending = self.pending.saturating_sub(1);
            let tag = entry.user_data();
            if tag == CANCEL {
                continue;
            }
            if tag & NO_BUFFER != 0 {
                return Some(Done::Readable(u32::try_from(tag & !NO_BUFFER).unwrap_or(u32::MAX)));
            }
            let number = usize::try_from(tag).unwrap_or(usize::MAX);
            if let Some(buffer) = self.buffers.get_mut(number) {
                buffer.lent = false;
            }
            return Some(Done::Buffer(number, entry.result()));
        }
    }

    /// Cancels all requests and waits for their completions. What a cancelled one has moved is in its result.
    pub(crate) fn settle(&mut self, mut done: impl FnMut(&mut Ring, Done)) -> io::Result<()> {
        let deadline = Instant::now() + SETTLE;
        while self.pending > 0 {
            // Again and again: the request after one that had moved something may begin only now.
            let all = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build();
            self.push(all.user_data(CANCEL))?;
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wait()?;
            while let Some(one) = self.next() {
                done(self, one);
            }
        }
        Ok(())
    }

    fn lend(
        &mut self,
        number: usize,
        length: usize,
        linked: bool,
        build: impl FnOnce(*mut u8, u32) -> squeue::Entry,
    ) -> io::Result<()> {
        let Some(buffer) = self.buffers.get_mut(number).filter(|buffer| !buffer.lent) else {
            return Err(io::Error::other("a buffer was lent twice"));
        };
        let length = u32::try_from(length.min(buffer.bytes.len())).unwrap_or(u32::MAX);
        let entry = build(buffer.bytes.as_mut_ptr(), length).user_data(number as u64);
        buffer.lent = true;
        let flags = if linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        self.push(entry.flags(flags))
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        self.make_room(1)?;
        // SAFETY: the only memory a request names is a buffer of this ring (`lend`), no longer than it is. It is on the heap,
        // so it does not move when `buffers` grows; nobody reaches it while it is lent (`bytes`); and it is not freed before
        // its completion has been read (`drop`).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("io_uring's queue is full"))?;
        self.pending += 1;
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.settle(|_, _| {}).is_err() {
            // The kernel may still write to them.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn ring() -> Option<Ring> {
        let ring = Ring::new();
        if let Err(error) = &ring {
            println!("skipped: needs io_uring: {error}");
        }
        ring.ok()
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn next(ring: &mut Ring) -> Done {
        loop {
            ring.wait().unwrap();
            if let Some(done) = ring.next() {
                return done;
            }
        }
    }

    #[test]
    fn a_lent_buffer_is_out_of_reach_until_it_comes_back() {
        let Some(mut ring) = ring() else { return };
        let (mut near, far) = pair();
        let buffer = ring.keep(vec![0; 100].into());
        ring.receive(&far, buffer, false).unwrap();
        assert!(ring.bytes(buffer).is_none() && ring.receive(&far, buffer, false).is_err());
        near.write_all(b"hello").unwrap();
        assert_eq!(next(&mut ring), Done::Buffer(buffer, 5));
        assert_eq!(ring.bytes(buffer).unwrap().get(..5), Some(&b"hello"[..]));
    }

    #[test]
    fn a_chain_is_carried_out_in_order_and_a_cancelled_one_tells_what_it_moved() {
        let Some(mut ring) = ring() else { return };
        let (near, mut far) = pair();
        let buffers: Vec<usize> =
            (b'a'..=b'd').map(|letter| ring.keep(vec![letter; 4 << 20].into())).collect();
        for (place, buffer) in buffers.iter().enumerate() {
            ring.send(&near, *buffer, usize::MAX, place < 3).unwrap();
        }
        ring.wait().unwrap();
        // No more than the first: the second goes on only when somebody waits for the ring.
        let mut start = vec![0; 4 << 20];
        let reader = std::thread::spawn(move || {
            far.read_exact(&mut start).unwrap();
            (start, far)
        });
        assert_eq!(next(&mut ring), Done::Buffer(buffers[0], 4 << 20));
        let (start, mut far) = reader.join().unwrap();
        assert!(start.iter().all(|byte| *byte == b'a'));
        let mut moved = 4 << 20;
        ring.settle(|_, done| {
            if let Done::Buffer(_, result @ 1..) = done {
                moved += u64::from(result.unsigned_abs());
            }
        })
        .unwrap();
        drop((ring, near));
        let rest = std::io::copy(&mut far, &mut std::io::sink()).unwrap();
        assert_eq!(start.len() as u64 + rest, moved);
    }
}
