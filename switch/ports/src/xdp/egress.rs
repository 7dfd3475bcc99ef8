//! Delivers to a queue of an interface: gathers each frame into a chunk of the UMEM, and calls the
//! kernel once a burst, if at all.
//!
//! If the driver copies, the kernel sends only within our call, up to 256 frames in one (32 before
//! Linux 6.17). Frames that it could not take stay in the ring. They leave with the next burst, or
//! when the queue's ingress side, perhaps another worker's, is woken for them. Chunks come back by
//! the completion ring, without a call.
//!
//! An error alone reports what the driver drops. It does not say which frame, so one frame of the
//! burst counts as dropped. It does not say why either: a veth with a full peer, or with a peer
//! that takes no frame of that length, returns the error of a device without a carrier. So the
//! carrier is read, and with a carrier the queue counts as full, not down. Drops of earlier bursts
//! count as lost by the device, since those frames were counted as sent. (A kernel that sends in
//! its own `poll` while a worker sleeps does not report a drop at all: only the device counts it.)
//!
//! Several workers deliver to a queue. Under its lock they reserve chunks, and later put them into
//! the ring; they fill them without it, since a guest's pages may be absent.
//!
//! A frame that the kernel rejects would stay at the head of the ring for good, so frames that it
//! could reject are refused here.
use super::ring::{Reader, Writer};
use super::socket::{MOST_DROPPED, XdpSocket};
use super::umem::{ChunkMemory, EgressChunks, Filled, Reserved};
use crate::{Egress, EgressDrop, Outgoing, PortFault, Room, lock};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use wire::vnet::{Flags, GsoType, VnetHeader};

/// `XDP_TX_METADATA` of a descriptor.
const HAS_METADATA: u32 = 1 << 1;
/// `XDP_TXMD_FLAGS_CHECKSUM`: the checksum is to be finished.
const FINISH_CHECKSUM: u64 = 1 << 1;

/// Bytes of the shortest frame: an Ethernet header.
const ETHERNET: u32 = 14;

/// The egress side of a queue. See [`Egress`].
pub struct XdpEgress {
    state: Mutex<State>,
    memory: ChunkMemory,
    socket: Arc<XdpSocket>,
    /// Most bytes of a frame.
    room: u32,
}

thread_local! {
    static CHUNKS: RefCell<Chunks> =
        const { RefCell::new(Chunks { reserved: Vec::new(), filled: Vec::new() }) };
}

/// The chunks of a call; empty between calls, kept for their allocations.
struct Chunks {
    reserved: Vec<Reserved>,
    /// With the bytes of the frame, and what the device is asked.
    filled: Vec<(Filled, u32, XdpDescOptions)>,
}

struct State {
    transmit: Writer<XdpDesc>,
    completion: Reader<u64>,
    chunks: EgressChunks,
    /// Whether the interface was down, or without a carrier, at the last call of the kernel.
    down: bool,
}

impl XdpEgress {
    pub(super) fn new(
        (transmit, completion): (Writer<XdpDesc>, Reader<u64>),
        socket: Arc<XdpSocket>,
        chunks: EgressChunks,
    ) -> XdpEgress {
        let (room, memory) = (chunks.room(), chunks.memory());
        let state = State { transmit, completion, chunks, down: false };
        XdpEgress { state: Mutex::new(state), memory, socket, room }
    }

    /// Whether the interface is down, asked of the kernel anew if it was. Fails if it has a fault.
    fn is_down(&self) -> Result<bool, PortFault> {
        let mut state = lock(&self.state);
        if state.down {
            // Frames in the ring were reported when they were put there.
            state.send(&self.socket)?;
        }
        Ok(state.down)
    }

