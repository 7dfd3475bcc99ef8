//! One vNIC: the front end of a vhost-user session, its memory and its pair of queues.
//!
//! It requests the features that the case's driver requests, by default those of a Linux guest:
//! checksum and segmentation offloads and mergeable buffers. It does without features that a switch
//! does not offer, unless the case is about them.

use crate::area::{AREA, Area, Shape};
use crate::case::{Case, Driver, Load};
use crate::memory::Memory;
use crate::queue::Queue;
use anyhow::{Context, Result, ensure};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

/// Bits of `VIRTIO_F_*` and `VIRTIO_NET_F_*`.
const CSUM: u64 = 1;
const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const HOST_TSO4: u64 = 1 << 11;
const MRG_RXBUF: u64 = 1 << 15;
const VERSION_1: u64 = 1 << 32;
const RING_PACKED: u64 = 1 << 34;
const IN_ORDER: u64 = 1 << 35;
const OFFLOADS: u64 = CSUM | GUEST_CSUM | HOST_TSO4 | GUEST_TSO4;

/// Numbers of the two queues: the guest's receive queue comes first.
const EGRESS: usize = 0;
const INGRESS: usize = 1;

/// A vNIC; dropping it ends the session.
pub(crate) struct Vnic {
    session: Frontend,
    memory: Rc<Memory>,
    /// The queue that the switch reads.
    pub(crate) ingress: Queue,
    /// The queue that the switch writes.
    pub(crate) egress: Queue,
    /// Virtio features that both sides support.
    pub(crate) features: u64,
}

impl Vnic {
    /// Starts the session on a connection to the switch and enables both queues.
    pub(crate) fn start(connection: UnixStream, case: &Case) -> Result<Vnic> {
        let mut session = Frontend::from_stream(connection, 2);
        let features = negotiate(&mut session, case)?;
        let (memory, ingress, egress) = queues(case, features & IN_ORDER != 0)?;
        let mut vnic = Vnic { session, memory, ingress, egress, features };
        vnic.share_memory()?;
        vnic.enable(INGRESS)?;
        vnic.enable(EGRESS)?;
        Ok(vnic)
    }

    /// Returns whether its memory is in huge pages.
    pub(crate) fn huge_pages(&self) -> bool {
        self.memory.huge
    }

    fn share_memory(&self) -> Result<()> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.memory.len() as u64,
            userspace_addr: self.memory.address(),
            mmap_offset: 0,
            mmap_handle: self.memory.file(),
        };
        self.session.set_mem_table(&[region]).context("the switch does not accept our memory")?;
        Ok(())
    }

    fn enable(&mut self, number: usize) -> Result<()> {
        let queue = if number == INGRESS { &self.ingress } else { &self.egress };
        let size = queue.ring.area().shape.size;
        let parts = queue.ring.parts();
        let address = |offset: usize| self.memory.address() + offset as u64;
        let ring = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: address(parts.descriptors),
            used_ring_addr: address(parts.device),
            avail_ring_addr: address(parts.driver),
            log_addr: None,
        };
        self.session.set_vring_num(number, size)?;
        self.session.set_vring_base(number, queue.ring.base())?;
        self.session.set_vring_addr(number, &ring)?;
        self.session.set_vring_kick(number, &queue.kick)?;
        self.session.set_vring_call(number, &queue.call)?;
        self.session.set_vring_enable(number, true)?;
        Ok(())
    }
}

/// Agrees on the features of a session, and returns them.
fn negotiate(session: &mut Frontend, case: &Case) -> Result<u64> {
    let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    session.set_owner()?;
    let ring = if case.packed { RING_PACKED } else { 0 };
    let driver = match case.driver {
        Driver::Full => OFFLOADS | MRG_RXBUF,
        Driver::OneBuffer => OFFLOADS,
        Driver::Bare => 0,
        Driver::InOrder => OFFLOADS | MRG_RXBUF | IN_ORDER,
    };
    let features = session.get_features()? & (driver | VERSION_1 | ring | protocol);
    let without = |bits: u64| bits & !features != 0;
    ensure!(!without(VERSION_1 | protocol), "the switch offers no virtio 1 over vhost-user");
    ensure!(!without(ring), "the switch offers no packed rings");
    ensure!(case.load != Load::Train || !without(OFFLOADS), "the switch offers no trains");
    let reply = VhostUserProtocolFeatures::REPLY_ACK;
    let taken = session.get_protocol_features()? & (VhostUserProtocolFeatures::MQ | reply);
    session.set_protocol_features(taken)?;
    if taken.contains(reply) {
        session.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    session.set_features(features)?;
    Ok(features)
}

/// Allocates the memory of both queues of a case: two ring areas, then the buffers.
fn queues(case: &Case, in_order: bool) -> Result<(Rc<Memory>, Queue, Queue)> {
    let [ingress, egress] = [false, true].map(|writable| case.shape(writable));
    let buffers = 2 * AREA;
    let memory = Rc::new(Memory::new(buffers + ingress.len() + egress.len())?);
    let area = |ring: usize, buffers: usize, shape: Shape| Area {
        memory: Rc::clone(&memory),
        ring,
        buffers,
        shape,
    };
    let first = Queue::new(area(0, buffers, ingress), case.packed, in_order)?;
    let second = Queue::new(area(AREA, buffers + ingress.len(), egress), case.packed, in_order)?;
    Ok((memory, first, second))
}
