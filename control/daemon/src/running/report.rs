//! The running state as bodies of the API.

use super::{DROPS_TOLD, OpenPort, PortDevice, Running, RunningPort};
use crate::guest;
use crate::health::{self, Kind, Picture};
use crate::sandbox;
use api::body::{
    CountersBody, DepthBody, EventBody, FindingBody, HealthBody, MacBody, MtuBody, MtuLinkBody,
    MtuPortBody, PortBody, RscBody, RscCountersBody, SpreadBody, StateBody, SwitchBody, WorkerBody,
};
use config::{PortConfig, PortName, PortRole, VmmqMode};
use datapath::{DropReason, MacEntry, PortCounters, PortInfo, PortState, RscException, RscStatus};
use devices::Condition;
use ports::Offloads;
use ports::packet::Spread;
use problem::Problem;
use std::collections::BTreeMap;
use std::time::Instant;

/// Ranges of [`PortCounters::train_depth`].
const DEPTHS: [&str; 8] = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65+"];

impl Running {
    /// The switch as a whole.
    pub fn switch_body(&self, now: Instant) -> SwitchBody {
        let up = |port: &PortBody| port.state == StateBody::Up;
        SwitchBody {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.events.uptime(now).as_secs(),
            ports: self.ports.len(),
            ports_up: self.port_bodies().iter().filter(|port| up(port)).count(),
            macs: self.switch.macs().len(),
            workers: self.workers(),
            sandbox: sandbox::in_force(),
            restart_needed: self.restart_needed(),
            events: self.events.events(),
        }
    }

    /// All workers.
    pub fn workers(&self) -> Vec<WorkerBody> {
        let bodies =
            self.switch.workers().into_iter().enumerate().map(|(worker, info)| WorkerBody {
                worker,
                cpu: info.cpu,
                answers: !info.hangs,
                busy_turns: info.busy_rounds,
                idle_turns: info.idle_rounds,
                sleeps: info.sleeps,
                frames: info.frames,
                busy_ns: info.busy.0,
            });
        bodies.collect()
    }

    /// All ports, by name.
    pub fn port_bodies(&self) -> Vec<PortBody> {
        let infos = self.infos();
        self.ports.iter().map(|(name, port)| self.body(name, port, &infos)).collect()
    }

    /// Returns the ports of the running configuration, by name. While a plan is in work, a port whose
    /// step is still to come has its wanted settings and is down until it is open, and a port that
    /// will be closed is not listed. So a reader finds one whole configuration at any time.
    pub(crate) fn listed_ports(&self) -> Vec<PortBody> {
        if !self.is_in_work() {
            return self.port_bodies();
        }
        let infos = self.infos();
        let mut wanted: Vec<&PortConfig> = self.config.ports.iter().collect();
        wanted.sort_by(|one, other| one.name.cmp(&other.name));
        wanted.into_iter().map(|wanted| self.wanted_body(wanted, &infos)).collect()
    }

