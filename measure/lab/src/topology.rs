//! The hosts of an experiment and the wires between them.
//!
//! ```text
//! sender wire0 ── uplink0 switch (millrace run) ── vnic0 receiver
//! sender peer0 ── in0 bridge (Linux bridge) out0 ── peer0 receiver
//! sender ovs0 ── in1 ovs (Open vSwitch, from its first use on) out1 ── ovs0 receiver
//! ```
//!
//! If the guest sends, sender and receiver have changed places: the sender has vnic0, the receiver
//! wire0. The wires carry frames of MTU size, as a physical network does: TSO and GSO are off at
//! the ends where frames enter them, and checksum offload stays on, as in every NIC. Addresses
//! exist inside these namespaces only.

mod congestion;
mod delay;
pub(crate) mod ovs;
mod team;
mod virtual_machine;

use crate::LabError;
use crate::guest::Files;
use crate::host::{Command, Host, Reading, Request};
use crate::load::Way;
use crate::machine::VirtualMachine;
use crate::options::Options;
use crate::placement::Placement;
use crate::vnic::Vnic;
pub(crate) use congestion::congestion;
use ports::link::LinkOffload;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
pub(crate) use team::{MEMBERS, RATE, other_end};

/// The outer host's link to the switch.
pub(crate) const WIRE: &str = "wire0";
/// The sender's and the receiver's links to the bridge.
const PEER: &str = "peer0";
/// What the names of the settings begin with that show a bridge's frames to netfilter.
const NETFILTER: &str = "/proc/sys/net/bridge/bridge-nf-call-";
/// The bridge's link to the sender.
const IN: &str = "in0";
/// The bridge's link to the receiver.
const OUT: &str = "out0";
/// The switch's end of the wire.
pub(crate) const UPLINK: &str = "uplink0";
/// The guest's link to the switch.
pub(crate) const VNIC: &str = "vnic0";
/// The switch's end of the guest's link, if that is a veth.
pub(crate) const GUEST: &str = "guest0";
/// NTttcp's first port.
pub(crate) const PORT: u16 = 5001;
/// Port that answers round trips, which NTttcp does not use.
pub(crate) const ROUND_TRIP_PORT: u16 = 4999;

/// MTU without jumbo frames, in bytes.
pub(crate) const STANDARD_MTU: u16 = 1500;
/// Largest frame without jumbo frames, in bytes, with its Ethernet header.
pub(crate) const LARGEST_STANDARD_FRAME: f64 = STANDARD_MTU as f64 + ETHERNET as f64;

/// Ethernet header, in bytes.
pub(crate) const ETHERNET: u64 = 14;
/// IPv4 and TCP headers, time stamps included, in bytes.
pub(crate) const IP_AND_TCP: u64 = 20 + 32;

impl Way {
    /// Returns the links of sender and receiver.
    pub(crate) fn links(self) -> (&'static str, &'static str) {
        match self {
            Way::ToVnic | Way::BetweenVnics => (WIRE, VNIC),
            Way::FromVnic => (VNIC, WIRE),
        }
    }
}

/// The switch through which frames reach the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// This switch.
    Switch,
    /// The Linux bridge.
    Bridge,
    /// Open vSwitch.
    OpenVswitch,
}

/// Route of the frames while an arm is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) route: Route,
    /// The kernel coalesces (GRO) what arrives at the switch.
    pub(crate) coalesces: bool,
    /// The Linux bridge shows IP frames to netfilter, as it does where br_netfilter is loaded,
    /// unless told otherwise.
    pub(crate) filters: bool,
}

impl Setup {
    /// Through this switch, which sees single frames.
    pub(crate) const OWN: Setup = Setup { route: Route::Switch, coalesces: false, filters: true };
}

/// Which hosts and links a topology has, and which way the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wiring {
    /// Way of the load through the switch.
    pub(crate) way: Way,
    /// Two wires to the switch, with a team as its uplink.
    pub(crate) members: bool,
    /// A Linux bridge between sender and receiver, beside the switch.
    pub(crate) bridge: bool,
    /// The receiver's kernel coalesces (GRO) what the switch gives it over a TAP.
    pub(crate) receiver_gro: bool,
    /// The guest is a container: its vNIC is a veth, and it sends frames of MTU size.
    pub(crate) container: bool,
}

