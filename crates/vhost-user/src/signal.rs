// UNSAFETY: system calls for asynchronous I/O, which no safe crate wraps; each takes only memory of its caller's stack.
//! Signals to a front end that never block, whatever the front end does with the descriptor.
//!
//! `write` to an eventfd sleeps while its counter is full, unless O_NONBLOCK is set. That flag belongs to the open file
//! description, which the front end shares and can clear at any moment; looking first (`poll`) is a race; `pwritev2` with
//! RWF_NOWAIT is not supported for eventfds (tried up to Linux 6.18), and one cannot be opened anew through `/proc`. But
//! the kernel itself signals an eventfd when asynchronous I/O completes (`IOCB_FLAG_RESFD` of io_submit(2)), and that adds
//! one or leaves a full counter as it is. So a signal is an empty read of an empty file of ours, which completes at once.
//!
//! User-mode Linux takes its interrupts from a pipe or a socket, of which every write can be made to wait (a reader holds a
//! pipe's lock while it copies). There a thread of its own writes, and is all that waits.
#![allow(unsafe_code)]

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Completions that the kernel keeps for us until they are reaped.
const COMPLETIONS: usize = 64;
/// Threads of a session that may write to pipes at a time, for each of its rings: one, and one that is about to end.
const WRITERS_PER_RING: usize = 2;
/// Threads of the process that close refused files at a time.
const CLOSERS: usize = 8;

