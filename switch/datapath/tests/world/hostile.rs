//! A malicious guest, which writes its rings by hand and sends messages of any bytes.

use super::accounting::Watch;
use guestmem::Gpa;
use ports::vhost::Features;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, OFlags, fallocate, fcntl_setfl, ftruncate, memfd_create,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use test_guest::Guest;

/// Address of the indirect tables in the memory of [`Guest`]. Its driver, which would use this
/// memory, does not run.
const TABLES: u64 = 0x4000;
/// Address of the buffers.
const BUFFERS: u64 = 0x24000;
/// End of the buffers.
const BUFFERS_END: u64 = 0x11_0000;
/// Address of the control queue.
const CONTROL: u64 = 0x11_0000;
/// Address of the guest's memory in the front end's address space.
const USER: u64 = 0x7000_0000_0000;
/// Descriptors of each ring.
const SIZE: u16 = 256;
/// Address and number of the indirect tables of a guest with more memory.
const MORE_TABLES: (u64, u64) = (0x80_0000, 128);
/// Start and end of the memory that nobody has touched.
const SPARSE: u64 = 0x100_0000;
const SPARSE_END: u64 = 0x4000_0000;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Pages of it that are touched before they are given back.
const MOST_TOUCHED: usize = 1 << 15;
/// Entries of the largest table.
const TABLE: usize = 1024;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A range of the guest's memory.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) gpa: u64,
    pub(crate) len: u32,
}

pub(crate) struct Hostile {
    pub(crate) guest: Guest,
    packed: bool,
    /// Descriptors written so far, modulo two laps of the ring.
    slot: u16,
    /// Chains made available so far, in a split ring.
    available: u16,
    /// Address and number of the indirect tables, and the next one.
    tables: (u64, u64),
    table: u64,
    buffer: u64,
    sparse: u64,
    touched: usize,
    /// Whether messages and replies may no longer correspond.
    pub(crate) incoherent: bool,
}

impl Hostile {
    pub(crate) fn new(guest: Guest) -> Hostile {
        let packed = guest.features() & Features::RING_PACKED.bits() != 0;
        let (table, buffer) = (0, BUFFERS);
        let (sparse, touched) = (SPARSE, 0);
        let has_more = guest.memory().bytes() >= SPARSE_END;
        let tables = if has_more { MORE_TABLES } else { (TABLES, 8) };
        Hostile {
            guest,
            packed,
            slot: 0,
            available: 0,
            tables,
            table,
            buffer,
            sparse,
            touched,
            incoherent: false,
        }
    }

    /// Returns the address of the sending ring.
    fn start(&self) -> u64 {
        self.guest.rings(1).map_or(0, |rings| rings.descriptors.0)
    }

    fn write(&self, gpa: u64, bytes: &[u8]) {
        self.guest.memory().write(Gpa(gpa), bytes);
    }