impl Wiring {
    /// One wire to the switch, and a guest that receives.
    pub(crate) const PLAIN: Wiring = Wiring {
        way: Way::ToVnic,
        members: false,
        bridge: false,
        receiver_gro: false,
        container: false,
    };
}

/// Last bytes of the sender's and the receiver's addresses.
const SENDER: u8 = 1;
const RECEIVER: u8 = 2;

/// The hosts and wires of an experiment. Fields are dropped in this order: first the hosts, then
/// the directory with their logs.
pub(crate) struct Topology {
    pub(crate) sender: Host,
    pub(crate) receiver: Host,
    pub(crate) bridge: Host,
    pub(crate) switch: Host,
    ovs: Option<Host>,
    /// Files from which the guest is booted, if it is a virtual machine.
    pub(crate) files: Option<Files>,
    /// The virtual machine and the host of its QEMU, after it has booted.
    virtual_machine: Option<(VirtualMachine, Host)>,
    pub(crate) vnic: Vnic,
    pub(crate) way: Way,
    /// MTU of every link, in bytes.
    pub(crate) mtu: u16,
    /// Largest number of queues of the switch's ports in any arm.
    pub(crate) queues: u32,
    /// Number of times that a team's member is pulled before measuring.
    pub(crate) pulls: usize,
    /// Whether the guest's kernel coalesces (GRO) what it receives over a TAP.
    pub(crate) receiver_gro: bool,
    /// Whether the guest is a container, with a veth even where a TAP is possible.
    pub(crate) container: bool,
    /// TCP's congestion control, if another than the lab's was asked for.
    asked_congestion: Option<String>,
    /// Milliseconds for which what the outer host sends over the wire is delayed.
    pub(crate) round_trip_ms: Option<u32>,
    /// Processors that each side has to itself, or the reason why none has.
    pub(crate) placement: Result<Placement, String>,
    /// Whether the bridge shows frames to netfilter, once an arm has said it.
    filters: Option<bool>,
    /// Sentences about arms that could not be measured, for the report.
    pub(crate) left_out: Vec<String>,
    directory: tempfile::TempDir,
    /// The binary with the commands `lab-host` and `run`.
    pub(crate) program: PathBuf,
}

