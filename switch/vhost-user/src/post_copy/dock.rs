// UNSAFETY: starts processes by `fork`, from a process of one thread.
//! A process that starts ferries for the daemon, which starts no process itself once it has
//! restricted itself.
//!
//! The daemon starts it early ([`start`]), and sends it one end of a link for each ferry. It stores
//! nothing of guests, so a ferry begins with nothing but that link. It ends when the daemon's end
//! of their socket closes, and all ferries with it.
#![allow(unsafe_code)]

use super::ferry::Ferry;
use super::link::Link;
use super::{faults, handle};
use crate::carrier::Writer;
use crate::lock::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};
use rustix::thread::set_name;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long a dock or a ferry may take to begin.
const BEGIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// How long to wait for a dismissed dock.
const FAREWELL: Duration = Duration::from_secs(1);

/// The dock of this process; `None`: there is none, and no post-copy.
static DOCK: Mutex<Option<Dock>> = Mutex::new(None);

struct Dock {
    link: Link,
    process: Child,
}

/// Starts a dock by a command that calls [`serve`] with its standard input. From then on sessions of
/// this process offer post-copy.
///
/// # Errors
/// The command cannot be started, or the kernel does not allow it to hear of missing pages.
pub fn start(mut command: Command) -> io::Result<()> {
    let (ours, its) = Link::pair()?;
    let process = command.stdin(Stdio::from(its.into_socket())).stdout(Stdio::null()).spawn()?;
    let dock = Dock { link: ours, process };
    let mut polled = [PollFd::new(&dock.link, PollFlags::IN)];
    while let Err(Errno::INTR) = poll(&mut polled, Some(&BEGIN)) {}
    let is_ready = !polled[0].revents().is_empty();
    let begun = is_ready.then(|| dock.link.receive()).transpose()?.flatten();
    let refused = match begun.map(|mut begun| begun.number()) {
        Some(Ok(0)) => {
            *lock(&DOCK) = Some(dock);
            return Ok(());
        }
        Some(Ok(error)) => io::Error::from_raw_os_error(error),
        _ => io::Error::other("its process does not answer"),
    };
    dock.end(Duration::ZERO);
    Err(refused)
}

/// Ends the dock, if there is one, and waits for its end.
pub fn end() {
    let dock = lock(&DOCK).take();
    dock.into_iter().for_each(|dock| dock.end(FAREWELL));
}

/// Whether post-copy can be offered.
pub(crate) fn is_there() -> bool {
    lock(&DOCK).is_some()
}

/// Starts a ferry. Returns the session's hold on it, and the userfaultfd for the front end. `stop`
/// can be read when the session has to end.
pub(crate) fn ferry(stop: OwnedFd) -> io::Result<(handle::Ferry, OwnedFd)> {
    let (ours, its) = Link::pair()?;
    lock(&DOCK).as_ref().ok_or(io::ErrorKind::NotFound)?.link.pass(its.as_fd())?;
    drop(its);
    let lacking = || io::Error::other("no process that waits for pages could be started");
    if !ours.is_ready(&stop, &BEGIN) {
        return Err(lacking());
    }
    let mut hello = ours.receive()?.ok_or_else(lacking)?;
    let said = hello.number().map_err(io::Error::other)?;
    if said != 0i32 {
        return Err(io::Error::from_raw_os_error(said));
    }
    let faults = hello.file().map_err(io::Error::other)?;
    Ok((handle::Ferry::new(ours, stop), faults))
}

