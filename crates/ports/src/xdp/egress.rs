// UNSAFETY: takes chunks of the UMEM back by the addresses of its completion ring.
//! Delivering to a queue of an interface: each frame is gathered into a chunk of the UMEM, and the kernel is called once a
//! burst, if at all.
//!
//! Where the driver copies, the kernel sends in our call and only then, up to 256 frames in one (32 before Linux 6.17). What it
//! could not take stays in the ring: it goes with the next burst, or when the queue is read the next time. Chunks come back
//! by the completion ring, without a call.
//!
//! A frame that the kernel can make nothing of would stay at the head of the ring for good, so what it could object to is
//! refused here.
#![allow(unsafe_code)]

use super::ring::{Reader, Writer};
use super::socket::XdpSocket;
use super::umem::{Chunk, Umem};
use crate::{Egress, EgressDrop, Outgoing, PortFault, lock};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use std::sync::{Arc, Mutex};
use wire::vnet::{Flags, GsoType, VnetHeader};

/// `XDP_TX_METADATA` of a descriptor.
const HAS_METADATA: u32 = 1 << 1;
/// `XDP_TXMD_FLAGS_CHECKSUM`: the checksum is to be finished.
const FINISH_CHECKSUM: u64 = 1 << 1;

/// Bytes of the shortest frame: an Ethernet header.
const ETHERNET: u32 = 14;

/// See [`Egress`].
pub struct XdpEgress {
    state: Mutex<State>,
    socket: Arc<XdpSocket>,
    umem: Arc<Umem>,
}

struct State {
    transmit: Writer<XdpDesc>,
    completion: Reader<u64>,
    /// Chunks that are ours.
    free: Vec<Chunk>,
    /// The interface was down when the kernel was last called.
    down: bool,
    /// Frames of this burst that the driver dropped.
    dropped: usize,
}

impl XdpEgress {
    pub(super) fn new(
        (transmit, completion): (Writer<XdpDesc>, Reader<u64>),
        socket: Arc<XdpSocket>,
        umem: Arc<Umem>,
        queue: u32,
    ) -> XdpEgress {
        let free = umem.egress_chunks(queue).collect();
        let state = Mutex::new(State { transmit, completion, free, down: false, dropped: 0 });
        XdpEgress { state, socket, umem }
    }

    fn refuses(&self, frame: &Outgoing<'_>) -> bool {
        let vnet = &frame.vnet;
        let checksum = u32::from(vnet.csum_start.get()) + u32::from(vnet.csum_offset.get()) + 2;
        let beyond = vnet.flags().contains(Flags::NEEDS_CSUM) && checksum > frame.len;
        let fits = (ETHERNET..=self.umem.egress_room()).contains(&frame.len);
        !fits || beyond || vnet.gso() != GsoType::None
    }
}

impl State {
    /// Takes back the chunks of frames that were sent.
    fn reap(&mut self, umem: &Umem) {
        while let Some(address) = self.completion.take() {
            // SAFETY: from the completion ring of the queue whose chunk this is.
            self.free.push(unsafe { umem.completed(address) });
        }
        self.completion.release(|_| {});
    }

    /// A chunk to fill. If all are under way, the kernel is called once for each burst.
    fn chunk(&mut self, egress: &XdpEgress, called: &mut bool) -> Result<Option<Chunk>, PortFault> {
        if self.free.is_empty() {
            self.reap(&egress.umem);
        }
        if self.free.is_empty() && !std::mem::replace(called, true) {
            self.send(&egress.socket)?;
            self.reap(&egress.umem);
        }
        Ok(self.free.pop())
    }

    /// Publishes what was put, and calls the kernel as long as it has to be called and gets on.
    fn send(&mut self, socket: &XdpSocket) -> Result<(), PortFault> {
        self.transmit.publish();
        self.down = false;
        let most = self.transmit.pending();
        let mut pending = most;
        // Each call takes one frame at least, or is the last one.
        for _ in 0..most {
            if pending == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            let answer = socket.wake_transmit();
            let left = self.transmit.pending();
            let stands = std::mem::replace(&mut pending, left) == left;
            match answer {
                // The driver has dropped a frame, as it does without a carrier.
                Err(Errno::BUSY) => self.dropped += 1,
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
        socket.note_unsent(pending > 0 && self.transmit.needs_wakeup() && !self.down);
        Ok(())
    }
}

fn io_fault(error: Errno) -> PortFault {
    PortFault::Io { doing: "send to the interface", source: error.into() }
}

impl Egress for XdpEgress {
    fn kernel_ns(&self) -> u32 {
        1000
    }

    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let mut state = lock(&self.state);
        state.dropped = 0;
        if state.down {
            state.send(&self.socket)?;
        }
        if state.down {
            drops.extend((0..frames.len()).map(|place| (place, EgressDrop::Down)));
            return Ok(());
        }
        let (before, mut called) = (drops.len(), false);
        for (place, frame) in frames.iter().enumerate() {
            if self.refuses(frame) {
                drops.push((place, EgressDrop::Refused));
                continue;
            }
            let Some(mut chunk) = state.chunk(self, &mut called)? else {
                drops.push((place, EgressDrop::Full));
                continue;
            };
            let (options, metadata) = asked(frame.vnet);
            let addr = self.umem.put(&mut chunk, metadata, frame);
            state.transmit.put(XdpDesc { addr, len: frame.len, options });
        }
        state.send(&self.socket)?;
        state.reap(&self.umem);
        lose(state.dropped, frames.len(), before, drops);
        if state.down {
            // What is in the ring may still go when the link comes up; as far as anybody can tell now it is lost.
            drops.truncate(before);
            drops.extend((0..frames.len()).map(|place| (place, EgressDrop::Down)));
        }
        Ok(())
    }
}

/// Counts so many frames more as lost: the last ones, since nothing tells which of a burst they were.
fn lose(count: usize, frames: usize, before: usize, drops: &mut Vec<(usize, EgressDrop)>) {
    if count == 0 {
        return;
    }
    let told = drops.split_off(before);
    let is_told = |place: &usize| told.iter().any(|(other, _)| other == place);
    let more = (0..frames).rev().filter(|place| !is_told(place)).take(count);
    drops.extend(more.map(|place| (place, EgressDrop::Down)));
    drops.extend(told);
    if let Some(all) = drops.get_mut(before..) {
        all.sort_unstable_by_key(|(place, _)| *place);
    }
}

/// What to ask of the device (`struct xsk_tx_metadata`: flags, then where a checksum starts and where it goes).
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
