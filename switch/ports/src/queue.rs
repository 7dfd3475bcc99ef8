//! All kinds of queues, as two enums. Each is a [`Deref`] to its trait, so the kind is matched once
//! per call, and the switch calls once per burst.

use crate::{Egress, Ingress};
use crate::{fault, memory, packet, tap, team, vhost, xdp};
use std::ops::{Deref, DerefMut};

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

impl Deref for IngressQueue {
    type Target = dyn Ingress;

    fn deref(&self) -> &(dyn Ingress + 'static) {
        match self {
            IngressQueue::Memory(queue) => queue,
            IngressQueue::Tap(queue) => queue,
            IngressQueue::Packet(queue) => queue,
            IngressQueue::Xdp(queue) => queue,
            IngressQueue::Vhost(queue) => queue,
            IngressQueue::Team(queue) => queue.as_ref(),
            IngressQueue::Fault(queue) => queue.as_ref(),
        }
    }
}

impl DerefMut for IngressQueue {
    fn deref_mut(&mut self) -> &mut (dyn Ingress + 'static) {
        match self {
            IngressQueue::Memory(queue) => queue,
            IngressQueue::Tap(queue) => queue,
            IngressQueue::Packet(queue) => queue,
            IngressQueue::Xdp(queue) => queue,
            IngressQueue::Vhost(queue) => queue,
            IngressQueue::Team(queue) => queue.as_mut(),
            IngressQueue::Fault(queue) => queue.as_mut(),
        }
    }
}

impl Deref for EgressQueue {
    type Target = dyn Egress;

    fn deref(&self) -> &(dyn Egress + 'static) {
        match self {
            EgressQueue::Memory(queue) => queue,
            EgressQueue::Tap(queue) => queue,
            EgressQueue::Packet(queue) => queue,
            EgressQueue::Xdp(queue) => queue,
            EgressQueue::Vhost(queue) => queue,
            EgressQueue::Team(queue) => queue,
            EgressQueue::Fault(queue) => queue.as_ref(),
        }
    }
}
