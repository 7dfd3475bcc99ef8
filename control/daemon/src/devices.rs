//! Opening devices: the only module that knows the kinds of ports.
//!
//! The rest of the crate sees an [`Opener`], so that tests run the whole control plane on memory
//! ports.

mod packet;
mod tap;
mod vhost;
mod xdp;

use crate::handover::{Keeping, Store, What};
use crate::sandbox;
use config::{Namespace, PortConfig, TeamAlgorithm};
use packet::packet_denied;
use ports::Device;
use ports::link::{Link, LinkError};
use ports::packet::{Spread, StallWatch};
use ports::team::{self, Algorithm, Member, MemberError, Team, TeamError, TeamOptions};
use ports::vhost::Status;
use ports::xdp::Fit;
use problem::Problem;
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Mac;

/// A port's device, opened.
pub struct Opened {
    /// Its queues.
    pub device: Device,
    /// Offloads that the kernel lacks and that are done in software or lost, for people.
    pub degraded: Vec<String>,
    /// The link behind it.
    pub watch: Box<dyn Watch>,
    /// The address that the port had in an earlier process, if it resumes what that process left.
    pub earlier_mac: Option<Mac>,
}

/// Why a device could not be opened.
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
    /// Front ends that have connected so far, if the device is a guest's vNIC; otherwise 0.
    pub connections: u64,
}

/// Whether a device carries frames, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It carries frames.
    Up,
    /// It carries none for now, for this reason.
    Down(String),
    /// It carries none until its guest restarts. The device itself works and stays open.
    Broken(String),
    /// It carries none until it is reopened.
    Failed(String),
    /// The device no longer exists.
    Gone,
}

/// Opens the devices that the configuration names, several at the same time.
pub trait Opener: Send + Sync {
    /// Opens the port's device; creates it first if its kind is created by the switch.
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError>;
    /// Descriptors that outlive the process.
    fn store(&self) -> Store {
        Store::default()
    }
}

/// A device that is polled once a second.
pub trait Watch: Send {
    /// The device now.
    fn state(&self) -> DeviceState;
    /// The host devices that frames pass, each with its MTU: the port's own, and those below it.
    fn links(&self) -> Vec<(String, u16)> {
        Vec::new()
    }
    /// How flows are spread over several ingress queues, if the switch spreads them.
    fn spread(&self) -> Spread {
        Spread::Single
    }
    /// The receive mode, if the device's kind has several.
    fn way(&self) -> Option<&'static str> {
        None
    }
    /// The guest, if the device is a guest's vNIC.
    fn guest(&self) -> Option<Status> {
        None
    }
    /// Most memory that the guest may have mapped, if limited.
    fn memory_limit(&self) -> Option<u64> {
        None
    }
    /// Takes the guest's link up or down.
    fn set_link(&self, _is_up: bool) {}
    /// Events of the guest since the last call, in sentences.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }
    /// The team, if the device is one.
    fn team(&self) -> Option<&Team> {
        None
    }
    /// Asks the device to end, so that another process can resume where this one stops. No worker
    /// has its queues any more.
    fn suspend(&self) {}
    /// Keeps what that process needs to resume, if the device ends in time.
    fn hand_over(&mut self, _until: Instant) {}
    /// Sets the device's own MTU, if the port's kind lets the switch set it.
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
            packet::open(port, name.as_str(), &self.store)
        } else if let Some(name) = &port.xdp {
            xdp::open(port, name.as_str(), &self.store)
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

/// Opens a port with an earlier process's descriptors, and returns the address that it had there;
/// `None` if it must be opened anew, because there are none or `are_unfit` says so of the error.
/// After any other error the descriptors wait for the next attempt.
fn resume<T, E: Display>(
    port: &PortConfig,
    store: &Store,
    open: impl FnOnce(&[Arc<OwnedFd>]) -> Result<T, E>,
    are_unfit: impl FnOnce(&E) -> bool,
) -> Result<Option<(T, Option<Mac>)>, E> {
    let name = port.name.as_str();
    let Some(left) = What::of(port).and_then(|what| store.take(name, &what)) else {
        return Ok(None);
    };
    match open(&left.files) {
        Ok(opened) => {
            tracing::info!(target: "control::devices", "port {name} resumes with the previous process's descriptors");
            Ok(Some((opened, left.address.map(|address| address.0))))
        }
        Err(error) if are_unfit(&error) => {
            tracing::warn!(target: "control::devices", "port {name} opens its device anew instead of resuming: {error}");
            store.discard(name, left);
            Ok(None)
        }
        Err(error) => {
            store.put_back(name, left);
            Err(error)
        }
    }
}

fn netns(port: &PortConfig) -> Option<PathBuf> {
    port.netns.as_ref().map(Namespace::path)
}

fn queues(port: &PortConfig) -> u16 {
    port.queues.map_or(1, |queues| queues.0)
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
    Ok(Opened { device, degraded, watch: Box::new(HostTeam(team)), earlier_mac: None })
}

/// Configured or by default.
pub(crate) fn team_algorithm(port: &PortConfig) -> Algorithm {
    match port.team_algorithm.unwrap_or_default() {
        TeamAlgorithm::HyperVPort => Algorithm::HyperVPort,
        TeamAlgorithm::Dynamic => Algorithm::Dynamic,
    }
}

/// Configured or by default.
pub(crate) fn team_fail_back(port: &PortConfig) -> Duration {
    Duration::from_secs(port.team_fail_back.map_or(1, |seconds| seconds.0.into()))
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
    /// The switch owns the device, so its MTU is set with the port's.
    ours: bool,
    spread: Spread,
    /// Present if the kernel fills its rings.
    stalls: Option<StallWatch>,
    /// Present if its sockets were made for the device as it was when opened.
    fit: Option<Fit>,
    /// Present if its descriptors outlive the process.
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
                "the kernel no longer fills the ring of queue {queue}; this happens after an SCTP train or a UDP train that \
                 needs fragmenting, sent by a peer on this host"
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

    fn suspend(&self) {
        self.0.end();
    }

    /// The links are the host's own.
    fn set_mtu(&self, _: u16) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;

    /// Whether what was kept is still there for the next attempt.
    fn is_left_after(error: &'static str) -> (bool, bool) {
        let config = Config::from_toml("t", "[[port]]\nname='a'\ntap='t'").unwrap();
        let port = &config.ports[0];
        let what = What::of(port).unwrap();
        let (kept, _) = std::io::pipe().unwrap();
        let (before, store) = (Store::default(), Store::default());
        let _keeping = before.keep("a", what.clone(), &[Arc::new(kept.into())]);
        store.inherit(before.given());
        let refuse = |_: &[Arc<OwnedFd>]| Err::<(), _>(error);
        let opened = resume(port, &store, refuse, |error| *error == "unfit");
        (opened.is_err(), store.take("a", &what).is_some())
    }

    /// A lack of descriptors closed a device's descriptors, and with them the device.
    #[test]
    fn what_was_kept_waits_unless_it_is_refused() {
        assert_eq!(is_left_after("no helper"), (true, true));
        assert_eq!(is_left_after("unfit"), (false, false));
    }
}
