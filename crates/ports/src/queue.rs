//! All kinds of queues as two enums, matched once per burst.

use crate::{Burst, Egress, EgressDrop, Ingress, Nanos, Outgoing, PortFault, Room};
use crate::{fault, memory, packet, tap, vhost};
use std::os::fd::BorrowedFd;

/// The taking side of a queue pair of any kind of port.
pub enum IngressQueue {
    /// In-process frames.
    Memory(memory::MemoryIngress),
    /// The kernel of this host.
    Tap(tap::TapIngress),
    /// A network interface of this host.
    Packet(packet::PacketIngress),
    /// A guest.
    Vhost(vhost::VhostIngress),
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
    /// A guest.
    Vhost(vhost::VhostEgress),
    /// Any of these, behind a bad wire.
    Fault(Box<fault::FaultEgress>),
}

impl Ingress for IngressQueue {
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        match self {
            IngressQueue::Memory(queue) => queue.take(now, burst),
            IngressQueue::Tap(queue) => queue.take(now, burst),
            IngressQueue::Packet(queue) => queue.take(now, burst),
            IngressQueue::Vhost(queue) => queue.take(now, burst),
            IngressQueue::Fault(queue) => queue.take(now, burst),
        }
    }

    fn release(&mut self) {
        match self {
            IngressQueue::Memory(queue) => queue.release(),
            IngressQueue::Tap(queue) => queue.release(),
            IngressQueue::Packet(queue) => queue.release(),
            IngressQueue::Vhost(queue) => queue.release(),
            IngressQueue::Fault(queue) => queue.release(),
        }
    }

    fn arm(&mut self) -> bool {
        match self {
            IngressQueue::Memory(queue) => queue.arm(),
            IngressQueue::Tap(queue) => queue.arm(),
            IngressQueue::Packet(queue) => queue.arm(),
            IngressQueue::Vhost(queue) => queue.arm(),
            IngressQueue::Fault(queue) => queue.arm(),
        }
    }

    fn disarm(&mut self) {
        match self {
            IngressQueue::Memory(queue) => queue.disarm(),
            IngressQueue::Tap(queue) => queue.disarm(),
            IngressQueue::Packet(queue) => queue.disarm(),
            IngressQueue::Vhost(queue) => queue.disarm(),
            IngressQueue::Fault(queue) => queue.disarm(),
        }
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            IngressQueue::Memory(queue) => queue.ready_fd(),
            IngressQueue::Tap(queue) => queue.ready_fd(),
            IngressQueue::Packet(queue) => queue.ready_fd(),
            IngressQueue::Vhost(queue) => queue.ready_fd(),
            IngressQueue::Fault(queue) => queue.ready_fd(),
        }
    }

    fn lost(&self) -> u64 {
        match self {
            IngressQueue::Memory(queue) => queue.lost(),
            IngressQueue::Tap(queue) => queue.lost(),
            IngressQueue::Packet(queue) => queue.lost(),
            IngressQueue::Vhost(queue) => queue.lost(),
            IngressQueue::Fault(queue) => queue.lost(),
        }
    }
}

impl Egress for EgressQueue {
    fn deliver(
        &mut self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        match self {
            EgressQueue::Memory(queue) => queue.deliver(frames, drops),
            EgressQueue::Tap(queue) => queue.deliver(frames, drops),
            EgressQueue::Packet(queue) => queue.deliver(frames, drops),
            EgressQueue::Vhost(queue) => queue.deliver(frames, drops),
            EgressQueue::Fault(queue) => queue.deliver(frames, drops),
        }
    }

    fn room(&mut self) -> Option<Room> {
        match self {
            EgressQueue::Memory(queue) => queue.room(),
            EgressQueue::Tap(queue) => queue.room(),
            EgressQueue::Packet(queue) => queue.room(),
            EgressQueue::Vhost(queue) => queue.room(),
            EgressQueue::Fault(queue) => queue.room(),
        }
    }
}
