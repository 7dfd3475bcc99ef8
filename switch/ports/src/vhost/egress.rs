//! Delivers to a guest: copies frames into the buffers it made available, and publishes them once
//! per burst.
//!
//! Several workers use a guest's ring. Under its lock they only reserve room; they copy without it,
//! because how long a copy takes is up to two guests: the pages of either may be absent. The ring
//! publishes in the order of the reservations, so frames of many pieces are gathered first: other
//! workers' frames would wait behind them.

use super::copy;
use crate::{Burst, Egress, EgressDrop, Gatherer, Nanos, Outgoing, PortFault, Room, TimeLimit};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vhost_user::{Features, GuestHash, NotLent, RingSlot, Running};
use virtqueue::{BatchNumber, ChainElement, FrameBuffers, Queue, Reserved};
use wire::parse;
use wire::vnet::{GsoType, ReportedHash};

/// Most buffers of a frame where buffers merge: 64 KiB in the smallest buffers Linux posts.
const MOST_BUFFERS: u16 = 64;

/// The egress side of a guest's queue pair. See [`Egress`].
pub struct VhostEgress {
    ring: Arc<RingSlot>,
    /// Until when a signal was held after the last delivery (nanoseconds); 0 if none was.
    signal_at: AtomicU64,
}

/// Whose memory was absent in a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The sender's: it was there when the burst was taken, and gone a moment later.
    Senders,
    /// The receiver's.
    Receivers,
}

thread_local! {
    static COPIES: RefCell<CopyList> = const { RefCell::new(CopyList::EMPTY) };
    static GATHERER: RefCell<Gatherer> = const { RefCell::new(Gatherer::EMPTY) };
}

impl VhostEgress {
    pub(super) fn new(ring: Arc<RingSlot>) -> VhostEgress {
        VhostEgress { ring, signal_at: AtomicU64::new(0) }
    }

    /// Returns until when a signal for delivered frames is held back; `None` if none is. The caller
    /// then calls [`VhostEgress::signal`].
    #[inline]
    pub fn signal_at(&self) -> Option<Nanos> {
        let at = self.signal_at.load(Relaxed);
        (at != 0).then_some(Nanos(at))
    }

    /// Sends a signal that is held back if its time has come. Returns until when one is held that is
    /// not due yet.
    pub fn signal(&self, now: Nanos) -> Option<Nanos> {
        let signal = |running: &mut Running| {
            if running.hold.is_due(now.0) {
                running.notify();
            }
            running.hold.until()
        };
        let until = self.ring.with(signal).flatten();
        self.signal_at.store(until.unwrap_or(0), Relaxed);
        until.map(Nanos)
    }

