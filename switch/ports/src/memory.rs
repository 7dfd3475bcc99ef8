//! In-process ports of tests, benches and the lab's in-process guests.
//!
//! A port made by [`open`] comes with a [`Peer`], the other side of its wire. A pool recycles
//! buffers, so nothing is allocated after the first frames.

use crate::{
    Burst, Capabilities, Device, Egress, EgressDrop, EgressQueue, Ingress, IngressQueue, Nanos,
    Offloads, Outgoing, PortFault, Room, Slice, lock,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::vnet::VnetHeader;

/// A frame of the memory port: the virtio header and the bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryFrame {
    /// Checksum and segmentation of the frame.
    pub vnet: VnetHeader,
    /// Bytes of the frame.
    pub bytes: Vec<u8>,
}

/// Frames from the peer. The switch takes all waiting frames as one list and gives the buffers back
/// as one list: this port's cost is part of every instruction count of the data path.
#[derive(Default)]
struct ToSwitch {
    /// Waiting frames, oldest first.
    waiting: Vec<MemoryFrame>,
    /// Bytes of all waiting frames.
    bytes: usize,
    /// Used buffers.
    spare: Vec<MemoryFrame>,
    /// What [`Peer::set_waited`] was told.
    waited: Option<Nanos>,
}

impl ToSwitch {
    fn push(&mut self, vnet: VnetHeader, bytes: &[u8]) {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.vnet = vnet;
        frame.bytes.clear();
        frame.bytes.extend_from_slice(bytes);
        self.bytes += bytes.len();
        self.waiting.push(frame);
    }

    /// Moves the frames that fit a burst with room for `room` frames and `room_bytes` to the end of
    /// `taken`.
    fn take(&mut self, room: usize, room_bytes: usize, taken: &mut Vec<MemoryFrame>) {
        if self.waiting.len() <= room && self.bytes <= room_bytes {
            hand_over(&mut self.waiting, taken);
            self.bytes = 0;
            return;
        }
        let mut bytes = 0;
        let fits = self.waiting.iter().take(room).take_while(|frame| {
            let fits = bytes < room_bytes;
            bytes += frame.bytes.len();
            fits
        });
        let fits = fits.count();
        let fitting = self.waiting.drain(..fits);
        taken.extend(fitting.inspect(|frame| self.bytes -= frame.bytes.len()));
    }
}

/// Frames to the peer. The switch writes short frames under the lock into the buffers of frames
/// read before. It writes long ones without the lock into its own lists, and then swaps those with
/// the buffers.
#[derive(Default)]
struct FromSwitch {
    /// Buffers in order: those in `read..written` hold waiting frames, oldest first; the others are
    /// free.
    places: Vec<MemoryFrame>,
    read: usize,
    written: usize,
    /// Used buffers that the peer gave back.
    spare: Vec<MemoryFrame>,
    /// One list for each worker that was copying without the lock at a time.
    lists: Vec<Vec<MemoryFrame>>,
}

impl FromSwitch {
    fn waiting(&self) -> usize {
        self.written - self.read
    }

    fn room(&self, depth: usize) -> usize {
        depth.saturating_sub(self.waiting())
    }

    /// Returns the next `count` places to write, and the spare buffers for places that have none.
    fn write(&mut self, count: usize, depth: usize) -> (&mut [MemoryFrame], &mut Vec<MemoryFrame>) {
        // With twice as many places as frames may wait, the waiting frames move at most once in
        // `depth` frames.
        if self.waiting() == 0 {
            (self.read, self.written) = (0, 0);
        } else if self.written + count > 2 * depth {
            self.places.rotate_left(self.read);
            (self.read, self.written) = (0, self.waiting());
        }
        let start = self.written;
        self.written += count;
        if self.places.len() < self.written {
            self.places.resize_with(self.written, MemoryFrame::default);
        }
        (self.places.get_mut(start..self.written).unwrap_or_default(), &mut self.spare)
    }

    /// Returns buffers of at least `count` frames, to be written without the lock.
    fn list(&mut self, count: usize) -> Vec<MemoryFrame> {
        let mut list = self.lists.pop().unwrap_or_default();
        list.resize_with(list.len().max(count), MemoryFrame::default);
        list.iter_mut().take(count).for_each(|place| place.find_buffer(&mut self.spare));
        list
    }

    fn read(&mut self) -> Option<MemoryFrame> {
        let place = self.places.get_mut(self.read..self.written)?.first_mut()?;
        self.read += 1;
        Some(std::mem::replace(place, self.spare.pop().unwrap_or_default()))
    }
}

impl MemoryFrame {
    /// Takes a used buffer if this place has none.
    #[inline]
    fn find_buffer(&mut self, spare: &mut Vec<MemoryFrame>) {
        if self.bytes.capacity() == 0 {
            *self = spare.pop().unwrap_or_default();
        }
    }

    /// Replaces the frame, in the same buffer.
    #[inline]
    fn fill(&mut self, frame: &Outgoing<'_>) {
        self.vnet = frame.vnet;
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.header);
        for slice in frame.payload {
            slice.append_to(&mut self.bytes);
        }
    }
}

