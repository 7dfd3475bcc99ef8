//! The contract between a port and the switch.

use crate::kernel_path::Hook;
use crate::{Burst, Capabilities, EgressQueue, IngressQueue, Nanos, Slice};
use bitflags::bitflags;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::Mac;
use wire::vnet::VnetHeader;

bitflags! {
    /// Work that an egress queue can leave to its other side.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Offloads: u8 {
        /// Frames with an unfinished transport checksum (`NEEDS_CSUM`).
        const CSUM = 1;
        /// TCP/IPv4 trains.
        const TSO4 = 2;
        /// TCP/IPv6 trains.
        const TSO6 = 4;
        /// UDP trains.
        const USO = 8;
        /// Trains with ECE or CWR set.
        const ECN = 16;
    }
}

/// An egress frame: virtio header, private bytes, lent bytes, in this order on the wire.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Asks only for what the port's [`Offloads`] allow.
    pub vnet: VnetHeader,
    /// Headers (or a whole short frame), the switch's own copy.
    pub header: &'a [u8],
    /// The payload, still in the source's buffers.
    pub payload: &'a [Slice<'a>],
    /// Bytes of header and payload.
    pub len: u32,
}

impl Outgoing<'_> {
    /// Whether the payload is in so many pieces that absent pages, one for each, could delay what
    /// is delivered after it: more than a KiB of payload explains.
    #[inline]
    pub(crate) fn is_scattered(&self) -> bool {
        self.payload.len() > 2 + self.len as usize / 1024
    }
}

/// Why an egress queue did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressDrop {
    /// The queue has no room: the other side is slower than the traffic to it.
    Full,
    /// The device is administratively down or has no carrier.
    Down,
    /// The only path that this frame may take is down; other paths of the device are up.
    PathDown,
    /// The device refused this frame.
    Refused,
    /// It, or the frames before it, took too long: see [`TimeLimit`](crate::TimeLimit).
    Late,
}

/// Free room of an egress queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Buffers; each frame takes at least one.
    pub buffers: usize,
    /// Bytes of all free buffers.
    pub bytes: usize,
    /// Bytes that the queue has taken and not sent yet, including those beyond its limit; 0 if not
    /// known.
    pub waiting: usize,
}

/// A fault after which a port cannot continue unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PortFault {
    /// The device is down; it may come up by itself.
    #[error("the device is down")]
    Down,
    /// The device has gone for good (deleted, moved away).
    #[error("the device has gone: {0}")]
    Gone(#[source] io::Error),
    /// Any other error of the device.
    #[error("{doing}: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The error of the step.
        #[source]
        source: io::Error,
    },
}

/// The taking side of one queue pair of a port.
pub trait Ingress {
    /// Takes frames that have arrived, as far as the burst has room. Finding none is not an error.
    /// `now` is the turn's clock.
    ///
    /// # Errors
    ///
    /// Fails if the port has a fault. A fault after some frames were taken is reported by the next
    /// call: pushed frames are always good.
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault>;

    /// Gives every buffer lent by the last [`take`](Ingress::take) back to the source.
    fn release(&mut self);

    /// Requests a wake-up for frames that arrive from now on. Returns `true` if some have arrived
    /// meanwhile: then the worker must not sleep.
    fn arm(&mut self) -> bool {
        false
    }

    /// Cancels the request for wake-ups: the worker polls again.
    fn disarm(&mut self) {}

    /// Returns a descriptor that is readable when there is something to take. `None`: the queue can
    /// only be polled.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns roughly the nanoseconds that the kernel takes for each frame; 0 if frames come
    /// through shared memory.
    fn kernel_ns(&self) -> u32 {
        0
    }

    /// Returns the frames that the device itself lost since the port was opened: before the switch
    /// saw them, or after the device reported them as taken.
    fn lost(&self) -> u64 {
        0
    }
}

/// The delivering side of one queue pair of a port. Workers share it: frames that one worker
/// delivers stay in order.
pub trait Egress {
    /// Copies each frame to the other side, in order, and publishes once. Each frame not taken is
    /// pushed to `drops` as its place in `frames` and the reason.
    ///
    /// # Errors
    ///
    /// Fails if the port has a fault; all frames not yet taken then count as lost to it.
    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault>;

    /// Does what [`Egress::deliver`] does; `now` is the turn's clock, for queues that use it.
    ///
    /// # Errors
    ///
    /// Fails if the port has a fault.
    fn deliver_at(
        &self,
        _now: Nanos,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        self.deliver(frames, drops)
    }

    /// Returns roughly the nanoseconds that the kernel takes for each frame: the call, and the path
    /// through the kernel within it. 0 if frames go through shared memory.
    fn kernel_ns(&self) -> u32 {
        0
    }

    /// Returns the room that the queue has now; may be a system call. `None`: not known, or no
    /// limit worth asking for.
    fn room(&self) -> Option<Room> {
        None
    }
}

/// An opened port, ready to be given to the switch.
pub struct Device {
    /// Ingress queues, one per pair.
    pub ingress: Vec<IngressQueue>,
    /// Egress queues, one per pair.
    pub egress: Vec<EgressQueue>,
    /// Offloads of its egress, and the number of its queues that take them; may change while it
    /// runs.
    pub live: Arc<Capabilities>,
    /// Largest IP packet it carries, in bytes.
    pub mtu: u16,
    /// The device's own address, if it has one.
    pub mac: Option<Mac>,
    /// Its attachment to the kernel path, if it has one.
    pub hook: Option<Arc<Hook>>,
}
