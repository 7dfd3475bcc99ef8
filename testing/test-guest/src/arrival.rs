// UNSAFETY: system calls that no crate of ours wraps: they make a userfaultfd and fill pages of a
// guest's memory by it.
//! Memory that follows its guest: pages are copied from the guest's old memory when somebody waits
//! for them, as a virtual machine monitor does in post-copy migration.
#![allow(unsafe_code)]

use guestmem::{Gpa, GuestMemory};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

const PAGE: u64 = 4096;

/// The requests of userfaultfd(2): `API`, `REGISTER`, `WAKE`, `COPY`.
const HELLO: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const WAKE: libc::Ioctl = 0x8010_aa02_u32 as libc::Ioctl;
const COPY: libc::Ioctl = 0xc028_aa03_u32 as libc::Ioctl;

/// Pages on their way. Dropping it serves no more.
pub struct Arrival {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    old: Arc<GuestMemory>,
    new: Arc<GuestMemory>,
    /// Tells of accesses of this process, and of the back end, which has the memory at `base`.
    own: OwnedFd,
    back_ends: OwnedFd,
    base: u64,
    stop: OwnedFd,
    is_held: AtomicBool,
    /// How often the back end waited for a page.
    asked: AtomicU64,
    /// Pages that are withheld, by their offsets.
    held: Mutex<BTreeSet<u64>>,
}

/// Accesses of this process to the guest's new memory that wait for missing pages.
pub(crate) fn watch(new: &GuestMemory) -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | 1;
    // SAFETY: the call takes flags, and returns a descriptor that it has just made.
    let own = unsafe {
        let made = libc::syscall(libc::SYS_userfaultfd, flags);
        let number = i32::try_from(made).ok().filter(|number| *number >= 0);
        OwnedFd::from_raw_fd(number.ok_or_else(io::Error::last_os_error)?)
    };
    request(&own, HELLO, &mut [0xaa, 1 << 5, 0])?;
    request(&own, REGISTER, &mut [start(new), new.bytes(), 1, 0])?;
    Ok(own)
}

fn request<const WORDS: usize>(
    fd: &OwnedFd,
    number: libc::Ioctl,
    words: &mut [u64; WORDS],
) -> io::Result<()> {
    // SAFETY: the words are the structure of the request.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number, words.as_mut_ptr()) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn start(memory: &GuestMemory) -> u64 {
    memory.translate(Gpa(0), 1).expect("memory from address 0 on").addr().get() as u64
}

impl Arrival {
    pub(crate) fn serve(
        [old, new]: [Arc<GuestMemory>; 2],
        [own, back_ends]: [OwnedFd; 2],
        base: u64,
    ) -> io::Result<Arrival> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (is_held, asked, held) = Default::default();
        let shared = Shared { old, new, own, back_ends, base, stop, is_held, asked, held };
        let shared = Arc::new(shared);
        let serving = shared.clone();
        let thread = thread::spawn(move || serving.serve());
        Ok(Arrival { shared, thread: Some(thread) })
    }

    /// Returns how often the back end waited for a page.
    pub fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Withholds the pages for which the back end waits, or sends those that were withheld.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.store(is_held, Ordering::SeqCst);
        if !is_held {
            let held = std::mem::take(&mut *self.held());
            held.into_iter().for_each(|page| self.shared.send(page));
        }
    }

    /// Returns how many pages are withheld for which the back end waits.
    pub fn waiting(&self) -> usize {
        self.held().len()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.shared.held.lock().expect("no test has failed in it")
    }

    /// Sends all pages.
    pub fn finish(&self) {
        (0..self.shared.new.bytes()).step_by(4096).for_each(|page| self.shared.send(page));
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let fds = [&self.stop, &self.own, &self.back_ends];
            let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::IN));
            let _ = poll(&mut polled, None);
            let [stop, own, back_ends] = polled.map(|fd| !fd.revents().is_empty());
            if stop {
                return;
            }
            if own {
                let start = start(&self.new);
                access(&self.own).into_iter().for_each(|at| self.send((at - start) & !(PAGE - 1)));
            }
            if back_ends {
                access(&self.back_ends).into_iter().for_each(|at| self.answer(at));
            }
        }
    }

    fn answer(&self, address: u64) {
        let page = (address - self.base) & !(PAGE - 1);
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut held = self.held.lock().expect("no test has failed in it");
        if self.is_held.load(Ordering::SeqCst) {
            held.insert(page);
            return;
        }
        drop(held);
        self.send(page);
    }

    /// Puts a page into its place, unless it is there, and wakes who waits for it.
    fn send(&self, page: u64) {
        let [to, from] = [&self.new, &self.old].map(|memory| start(memory) + page);
        let copied = request(&self.own, COPY, &mut [to, from, PAGE, 0, 0]);
        if let Err(error) = copied {
            assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "page {page:#x}: {error}");
            let _ = request(&self.own, WAKE, &mut [to, PAGE]);
        }
        let _ = request(&self.back_ends, WAKE, &mut [self.base + page, PAGE]);
    }
}

/// Returns the address of the next access that waits.
fn access(fd: &OwnedFd) -> Option<u64> {
    let mut message = [0u8; 32];
    let read = rustix::io::read(fd, &mut message).ok()?;
    // The event, 0x12 for a page fault, and behind its flags the address.
    let address = message.get(16..24)?.first_chunk().copied().map(u64::from_ne_bytes);
    address.filter(|_| read == message.len() && message[0] == 0x12)
}
