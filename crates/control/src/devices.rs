//! Opening devices: the only place that knows what kinds of ports there are.
//!
//! The rest of the crate sees an [`Opener`], so that tests run the whole control plane on memory ports.

mod tap;
mod vhost;
mod xdp;

use crate::config::{Namespace, PortConfig, TeamAlgorithm};
use crate::handover::{Keeping, Store};
use crate::{Problem, sandbox};
use ports::Device;
use ports::link::{Link, LinkError};
use ports::packet::{self, PacketError, PacketOptions, Spread, StallWatch};
use ports::team::{self, Algorithm, Member, MemberError, Team, TeamError, TeamOptions};
use ports::vhost::Status;
use ports::xdp::Fit;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A port's device, opened.
pub struct Opened {
    /// Its queues.
    pub device: Device,
    /// What the kernel does not do, and is done in software or lost, for people.
    pub degraded: Vec<String>,
    /// The link behind it.
    pub watch: Box<dyn Watch>,
}

/// Why a device did not open.
#[derive(Debug)]
pub struct OpenError {
    /// For people.
    pub reason: String,
    /// This process lacks a privilege.
    pub denied: bool,
}

/// A device as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceState {
    /// Whether it carries frames.
    pub condition: Condition,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Front ends that have connected so far, where the device is a guest's vNIC; else 0.
    pub connections: u64,
}

/// Whether a device carries frames, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It does.
    Up,
    /// Not now, for this reason.
    Down(String),
    /// Not until its guest starts anew. The device itself is sound and stays open.
    Broken(String),
    /// Not until it is opened anew.
    Failed(String),
    /// There is no such device any more.
    Gone,
}

/// Opens what the configuration names.
pub trait Opener: Send {
    /// Opens the port's device, and makes it where that is what its kind does.
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError>;
    /// Descriptors that outlive the process.
    fn store(&self) -> Store {
        Store::default()
    }
}

/// A device that is asked once a second.
pub trait Watch: Send {
    /// The device now.
    fn state(&self) -> DeviceState;
    /// The devices of the host that frames go through, each with its MTU: the port's own, and those below it.
    fn links(&self) -> Vec<(String, u16)> {
        Vec::new()
    }
    /// How flows are spread over several ingress queues, where that is the switch's doing.
    fn spread(&self) -> Spread {
        Spread::Single
    }
    /// By which way frames come, where the device's kind has several.
    fn way(&self) -> Option<&'static str> {
        None
    }
    /// The guest, where the device is one's vNIC.
    fn guest(&self) -> Option<Status> {
        None
    }
    /// Most memory that the guest may have mapped, where there is a limit.
    fn memory_limit(&self) -> Option<u64> {
        None
    }
    /// Shows the guest its link up or down.
    fn set_link(&self, _is_up: bool) {}
    /// What happened to the guest since this was last asked, in sentences.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }
    /// The team, where the device is one.
    fn team(&self) -> Option<&Team> {
        None
    }
    /// Asks for its end, so that another process may go on where this one stops. No worker has its queues any more.
    fn suspend(&self) {}
    /// Keeps what that process goes on by, if the device comes to its end in time.
    fn hand_over(&mut self, _until: Instant) {}
    /// Sets the device's own MTU, where the port's kind says that it is ours to set.
    fn set_mtu(&self, mtu: u16) -> Result<(), Problem>;
}

/// The devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError> {
        if let Some(problem) = sandbox::refusal(port) {
            return Err(OpenError { reason: problem.to_string(), denied: false });
        }
        if let Some(name) = &port.tap {
            tap::open(port, name.as_str(), &self.store)
        } else if let Some(name) = &port.packet {
            open_packet(port, name.as_str())
        } else if let Some(name) = &port.xdp {
            xdp::open(port, name.as_str())
        } else if port.team.is_some() {
            open_team(port)
        } else if let Some(socket) = &port.vhost_user {
            vhost::open(port, socket.as_path(), &self.store)
        } else {
            Err(OpenError { reason: "the port names no device".into(), denied: false })
        }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}

fn netns(port: &PortConfig) -> Option<PathBuf> {
    port.netns.as_ref().map(Namespace::path)
}

fn queues(port: &PortConfig) -> u16 {
    port.queues.map_or(1, |queues| queues.0)
}

fn open_packet(port: &PortConfig, name: &str) -> Result<Opened, OpenError> {
    let mut options = PacketOptions::new(name);
    options.netns = netns(port);
    options.queues = u8::try_from(queues(port)).unwrap_or(u8::MAX);
    options.promiscuous = port.promiscuous.unwrap_or(true);
    let opened = packet::open(&options)
        .map_err(|error| OpenError { denied: packet_denied(&error), reason: error.to_string() })?;
    let (link, spread, stalls) = (opened.link, opened.spread, Some(opened.stalls));
    let watch = HostLink { link, ours: false, spread, stalls, fit: None, keeping: None };
    let watch = Box::new(watch);
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch })
}

