//! All kinds of queues, as two enums with the methods of [`Ingress`] and [`Egress`]. A call matches
//! the kind and then calls its code directly, without a table of functions; the switch calls once
//! per burst.

use crate::{Burst, Egress, EgressDrop, Ingress, Nanos, Outgoing, PortFault, Room};
use crate::{fault, memory, packet, tap, team, vhost, xdp};
use std::os::fd::BorrowedFd;

/// The taking side of a queue pair of any kind of port.
pub enum IngressQueue {
    /// In-process frames.
    Memory(memory::MemoryIngress),
    /// The kernel of this host.
    Tap(tap::TapIngress),
    /// A network interface of this host.
    Packet(packet::PacketIngress),
    /// A network interface of this host, past its stack.
    Xdp(xdp::XdpIngress),
    /// A guest.
    Vhost(vhost::VhostIngress),
    /// A member of a team.
    Team(Box<team::TeamIngress>),
    /// Any of these, behind a bad wire.
    Fault(Box<fault::FaultIngress>),
}

/// The delivering side of a queue pair of any kind of port.
pub enum EgressQueue {
    /// In-process frames.
    Memory(memory::MemoryEgress),
    /// The kernel of this host.
    Tap(tap::TapEgress),
    /// A network interface of this host.
    Packet(packet::PacketEgress),
    /// A network interface of this host, past its stack.
    Xdp(xdp::XdpEgress),
    /// A guest.
    Vhost(vhost::VhostEgress),
    /// All members of a team.
    Team(team::TeamEgress),
    /// Any of these, behind a bad wire.
    Fault(Box<fault::FaultEgress>),
}

/// Matches the kind of a queue of either enum, and makes the same call on each. A macro, because a
/// function cannot take a closure that is generic over the kinds.
macro_rules! each {
    ($queues:ident, $from:expr, $queue:ident => $call:expr) => {
        match $from {
            $queues::Memory($queue) => $call,
            $queues::Tap($queue) => $call,
            $queues::Packet($queue) => $call,
            $queues::Xdp($queue) => $call,
            $queues::Vhost($queue) => $call,
            $queues::Team($queue) => $call,
            $queues::Fault($queue) => $call,
        }
    };
}

impl IngressQueue {
    /// Takes frames that have arrived, see [`Ingress::take`].
    ///
    /// # Errors
    /// The port has a fault.
    #[inline]
    pub fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        each!(IngressQueue, self, queue => queue.take(now, burst))
    }

    /// Gives the buffers lent by the last [`take`](IngressQueue::take) back, see
    /// [`Ingress::release`].
    #[inline]
    pub fn release(&mut self) {
        each!(IngressQueue, self, queue => queue.release());
    }

    /// Requests a wake-up for frames that arrive from now on, see [`Ingress::arm`].
    #[inline]
    pub fn arm(&mut self) -> bool {
        each!(IngressQueue, self, queue => queue.arm())
    }

    /// Cancels the request for wake-ups, see [`Ingress::disarm`].
    #[inline]
    pub fn disarm(&mut self) {
        each!(IngressQueue, self, queue => queue.disarm());
    }

    /// Returns a descriptor that is readable when there is something to take, see
    /// [`Ingress::ready_fd`].
    #[inline]
    pub fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(IngressQueue, self, queue => queue.ready_fd())
    }

    /// Returns whether its frames lie in memory that a guest may take away.
    #[inline]
    pub fn is_guest(&self) -> bool {
        matches!(self, IngressQueue::Vhost(_))
    }

    /// Returns the cost of a frame in the kernel, see [`Ingress::kernel_ns`].
    #[inline]
    pub fn kernel_ns(&self) -> u32 {
        each!(IngressQueue, self, queue => queue.kernel_ns())
    }

    /// Returns the frames that the device itself lost, see [`Ingress::lost`].
    #[inline]
    pub fn lost(&self) -> u64 {
        each!(IngressQueue, self, queue => queue.lost())
    }
}

impl EgressQueue {
    /// Delivers frames in order, see [`Egress::deliver`].
    ///
    /// # Errors
    /// The port has a fault.
    #[inline]
    pub fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        each!(EgressQueue, self, queue => queue.deliver(frames, drops))
    }

    /// Delivers frames in order at a time, see [`Egress::deliver_at`].
    ///
    /// # Errors
    /// The port has a fault.
    #[inline]
    pub fn deliver_at(
        &self,
        now: Nanos,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        each!(EgressQueue, self, queue => queue.deliver_at(now, frames, drops))
    }

    /// Returns the queue if its frames are copied into memory that a guest may take away.
    #[inline]
    pub fn guest(&self) -> Option<&vhost::VhostEgress> {
        if let EgressQueue::Vhost(queue) = self { Some(queue) } else { None }
    }

    /// Returns the cost of a frame in the kernel, see [`Egress::kernel_ns`].
    #[inline]
    pub fn kernel_ns(&self) -> u32 {
        each!(EgressQueue, self, queue => queue.kernel_ns())
    }

    /// Returns the room that the queue has now, see [`Egress::room`].
    #[inline]
    pub fn room(&self) -> Option<Room> {
        each!(EgressQueue, self, queue => queue.room())
    }
}