/// Why a descriptor is not taken for signals.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignalError {
    #[error("{seen:?} was given for signals, {wanted} is served")]
    Kind { seen: String, wanted: &'static str },
    #[error("{writers} threads already wait for pipes of this front end: read what is in them")]
    Writers { writers: usize },
    #[error("a descriptor for signals: {0}")]
    Io(#[from] io::Error),
}

const EVENTFD: &str = "anon_inode:[eventfd]";

/// What the kernel calls an open file: never asks the file system, which may not answer.
fn name(fd: BorrowedFd<'_>) -> io::Result<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Whether a descriptor is an eventfd: only that can be polled and signalled without asking another process.
pub(crate) fn expect_eventfd(fd: BorrowedFd<'_>) -> Result<(), SignalError> {
    let seen = name(fd)?;
    if seen == EVENTFD { Ok(()) } else { Err(SignalError::Kind { seen, wanted: "an eventfd" }) }
}

/// Closes a file that is refused. A file system in user space may make that wait, so a thread of its own does it, of
/// [`CLOSERS`] at most: where all of them wait, the caller does too, which is the thread of the session that is to blame.
pub(crate) fn close_aside(files: impl Send + 'static) {
    static CLOSING: AtomicUsize = AtomicUsize::new(0);
    if CLOSING.fetch_add(1, Ordering::Relaxed) >= CLOSERS {
        CLOSING.fetch_sub(1, Ordering::Relaxed);
        return drop(files);
    }
    let closer = thread::Builder::new().name("vhost-close".into());
    let spawned = closer.spawn(move || {
        drop(files);
        CLOSING.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        CLOSING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor of the front end by which it is told of something.
#[derive(Debug)]
pub(crate) enum Signal {
    Event(OwnedFd),
    Pipe(PipeWriter),
}

impl Signal {
    /// Takes an eventfd, a pipe or a socket; `session` is shared by the writers of a session that has `rings` rings.
    pub(crate) fn new(fd: OwnedFd, session: &Arc<()>, rings: usize) -> Result<Signal, SignalError> {
        let seen = name(fd.as_fd())?;
        if seen == EVENTFD {
            return Ok(Signal::Event(fd));
        }
        if !seen.starts_with("pipe:[") && !seen.starts_with("socket:[") {
            close_aside(fd);
            return Err(SignalError::Kind { seen, wanted: "an eventfd, a pipe or a socket" });
        }
        let writers = Arc::strong_count(session) - 1;
        if writers >= rings * WRITERS_PER_RING {
            close_aside(fd);
            return Err(SignalError::Writers { writers });
        }
        Ok(PipeWriter::start(fd, session.clone()).map(Signal::Pipe)?)
    }

    /// Signals. One that is pending already stays one.
    #[inline]
    pub(crate) fn raise(&self) {
        match self {
            Signal::Event(fd) => signal(fd.as_fd()),
            Signal::Pipe(writer) => writer.ring_bell(),
        }
    }
}

/// A thread that writes to a pipe for others, until this is dropped.
#[derive(Debug)]
pub(crate) struct PipeWriter {
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct Bell {
    /// Known to this process alone, so nothing but 2^64 signals can fill it.
    events: OwnedFd,
    ended: AtomicBool,
}

impl PipeWriter {
    fn start(pipe: OwnedFd, session: Arc<()>) -> io::Result<PipeWriter> {
        // A full pipe is readable already. Where the front end clears this, only the writer waits.
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        let events = eventfd(0, EventfdFlags::CLOEXEC)?;
        let bell = Arc::new(Bell { events, ended: AtomicBool::new(false) });
        let heard = bell.clone();
        thread::Builder::new().name("vhost-pipe".into()).spawn(move || {
            // The pipe goes before the count: closing it may block for as long as the front end likes.
            let (_session, pipe) = (session, pipe);
            write_each(&heard, &pipe);
        })?;
        Ok(PipeWriter { bell })
    }

    fn ring_bell(&self) {
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

fn write_each(bell: &Bell, pipe: &OwnedFd) {
    loop {
        let _ = rustix::io::read(&bell.events, &mut [0; 8]);
        if bell.ended.load(Ordering::Acquire) {
            return;
        }
        let _ = rustix::io::write(pipe, &1u64.to_ne_bytes());
    }
}

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

/// Makes sure that eventfds can be signalled; called before a front end can give us any.
pub(crate) fn prepare() -> io::Result<()> {
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

    /// `false`: too many completions were not reaped.
    #[inline]
    fn signal(&self, event: BorrowedFd<'_>) -> bool {
        let mut block = ControlBlock {
            file: self.file.as_raw_fd().cast_unsigned(),
            flags: 1,
            event: event.as_raw_fd().cast_unsigned(),
            ..ControlBlock::default()
        };
        let list = [&raw mut block];
        // SAFETY: the kernel reads the list and the block and writes the block's key, all before it returns; the read
        // of no bytes touches no buffer.
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

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Adds one to an eventfd, or leaves a full one as it is.
fn signal(event: BorrowedFd<'_>) {
    let Some(context) = CONTEXT.get() else { return };
    // Every failure but a full list of completions is the front end's; a list that was just emptied is not full.
    if !context.signal(event) {
        context.reap();
        context.signal(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    /// A blocking eventfd of a front end.
    fn event(count: u64) -> (Signal, OwnedFd) {
        prepare().unwrap();
        let ours = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        if count > 0 {
            rustix::io::write(&ours, &count.to_ne_bytes()).unwrap();
        }
        let theirs = ours.try_clone().unwrap();
        (Signal::new(ours, &Arc::default(), 2).unwrap(), theirs)
    }

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn signals_are_counted_many_more_than_completions() {
        let (signal, theirs) = event(0);
        let many = 10 * COMPLETIONS as u64;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..many).for_each(|_| signal.raise()));
            }
        });
        assert_eq!(count(&theirs), 2 * many);
    }

    /// A plain write sleeps for ever here, and the test with it.
    #[test]
    fn a_full_blocking_eventfd_does_not_stop_the_one_that_signals() {
        let (signal, theirs) = event(u64::MAX - 1);
        for _ in 0..3 {
            signal.raise();
        }
        assert!(count(&theirs) >= u64::MAX - 1);
        signal.raise();
        assert_eq!(count(&theirs), 1);
    }

    #[test]
    fn a_full_pipe_does_not_stop_the_one_that_signals() {
        let (reader, writer) = pipe().unwrap();
        let session = Arc::default();
        let theirs = writer.try_clone().unwrap();
        let signal = Signal::new(writer, &session, 1).unwrap();
        signal.raise();
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(8));
        // Full, and blocking again.
        while rustix::io::write(&theirs, &[0; 4096]).is_ok() {}
        fcntl_setfl(&theirs, OFlags::WRONLY).unwrap();
        for _ in 0..100 {
            signal.raise();
        }
        // The thread ends with the reader.
        drop((signal, reader));
        let end = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&session) > 1 {
            assert!(Instant::now() < end, "the writer of a pipe has not ended");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What `os_pipe` of user-mode Linux makes.
    #[test]
    fn a_socket_is_signalled_too() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let signal = Signal::new(ours.into(), &Arc::default(), 1).unwrap();
        signal.raise();
        let mut bytes = [0; 8];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 1);
    }

    #[test]
    fn writers_that_wait_are_limited() {
        let session = Arc::default();
        let signals: Vec<_> = (0..WRITERS_PER_RING)
            .map(|_| Signal::new(pipe().unwrap().1, &session, 1).unwrap())
            .collect();
        let error = Signal::new(pipe().unwrap().1, &session, 1).unwrap_err().to_string();
        assert!(error.starts_with("2 threads already wait"), "{error}");
        drop(signals);
    }

    #[test]
    fn nothing_else_is_taken() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(expect_eventfd(file.as_fd()).is_err());
        let error = Signal::new(file, &Arc::default(), 2).unwrap_err().to_string();
        assert!(
            error.contains("memfd:x") && error.contains("an eventfd, a pipe or a socket"),
            "{error}"
        );
    }
}