/// The members are packet ports.
fn open_team(port: &PortConfig) -> Result<Opened, OpenError> {
    let options = TeamOptions {
        members: port.members(),
        netns: netns(port),
        algorithm: team_algorithm(port),
        fail_back: team_fail_back(port),
    };
    let path = options.netns.clone();
    let opener = move |name: &str| {
        Member::packet(name, path.as_deref()).map_err(|error| MemberError {
            denied: packet_denied(&error),
            reason: error.to_string(),
        })
    };
    let (device, team) = team::open(&options, Box::new(opener)).map_err(|error| OpenError {
        denied: matches!(error, TeamError::NoMember { denied: true, .. }),
        reason: error.to_string(),
    })?;
    let members = team.status().members;
    let degraded = members.iter().flat_map(|member| member.degraded.iter().cloned()).collect();
    Ok(Opened { device, degraded, watch: Box::new(HostTeam(team)) })
}

/// As the port has it, or by default.
pub(crate) fn team_algorithm(port: &PortConfig) -> Algorithm {
    match port.team_algorithm.unwrap_or_default() {
        TeamAlgorithm::HyperVPort => Algorithm::HyperVPort,
        TeamAlgorithm::Dynamic => Algorithm::Dynamic,
    }
}

/// As the port has it, or by default.
pub(crate) fn team_fail_back(port: &PortConfig) -> Duration {
    Duration::from_secs(port.team_fail_back.map_or(1, |seconds| seconds.0.into()))
}

fn packet_denied(error: &PacketError) -> bool {
    match error {
        PacketError::Socket { source, .. }
        | PacketError::Set { source, .. }
        | PacketError::Ring { source, .. } => denied(source),
        PacketError::Down { .. } => false,
        PacketError::Link(error) => link_denied(error),
    }
}

fn link_denied(error: &LinkError) -> bool {
    match error {
        LinkError::NotPermitted { .. } => true,
        LinkError::Io { source, .. } | LinkError::Namespace { source, .. } => denied(source),
        _ => false,
    }
}

fn denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A link of this host.
struct HostLink {
    link: Link,
    /// The device is the switch's own, so its MTU is set with the port's.
    ours: bool,
    spread: Spread,
    /// Where it has rings that the kernel fills.
    stalls: Option<StallWatch>,
    /// Where it has sockets for what it was when it was opened.
    fit: Option<Fit>,
    /// Where its descriptors outlive the process.
    #[allow(dead_code, reason = "they are kept as long as this is there")]
    keeping: Option<Keeping>,
}

impl Watch for HostLink {
    fn state(&self) -> DeviceState {
        let Ok(mtu) = self.link.mtu() else {
            return DeviceState { condition: Condition::Gone, mtu: 0, connections: 0 };
        };
        let down = |reason: &str| Condition::Down(reason.to_owned());
        let condition = if !self.link.is_up().unwrap_or(false) {
            down("its device is administratively down")
        } else if !self.link.has_carrier().unwrap_or(false) {
            down("its device has no carrier")
        } else if let Some(queue) = self.stalls.as_ref().and_then(StallWatch::stalled) {
            Condition::Failed(format!(
                "the kernel fills the ring of queue {queue} no more, as it does after a train of SCTP or a UDP train to be \
                 fragmented: a peer on this host sends such trains"
            ))
        } else {
            Condition::Up
        };
        let misfit = self.fit.as_ref().and_then(|fit| fit.fault(&self.link));
        let condition = misfit.map_or(condition, Condition::Failed);
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        DeviceState { condition, mtu, connections: 0 }
    }

    fn links(&self) -> Vec<(String, u16)> {
        let of = |link: &Link| {
            Some((link.name().to_owned(), u16::try_from(link.mtu().ok()?).unwrap_or(u16::MAX)))
        };
        let lower = self.link.lower();
        [&self.link].into_iter().chain(&lower).filter_map(of).collect()
    }

    fn spread(&self) -> Spread {
        self.spread.clone()
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        if !self.ours {
            return Ok(());
        }
        self.link.set_mtu(mtu.into()).map_err(|error| Problem::new(error.to_string()))
    }
}

/// Several links of this host.
struct HostTeam(Team);

impl Watch for HostTeam {
    fn state(&self) -> DeviceState {
        let condition = self.0.trouble().map_or(Condition::Up, Condition::Down);
        DeviceState { condition, mtu: self.0.mtu(), connections: 0 }
    }

    fn links(&self) -> Vec<(String, u16)> {
        let members = self.0.status().members.into_iter();
        members.map(|member| (member.name, member.mtu)).collect()
    }

    fn team(&self) -> Option<&Team> {
        Some(&self.0)
    }

    /// The links are the host's own.
    fn set_mtu(&self, _: u16) -> Result<(), Problem> {
        Ok(())
    }
}
