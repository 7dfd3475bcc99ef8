//! Frames in process: the port of tests, benches and the lab's in-process guests.
//!
//! A port made by [`open`] comes with a [`Peer`], the other side of its wire. Buffers go round in a pool, so that after
//! the first frames nothing is allocated.

use crate::{
    Burst, Device, Egress, EgressDrop, EgressQueue, Ingress, IngressQueue, Nanos, Offloads,
    Outgoing, PortFault, Slice,
};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::vnet::VnetHeader;

/// A frame of the memory port: the virtio header and the bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryFrame {
    /// What is said about checksum and segmentation.
    pub vnet: VnetHeader,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// One direction of the wire. Both sides fill and empty it a list at a time where they can: the cost of this port is in
/// every instruction count of the data path.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<MemoryFrame>,
    spare: Vec<MemoryFrame>,
}

impl Lane {
    /// An empty frame, its buffer a used one if there is any.
    #[inline]
    fn buffer(&mut self, vnet: VnetHeader) -> MemoryFrame {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.vnet = vnet;
        frame.bytes.clear();
        frame
    }
}

struct Wire {
    to_switch: Mutex<Lane>,
    from_switch: Mutex<Lane>,
    depth: usize,
    wake: OwnedFd,
}

fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other side of a memory port: what a guest would be.
#[derive(Clone)]
pub struct Peer {
    wire: Arc<Wire>,
}

/// See [`Ingress`].
pub struct MemoryIngress {
    wire: Arc<Wire>,
    taken: VecDeque<MemoryFrame>,
}

/// See [`Egress`].
pub struct MemoryEgress {
    wire: Arc<Wire>,
}

/// A port of one queue pair that holds up to `depth` frames a direction, and its other side.
pub fn open(depth: usize, offloads: Offloads, mtu: u16) -> std::io::Result<(Device, Peer)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wire =
        Arc::new(Wire { to_switch: Mutex::default(), from_switch: Mutex::default(), depth, wake });
    let device = Device {
        ingress: vec![IngressQueue::Memory(MemoryIngress {
            wire: wire.clone(),
            taken: VecDeque::with_capacity(Burst::FRAMES),
        })],
        egress: vec![EgressQueue::Memory(MemoryEgress { wire: wire.clone() })],
        offloads,
        mtu,
        mac: None,
    };
    Ok((device, Peer { wire }))
}

impl Peer {
    /// Sends a frame to the switch; `false` where there is no room.
    pub fn send(&self, vnet: VnetHeader, bytes: &[u8]) -> bool {
        let mut lane = lock(&self.wire.to_switch);
        if lane.waiting.len() >= self.wire.depth {
            return false;
        }
        let mut frame = lane.buffer(vnet);
        frame.bytes.extend_from_slice(bytes);
        lane.waiting.push_back(frame);
        drop(lane);
        // A full eventfd counter (2^64 - 2) is the only way to fail, and it is readable then.
        let _ = rustix::io::write(&self.wire.wake, &1u64.to_ne_bytes());
        true
    }

    /// The oldest frame the switch delivered. Give its buffer back with [`Peer::recycle`] to save the next allocation.
    pub fn receive(&self) -> Option<MemoryFrame> {
        lock(&self.wire.from_switch).waiting.pop_front()
    }

    /// Gives a buffer back to the pool.
    pub fn recycle(&self, frame: MemoryFrame) {
        lock(&self.wire.from_switch).spare.push(frame);
    }
}

impl Ingress for MemoryIngress {
    fn take<'q>(&'q mut self, _now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        let mut lane = lock(&self.wire.to_switch);
        let mut bytes = 0;
        let fits = lane.waiting.iter().take(burst.room()).take_while(|frame| {
            bytes += frame.bytes.len();
            bytes <= Burst::BYTES
        });
        let fits = fits.count();
        self.taken.extend(lane.waiting.drain(..fits));
        drop(lane);
        for frame in &self.taken {
            burst.push_one(frame.vnet, Slice::from(frame.bytes.as_slice()));
        }
        Ok(())
    }

    fn release(&mut self) {
        if !self.taken.is_empty() {
            lock(&self.wire.to_switch).spare.extend(self.taken.drain(..));
        }
    }

    fn arm(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wire.wake, &mut count);
        !lock(&self.wire.to_switch).waiting.is_empty()
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wire.wake.as_fd())
    }
}

impl Egress for MemoryEgress {
    fn deliver(
        &mut self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let mut lane = lock(&self.wire.from_switch);
        for (place, frame) in frames.iter().enumerate() {
            if lane.waiting.len() >= self.wire.depth {
                drops.push((place, EgressDrop::Full));
                continue;
            }
            let mut copy = lane.buffer(frame.vnet);
            copy.bytes.extend_from_slice(frame.header);
            for slice in frame.payload {
                copy.bytes.extend_from_slice(slice.bytes());
            }
            lane.waiting.push_back(copy);
        }
        Ok(())
    }
}