impl Dock {
    /// Closes its link, which ends it, and waits so long for the end.
    fn end(self, timeout: Duration) {
        let Dock { link, mut process } = self;
        drop(link);
        let start = Instant::now();
        while matches!(process.try_wait(), Ok(None)) && start.elapsed() < timeout {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts ferries until the other end of the standard input closes. The calling process has one
/// thread. `restrict` gives up what a ferry does not need, in the ferry.
///
/// # Errors
/// The standard input is no link.
pub fn serve(restrict: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let link = Link::of(io::stdin().as_fd().try_clone_to_owned()?);
    let can_hear = faults::make();
    hello(&link, can_hear.as_ref().err())?;
    can_hear?;
    // SAFETY: the kernel collects the processes that end; no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut ferries = Vec::new();
    loop {
        let is_asked = wait(&link, &mut ferries);
        if !is_asked {
            continue;
        }
        let Some(its) = link.take()? else { return Ok(()) };
        // SAFETY: this process has one thread, so no lock is held in the new one.
        match unsafe { libc::fork() } {
            0 => {
                // Those of other sessions.
                drop(ferries);
                drop(link);
                sail(its, &restrict);
            }
            -1 => {
                let error = io::Error::last_os_error();
                // The session may have ended meanwhile.
                let _ = hello(&Link::of(its), Some(&error));
            }
            process => ferries.extend(Started::new(process, its)),
        }
    }
}

/// A ferry that was started. It has power over itself, or its front end has, so it is not asked to
/// end.
struct Started {
    /// Its end of its session's link.
    link: OwnedFd,
    process: OwnedFd,
}

impl Started {
    /// Returns `None` if it has ended already.
    fn new(process: libc::pid_t, link: OwnedFd) -> Option<Started> {
        let process = pidfd_open(Pid::from_raw(process)?, PidfdFlags::empty()).ok()?;
        Some(Started { link, process })
    }
}

/// Waits for the daemon, and ends ferries whose sessions have closed their links. Returns whether
/// the daemon has sent something, or has ended.
fn wait(link: &Link, ferries: &mut Vec<Started>) -> bool {
    let mut polled = vec![PollFd::new(link, PollFlags::IN)];
    for Started { link, process } in &*ferries {
        // Its messages are not read here: that its other end was closed is always told.
        polled.push(PollFd::new(link, PollFlags::empty()));
        polled.push(PollFd::new(process, PollFlags::IN));
    }
    let _ = poll(&mut polled, None);
    let is_told: Vec<_> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
    let (own, theirs) = is_told.split_first().unwrap_or((&true, &[]));
    let mut is_over = theirs.chunks(2).map(|told| told.contains(&true));
    for ended in ferries.extract_if(.., |_| is_over.next() == Some(true)) {
        let _ = pidfd_send_signal(&ended.process, Signal::KILL);
    }
    *own
}

fn hello(link: &Link, error: Option<&io::Error>) -> io::Result<()> {
    let number = error.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    let mut hello = Writer::default();
    hello.number(u64::from(number.unsigned_abs()));
    link.send(hello)
}

/// Is a ferry, to its end.
fn sail(its: OwnedFd, restrict: impl Fn() -> io::Result<()>) -> ! {
    let link = Link::of(its);
    let done = begin(&link, restrict).and_then(|ferry| ferry.serve(&link));
    if let Err(error) = done {
        let _ = hello(&link, Some(&error));
    }
    // SAFETY: ends this process, without what the process that it was forked from would do.
    unsafe { libc::_exit(0) }
}

fn begin(link: &Link, restrict: impl Fn() -> io::Result<()>) -> io::Result<Ferry> {
    // The dock's standard input is its link to the daemon.
    rustix::stdio::dup2_stdin(link)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let _ = set_name(c"millrace-ferry");
    let faults = faults::make()?;
    restrict()?;
    end_with(link.as_fd().try_clone_to_owned()?)?;
    // The front end may have power over this process from here on.
    Ferry::begin(link, faults)
}

/// Ends this process when the other end of its link closes, on a thread of its own: the other may
/// wait for a page.
fn end_with(link: OwnedFd) -> io::Result<()> {
    let wait = move || {
        // No event is asked for: the close of the other end is always told.
        let closed = &mut [PollFd::new(&link, PollFlags::empty())];
        while let Err(Errno::INTR | Errno::NOMEM) = poll(closed, None) {}
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) }
    };
    thread::Builder::new().name("session".into()).spawn(wait).map(drop)
}