    fn word(&self, gpa: u64) -> u16 {
        let mut bytes = [0; 2];
        self.guest.memory().read(Gpa(gpa), &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// Copies bytes to memory that no recent frame uses. Returns their range.
    pub(crate) fn place(&mut self, bytes: &[u8]) -> Range {
        let len = (bytes.len() as u64).next_multiple_of(64);
        if self.buffer + len > BUFFERS_END {
            self.buffer = BUFFERS;
        }
        let gpa = self.start() + self.buffer;
        self.buffer += len;
        self.write(gpa, bytes);
        Range { gpa, len: bytes.len() as u32 }
    }

    /// Returns pieces of so many bytes, each so many pages behind the one before, in memory that was
    /// never touched, or given back.
    pub(crate) fn untouched(&mut self, pieces: usize, pages: u64, len: u32) -> Vec<Range> {
        if self.touched + pieces > MOST_TOUCHED {
            self.give_back();
        }
        self.touched += pieces;
        let piece = |_| {
            let gpa = self.sparse;
            self.sparse += pages * PAGE;
            if self.sparse >= SPARSE_END {
                self.sparse = SPARSE;
            }
            Range { gpa, len }
        };
        (0..pieces).map(piece).collect()
    }

    /// Gives the memory that was touched back to the kernel.
    fn give_back(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(self.guest.memory_file(), flags, SPARSE, SPARSE_END - SPARSE);
        self.touched = 0;
    }

    /// Gives the switch the same memory anew, so that it finds each page anew.
    pub(crate) fn map_anew(&mut self) {
        if let Ok(file) = self.guest.memory_file().try_clone() {
            let _ = self.give_memory(file.as_fd());
        }
    }

    /// Sends a memory table of one region with this file. Returns the answer.
    fn give_memory(&mut self, file: BorrowedFd<'_>) -> Option<u64> {
        let region = [0, self.guest.memory().bytes(), USER, 0].map(u64::to_le_bytes);
        let payload = [&1_u64.to_le_bytes()[..], region.as_flattened()].concat();
        self.ask(5, &payload, &[file])
    }

    /// Makes a chain of ranges available in the sending ring.
    pub(crate) fn send(&mut self, ranges: &[Range], indirect: bool) {
        let ranges = ranges.get(..TABLE).unwrap_or(ranges);
        let descriptors: Vec<(Range, u16)> = if indirect || ranges.len() > 64 {
            vec![(self.fill_table(ranges), INDIRECT)]
        } else {
            let last = ranges.len().saturating_sub(1);
            let flag = |place| if place < last { NEXT } else { 0 };
            ranges.iter().enumerate().map(|(place, range)| (*range, flag(place))).collect()
        };
        match self.packed {
            true => self.put_packed(&descriptors),
            false => self.put_split(&descriptors),
        }
    }

    fn fill_table(&mut self, ranges: &[Range]) -> Range {
        let gpa = self.start() + self.tables.0 + self.table * 16 * TABLE as u64;
        self.table = (self.table + 1) % self.tables.1;
        self.write(gpa, &table(ranges, 0, self.packed));
        Range { gpa, len: 16 * ranges.len() as u32 }
    }

    fn put_split(&mut self, descriptors: &[(Range, u16)]) {
        let start = self.start();
        let head = self.slot % SIZE;
        for (range, flags) in descriptors {
            let next = (self.slot + 1) % SIZE;
            let place = start + 16 * u64::from(self.slot % SIZE);
            self.write(place, &descriptor(*range, *flags, next));
            self.slot = next;
        }
        let driver = self.guest.rings(1).map_or(0, |rings| rings.driver.0);
        self.write(driver + 4 + 2 * u64::from(self.available % SIZE), &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.write(driver + 2, &self.available.to_le_bytes());
    }

    fn put_packed(&mut self, descriptors: &[(Range, u16)]) {
        let first = self.slot;
        for (place, (range, flags)) in descriptors.iter().enumerate().rev() {
            let slot = (first + place as u16) % (2 * SIZE);
            let available = if slot < SIZE { 1 << 7 } else { 1 << 15 };
            let at = self.start() + 16 * u64::from(slot % SIZE);
            self.write(at, &entry(*range, place as u16, flags | available));
        }
        self.slot = (first + descriptors.len() as u16) % (2 * SIZE);
    }

    /// Makes every descriptor of the receiving ring an indirect table of small buffers, and makes
    /// all available. Split rings only.
    pub(crate) fn receive_in_pieces(&mut self, pieces: u16, bytes: u8) {
        let Some(rings) = self.guest.rings(0).filter(|_| !self.packed) else { return };
        let (pieces, len) = (usize::from(pieces % 1024) + 1, u32::from(bytes % 32) + 1);
        let ranges = vec![Range { gpa: rings.descriptors.0 + BUFFERS, len }; pieces];
        let gpa = rings.descriptors.0 + TABLES;
        self.write(gpa, &table(&ranges, WRITE, false));
        let whole = Range { gpa, len: 16 * pieces as u32 };
        for head in 0..SIZE {
            self.write(rings.descriptors.0 + 16 * u64::from(head), &descriptor(whole, INDIRECT, 0));
        }
        let available = self.word(rings.device.0 + 2).wrapping_add(SIZE);
        self.write(rings.driver.0 + 2, &available.to_le_bytes());
    }

    /// Sends a message's header and payload, with file descriptors.
    pub(crate) fn say(
        &self,
        request: u32,
        need_reply: bool,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) {
        let flags = 1 | if need_reply { 8 } else { 0 };
        let words = [request, flags, payload.len() as u32].map(u32::to_le_bytes);
        let bytes = [words.as_flattened(), payload].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(files));
        }
        // Does not wait for a switch that reads no messages.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = sendmsg(self.guest.connection(), &[IoSlice::new(&bytes)], &mut ancillary, flags);
    }

    /// Like `say`, with descriptors of a memory file.
    pub(crate) fn say_anything(
        &self,
        request: u32,
        need_reply: bool,
        payload: &[u8],
        files: usize,
    ) {
        let Ok(file) = memfd_create("attack", MemfdFlags::CLOEXEC) else { return };
        let _ = ftruncate(&file, 1 << 20);
        self.say(request, need_reply, payload, &vec![file.as_fd(); files]);
    }

    /// Sends a message, and waits for the reply. All earlier messages have been handled then.
    /// Returns the first 64 bits of the reply; `None` if the connection was closed, or replies no
    /// longer belong to messages.
    pub(crate) fn ask(
        &mut self,
        request: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Option<u64> {
        if self.incoherent {
            return None;
        }
        self.say(request, request != 1, payload, files);
        for _ in 0..100 {
            let mut header = [0; 12];
            self.read(&mut header)?;
            let [kind, _, size] = *header.as_chunks::<4>().0 else { return None };
            let mut reply = vec![0; u32::from_le_bytes(size).min(4096) as usize];
            self.read(&mut reply)?;
            if u32::from_le_bytes(kind) == request {
                return reply.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            }
        }
        None
    }

    fn read(&mut self, bytes: &mut [u8]) -> Option<()> {
        let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
        let mut done = 0;
        while done < bytes.len() {
            let fd = self.guest.connection();
            let ready = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&patience));
            assert!(ready != Ok(0), "FINDING (service): the session does not answer its front end");
            let count =
                self.guest.connection().read(&mut bytes[done..]).ok().filter(|count| *count > 0);
            let Some(count) = count else {
                self.incoherent = true;
                return None;
            };
            done += count;
        }
        Some(())
    }