impl Topology {
    /// Starts the hosts and connects them. The switch does not run yet.
    pub(crate) fn new(wiring: Wiring, options: &Options) -> Result<Topology, LabError> {
        let program = &options.program;
        let files =
            options.guest.as_deref().map(|guest| Files::find(guest, "initramfs")).transpose()?;
        files.as_ref().map_or(Ok(()), |_| options.check_interval())?;
        // The switch host hides /run.
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
            ovs: None,
            vnic: match files {
                Some(_) => Vnic::VhostUser,
                None if wiring.container => Vnic::Veth,
                None => Vnic::possible(),
            },
            container: wiring.container,
            files,
            virtual_machine: None,
            way: wiring.way,
            mtu: options.mtu,
            queues: options.most_queues(),
            pulls: options.team.pulls,
            receiver_gro: wiring.receiver_gro,
            asked_congestion: options.rate.congestion.clone(),
            round_trip_ms: options.rate.round_trip_ms,
            placement: Placement::possible(options.most_queues() as usize)
                .ok_or_else(|| "there is one processor".to_owned()),
            filters: None,
            left_out: Vec::new(),
            directory,
            program: program.clone(),
        };
        topology.place();
        topology.connect_switch()?;
        if wiring.members {
            topology.connect_team()?;
        }
        if wiring.bridge {
            topology.connect_bridge()?;
        }
        let line = format!("(answers bytes on port {ROUND_TRIP_PORT})");
        topology.receiver.order(&Request::Answer { port: ROUND_TRIP_PORT }, &line)?;
        Ok(topology)
    }

    /// Gives each side its processors, before there are links and threads.
    fn place(&mut self) {
        let Ok(Placement { sender, switch, receiver }) = self.placement.clone() else { return };
        // A container shares the switch's kernel, which by default receives where it delivers; what
        // is redirected into a container could not be steered anyway.
        let [sends, receives] = match self.way {
            Way::FromVnic => [self.container, false],
            Way::ToVnic => [false, self.container],
            Way::BetweenVnics => [self.container; 2],
        };
        // Frames that the switch delivers on the receiver's own processors are already there.
        let steered = receiver != switch && !receives;
        let sides = [
            (&mut self.sender, &sender, !sends),
            (&mut self.switch, &switch, true),
            (&mut self.bridge, &switch, true),
            (&mut self.receiver, &receiver, steered),
        ];
        let placed = sides.into_iter().try_for_each(|(host, processors, steered)| {
            Placement::pin(host, processors)?;
            if steered { Placement::steer(host, processors) } else { Ok(()) }
        });
        self.placement_held(placed);
    }

    fn placement_held(&mut self, placed: Result<(), LabError>) {
        if let Err(error) = placed {
            self.placement = Err(error.to_string());
        }
    }

    /// Returns the directory of the switch's configuration and socket.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the links of sender and receiver on a route.
    pub(crate) fn links(&self, route: Route) -> (&'static str, &'static str) {
        match route {
            Route::Switch => self.way.links(),
            Route::Bridge => (PEER, PEER),
            Route::OpenVswitch => (ovs::LINK, ovs::LINK),
        }
    }

    /// Returns the process of a route's switch; 0 if it has not started. The bridge's process is
    /// idle, because the kernel forwards its frames.
    pub(crate) fn switch_process(&self, route: Route) -> u32 {
        match route {
            Route::Switch => self.switch.process(),
            Route::Bridge => self.bridge.process(),
            Route::OpenVswitch => self.ovs.as_ref().map_or(0, Host::process),
        }
    }

    /// Returns the receiver's address on a route.
    pub(crate) fn address(&self, route: Route) -> IpAddr {
        let net = match route {
            Route::Switch => 77,
            Route::Bridge => 78,
            Route::OpenVswitch => 79,
        };
        IpAddr::from([10, net, 0, 2])
    }

    /// Readies the links of a route, and its switch unless that is the daemon.
    pub(crate) fn enter(&mut self, setup: Setup) -> Result<(), LabError> {
        let (host, link) = match setup.route {
            Route::Switch if !self.way.guest_sends() => (&mut self.switch, UPLINK),
            Route::Switch if self.container => (&mut self.switch, GUEST),
            Route::Switch => return Ok(()),
            Route::Bridge => {
                self.filter(setup.filters)?;
                (&mut self.bridge, IN)
            }
            Route::OpenVswitch => {
                if self.ovs.is_none() {
                    self.ovs = Some(ovs::start(self)?);
                }
                return Ok(());
            }
        };
        if host.offload(link, LinkOffload::Gro)? == setup.coalesces {
            return Ok(());
        }
        host.set_offloads(link, &[(LinkOffload::Gro, setup.coalesces)])?;
        if let (true, Ok(placement)) = (setup.coalesces, self.placement.clone()) {
            let pinned = Placement::pin_threads(&mut self.bridge, link, &placement.switch);
            self.placement_held(pinned);
        }
        Ok(())
    }

    /// Has the bridge show frames to netfilter, or not. Whether it does is the setting of its
    /// network namespace, which has none without br_netfilter.
    fn filter(&mut self, on: bool) -> Result<(), LabError> {
        if self.filters == Some(on) {
            return Ok(());
        }
        let value = u8::from(on);
        let set = ["ip", "ip6", "arp"].map(|of| format!("echo {value} > {NETFILTER}{of}tables"));
        let set = self.bridge.shell(&set.join(" && "));
        // Without br_netfilter nothing is shown, which only an arm that says so needs.
        set.or_else(|error| if on { Ok(()) } else { Err(error) })?;
        self.filters = Some(on);
        Ok(())
    }

    /// Returns every command so far, host by host.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let hosts = [&self.switch, &self.bridge, &self.sender, &self.receiver];
        hosts
            .into_iter()
            .chain(&self.ovs)
            .chain(self.virtual_machine.as_ref().map(|(_, host)| host))
            .flat_map(|host| host.commands().iter().cloned())
            .collect()
    }

    /// Returns what TCP uses over the links.
    pub(crate) fn congestion(&self) -> Option<String> {
        self.asked_congestion.clone().or_else(congestion)
    }

    /// Returns the host with the vNIC.
    pub(crate) fn guest(&mut self) -> &mut Host {
        if self.way.guest_sends() { &mut self.sender } else { &mut self.receiver }
    }

    /// Returns the bytes of a frame that a link's counters of received bytes leave out: a TAP and a
    /// virtual machine count the Ethernet header, a veth only if it does not coalesce (GRO).
    pub(crate) fn uncounted(&self, link: &str) -> u64 {
        let is_tap = link == VNIC && self.vnic != Vnic::Veth;
        let is_far = link == WIRE && self.round_trip_ms.is_some();
        if is_tap || is_far { 0 } else { ETHERNET }
    }

    /// Returns a function that computes the TCP payload that arrived over a link between two
    /// readings of its counters.
    pub(crate) fn payload(&self, link: &str) -> impl Fn(&Reading, &Reading) -> u64 + use<> {
        let header = ETHERNET - self.uncounted(link) + IP_AND_TCP;
        move |before, after| {
            let (frames, bytes) = after.arrived_since(before);
            bytes.saturating_sub(frames * header)
        }
    }

    /// Returns the host of one of the two links to the switch.
    pub(crate) fn host_of(&mut self, link: &str) -> &mut Host {
        let sends = self.way.links().0 == link;
        if sends { &mut self.sender } else { &mut self.receiver }
    }

    fn connect_switch(&mut self) -> Result<(), LabError> {
        let (mtu, switch) = (self.mtu, self.switch.process());
        let asked = self.asked_congestion.clone();
        let guest_sends = self.way.guest_sends();
        // With GRO a veth holds 256 frames, less than a window over long round trips has.
        let coalesces = guest_sends && self.round_trip_ms.is_none();
        let (outer, station) = match guest_sends {
            false => (&mut self.sender, SENDER),
            true => (&mut self.receiver, RECEIVER),
        };
        wire(outer, WIRE, UPLINK, switch, mtu)?;
        address(outer, WIRE, 77, station)?;
        if asked.is_some() {
            congestion::choose(outer, (WIRE, 77, station), asked.as_deref())?;
        }
        // Without segmentation offload frames leave at MTU size, as from a NIC onto its wire. The
        // second offload, GRO, applies to what arrives.
        outer.set_offloads(WIRE, &offloads(false, coalesces))?;
        if let (true, Ok(Placement { receiver, .. })) = (coalesces, &self.placement) {
            let placed = Placement::thread(outer, WIRE);
            let placed = placed.and_then(|()| Placement::pin_threads(outer, WIRE, receiver));
            self.placement_held(placed);
        }
        self.switch.run(&format!("ip link set {UPLINK} mtu {mtu} up"))?;
        if guest_sends {
            self.switch.set_offloads(UPLINK, &offloads(false, false))?;
        } else {
            self.receive_by_thread(UPLINK)?;
        }
        if self.vnic == Vnic::Veth {
            wire(self.guest(), VNIC, GUEST, switch, mtu)?;
            self.switch.run(&format!("ip link set {GUEST} mtu {mtu} up"))?;
            self.address_guest()?;
            if self.container && guest_sends {
                self.guest().set_offloads(VNIC, &offloads(false, false))?;
                self.receive_by_thread(GUEST)?;
            }
        } else if self.vnic == Vnic::Tap && self.queues > 1 {
            // A persistent TAP keeps its addresses while the switch reopens it.
            self.guest().run(&format!("ip tuntap add {VNIC} mode tap multi_queue"))?;
        }
        Ok(())
    }

    /// Has a link of the switch host receive by a thread of its own, in the arms in which it
    /// coalesces: the kernel has the thread only then.
    fn receive_by_thread(&mut self, link: &str) -> Result<(), LabError> {
        if self.placement.is_ok() {
            self.switch.set_offloads(link, &[(LinkOffload::Gro, true)])?;
            let placed = Placement::thread(&mut self.switch, link);
            self.switch.set_offloads(link, &[(LinkOffload::Gro, false)])?;
            self.placement_held(placed);
        }
        Ok(())
    }

    /// Brings the guest's link up and addresses it. A TAP exists once the switch has created it.
    pub(crate) fn address_guest(&mut self) -> Result<(), LabError> {
        let (mtu, asked) = (self.mtu, self.asked_congestion.clone());
        let station = if self.way.guest_sends() { SENDER } else { RECEIVER };
        self.guest().run(&format!("ip link set {VNIC} mtu {mtu} up"))?;
        address(self.guest(), VNIC, 77, station)?;
        if asked.is_some() {
            congestion::choose(self.guest(), (VNIC, 77, station), asked.as_deref())?;
        }
        if let Some(milliseconds) = self.round_trip_ms {
            self.delay(milliseconds)?;
        }
        if !self.receiver_gro || self.vnic != Vnic::Tap {
            return Ok(());
        }
        // Polled at each write, GRO would find one frame; a thread finds those of a whole turn.
        Placement::thread(self.guest(), VNIC)?;
        match self.placement.clone() {
            Ok(placed) => Placement::pin_threads(self.guest(), VNIC, &placed.receiver),
            Err(_) => Ok(()),
        }
    }

    fn connect_bridge(&mut self) -> Result<(), LabError> {
        let (mtu, bridge) = (self.mtu, self.bridge.process());
        wire(&mut self.sender, PEER, IN, bridge, mtu)?;
        wire(&mut self.receiver, PEER, OUT, bridge, mtu)?;
        self.bridge.run("ip link add bridge0 type bridge")?;
        for link in [IN, OUT] {
            self.bridge.run(&format!("ip link set {link} mtu {mtu} master bridge0 up"))?;
        }
        self.bridge.run(&format!("ip link set bridge0 mtu {mtu} up"))?;
        self.bridge.set_offloads(IN, &offloads(true, true))?;
        if self.placement.is_ok() {
            let placed = Placement::thread(&mut self.bridge, IN);
            self.placement_held(placed);
        }
        // An arm that coalesces turns GRO on, and pins the thread then.
        self.bridge.set_offloads(IN, &[(LinkOffload::Gro, false)])?;
        address(&mut self.sender, PEER, 78, SENDER)?;
        address(&mut self.receiver, PEER, 78, RECEIVER)?;
        self.sender.set_offloads(PEER, &offloads(false, false))?;
        if self.way.guest_sends() { self.lead_out_of_bridge() } else { Ok(()) }
    }

    /// Has frames leave the bridge as they leave the switch's uplink: at MTU size, to a receiver
    /// that coalesces (GRO).
    fn lead_out_of_bridge(&mut self) -> Result<(), LabError> {
        self.bridge.set_offloads(OUT, &offloads(false, false))?;
        self.receiver.set_offloads(PEER, &[(LinkOffload::Gro, true)])?;
        if let Ok(Placement { receiver, .. }) = &self.placement {
            let placed = Placement::thread(&mut self.receiver, PEER);
            let placed =
                placed.and_then(|()| Placement::pin_threads(&mut self.receiver, PEER, receiver));
            self.placement_held(placed);
        }
        Ok(())
    }
}