    /// Does what [`Egress::deliver`] does, in limited time: frames left then are
    /// [`EgressDrop::Late`]. Returns whose memory cost more page faults than the frames explain.
    /// With a time of now the signal to the guest may be held back, see [`VhostEgress::signal_at`].
    pub fn deliver_within(
        &self,
        now: Option<Nanos>,
        time: &TimeLimit,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Option<Absent> {
        COPIES.with_borrow_mut(|list| match frames.iter().any(Outgoing::is_scattered) {
            false => self.put_counted(list, (now, time), frames, drops),
            true => self.put_gathered(list, (now, time), frames, drops),
        })
    }

    /// Reserves room for frames, copies and publishes them. The pages that their payload may lie in
    /// are few, or were found by the burst a moment ago: what is absent is the receiver's.
    fn put_counted(
        &self,
        list: &mut CopyList,
        (now, time): (Option<Nanos>, &TimeLimit),
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Option<Absent> {
        let time = counting(time, frames, |frame| frame.payload.len());
        self.put(list, (now, &time), frames, drops);
        time.has_faulted().then_some(Absent::Receivers)
    }

    /// Reserves room for frames, copies and publishes them.
    fn put(
        &self,
        list: &mut CopyList,
        (now, time): (Option<Nanos>, &TimeLimit),
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) {
        let reason = match self.ring.begin(|running| list.reserve(running, time, frames, drops)) {
            Ok(batch) => {
                let done = list.copy(time, frames);
                let late = list.copies.get(done..).unwrap_or_default();
                self.ring.end(|running| {
                    let empty = late.iter().map(|copy| usize::from(copy.buffers)).sum();
                    let is_wanted = running.queue.end_batch_partly(batch, empty);
                    let signals = match now {
                        Some(now) => running.hold.note(done, is_wanted, now.0),
                        None => is_wanted,
                    };
                    if signals {
                        running.notify();
                    }
                    self.signal_at.store(running.hold.until().unwrap_or(0), Relaxed);
                });
                if !late.is_empty() {
                    note_late(late, drops);
                }
                return;
            }
            Err(NotLent::Idle) => EgressDrop::Down,
            Err(NotLent::Wanted) => EgressDrop::Full,
        };
        drops.extend((0..frames.len()).map(|place| (place, reason)));
    }

    #[cold]
    fn put_gathered(
        &self,
        list: &mut CopyList,
        (now, time): (Option<Nanos>, &TimeLimit),
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Option<Absent> {
        let gathering = counting(time, frames, |_| 0);
        GATHERER.with_borrow_mut(|gatherer| {
            gatherer.gather(
                frames,
                |frame| frame.is_scattered(),
                |frames| {
                    let senders = gathering.has_faulted().then_some(Absent::Senders);
                    let receivers = self.put_counted(list, (now, time), frames, drops);
                    senders.or(receivers)
                },
            )
        })
    }
}

/// Limits the page faults of delivering frames from now on, if they are limited.
#[inline]
fn counting(
    time: &TimeLimit,
    frames: &[Outgoing<'_>],
    pieces: impl Fn(&Outgoing<'_>) -> usize,
) -> TimeLimit {
    if !time.counts() {
        return *time;
    }
    let bytes = frames.iter().map(|frame| frame.len as usize).sum();
    let mut time = time.for_pages(frames.len(), bytes, frames.iter().map(pieces).sum());
    time.start_counting();
    time
}

impl Egress for VhostEgress {
    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let _ = self.deliver_within(None, &TimeLimit::NONE, frames, drops);
        Ok(())
    }

    fn room(&self) -> Option<Room> {
        let free = self.ring.with(|running| running.queue.room(Burst::FRAMES))?;
        let (buffers, bytes) = free;
        Some(Room { buffers, bytes, waiting: 0 })
    }
}

/// Frames of a burst, and where to copy them. Each thread keeps one for its allocations.
struct CopyList {
    features: Features,
    /// The hash to report, while a burst is copied.
    hash: Option<Arc<GuestHash>>,
    copies: Vec<FrameCopy>,
    /// The elements of frames with several.
    elements: Vec<ChainElement>,
}

/// Where to copy a frame.
struct FrameCopy {
    /// The only element, or the first.
    element: ChainElement,
    /// The frame's place in the list.
    place: u32,
    /// See [`FrameBuffers::buffers`].
    buffers: u16,
    /// How many elements of the list are the frame's; 0 if it has only one.
    several: u16,
}

impl CopyList {
    const EMPTY: CopyList = CopyList {
        features: Features::empty(),
        hash: None,
        copies: Vec::new(),
        elements: Vec::new(),
    };

    /// Reserves room for a burst. `None`: the guest does not want frames now.
    fn reserve(
        &mut self,
        running: &mut Running,
        time: &TimeLimit,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Option<BatchNumber> {
        let Running { queue, features, .. } = running;
        self.features = *features;
        if features.contains(Features::HASH_REPORT) {
            self.hash.clone_from(&running.hash);
        }
        self.copies.clear();
        self.elements.clear();
        if !queue.is_enabled() {
            return None;
        }
        self.copies.reserve(frames.len());
        for (place, frame) in frames.iter().enumerate() {
            // The guest's tables may be absent too.
            let found = if time.is_over_before(place) {
                Err(EgressDrop::Late)
            } else if !frame.vnet.asks_nothing() && !takes(*features, frame) {
                Err(EgressDrop::Refused)
            } else if let Some(elements) = queue.reserve_one(len(frame, *features)) {
                Ok(FrameBuffers { elements, buffers: 1 })
            } else {
                find_room(queue, frame, *features)
            };
            match found {
                Ok(room) => self.add(place, room),
                Err(EgressDrop::Refused) => drops.push((place, EgressDrop::Refused)),
                // Later frames would overtake this one.
                Err(reason) => {
                    drops.extend((place..frames.len()).map(|place| (place, reason)));
                    break;
                }
            }
        }
        Some(queue.begin_batch())
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a list has a few hundred frames")]
    fn add(&mut self, place: usize, room: FrameBuffers<'_>) {
        let (place, buffers) = (place as u32, room.buffers);
        let (element, several) = match room.elements {
            [element] => (*element, 0),
            elements => self.add_several(elements),
        };
        self.copies.push(FrameCopy { element, place, buffers, several });
    }

    #[inline(never)]
    fn add_several(&mut self, elements: &[ChainElement]) -> (ChainElement, u16) {
        self.elements.extend_from_slice(elements);
        let several = u16::try_from(elements.len());
        (elements.first().copied().unwrap_or_default(), several.unwrap_or(u16::MAX))
    }

    /// Copies the frames. Their elements are mapped for as long as the ring is lent. Returns how many
    /// were copied before the time was over.
    fn copy(&self, time: &TimeLimit, frames: &[Outgoing<'_>]) -> usize {
        if self.features.contains(Features::HASH_REPORT) {
            return self
                .copy_each(time, frames, |frame, room| self.write_hashed(frame, room, time));
        }
        self.copy_each(time, frames, |frame, room| write(frame, room, self.features, time))
    }

    /// Copies the frames by `write`, as [`CopyList::copy`] does.
    #[inline(always)]
    fn copy_each(
        &self,
        time: &TimeLimit,
        frames: &[Outgoing<'_>],
        write: impl Fn(&Outgoing<'_>, FrameBuffers<'_>) -> bool,
    ) -> usize {
        let mut others = self.elements.as_slice();
        for (number, copy) in self.copies.iter().enumerate() {
            let FrameCopy { element, place, buffers, several } = copy;
            let Some(frame) = frames.get(*place as usize) else { continue };
            let elements = match usize::from(*several) {
                0 => std::slice::from_ref(element),
                several => others.split_off(..several).unwrap_or_default(),
            };
            let room = FrameBuffers { elements, buffers: *buffers };
            if time.is_over_before(number) || !write(frame, room) {
                return number;
            }
        }
        self.copies.len()
    }
}

impl CopyList {
    /// Writes a frame with a header that reports its hash, which is that of its private bytes: they
    /// have all its headers.
    #[inline(never)]
    fn write_hashed(
        &self,
        frame: &Outgoing<'_>,
        FrameBuffers { elements, buffers }: FrameBuffers<'_>,
        time: &TimeLimit,
    ) -> bool {
        let parsed = parse(frame.header, frame.len as usize);
        let hash = self.hash.as_ref().zip(parsed);
        let hash = hash.and_then(|(hash, parsed)| hash.of(frame.header, &parsed));
        let counts = self.features.contains(Features::RSC_EXT) && frame.vnet.coalesced() > 0;
        let vnet = if counts { frame.vnet.with_rsc_info() } else { frame.vnet };
        let frame = Outgoing { vnet, ..*frame };
        copy::write_hashed(&frame, buffers, ReportedHash::new(hash), elements, time)
    }
}

/// Notes copies that were not made, so that the drops are in the order of their places.
#[cold]
fn note_late(late: &[FrameCopy], drops: &mut Vec<(usize, EgressDrop)>) {
    drops.extend(late.iter().map(|copy| (copy.place as usize, EgressDrop::Late)));
    drops.sort_unstable_by_key(|(place, _)| *place);
}

/// Returns the bytes of a frame with its header.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "10, 12 or 20")]
fn len(frame: &Outgoing<'_>, features: Features) -> u32 {
    frame.len + features.header_len() as u32
}

/// Finds room for a frame that needs more than the next known buffer.
#[inline(never)]
fn find_room<'q>(
    queue: &'q mut Queue,
    frame: &Outgoing<'_>,
    features: Features,
) -> Result<FrameBuffers<'q>, EgressDrop> {
    let buffers = if features.contains(Features::MRG_RXBUF) { MOST_BUFFERS } else { 1 };
    match queue.reserve(len(frame, features), buffers) {
        Ok(Reserved::Buffers(room)) => Ok(room),
        Ok(Reserved::TooSmall) => Err(EgressDrop::Refused),
        Ok(Reserved::Full) => Err(EgressDrop::Full),
        Err(_) => Err(EgressDrop::Down),
    }
}

/// Writes a frame, with the number of segments for a guest that counts them. Returns `false` if the
/// time was over before the end.
#[inline(always)]
fn write(
    frame: &Outgoing<'_>,
    room: FrameBuffers<'_>,
    features: Features,
    time: &TimeLimit,
) -> bool {
    if features.contains(Features::RSC_EXT) && frame.vnet.coalesced() > 0 {
        return write_counted(frame, room, features, time);
    }
    let FrameBuffers { elements, buffers } = room;
    copy::write(frame, buffers, features.header_len(), elements, time)
}

#[inline(never)]
fn write_counted(
    frame: &Outgoing<'_>,
    room: FrameBuffers<'_>,
    features: Features,
    time: &TimeLimit,
) -> bool {
    let FrameBuffers { elements, buffers } = room;
    let frame = Outgoing { vnet: frame.vnet.with_rsc_info(), ..*frame };
    copy::write(&frame, buffers, features.header_len(), elements, time)
}

/// Whether the guest takes the frame, which may have been made for its features before its last
/// reset.
#[inline(never)]
fn takes(features: Features, frame: &Outgoing<'_>) -> bool {
    features.contains(match frame.vnet.gso() {
        GsoType::None => Features::GUEST_CSUM,
        GsoType::Tcp4 => Features::GUEST_TSO4,
        GsoType::Tcp6 => Features::GUEST_TSO6,
        GsoType::UdpL4 => Features::GUEST_USO4 | Features::GUEST_USO6,
        GsoType::Unknown(_) => return false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slice;
    use crate::clock::tests::{faulting, over_at};
    use crate::vhost::{Opened, VhostOptions, open};
    use crate::{Device, EgressQueue};
    use tempfile::TempDir;
    use test_guest::Guest;
    use wire::vnet::VnetHeader;

    const FORMATS: [Features; 2] = [Features::empty(), Features::RING_PACKED];

    fn outgoing(header: &[u8]) -> Outgoing<'_> {
        let len = u32::try_from(header.len()).expect("short");
        Outgoing { vnet: VnetHeader::default(), header, payload: &[], len }
    }

    /// Returns a port of one pair, and a guest with these features at it.
    fn connected(features: Features) -> (TempDir, Opened, Guest) {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("vm");
        let opened = open(&VhostOptions::new(&path)).expect("a port");
        let wanted = Features::VERSION_1 | features;
        let guest = Guest::connect(&path, wanted.bits(), 1).expect("a guest");
        (folder, opened, guest)
    }

    /// Returns the queue of a port's only pair when it has room.
    fn queue_of(device: &Device) -> &VhostEgress {
        let egress = device.egress.first().and_then(EgressQueue::guest).expect("one queue");
        while egress.room().is_none_or(|room| room.buffers == 0) {
            std::thread::yield_now();
        }
        egress
    }

    /// A header was written past the end of a receive buffer shorter than it (CVE-2026-86566 of
    /// another back end).
    #[test]
    fn nothing_is_written_behind_a_runt_buffer() {
        const RUNT: u32 = 5;
        let each = FORMATS.map(|format| [(format, false), (format | Features::MRG_RXBUF, true)]);
        for (features, merges) in each.into_iter().flatten() {
            let (_folder, opened, guest) = connected(features);
            let egress = opened.device.egress.first().and_then(EgressQueue::guest);
            let egress = egress.expect("one queue");
            while egress.ring.with(|_| ()).is_none() {
                std::thread::yield_now();
            }
            let (memory, ring) = (guest.memory(), guest.rings(0).expect("a ring"));
            let buffers: Vec<_> = (0..u64::from(ring.size))
                .map(|number| {
                    let (mut place, mut gpa) = (ring.descriptors, [0; 8]);
                    place.0 += 16 * number;
                    memory.read(place, &mut gpa);
                    place.0 += 8;
                    memory.write(place, &RUNT.to_le_bytes());
                    place.0 = u64::from_le_bytes(gpa);
                    place
                })
                .collect();
            let send = |len: u32| {
                let (bytes, mut drops) = (vec![0xee; len as usize], Vec::new());
                egress.deliver(&[outgoing(&bytes)], &mut drops).expect("deliver");
                drops
            };
            let refused = [(0, EgressDrop::Refused)];
            assert_eq!(send(60).as_slice(), if merges { &[][..] } else { &refused });
            assert_eq!(send(1514), refused, "more than {MOST_BUFFERS} buffers");
            let mut filled = 0;
            for buffer in buffers {
                let mut bytes = [0; 32];
                memory.read(buffer, &mut bytes);
                let (inside, behind) = bytes.split_at(RUNT as usize);
                filled += inside.iter().filter(|byte| **byte == 0xee).count();
                assert_eq!(behind, [0; 27], "written behind the buffer");
            }
            assert_eq!(filled, if merges { 60 } else { 0 });
        }
    }

    /// Absent huge pages, one for each frame, held a worker for as long as it took to make them all.
    #[test]
    fn a_late_delivery_ends_and_gives_its_room_back_empty() {
        for format in FORMATS {
            let (_folder, opened, mut guest) = connected(Features::MRG_RXBUF | format);
            let egress = queue_of(&opened.device);
            let bytes: Vec<[u8; 60]> = (0..10).map(|number| [number; 60]).collect();
            let frames: Vec<_> = bytes.iter().map(|bytes| outgoing(bytes)).collect();
            let mut drops = Vec::new();
            // Room is found for four frames, of which one is copied.
            egress.deliver_within(None, &over_at(4, true), &frames, &mut drops);
            assert!(drops.iter().copied().eq((1..10).map(|place| (place, EgressDrop::Late))));
            egress.deliver(&frames[9..], &mut drops).expect("deliver");
            let received: Vec<_> = (0..5).map(|_| Some(guest.receive(0)?.1)).collect();
            let whole = |number: u8| Some(vec![number; 60]);
            assert_eq!(received, [whole(0), None, None, None, whole(9)]);
        }
    }

    /// Receive buffers in absent pages held a worker for a millisecond.
    #[test]
    fn a_delivery_with_more_page_faults_than_pages_ends() {
        let (_folder, opened, _guest) = connected(Features::MRG_RXBUF);
        let egress = queue_of(&opened.device);
        let (bytes, mut drops) = ([7; 60], Vec::new());
        let one = [outgoing(&bytes)];
        for (each, absent) in [(18, None), (19, Some(Absent::Receivers))] {
            let found = egress.deliver_within(None, &faulting(each), &one, &mut drops);
            assert_eq!((found, drops.len()), (absent, 0), "{each} of 18 at the only look");
        }
        // 56 are explained: room is found for three frames, of which one is copied.
        egress.deliver_within(None, &faulting(19), &[one[0]; 20], &mut drops);
        assert!(drops.into_iter().eq((1..20).map(|place| (place, EgressDrop::Late))));
    }

    /// A sender takes its pages away between take and delivery: the receiver would rest for it.
    #[test]
    fn absent_pages_of_a_scattered_frame_are_the_senders() {
        let (_folder, opened, _guest) = connected(Features::MRG_RXBUF);
        let egress = queue_of(&opened.device);
        let payload = vec![Slice::from(&[7; 8][..]); 40];
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &[], payload: &payload, len: 320 };
        for (each, absent) in [(18, None), (19, Some(Absent::Senders))] {
            let mut drops = Vec::new();
            let found = egress.deliver_within(None, &faulting(each), &[frame], &mut drops);
            assert_eq!((found, drops.len()), (absent, 0), "{each} of 18 while it is gathered");
        }
    }

    /// A frame in thousands of buffers is ended in its middle.
    #[test]
    fn a_frame_that_takes_too_long_is_dropped() {
        let (_folder, opened, mut guest) = connected(Features::MRG_RXBUF);
        let egress = queue_of(&opened.device);
        let bytes = vec![7; 40_000];
        let mut drops = Vec::new();
        egress.deliver_within(None, &over_at(2, true), &[outgoing(&bytes)], &mut drops);
        assert_eq!(drops, [(0, EgressDrop::Late)]);
        assert!(guest.receive(0).is_none());
        drops.clear();
        egress.deliver_within(None, &over_at(200, true), &[outgoing(&bytes)], &mut drops);
        assert!(drops.is_empty(), "in time");
    }

    /// A guest that saw the ring's index before a copy would read the old bytes of its buffers.
    #[test]
    fn what_follows_a_copy_is_published_with_it() {
        for format in FORMATS {
            let (_folder, opened, mut guest) = connected(Features::MRG_RXBUF | format);
            let egress = queue_of(&opened.device);
            let bytes = [1, 2, 3].map(|fill| vec![fill; if fill == 2 { 60 } else { 40_000 }]);
            let frames = bytes.each_ref().map(|bytes| outgoing(bytes));
            let [first, short, long] = frames;
            let (mut list, mut drops) = (CopyList::EMPTY, Vec::new());
            let time = TimeLimit::NONE;
            let batch =
                egress.ring.begin(|running| list.reserve(running, &time, &[first], &mut drops));
            for later in [short, long] {
                egress.deliver(&[later], &mut drops).expect("deliver");
                assert!(guest.receive(0).is_none(), "the first is not copied yet");
            }
            assert_eq!(list.copy(&time, &[first]), 1);
            egress.ring.end(|running| {
                running.queue.end_batch(batch.expect("a batch"));
            });
            for sent in bytes {
                assert!(guest.receive(0).expect("a frame").1 == sent);
            }
            assert!(drops.is_empty() && guest.receive(0).is_none());
        }
    }
}