/// Whether a copy of these frames takes so long that other workers should not wait for it: 32 KiB or
/// more.
#[inline]
fn are_long(frames: &[Outgoing<'_>]) -> bool {
    frames.iter().map(|frame| u64::from(frame.len)).sum::<u64>() >= 32 * 1024
}

/// Moves all frames to the end of another list, usually without a copy.
fn hand_over(from: &mut Vec<MemoryFrame>, to: &mut Vec<MemoryFrame>) {
    if to.is_empty() {
        std::mem::swap(from, to);
    } else {
        to.append(from);
    }
}

struct Wire {
    to_switch: Mutex<ToSwitch>,
    from_switch: Mutex<FromSwitch>,
    depth: usize,
    /// Wakes the worker. `None`: no worker sleeps on this port.
    wake: Option<OwnedFd>,
}

impl Wire {
    /// Locks the frames to the peer; short ones may be copied meanwhile, because the peer is no
    /// guest: [`lock`] would not allow it.
    fn copying(&self) -> MutexGuard<'_, FromSwitch> {
        self.from_switch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The other side of a memory port, in the place of a guest.
#[derive(Clone)]
pub struct Peer {
    wire: Arc<Wire>,
}

/// The ingress queue of a memory port. See [`Ingress`].
pub struct MemoryIngress {
    wire: Arc<Wire>,
    taken: Vec<MemoryFrame>,
}

/// The egress queue of a memory port. See [`Egress`].
pub struct MemoryEgress {
    wire: Arc<Wire>,
}

/// Opens a port of one queue pair that holds up to `depth` frames a direction. Returns it and its
/// other side.
///
/// # Errors
/// Fails if the process is out of descriptors.
pub fn open(depth: usize, offloads: Offloads, mtu: u16) -> std::io::Result<(Device, Peer)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(join(depth, offloads, mtu, Some(wake)))
}

/// Opens a port like [`open`] for a switch that is stepped: its workers never sleep, so the port
/// needs no descriptor.
pub fn open_stepped(depth: usize, offloads: Offloads, mtu: u16) -> (Device, Peer) {
    join(depth, offloads, mtu, None)
}

fn join(depth: usize, offloads: Offloads, mtu: u16, wake: Option<OwnedFd>) -> (Device, Peer) {
    let wire =
        Arc::new(Wire { to_switch: Mutex::default(), from_switch: Mutex::default(), depth, wake });
    let device = Device {
        ingress: vec![IngressQueue::Memory(MemoryIngress {
            wire: wire.clone(),
            taken: Vec::with_capacity(Burst::FRAMES),
        })],
        egress: vec![EgressQueue::Memory(MemoryEgress { wire: wire.clone() })],
        live: Arc::new(Capabilities::new(offloads, 1)),
        mtu,
        mac: None,
        hook: None,
    };
    (device, Peer { wire })
}

impl Peer {
    /// Sends a frame to the switch. Returns `false` if there is no room.
    pub fn send(&self, vnet: VnetHeader, bytes: &[u8]) -> bool {
        let mut lane = lock(&self.wire.to_switch);
        if lane.waiting.len() >= self.wire.depth {
            return false;
        }
        lane.push(vnet, bytes);
        drop(lane);
        if let Some(wake) = &self.wire.wake {
            // The write fails only at a full eventfd counter (2^64 - 2), which is readable anyway.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
        true
    }

    /// Tells how long the first frame of each burst has waited, from the next one on; `None` if that
    /// is not known, as at first.
    pub fn set_waited(&self, waited: Option<Nanos>) {
        lock(&self.wire.to_switch).waited = waited;
    }

    /// Takes the oldest frame that the switch delivered. Give its buffer back with
    /// [`Peer::recycle`] to save the next allocation.
    pub fn receive(&self) -> Option<MemoryFrame> {
        lock(&self.wire.from_switch).read()
    }

    /// Blocks the next turn of the port's queue until the guard is dropped, to simulate a worker
    /// that hangs.
    pub fn hang(&self) -> impl Sized + '_ {
        lock(&self.wire.to_switch)
    }

    /// Gives a buffer back to the pool.
    pub fn recycle(&self, frame: MemoryFrame) {
        lock(&self.wire.from_switch).spare.push(frame);
    }
}

impl Ingress for MemoryIngress {
    fn take<'q>(&'q mut self, _now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        let mut lane = lock(&self.wire.to_switch);
        lane.take(burst.room(), burst.room_bytes(), &mut self.taken);
        burst.set_waited(lane.waited);
        drop(lane);
        let pieces = self.taken.iter();
        burst.extend(pieces.map(|frame| (frame.vnet, Slice::from(frame.bytes.as_slice()))));
        Ok(())
    }

    fn release(&mut self) {
        if !self.taken.is_empty() {
            hand_over(&mut self.taken, &mut lock(&self.wire.to_switch).spare);
        }
    }

    fn arm(&mut self) -> bool {
        if let Some(wake) = &self.wire.wake {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        !lock(&self.wire.to_switch).waiting.is_empty()
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wire.wake.as_ref().map(AsFd::as_fd)
    }
}

impl Egress for MemoryEgress {
    fn room(&self) -> Option<Room> {
        let buffers = lock(&self.wire.from_switch).room(self.wire.depth);
        Some(Room { buffers, bytes: buffers * Burst::LARGEST_FRAME, waiting: 0 })
    }

    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let mut lane = self.wire.copying();
        let mut fits = frames.len().min(lane.room(self.wire.depth));
        let mut copied = None;
        if are_long(frames) {
            let mut list = lane.list(fits);
            drop(lane);
            list.iter_mut().zip(frames).take(fits).for_each(|(place, frame)| place.fill(frame));
            lane = self.wire.copying();
            fits = fits.min(lane.room(self.wire.depth));
            copied = Some(list);
        }
        drops.extend((fits..frames.len()).map(|place| (place, EgressDrop::Full)));
        let (places, spare) = lane.write(fits, self.wire.depth);
        if let Some(mut list) = copied {
            places.swap_with_slice(list.get_mut(..fits).unwrap_or_default());
            lane.lists.push(list);
        } else {
            for (place, frame) in places.iter_mut().zip(frames) {
                place.find_buffer(spare);
                place.fill(frame);
            }
        }
        Ok(())
    }
}
