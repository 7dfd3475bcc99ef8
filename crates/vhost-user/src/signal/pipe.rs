//! Signals by a pipe or a socket, whose writers others can make wait: a thread of its own writes.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::net::{SendFlags, send};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

/// A thread that writes to a pipe for others, until this is dropped.
#[derive(Debug)]
pub(crate) struct PipeWriter {
    bell: Arc<Bell>,
    /// The thread's, which alone closes it.
    pipe: Weak<dyn AsFd + Send + Sync>,
}

#[derive(Debug)]
struct Bell {
    /// Known to this process alone, so nothing but 2^64 signals can fill it.
    events: OwnedFd,
    ended: AtomicBool,
}

impl PipeWriter {
    /// `counted` is kept until the pipe is closed.
    pub(super) fn start(
        pipe: impl AsFd + Send + Sync + 'static,
        counted: Arc<()>,
    ) -> io::Result<PipeWriter> {
        // For kernels that refuse RWF_NOWAIT for pipes.
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        let events = eventfd(0, EventfdFlags::CLOEXEC)?;
        let bell = Arc::new(Bell { events, ended: AtomicBool::new(false) });
        let heard = bell.clone();
        let pipe: Arc<dyn AsFd + Send + Sync> = Arc::new(pipe);
        let kept = Arc::downgrade(&pipe);
        thread::Builder::new().name("vhost-pipe".into()).spawn(move || {
            // The pipe goes before the count: closing it may block for as long as the front end likes.
            let (_counted, pipe) = (counted, pipe);
            write_each(&heard, pipe.as_fd());
        })?;
        Ok(PipeWriter { bell, pipe: kept })
    }

    /// Another descriptor of the pipe.
    pub(super) fn try_clone_pipe(&self) -> io::Result<OwnedFd> {
        // The thread has it until this is dropped.
        let pipe = self.pipe.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        pipe.as_fd().try_clone_to_owned()
    }

    pub(super) fn ring_bell(&self) {
        let _ = rustix::io::write(&self.bell.events, &1u64.to_ne_bytes());
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        // Ordered before the thread's look by the system calls between.
        self.bell.ended.store(true, Ordering::Release);
        self.ring_bell();
    }
}

fn write_each(bell: &Bell, pipe: BorrowedFd<'_>) {
    loop {
        let _ = rustix::io::read(&bell.events, &mut [0; 8]);
        if bell.ended.load(Ordering::Acquire) {
            return;
        }
        let _ = write(pipe);
    }
}

/// Writes a signal, except to what is full, which is readable already.
///
/// O_NONBLOCK belongs to the open file description, so whoever shares that can clear it: the front end, or this process, if
/// the socket given for signals is the session's own. So each write asks not to wait. On kernels that refuse RWF_NOWAIT for
/// pipes it still waits if the flag was cleared.
fn write(pipe: BorrowedFd<'_>) -> rustix::io::Result<usize> {
    const HERE: u64 = u64::MAX;
    let bytes = 1u64.to_ne_bytes();
    match send(pipe, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::NOTSOCK) => {}
        sent => return sent,
    }
    match pwritev2(pipe, &[IoSlice::new(&bytes)], HERE, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => rustix::io::write(pipe, &bytes),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    /// A pipe that tells at its close how many writers are counted, itself included, and on which thread.
    struct Watched(OwnedFd, Arc<()>, Sender<(usize, Option<String>)>);

    impl AsFd for Watched {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            let thread = thread::current().name().map(str::to_owned);
            self.2.send((Arc::strong_count(&self.1) - 1, thread)).unwrap();
        }
    }

    /// The count fell first, so a front end could have as many threads wait in a close as it liked.
    #[test]
    fn a_writer_counts_until_its_pipe_is_closed() {
        let counted = Arc::new(());
        let (told, closed) = channel();
        let (_reader, writer) = pipe().unwrap();
        let watched = Watched(writer, counted.clone(), told);
        drop(PipeWriter::start(watched, counted.clone()).unwrap());
        let (writers, thread) = closed.recv_timeout(Duration::from_secs(10)).unwrap();
        // The test's own and the thread's.
        assert_eq!((writers, thread.as_deref()), (2, Some("vhost-pipe")));
    }
}