    /// Waits until the switch has handled all messages.
    pub(crate) fn settle(&mut self) {
        let _ = self.ask(1, &[], &[]);
    }

    /// Sets a full eventfd for a ring's notifications, which blocks at a write. With `late` it
    /// becomes blocking only afterwards.
    pub(crate) fn give_full_eventfd(&mut self, request: u32, ring: u64, late: bool, watch: &Watch) {
        let flags = if late { EventfdFlags::NONBLOCK } else { EventfdFlags::empty() };
        let Ok(fd) = eventfd(0, flags | EventfdFlags::CLOEXEC) else { return };
        if let Ok(copy) = fd.try_clone() {
            watch.rescue_by(copy);
        }
        let fill = |fd: &OwnedFd| rustix::io::write(fd, &(u64::MAX - 1).to_ne_bytes());
        if !late {
            let _ = fill(&fd);
        }
        self.say(request, false, &ring.to_le_bytes(), &[fd.as_fd()]);
        if late {
            self.settle();
            // A signal may have arrived meanwhile.
            let _ = rustix::io::read(&fd, &mut [0; 8]);
            let _ = fill(&fd);
            let _ = fcntl_setfl(&fd, OFlags::empty());
        }
    }

    /// Whether the switch accepts a memory table with a file on a disk.
    pub(crate) fn memory_on_disk(&mut self) -> Option<bool> {
        let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).ok()?;
        const TMPFS: i64 = 0x0102_1994;
        let kind = rustix::fs::fstatfs(&file).ok()?.f_type;
        if kind == TMPFS {
            return None;
        }
        file.set_len(self.guest.memory().bytes()).ok()?;
        Some(self.give_memory(file.as_fd()) == Some(0))
    }

    /// Starts a control queue, and a thread that refills it until the returned value is dropped.
    /// Split rings only.
    pub(crate) fn start_control(&mut self) -> Option<Refill> {
        if self.packed || self.incoherent {
            return None;
        }
        let number = |value: u32| [2_u32.to_le_bytes(), value.to_le_bytes()].concat();
        // Stops a control queue that was started before.
        self.ask(11, &number(0), &[])?;
        let start = self.start() + CONTROL;
        self.write(start, &[0; 0x4000]);
        let (data, answer) = (start + 0x3000, start + 0x3100);
        self.write(data, &[0, 0, 1]);
        self.write(start, &descriptor(Range { gpa: data, len: 3 }, NEXT, 1));
        self.write(start + 16, &descriptor(Range { gpa: answer, len: 1 }, WRITE, 0));
        let (driver, device) = (start + 0x1000, start + 0x2000);
        let kick = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?);
        let places = [start, device, driver, 0].map(|gpa| (USER + gpa).to_le_bytes());
        self.say(8, false, &number(SIZE.into()), &[]);
        self.say(9, false, &[&number(0), places.as_flattened()].concat(), &[]);
        self.say(10, false, &number(0), &[]);
        self.say(18, false, &number(1), &[]);
        self.say(12, false, &2_u64.to_le_bytes(), &[(*kick).as_fd()]);
        self.ask(1, &[], &[])?;
        let memory = self.guest.memory().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let pause = Arc::new(AtomicBool::new(false));
        let (stopped, paused) = (stop.clone(), pause.clone());
        let served = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counted = served.clone();
        let thread = std::thread::spawn(move || {
            let (mut used, mut last) = ([0; 2], 0_u16);
            while !stopped.load(Ordering::Acquire) {
                memory.read(Gpa(device + 2), &mut used);
                let now = u16::from_le_bytes(used);
                counted.fetch_add(now.wrapping_sub(last).into(), Ordering::AcqRel);
                if now == last {
                    let _ = rustix::io::write(&*kick, &1_u64.to_ne_bytes());
                }
                last = now;
                if paused.load(Ordering::Acquire) {
                    std::thread::yield_now();
                    continue;
                }
                memory.write(Gpa(driver + 2), &now.wrapping_add(SIZE).to_le_bytes());
            }
        });
        Some(Refill { stop, pause, served, thread: Some(thread) })
    }
}

/// The thread that refills a control queue.
pub(crate) struct Refill {
    pub(crate) stop: Arc<AtomicBool>,
    /// Whether refilling pauses, so that the queue runs empty.
    pub(crate) pause: Arc<AtomicBool>,
    pub(crate) served: Arc<std::sync::atomic::AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Refill {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns a descriptor of a split ring.
fn descriptor(range: Range, flags: u16, next: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&range.gpa.to_le_bytes());
    bytes[8..12].copy_from_slice(&range.len.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// Returns a descriptor of a packed ring.
fn entry(range: Range, id: u16, flags: u16) -> [u8; 16] {
    descriptor(range, id, flags)
}

/// Returns a table of descriptors in either format.
fn table(ranges: &[Range], flags: u16, packed: bool) -> Vec<u8> {
    let last = ranges.len() - 1;
    let line = |(place, range): (usize, &Range)| match packed {
        true => entry(*range, 0, flags),
        false if place < last => descriptor(*range, flags | NEXT, place as u16 + 1),
        false => descriptor(*range, flags, 0),
    };
    ranges.iter().enumerate().flat_map(line).collect()
}