    /// Fills the reserved chunks with the first of the frames, the first of which is at `place`.
    /// Without a chunk all others are dropped. Returns how many frames are done with.
    fn fill(
        &self,
        place: usize,
        frames: &[Outgoing<'_>],
        Chunks { reserved, filled }: &mut Chunks,
        is_full: bool,
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> usize {
        for (number, frame) in frames.iter().enumerate() {
            if self.refuses(frame) {
                drops.push((place + number, EgressDrop::Refused));
            } else if let Some(chunk) = reserved.pop() {
                let (options, metadata) = asked(frame.vnet);
                filled.push((self.memory.fill(chunk, metadata, frame), frame.len, options));
            } else if is_full {
                drops.push((place + number, EgressDrop::Full));
            } else {
                return number;
            }
        }
        frames.len()
    }

    fn refuses(&self, frame: &Outgoing<'_>) -> bool {
        let vnet = &frame.vnet;
        let checksum = u32::from(vnet.csum_start.get()) + u32::from(vnet.csum_offset.get()) + 2;
        let beyond = vnet.flags().contains(Flags::NEEDS_CSUM) && checksum > frame.len;
        let fits = (ETHERNET..=self.room).contains(&frame.len);
        !fits || beyond || vnet.gso() != GsoType::None
    }
}

impl State {
    /// Takes back the chunks of sent frames.
    fn reap(&mut self) {
        while let Some(address) = self.completion.take() {
            self.chunks.completed(address);
        }
        self.completion.release(|_| {});
    }

    /// Puts filled chunks into the transmit ring.
    fn queue(&mut self, filled: &mut Vec<(Filled, u32, XdpDescOptions)>) {
        for (chunk, len, options) in filled.drain(..) {
            let addr = self.chunks.send(chunk);
            self.transmit.put(XdpDesc { addr, len, options });
        }
    }

    /// Makes a chunk free if possible. If all are in use, calls the kernel once for each burst.
    /// Returns how many frames the driver dropped.
    fn make_room(&mut self, socket: &XdpSocket, called: &mut bool) -> Result<usize, PortFault> {
        let mut dropped = 0;
        if self.chunks.are_used_up() {
            self.reap();
        }
        if self.chunks.are_used_up() && !std::mem::replace(called, true) {
            dropped = self.send(socket)?;
            self.reap();
        }
        Ok(dropped)
    }

    /// Publishes the added entries, and calls the kernel while it needs calls and makes progress.
    /// Returns how many frames the driver dropped.
    fn send(&mut self, socket: &XdpSocket) -> Result<usize, PortFault> {
        self.transmit.publish();
        self.down = false;
        let (most, mut dropped) = (self.transmit.pending(), 0);
        let mut pending = most;
        // Each call takes at least one frame, or is the last one.
        for _ in 0..most {
            if pending == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            let answer = socket.wake_transmit();
            let left = self.transmit.pending();
            let stands = std::mem::replace(&mut pending, left) == left;
            match answer {
                // The driver has dropped a frame. Without a carrier it drops all of them, one a
                // call.
                Err(Errno::BUSY) => {
                    dropped += 1;
                    self.down = dropped == 1 && !socket.has_carrier();
                    if self.down || dropped == MOST_DROPPED {
                        break;
                    }
                }
                Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {
                    if stands {
                        break;
                    }
                }
                Err(Errno::NETDOWN) => {
                    self.down = true;
                    break;
                }
                Err(error @ (Errno::NXIO | Errno::NODEV)) => {
                    return Err(PortFault::Gone(error.into()));
                }
                Err(error) => return Err(io_fault(error)),
            }
        }
        if self.down {
            // They are reported as lost here: the worker that reads the queue must not count them
            // again.
            socket.forget_unsent();
        } else if pending > 0 && self.transmit.needs_wakeup() {
            socket.note_unsent();
        }
        Ok(dropped)
    }
}

fn io_fault(error: Errno) -> PortFault {
    PortFault::Io { doing: "send to the interface", source: error.into() }
}

impl Egress for XdpEgress {
    fn kernel_ns(&self) -> u32 {
        1000
    }

    fn room(&self) -> Option<Room> {
        let mut state = lock(&self.state);
        state.reap();
        let buffers = state.chunks.free();
        Some(Room { buffers, bytes: buffers * self.room as usize / 2, waiting: 0 })
    }

    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        if self.is_down()? {
            drops.extend((0..frames.len()).map(|place| (place, EgressDrop::Down)));
            return Ok(());
        }
        let (before, mut called, mut dropped, mut next) = (drops.len(), false, 0, 0);
        CHUNKS.with_borrow_mut(|chunks| {
            while let Some(rest @ [_, ..]) = frames.get(next..) {
                let wanted = rest.iter().filter(|frame| !self.refuses(frame)).count();
                let mut state = lock(&self.state);
                dropped += state.make_room(&self.socket, &mut called)?;
                chunks.reserved.extend((0..wanted).map_while(|_| state.chunks.reserve()));
                drop(state);
                let is_full = chunks.reserved.is_empty();
                next += self.fill(next, rest, chunks, is_full, drops);
                lock(&self.state).queue(&mut chunks.filled);
            }
            Ok(())
        })?;
        let mut state = lock(&self.state);
        dropped += state.send(&self.socket)?;
        state.reap();
        // Frames left in the ring of a device that is down may still leave when it comes up; they
        // count as lost.
        let (left, why) = match state.down {
            true => (state.transmit.pending() as usize, EgressDrop::Down),
            false => (0, EgressDrop::Full),
        };
        let told = lose((left + dropped, why), frames.len(), before, drops);
        self.socket.count_lost(dropped.saturating_sub(told));
        Ok(())
    }
}

/// Reports `count` more frames as lost, or all if there are fewer. Takes the last ones, which are
/// in the ring: the driver does not say which frames it drops. Returns how many it reported.
fn lose(
    (count, why): (usize, EgressDrop),
    frames: usize,
    before: usize,
    drops: &mut Vec<(usize, EgressDrop)>,
) -> usize {
    let start = drops.len();
    for place in (0..frames).rev() {
        if drops.len() - start == count {
            break;
        }
        let is_told = drops
            .get(before..start)
            .is_some_and(|told| told.binary_search_by_key(&place, |(place, _)| *place).is_ok());
        if !is_told {
            drops.push((place, why));
        }
    }
    let lost = drops.len() - start;
    if let Some(all) = drops.get_mut(before..) {
        all.sort_unstable_by_key(|(place, _)| *place);
    }
    lost
}

/// Returns the descriptor options and the metadata that ask the device for a checksum (`struct
/// xsk_tx_metadata`: flags, then where the checksum starts and where it goes).
fn asked(vnet: VnetHeader) -> (XdpDescOptions, [u8; 16]) {
    let mut metadata = [0; 16];
    if !vnet.flags().contains(Flags::NEEDS_CSUM) {
        return (XdpDescOptions::empty(), metadata);
    }
    metadata[..8].copy_from_slice(&FINISH_CHECKSUM.to_ne_bytes());
    metadata[8..10].copy_from_slice(&vnet.csum_start.get().to_ne_bytes());
    metadata[10..12].copy_from_slice(&vnet.csum_offset.get().to_ne_bytes());
    (XdpDescOptions::from_bits_retain(HAS_METADATA), metadata)
}

#[cfg(test)]
mod tests {
    use super::super::{XdpError, XdpOptions, open};
    use super::EgressDrop::{Down, Full, Refused};
    use super::*;
    use crate::{Burst, EgressQueue, IngressQueue, Nanos, namespace};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn what_the_driver_drops_is_reported_beside_the_others_and_in_order() {
        let mut drops = vec![(9, Full), (1, Refused), (3, Full)];
        assert_eq!(lose((2, Down), 5, 1, &mut drops), 2);
        assert_eq!(drops, [(9, Full), (1, Refused), (2, Down), (3, Full), (4, Down)]);
        assert_eq!(lose((5, Down), 5, 1, &mut drops), 1, "more than there are frames");
        assert_eq!(lose((0, Down), 5, 1, &mut drops), 0);
        assert_eq!(drops.len(), 6);
    }

