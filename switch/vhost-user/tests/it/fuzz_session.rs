//! Fuzz target: whatever a record of a session says, the session goes on or its front end is cut
//! off, and the port serves the next one.
//!
//! The record is a true one with some of its numbers changed and its descriptors in another order,
//! some twice, some left out, some a full socket: random numbers alone would end at the first.
//! `cargo test` runs it for a moment, `fuzz/run` under libFuzzer for as long as it is told.

use crate::support::options;
use bolero::TypeGenerator;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use test_guest::Guest;
use vhost_user::{Features, Inherited, Options, Session, State};
use virtqueue::Limit;

/// Most bytes of memory.
const LIMIT: u64 = 1 << 30;

/// What is done to a record.
#[derive(Debug, TypeGenerator)]
enum Change {
    /// A number of it is another one.
    Number(u8, u64),
    /// A number of it is a little more.
    More(u8, u8),
    /// A number of it is left out.
    Without(u8),
    /// A descriptor is another one of it.
    File(u8, u8),
    /// It has no more than so many descriptors.
    Files(u8),
}

/// A true record, and what keeps it true.
struct Record {
    numbers: Vec<u64>,
    files: Vec<OwnedFd>,
    /// A full socket, which a descriptor may be instead.
    full: UnixStream,
    /// The full socket's other end, the guest, which has not gone, and its end of the channel.
    _kept: (UnixStream, Guest, UnixStream),
}

impl Record {
    /// Returns the record of a running guest.
    fn of_guest(socket: &Path, features: Features) -> Record {
        let before = threads();
        let mut session = Session::open(options(socket, 1)).unwrap();
        let mut guest = Guest::connect(socket, features.bits(), 1).unwrap();
        guest.log(0).unwrap();
        let channel = guest.give_channel().unwrap();
        session.suspend();
        let carrier = session.suspended(Instant::now() + Duration::from_secs(10)).unwrap();
        drop(session);
        settle(before);
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let seen = recvmsg(&carrier, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let numbers = bytes[..seen.unwrap().bytes].as_chunks::<8>().0;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let [full, other] = full_socket();
        Record { numbers, files, full, _kept: (other, guest, channel) }
    }

    /// Clears O_NONBLOCK of the full socket, which the session may have set: all descriptors of the
    /// socket share the flag.
    fn clear_nonblock(&self) {
        self.full.set_nonblocking(false).unwrap();
    }

    fn carrier(&self, changes: &[Change]) -> OwnedFd {
        let mut numbers = self.numbers.clone();
        let mut files: Vec<BorrowedFd<'_>> = self.files.iter().map(OwnedFd::as_fd).collect();
        for change in changes {
            let place = |number: &u8, all: usize| usize::from(*number) % all.max(1);
            match change {
                Change::Number(at, number) => numbers[place(at, self.numbers.len())] = *number,
                Change::More(at, more) => {
                    let number = &mut numbers[place(at, self.numbers.len())];
                    *number = number.wrapping_add((*more).into());
                }
                Change::Without(_) if numbers.len() < self.numbers.len() => {}
                Change::Without(at) => drop(numbers.remove(place(at, numbers.len()))),
                Change::File(at, other) if !files.is_empty() => {
                    let other = place(other, self.files.len() + 1);
                    let other = self.files.get(other).map_or(self.full.as_fd(), OwnedFd::as_fd);
                    let at = place(at, files.len());
                    files[at] = other;
                }
                Change::File(..) => {}
                Change::Files(count) => files.truncate((*count).into()),
            }
            numbers.resize(self.numbers.len().max(numbers.len()), 0);
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let flags = SocketFlags::CLOEXEC;
        let (write, read) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(&write, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
        read
    }
}

/// Returns a socket without room, and its other end.
fn full_socket() -> [UnixStream; 2] {
    let (full, other) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while (&full).write(&[0; 4096]).is_ok() {}
    [full, other]
}

/// A worker's look at the rings.
fn serve(session: &Session) {
    let (receive, send) = session.pair(0).unwrap();
    if let Some(mut running) = send.borrow() {
        let _ = running.queue.take(Limit { chains: 64, bytes: usize::MAX });
        running.queue.complete(usize::MAX);
        send.give_back(running);
    }
    receive.with(|running| running.queue.room(64));
}

/// Threads of this process. They are not told apart by name: a new one has its parent's until it
/// sets its own.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits until there are no more threads than `before` the session: none of those that end a
/// session and close its files may stay, and what one holds while it ends is a leak to the
/// sanitizer.
fn settle(before: usize) {
    let until = Instant::now() + Duration::from_secs(10);
    while threads() > before {
        assert!(Instant::now() < until, "{} threads, and {before} before", threads());
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn fuzz_session() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let split = Features::VERSION_1 | Features::EVENT_IDX;
    let records =
        [split, split | Features::RING_PACKED].map(|features| Record::of_guest(&socket, features));
    // Whether the session goes on; none: on a busy machine that was not decided in the time for
    // which a session is waited for.
    let try_one = |packed: bool, changes: &[Change]| {
        let before = threads();
        let record = &records[usize::from(packed)];
        let session = Some(record.carrier(changes));
        let inherited = Inherited { listener: None, session };
        let wanted = Options { memory_limit: LIMIT, ..options(&socket, 1) };
        let began = Instant::now();
        let mut session = Session::open_with(wanted, inherited).unwrap();
        let is_decided = began.elapsed() < Duration::from_millis(100);
        record.clear_nonblock();
        serve(&session);
        assert!(session.status().memory <= LIMIT);
        let goes_on = is_decided.then(|| session.status().state != State::Waiting);
        session.suspend();
        let again = session.suspended(Instant::now() + Duration::from_secs(10));
        assert!(
            again.is_none() || goes_on != Some(false),
            "a record of a session that there is not"
        );
        drop(session);
        settle(before);
        // Its file was left for another process.
        std::fs::remove_file(&socket).unwrap();
        goes_on
    };
    for packed in [false, true] {
        let mut tries = std::iter::repeat_with(|| try_one(packed, &[])).take(100);
        assert_eq!(tries.find_map(|goes_on| goes_on), Some(true), "a true record is refused");
    }
    // What is in the guest's memory stays from one to the next, so even a true one may be refused.
    bolero::check!().with_type::<(bool, Vec<Change>)>().for_each(|(packed, changes)| {
        try_one(*packed, changes);
    });
}