    /// Returns one port as [`listed_ports`](Running::listed_ports) has it.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn listed_port(&self, name: &str) -> Result<PortBody, Problem> {
        if !self.is_in_work() {
            return self.port_body(name);
        }
        let wanted = self.config.port(name).ok_or_else(|| self.no_such_port(name))?;
        Ok(self.wanted_body(wanted, &self.infos()))
    }

    /// Returns a port of the wanted configuration while a plan is in work.
    fn wanted_body(&self, wanted: &PortConfig, infos: &[PortInfo]) -> PortBody {
        let Some(port) = self.ports.get(&wanted.name) else {
            let (reason, denied) = ("the change that adds it is still in work".to_owned(), false);
            let device = PortDevice::Closed { reason, denied };
            let port = RunningPort { config: wanted.clone(), device, first_mac: None };
            return PortBody { state: StateBody::Down, ..self.body(&wanted.name, &port, infos) };
        };
        PortBody {
            role: wanted.role(),
            vlan: wanted.vlan_text(),
            rsc: wanted.rsc(self.config.switch.rsc),
            config: wanted.clone(),
            ..self.body(&wanted.name, port, infos)
        }
    }

    /// All ports with their counters, by name.
    pub(crate) fn counted_ports(&self) -> Vec<(PortBody, CountersBody)> {
        let infos = self.infos();
        let counted = |(name, port): (&PortName, &RunningPort)| {
            (self.body(name, port, &infos), counters_body(&self.counters_of(port)))
        };
        self.ports.iter().map(counted).collect()
    }

    /// One port.
    pub fn port_body(&self, name: &str) -> Result<PortBody, Problem> {
        let (name, port) = self.port(name)?;
        Ok(self.body(name, port, &self.infos()))
    }

    /// One port's counters; all zero while its device is not open.
    pub fn counters(&self, name: &str) -> Result<CountersBody, Problem> {
        let (_, port) = self.port(name)?;
        Ok(counters_body(&self.counters_of(port)))
    }

    /// Coalescing toward all ports.
    pub fn rsc_bodies(&self) -> Vec<RscBody> {
        let infos = self.infos();
        self.ports.iter().map(|(name, port)| self.rsc_body_of(name, port, &infos)).collect()
    }

    /// Coalescing toward one port.
    pub fn rsc_body(&self, name: &str) -> Result<RscBody, Problem> {
        let (name, port) = self.port(name)?;
        Ok(self.rsc_body_of(name, port, &self.infos()))
    }

    /// Learned addresses.
    pub fn macs(&self) -> Vec<MacBody> {
        let body = |entry: MacEntry| MacBody {
            mac: entry.mac.to_string(),
            vlan: entry.vlan,
            port: self.name_of(entry.port),
            age_s: entry.age_s,
        };
        self.switch.macs().into_iter().map(body).collect()
    }

    /// How many addresses are learned.
    pub(crate) fn learned(&self) -> usize {
        self.switch.macs().len()
    }

    /// Forgets learned addresses: all, or those of a port. A port that is not open has none.
    pub fn forget_macs(&mut self, port: Option<&str>) -> Result<(), Problem> {
        let Some(name) = port else {
            self.switch.forget_macs(None);
            return Ok(());
        };
        let open = self.port(name)?.1.open().map(|open| open.id);
        open.into_iter().for_each(|id| self.switch.forget_macs(Some(id)));
        Ok(())
    }

    /// Events after the one with this number, oldest first.
    pub fn events_after(&self, id: u64) -> Vec<EventBody> {
        self.events.events().into_iter().filter(|event| event.id > id).collect()
    }

    /// The health findings.
    pub fn health(&self, now: Instant) -> HealthBody {
        let hangs = self.all_answer().err().map(|told| Kind::WorkerHangs.found(told));
        let mut findings: Vec<FindingBody> = hangs.into_iter().collect();
        findings.extend(health::findings(&self.pictures(now)));
        let listeners = self.listener_troubles.values().cloned();
        findings.extend(listeners.map(|told| Kind::ListenerDown.found(told)));
        let restart = self.restart_needed();
        if !restart.is_empty() {
            let told = Problem::new("[switch] has changed keys that take effect after a restart");
            let told = told.seen(restart.join(", "));
            let told = told.remedy("restart the daemon when the traffic allows it");
            findings.push(Kind::RestartNeeded.found(told));
        }
        HealthBody::of(findings)
    }

    fn pictures(&self, now: Instant) -> Vec<Picture> {
        let (infos, macs) = (self.infos(), self.switch.macs());
        let look = Look { infos: &infos, macs: &macs, now };
        self.ports.iter().map(|(name, port)| self.picture(name, port, &look)).collect()
    }

    /// MTUs of ports and devices.
    pub fn mtu_body(&self, now: Instant) -> MtuBody {
        let pictures = self.pictures(now);
        let findings = health::mtu_findings(&pictures);
        let port = |((_, port), picture): ((&PortName, &RunningPort), &Picture)| MtuPortBody {
            port: picture.name.clone(),
            device: port.config.device().to_string(),
            vlan: port.config.vlan_text(),
            mtu: port.open().map(|open| open.settings.mtu),
            links: picture
                .links
                .iter()
                .cloned()
                .map(|(name, mtu)| MtuLinkBody { name, mtu })
                .collect(),
            too_big: picture.too_big,
            netns: port.config.netns.as_ref().map(|netns| netns.path().display().to_string()),
        };
        let ports = self.ports.iter().zip(&pictures).map(port).collect();
        MtuBody { healthy: findings.is_empty(), ports, findings }
    }

    pub(super) fn port(&self, name: &str) -> Result<(&PortName, &RunningPort), Problem> {
        let found = self.ports.iter().find(|(other, _)| other.as_str() == name);
        found.ok_or_else(|| self.no_such_port(name))
    }

    fn counters_of(&self, port: &RunningPort) -> PortCounters {
        let PortDevice::Open(open) = &port.device else { return PortCounters::default() };
        self.switch.counters(open.id).unwrap_or_default()
    }

    fn body(&self, name: &PortName, port: &RunningPort, infos: &[PortInfo]) -> PortBody {
        let info = info_of(port, infos);
        let open = port.open();
        let (state, reason) = port.state(info);
        PortBody {
            name: name.to_string(),
            origin: self.origin(name),
            device: device_text(port),
            role: port.config.role(),
            state,
            reason,
            mtu: open.map(|open| open.settings.mtu),
            mac: open.and_then(|open| open.mac).map(|mac| mac.to_string()),
            held_mac: info.and_then(|info| info.held_mac).map(|mac| mac.to_string()),
            vlan: port.config.vlan_text(),
            rsc: port.config.rsc(self.config.switch.rsc),
            queues: info.map_or_else(Vec::new, |info| self.queues(name, port, info)),
            offloads: info.map_or_else(Vec::new, |info| offload_names(info.offloads)),
            degraded: open.map_or_else(Vec::new, |open| open.degraded.clone()),
            spread: open.and_then(|open| spread_body(open.watch.spread())),
            guest: open.and_then(|open| {
                Some(guest::body(&open.watch.guest()?, open.watch.memory_limit()))
            }),
            rates: open.map(OpenPort::rates).unwrap_or_default(),
            config: port.config.clone(),
        }
    }

    fn rsc_body_of(&self, name: &PortName, port: &RunningPort, infos: &[PortInfo]) -> RscBody {
        let (ipv4, ipv6) = info_of(port, infos).map_or_else(not_open, PortInfo::rsc);
        let reason = |status: RscStatus| status.failure_reason.name().to_owned();
        RscBody {
            name: name.to_string(),
            policy: port.config.rsc(self.config.switch.rsc),
            ipv4_enabled: ipv4.enabled,
            ipv6_enabled: ipv6.enabled,
            ipv4_operational: ipv4.operational,
            ipv6_operational: ipv6.operational,
            ipv4_failure_reason: reason(ipv4),
            ipv6_failure_reason: reason(ipv6),
            statistics: rsc_counters_body(&self.counters_of(port)),
        }
    }

    fn picture(&self, name: &PortName, port: &RunningPort, look: &Look<'_>) -> Picture {
        let info = info_of(port, look.infos);
        let mut picture = Picture::of(&port.config);
        picture.name = name.to_string();
        picture.trouble = port.trouble(info);
        let [too_big, guarded @ ..] = self.recent_drops(port, look.now);
        picture.too_big = too_big.1;
        picture.guarded = guarded;
        if let Some(open) = port.open() {
            if let Some(process) = open.watch.guest().and_then(|guest| guest.process) {
                picture.guest = Some(format!("process {process}"));
            }
            picture.mtu = Some(open.settings.mtu);
            picture.device_mtu = Some(open.mtu);
            picture.links = open.watch.links();
            picture.guest_mtu = self.guest_mtus.get(name.as_str()).copied();
            picture.mac = port.config.mac.map(|mac| mac.0).or(open.mac);
            picture.degraded.clone_from(&open.degraded);
            if let Spread::Hash(reason) = open.watch.spread() {
                picture.not_steered = Some(reason);
            }
        }
        if let Some(team) = port.team() {
            picture.members = team.status().members;
        }
        picture.path_down = self.path_down(&port.config);
        picture.held_mac = info.and_then(|info| info.held_mac);
        picture.held_mac_behind = picture.held_mac.and_then(|held| {
            // A port's own address is learned only on other ports.
            let is_it = |entry: &&MacEntry| entry.mac == held && picture.carries(entry.vlan);
            look.macs.iter().find(is_it).map(|entry| self.name_of(entry.port))
        });
        picture.rsc = info.map(PortInfo::rsc);
        picture
    }

    /// Drops that are findings, with the names of their reasons; 0 if the last is older than
    /// [`health::DROPS_AGE`].
    fn recent_drops(&self, port: &RunningPort, now: Instant) -> [(&'static str, u64); 4] {
        let drops = self.counters_of(port).drops;
        let last = port.open().map(|open| &open.last);
        let mut places = 0..;
        DROPS_TOLD.map(|reason| {
            let count = drops.get(reason as usize).copied().unwrap_or_default();
            let place = places.next().unwrap_or_default();
            let recent = last.is_some_and(|last| last.is_recent(place, count, now));
            (reason.name(), if recent { count } else { 0 })
        })
    }
}

