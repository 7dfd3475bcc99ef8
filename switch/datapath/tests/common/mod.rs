//! What the tests of the data path share: a packet-trace notation, and a switch on virtual time.
//!
//! A frame is one line: `1+1448 .P ack=7 win=500`, that is sequence number + payload bytes, flags
//! (`.` is ACK, `P S F R U E C` the others), and whatever differs from the defaults:
//! `ack= win= ts=VALUE/ECHO ttl= tos= id= df=0 flow= opt=sack v6 vlan= gso= bad=ip|tcp frag ipopt`.
//! The payload bytes are a function of flow and sequence number, so that a byte out of place shows.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it means, and its numbers are small"
)]
#![allow(dead_code, unreachable_pub, reason = "each program uses its part of what has no outside")]

pub mod limits;
pub mod packet;
pub mod trace;

use datapath::{
    DropReason, PortId, PortSettings, PortState, Rsc, RscPolicy, Switch, SwitchOptions, Vlan,
};
use ports::memory::{self, MemoryFrame, Peer};
use ports::{Capabilities, Nanos, Offloads};
use std::sync::Arc;

/// Every offload a memory port can take.
pub const ALL: Offloads = Offloads::all();

/// Frames a memory port holds: more than the segments of any train that a test sends.
pub const DEPTH: usize = 2048;

/// A stepped switch with memory ports.
pub struct Bench {
    pub switch: Switch,
    pub peers: Vec<Peer>,
    pub ids: Vec<PortId>,
    pub now: Nanos,
}

impl Bench {
    /// Returns a bench with a port for each of the settings, with its offloads.
    pub fn new(ports: &[(PortSettings, Offloads)]) -> Bench {
        let mut bench = Bench {
            switch: Switch::stepped(SwitchOptions::default()),
            peers: vec![],
            ids: vec![],
            now: Nanos::SECOND,
        };
        for (settings, offloads) in ports {
            bench.add(settings.clone(), *offloads);
        }
        bench
    }

    /// Adds a port.
    pub fn add(&mut self, settings: PortSettings, offloads: Offloads) -> PortId {
        self.add_queues(settings, offloads, 1).0
    }

    /// Adds a port whose other side is this host's kernel, which takes so many datagrams a train.
    pub fn add_kernel(
        &mut self,
        settings: PortSettings,
        offloads: Offloads,
        datagrams: u16,
    ) -> PortId {
        let (mut device, peer) = memory::open(DEPTH, offloads, settings.mtu).unwrap();
        device.live = Arc::new(Capabilities::of_kernel(offloads, 1));
        device.live.set_datagrams(datagrams);
        self.peers.push(peer);
        let name = format!("p{}", self.ids.len());
        let id = self.switch.add_port(&name, device, settings).unwrap();
        self.ids.push(id);
        id
    }

    /// Adds a port with a number of queue pairs, all in use. Each has a peer of its own.
    pub fn add_queues(
        &mut self,
        settings: PortSettings,
        offloads: Offloads,
        queues: u16,
    ) -> (PortId, Arc<Capabilities>) {
        let name = format!("p{}", self.peers.len());
        let (mut device, peer) = memory::open(DEPTH, offloads, settings.mtu).unwrap();
        self.peers.push(peer);
        for _ in 1..queues {
            let (more, peer) = memory::open(DEPTH, offloads, settings.mtu).unwrap();
            device.ingress.extend(more.ingress);
            device.egress.extend(more.egress);
            self.peers.push(peer);
        }
        device.live.set_queues(queues);
        let live = device.live.clone();
        let id = self.switch.add_port(&name, device, settings).unwrap();
        self.ids.push(id);
        (id, live)
    }

    /// Returns a switch of two ports, coalescing toward the second.
    pub fn coalescing(rsc: Rsc) -> Bench {
        Bench::new(&[(plain(), ALL), (PortSettings { rsc, ..plain() }, ALL)])
    }

    /// Runs one turn of every port.
    pub fn step(&mut self) {
        self.now = self.now + Nanos(1000);
        self.switch.step(self.now);
    }

    /// Sends frames into a port, as one burst, and lets the switch turn.
    pub fn send(&mut self, port: usize, frames: &[MemoryFrame]) {
        for frame in frames {
            assert!(self.peers[port].send(frame.vnet, &frame.bytes), "the memory port is full");
        }
        self.step();
    }

    /// Sets a port's state as the control plane does.
    pub fn set_state(&mut self, port: usize, state: PortState) {
        let ports = self.switch.ports();
        let known = ports.iter().find(|known| known.id == self.ids[port]).unwrap();
        self.switch.set_state(known, state).unwrap();
    }

    /// Returns the frames that came out of a port.
    pub fn received(&self, port: usize) -> Vec<MemoryFrame> {
        std::iter::from_fn(|| self.peers[port].receive()).collect()
    }
}

/// Returns the number of frames that a port has dropped for a reason.
pub fn drops(bench: &Bench, port: usize, reason: DropReason) -> u64 {
    bench.switch.counters(bench.ids[port]).unwrap().drops[reason as usize]
}

/// Returns the settings of a port of one VLAN, untagged.
pub fn access(vlan: u16) -> PortSettings {
    PortSettings { vlan: Vlan::Access(vlan), ..plain() }
}

/// Returns the settings of a trunk of these VLANs, one of them or 0 untagged.
pub fn trunk(native: u16, ids: &[u16]) -> PortSettings {
    let allowed = ids.iter().copied().collect();
    PortSettings { vlan: Vlan::Trunk { native, allowed }, ..plain() }
}

/// Returns the settings of a port without extras, MTU 1500.
pub fn plain() -> PortSettings {
    PortSettings { mtu: 1500, ..PortSettings::default() }
}

/// Returns coalescing by a policy, with default settings otherwise.
pub fn rsc(policy: RscPolicy) -> Rsc {
    Rsc { policy, ..Rsc::default() }
}
