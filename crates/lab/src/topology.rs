//! The hosts of an experiment and the wires between them.
//!
//! ```text
//! sender wire0 ── uplink0 switch (millrace run) ── vnic0 receiver
//! sender peer0 ── in0 bridge (Linux bridge, GRO on) out0 ── peer0 receiver
//! ```
//!
//! The sender's wires carry frames of MTU size, as a physical network does: its TSO and GSO are off, its checksum
//! offload stays on, as every NIC has it. Addresses exist inside these namespaces only.

use crate::LabError;
use crate::host::{Host, Request};
use crate::report::Command;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The sender's link to the switch.
pub(crate) const WIRE: &str = "wire0";
/// The sender's and the receiver's links to the bridge.
pub(crate) const PEER: &str = "peer0";
/// The switch's end of the wire.
pub(crate) const UPLINK: &str = "uplink0";
/// The receiver's link to the switch.
pub(crate) const VNIC: &str = "vnic0";
/// The switch's end of the receiver's link, where that is a veth.
pub(crate) const GUEST: &str = "guest0";
/// NTttcp's first port.
const PORT: u16 = 5001;

/// What the receiver's vNIC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vnic {
    /// A TAP that the switch creates in the receiver's namespace.
    Tap,
    /// A veth whose other end is a packet port: where /dev/net/tun may not be used.
    Veth,
}

impl Vnic {
    /// A TAP where we may have one.
    pub(crate) fn possible() -> Vnic {
        let tun = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
        if tun.is_ok() { Vnic::Tap } else { Vnic::Veth }
    }
}

/// See the module. Fields end in this order: first the hosts, then the directory with their logs.
pub(crate) struct Topology {
    pub(crate) sender: Host,
    pub(crate) receiver: Host,
    pub(crate) bridge: Host,
    pub(crate) switch: Host,
    pub(crate) vnic: Vnic,
    /// MTU of every link, in bytes.
    pub(crate) mtu: u16,
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Topology {
    /// Starts the hosts and connects them. `program` is this binary. The switch does not run yet.
    pub(crate) fn new(program: &Path, vnic: Vnic, mtu: u16) -> Result<Topology, LabError> {
        // The switch host hides /run, see below.
        let usual = std::env::temp_dir();
        let place = if usual.starts_with("/run") { PathBuf::from("/tmp") } else { usual };
        let directory = tempfile::Builder::new()
            .prefix("millrace-lab-")
            .tempdir_in(place)
            .map_err(LabError::io("making a private directory"))?;
        let start = |name| Host::start(name, program, directory.path());
        let mut topology = Topology {
            sender: start("sender")?,
            receiver: start("receiver")?,
            bridge: start("bridge")?,
            switch: start("switch")?,
            vnic,
            mtu,
            directory,
            program: program.to_owned(),
        };
        topology.connect_switch()?;
        topology.connect_bridge()?;
        let line = "millrace ntttcp -R -M 1,*,10.77.0.2 -l 64k -a 6";
        topology.receiver.order(&Request::Listen { port: PORT }, line)?;
        Ok(topology)
    }

    /// Where the switch's configuration and socket are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// This binary.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Where the receiver listens, behind the switch or behind the bridge.
    pub(crate) fn address(&self, link: &str) -> SocketAddr {
        SocketAddr::from(([10, if link == PEER { 78 } else { 77 }, 0, 2], PORT))
    }

    /// Where the receiver answers round trips.
    pub(crate) fn round_trip_address(&self, link: &str) -> SocketAddr {
        let mut address = self.address(link);
        address.set_port(PORT + 1);
        address
    }

    /// Every command so far, host by host.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let hosts = [&self.switch, &self.bridge, &self.sender, &self.receiver];
        hosts.into_iter().flat_map(|host| host.commands().iter().cloned()).collect()
    }

    fn connect_switch(&mut self) -> Result<(), LabError> {
        let (mtu, switch) = (self.mtu, self.switch.process());
        wire(&mut self.sender, WIRE, UPLINK, switch, mtu)?;
        self.switch.run(&format!("ip link set {UPLINK} mtu {mtu} up"))?;
        address(&mut self.sender, WIRE, 77, 1)?;
        one_frame_at_a_time(&mut self.sender, WIRE)?;
        if self.vnic != Vnic::Tap {
            wire(&mut self.receiver, VNIC, GUEST, switch, mtu)?;
            self.switch.run(&format!("ip link set {GUEST} mtu {mtu} up"))?;
            address(&mut self.receiver, VNIC, 77, 2)?;
        }
        Ok(())
    }

    /// Gives the TAP its address, once the switch has created it.
    pub(crate) fn address_tap(&mut self) -> Result<(), LabError> {
        self.receiver.run(&format!("ip link set {VNIC} mtu {} up", self.mtu))?;
        address(&mut self.receiver, VNIC, 77, 2)
    }

    fn connect_bridge(&mut self) -> Result<(), LabError> {
        let (mtu, bridge) = (self.mtu, self.bridge.process());
        wire(&mut self.sender, PEER, "in0", bridge, mtu)?;
        wire(&mut self.receiver, PEER, "out0", bridge, mtu)?;
        self.bridge.run("ip link add bridge0 type bridge")?;
        for link in ["in0", "out0"] {
            self.bridge.run(&format!("ip link set {link} mtu {mtu} master bridge0 up"))?;
        }
        self.bridge.run(&format!("ip link set bridge0 mtu {mtu} up"))?;
        let request = Request::Offload { link: "in0".into(), segmentation: true, coalescing: true };
        self.bridge.order(&request, "ethtool -K in0 tso on gso on gro on")?;
        address(&mut self.sender, PEER, 78, 1)?;
        address(&mut self.receiver, PEER, 78, 2)?;
        one_frame_at_a_time(&mut self.sender, PEER)
    }
}

/// A veth whose other end lies in another host.
fn wire(host: &mut Host, link: &str, other: &str, to: u32, mtu: u16) -> Result<(), LabError> {
    host.run(&format!("ip link add {link} type veth peer name {other} netns {to}"))?;
    host.run(&format!("ip link set {link} mtu {mtu} up")).map(drop)
}

fn address(host: &mut Host, link: &str, net: u8, station: u8) -> Result<(), LabError> {
    host.run(&format!("ip address add 10.{net}.0.{station}/24 dev {link}"))?;
    host.run(&format!("ip -6 address add fd00:{net}::{station}/64 dev {link} nodad")).map(drop)
}

/// Frames leave at MTU size, as from a NIC onto its wire.
fn one_frame_at_a_time(host: &mut Host, link: &str) -> Result<(), LabError> {
    let request = Request::Offload { link: link.into(), segmentation: false, coalescing: false };
    host.order(&request, &format!("ethtool -K {link} tso off gso off gro off"))
}