/// The inputs of ports' pictures.
struct Look<'a> {
    infos: &'a [PortInfo],
    macs: &'a [MacEntry],
    now: Instant,
}

impl RunningPort {
    pub(super) fn open(&self) -> Option<&OpenPort> {
        match &self.device {
            PortDevice::Open(open) => Some(open),
            PortDevice::Closed { .. } => None,
        }
    }

    /// Whether its queues, or the entries of its tables, move by load.
    pub(super) fn is_dynamic(&self) -> bool {
        self.config.vmmq == Some(VmmqMode::Dynamic)
    }

    /// Why it carries no frames, as a finding. A guest that is off is not a fault, unless it is an
    /// uplink.
    fn trouble(&self, info: Option<&PortInfo>) -> Option<(Kind, String)> {
        let is_guest = self.open().is_some_and(|open| open.watch.guest().is_some());
        let (state, reason) = self.state(info);
        let kind = match (state, self.config.role()) {
            (StateBody::Up, _) => return None,
            (StateBody::Broken, _) => Kind::PortBroken,
            (StateBody::Down, PortRole::Uplink) => Kind::UplinkDown,
            (StateBody::Down, _) if is_guest => Kind::GuestOff,
            (StateBody::Down, _) => Kind::PortDown,
        };
        Some((kind, format!("is {}: {reason}", state.name())))
    }

