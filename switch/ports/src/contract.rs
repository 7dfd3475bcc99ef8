//! The contract between a port and the switch.

use crate::{Burst, Capabilities, EgressQueue, IngressQueue, Nanos, Slice};
use bitflags::bitflags;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::Mac;
use wire::vnet::VnetHeader;

bitflags! {
    /// What an egress queue takes without help.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Offloads: u8 {
        /// Frames whose transport checksum is not finished (`NEEDS_CSUM`).
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

/// A frame on its way out: virtio header, private bytes, lent bytes, in this order on the wire.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Says only what the port's [`Offloads`] allow.
    pub vnet: VnetHeader,
    /// Headers (or a whole short frame), the switch's own copy.
    pub header: &'a [u8],
    /// The payload, still in the source's buffers.
    pub payload: &'a [Slice<'a>],
    /// Bytes of header and payload.
    pub len: u32,
}

impl Outgoing<'_> {
    /// Whether a copy of these frames takes so long that other workers should not wait for it: from
    /// 32 KiB on.
    #[inline]
    pub(crate) fn are_long(frames: &[Outgoing<'_>]) -> bool {
        frames.iter().map(|frame| u64::from(frame.len)).sum::<u64>() >= 32 * 1024
    }
}

/// Why an egress queue did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressDrop {
    /// No room: the other side is slower than the traffic to it.
    Full,
    /// The device is administratively down or has no carrier.
    Down,
    /// The one way this frame may take is down, and the device has others.
    PathDown,
    /// The device refused this frame (its own words are in the log of the state change, not per
    /// frame).
    Refused,
}

/// What an egress queue has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Buffers; a frame takes one or more.
    pub buffers: usize,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Bytes that it has taken and not sent yet, beyond what it has room for as well; 0 where that
    /// is not known.
    pub waiting: usize,
}

/// A port that cannot go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum PortFault {
    /// The device is down; it may come back by itself.
    #[error("the device is down")]
    Down,
    /// The device has gone for good (deleted, moved away).
    #[error("the device has gone: {0}")]
    Gone(#[source] io::Error),
    /// Anything else the device said.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
}

/// The taking side of one queue pair of a port.
pub trait Ingress {
    /// Takes what has arrived, as far as the burst has room. Nothing there is no error. `now` is
    /// the turn's clock. A fault after some frames were taken is reported by the next call: what
    /// was pushed is always good.
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault>;

    /// Gives every buffer lent by the last [`take`](Ingress::take) back to the source.
    fn release(&mut self);

    /// Asks to be woken for what arrives from now on. `true`: something has arrived meanwhile, do
    /// not sleep.
    fn arm(&mut self) -> bool {
        false
    }

    /// The worker is polling again; wake-ups are a waste.
    fn disarm(&mut self) {}

    /// Readable when there is something to take. `None`: the queue can only be polled.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Nanoseconds that the kernel takes for each frame, roughly; 0 where frames come through
    /// shared memory.
    fn kernel_ns(&self) -> u32 {
        0
    }

    /// Frames the device itself lost since the port was opened: before the switch saw them, or
    /// after it said that it had taken them.
    fn lost(&self) -> u64 {
        0
    }
}

/// The delivering side of one queue pair of a port. Workers share it: what one of them delivers
/// stays in order.
pub trait Egress {
    /// Copies each frame to the other side, in order, and publishes once. What was not taken is
    /// pushed to `drops` as the frame's place in `frames` and the reason. After an `Err` all frames
    /// not yet taken count as lost to it.
    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault>;

    /// [`Egress::deliver`] by a queue that asks for the time; `now` is the turn's clock.
    fn deliver_at(
        &self,
        _now: Nanos,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        self.deliver(frames, drops)
    }

    /// Nanoseconds that the kernel takes for each frame, roughly: the call, and the way through the
    /// kernel that is walked in it. 0 where frames go through shared memory.
    fn kernel_ns(&self) -> u32 {
        0
    }

    /// What it has room for now; it may be a system call. `None`: not known, or without a limit
    /// worth asking for.
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
    /// What its egress takes without help, and on how many of its queues: may change while it runs.
    pub live: Arc<Capabilities>,
    /// Largest IP packet it carries, in bytes.
    pub mtu: u16,
    /// The address of the device itself, where it has one.
    pub mac: Option<Mac>,
}