/// Returns settings of segmentation (TSO and GSO) and of coalescing (GRO).
pub(crate) fn offloads(segments: bool, coalesces: bool) -> [(LinkOffload, bool); 3] {
    let (tso, gso) = (LinkOffload::Tso, LinkOffload::Gso);
    [(tso, segments), (gso, segments), (LinkOffload::Gro, coalesces)]
}

/// Creates a veth with its other end in another host.
pub(crate) fn wire(
    host: &mut Host,
    link: &str,
    other: &str,
    to: u32,
    mtu: u16,
) -> Result<(), LabError> {
    host.run(&format!("ip link add {link} type veth peer name {other} netns {to}"))?;
    host.run(&format!("ip link set {link} mtu {mtu} up")).map(drop)
}

/// Gives a link its addresses, 10.NET.0.STATION/24 and fd00:NET::STATION/64, and makes TCP over
/// them use the lab's congestion control.
pub(crate) fn address(host: &mut Host, link: &str, net: u8, station: u8) -> Result<(), LabError> {
    host.run(&format!("ip address add 10.{net}.0.{station}/24 dev {link}"))?;
    host.run(&format!("ip -6 address add fd00:{net}::{station}/64 dev {link} nodad"))?;
    congestion::choose(host, (link, net, station), None)
}