    /// The state and its reason: the guest's current state; otherwise what the worker knows, then
    /// what the link reports.
    fn state(&self, info: Option<&PortInfo>) -> (StateBody, String) {
        if let Some(open) = self.open().filter(|open| open.watch.guest().is_some()) {
            return guest_state(open.watch.state().condition);
        }
        let state = match (&self.device, info) {
            (PortDevice::Closed { reason, .. }, _) => return (StateBody::Broken, reason.clone()),
            (PortDevice::Open(_), None) => &PortState::Up,
            (PortDevice::Open(_), Some(info)) => &info.state,
        };
        match state {
            PortState::Up => (StateBody::Up, String::new()),
            PortState::Down(reason) => (StateBody::Down, reason.clone()),
            PortState::Broken(reason) => (StateBody::Broken, reason.clone()),
        }
    }
}

fn guest_state(condition: Condition) -> (StateBody, String) {
    match condition {
        Condition::Up => (StateBody::Up, String::new()),
        Condition::Down(reason) => (StateBody::Down, reason),
        Condition::Broken(fault) | Condition::Failed(fault) => (StateBody::Broken, fault),
        Condition::Gone => (StateBody::Broken, "its device no longer exists".to_owned()),
    }
}

fn info_of<'a>(port: &RunningPort, infos: &'a [PortInfo]) -> Option<&'a PortInfo> {
    let id = port.open()?.id;
    infos.iter().find(|info| info.id == id)
}

/// Coalescing toward a port that is not open.
fn not_open() -> (RscStatus, RscStatus) {
    let status = RscStatus {
        enabled: false,
        operational: false,
        failure_reason: datapath::RscFailureReason::Capability,
    };
    (status, status)
}

/// Its device, with the receive mode if there are several.
fn device_text(port: &RunningPort) -> String {
    let device = port.config.device().to_string();
    match port.open().and_then(|open| open.watch.way()) {
        Some(way) => format!("{device} ({way})"),
        None => device,
    }
}

fn spread_body(spread: Spread) -> Option<SpreadBody> {
    match spread {
        Spread::Single => None,
        Spread::Tables(_) => Some(SpreadBody::Tables),
        Spread::Hash(reason) => Some(SpreadBody::KernelHash { reason }),
    }
}

pub(super) fn offload_names(offloads: Offloads) -> Vec<String> {
    offloads.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

fn counters_body(counters: &PortCounters) -> CountersBody {
    let drops = DropReason::ALL.iter().map(|reason| reason.name().to_owned());
    CountersBody {
        ingress_frames: counters.ingress_frames,
        ingress_bytes: counters.ingress_bytes,
        egress_frames: counters.egress_frames,
        egress_bytes: counters.egress_bytes,
        flooded_frames: counters.flooded_frames,
        mirrored_frames: counters.mirrored_frames,
        segmented_trains: counters.segmented_trains,
        segments: counters.segments,
        unfinished_checksums: counters.unfinished_checksums,
        evicted_addresses: counters.evicted_addresses,
        checksums: counters.checksums,
        path_mtu_messages: counters.path_mtu_messages,
        device_lost: counters.device_lost,
        drops: drops.zip(counters.drops).collect(),
        dropped: counters.dropped(),
        rsc: rsc_counters_body(counters),
    }
}

fn rsc_counters_body(counters: &PortCounters) -> RscCountersBody {
    let reasons = RscException::ALL.iter().map(|reason| reason.name().to_owned());
    let depth =
        |(segments, trains): (&str, u64)| DepthBody { segments: segments.to_owned(), trains };
    let exceptions_by_reason: BTreeMap<String, u64> =
        reasons.zip(counters.rsc_exceptions).collect();
    RscCountersBody {
        coalesced_bytes: counters.coalesced_bytes,
        coalesced_packets: counters.coalesced_packets,
        coalescing_events: counters.coalescing_events,
        coalescing_exceptions: counters.coalescing_exceptions(),
        exceptions_by_reason,
        train_depth: DEPTHS.into_iter().zip(counters.train_depth).map(depth).collect(),
    }
}