    fn ip(words: &str) {
        let output = Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {words}: {output:?}");
    }

    /// Takes from a queue `count` times, and sleeps in between if it may.
    fn turns(ingress: &mut IngressQueue, start: Instant, count: u32) {
        for _ in 0..count {
            if !ingress.arm() {
                let (ready, patience) =
                    (ingress.ready_fd().unwrap(), Timespec { tv_sec: 10, tv_nsec: 0 });
                let ready = poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&patience));
                assert_eq!(ready, Ok(1), "nothing wakes the worker");
            }
            let now = Nanos::SECOND + start.elapsed().into();
            ingress.take(now, &mut Burst::new()).unwrap();
            ingress.release();
        }
    }

    /// The kernel takes no frame while the completion ring has no room, for example while a device
    /// is held up. The worker that reads the queue used to ask it without a rest.
    #[test]
    fn a_device_that_takes_nothing_lets_the_worker_sleep() {
        let test = || {
            ip("link add mill0 type veth peer name mill1");
            ip("link set mill1 up");
            ip("link set mill0 up");
            let options = XdpOptions { ring_bytes: 1 << 17, ..XdpOptions::new("mill0") };
            let mut device = match open(&options) {
                Err(error @ XdpError::Program { .. }) => return eprintln!("skipped: {error}"),
                other => other.unwrap().device,
            };
            let Some(EgressQueue::Xdp(egress)) = device.egress.pop() else { unreachable!() };
            let vnet = VnetHeader::default();
            let frame = Outgoing { vnet, header: &[2; 60], payload: &[], len: 60 };
            let descriptor =
                |addr| XdpDesc { addr, len: frame.len, options: XdpDescOptions::empty() };
            // Not by `lock`, under which no chunk is filled: no other thread delivers.
            let mut state = egress.state.lock().unwrap();
            let mut last = 0;
            while let Some(addr) = state.chunks.put([0; 16], &frame) {
                state.transmit.put(descriptor(addr));
                last = addr;
            }
            assert_eq!(state.send(&egress.socket).unwrap(), 0);
            assert_eq!(state.transmit.pending(), 0);
            state.transmit.put(descriptor(last));
            assert_eq!(state.send(&egress.socket).unwrap(), 0);
            assert_eq!(state.transmit.pending(), 1);
            drop(state);

            let (start, ingress) = (Instant::now(), &mut device.ingress[0]);
            // The kernel's own frames at the other end may end a few of them early.
            turns(ingress, start, 200);
            assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
            assert_eq!(lock(&egress.state).transmit.pending(), 1);
            while lock(&egress.state).transmit.pending() > 0 {
                lock(&egress.state).reap();
                turns(ingress, start, 1);
            }
        };
        if let Err(error) = namespace::fresh(test) {
            eprintln!("skipped: needs the right to make a network namespace: {error}");
        }
    }
}
