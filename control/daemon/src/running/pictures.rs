//! The switch as a whole: its status, and its health and MTUs, which are judged by a picture of each
//! port.

use super::Running;
use super::port::RunningPort;
use super::report::Report;
use super::sample::DROPS_TOLD;
use crate::health::{self, Kind, Picture};
use crate::private_tmp;
use crate::sandbox;
use api::body::{
    FindingBody, HealthBody, MtuBody, MtuLinkBody, MtuPortBody, PortBody, StateBody, SwitchBody,
};
use config::{Device, PortName, PortRole};
use datapath::{MacEntry, PortId, PortInfo};
use ports::packet::Spread;
use problem::Problem;
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;
use wire::Mac;

impl Running {
    /// The switch as a whole.
    pub fn switch_body(&self, now: Instant) -> SwitchBody {
        let report = self.report();
        let up = |port: &&PortBody| port.state == StateBody::Up;
        SwitchBody {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.journal.uptime(now).as_secs(),
            ports: self.ports.count(),
            ports_up: report.ports().iter().filter(up).count(),
            macs: report.learned(),
            workers: report.workers(),
            sandbox: sandbox::in_force(),
            restart_needed: self.desired.restart_needed(),
            events: self.journal.events(),
        }
    }

    /// The health findings.
    pub fn health(&self, now: Instant) -> HealthBody {
        let hangs = self.all_answer().err().map(|told| Kind::WorkerHangs.found(told));
        let mut findings: Vec<FindingBody> = hangs.into_iter().collect();
        findings.extend(health::findings(&pictures(&self.report(), now)));
        let state = self.journal.state();
        findings.extend(state.trouble.clone().map(|told| Kind::StateNotKept.found(told)));
        findings.extend(state.aside.iter().map(|file| Kind::StateSetAside.found(set_aside(file))));
        let listeners = self.journal.listener_troubles().cloned();
        findings.extend(listeners.map(|told| Kind::ListenerDown.found(told)));
        let filtered = self.journal.filtered().iter().cloned();
        findings.extend(filtered.map(|told| Kind::ListenerFiltered.found(told)));
        findings.extend(self.kernel_path.finding(self.config(), &self.switch));
        let restart = self.desired.restart_needed();
        if !restart.is_empty() {
            let told = Problem::new("[switch] has changed keys that take effect after a restart");
            let told = told.seen(restart.join(", "));
            let told = told.remedy("restart the daemon when the traffic allows it");
            findings.push(Kind::RestartNeeded.found(told));
        }
        HealthBody::of(findings)
    }
}

fn set_aside(file: &Path) -> Problem {
    Problem::new("a state file could not be read in full and was set aside: ports may be missing")
        .seen(file.display())
        .wanted("a state file that can be read in full")
        .remedy(format!("add the missing ports again, then remove {}", file.display()))
}

/// Returns the MTUs of ports and devices.
pub(crate) fn mtu_body(report: &Report<'_>, now: Instant) -> MtuBody {
    let pictures = pictures(report, now);
    let findings = health::mtu_findings(&pictures);
    let port = |((_, port), picture): ((&PortName, &RunningPort), &Picture)| MtuPortBody {
        port: picture.name.clone(),
        device: port.config.device().to_string(),
        vlan: port.config.vlan_text(),
        mtu: port.open().map(|open| open.settings.mtu),
        links: picture.links.iter().cloned().map(|(name, mtu)| MtuLinkBody { name, mtu }).collect(),
        too_big: picture.too_big,
        netns: port.config.netns.as_ref().map(|netns| netns.path().display().to_string()),
    };
    let ports = report.ports.iter().zip(&pictures).map(port).collect();
    MtuBody { healthy: findings.is_empty(), ports, findings }
}

/// Returns a picture of each port, by name.
fn pictures(report: &Report<'_>, now: Instant) -> Vec<Picture> {
    let stations = Stations::new(report);
    report.ports.iter().map(|(name, port)| picture(report, name, port, &stations, now)).collect()
}

/// Learned addresses and the names of the ports behind which they are. There may be thousands of
/// either, and each port asks.
struct Stations<'r> {
    learned: HashMap<Mac, Vec<MacEntry>>,
    names: HashMap<PortId, &'r PortName>,
}

impl<'r> Stations<'r> {
    fn new(report: &Report<'r>) -> Stations<'r> {
        let mut learned = HashMap::<_, Vec<_>>::new();
        for entry in report.switch.macs() {
            learned.entry(entry.mac).or_default().push(entry);
        }
        let names = report.ports.open().map(|(name, open)| (open.id, name)).collect();
        Stations { learned, names }
    }

    /// Returns the port behind which an address was last seen, in a VLAN that this port carries.
    fn behind(&self, held: Mac, port: &Picture) -> Option<String> {
        let mut entries = self.learned.get(&held)?.iter();
        let entry = entries.find(|entry| port.carries(entry.vlan))?;
        let name = self.names.get(&entry.port);
        Some(name.map_or_else(|| format!("number {}", entry.port.0), ToString::to_string))
    }
}

fn picture(
    report: &Report<'_>,
    name: &PortName,
    port: &RunningPort,
    stations: &Stations<'_>,
    now: Instant,
) -> Picture {
    let info = port.info_in(&report.infos);
    let mut picture = Picture::of(&port.config);
    picture.name = name.to_string();
    picture.trouble = port.trouble(info);
    if let Device::VhostUser(socket) = port.config.device() {
        let hidden = private_tmp::hides(socket.as_path());
        picture.hidden = hidden.map(|by| (socket.as_path().display().to_string(), by));
    }
    let [too_big, guarded @ ..] = recent_drops(report, port, now);
    picture.too_big = too_big.1;
    picture.guarded = guarded;
    if port.open().is_some_and(|open| open.last.have_returned(now)) {
        picture.returned = report.counters_of(port).returned_frames;
    }
    let is_uplink = port.config.role() == PortRole::Uplink;
    if is_uplink && port.open().is_some_and(|open| open.last.have_arrived_coalesced(now)) {
        picture.arrived_coalesced = report.counters_of(port).ingress_trains;
    }
    if let Some(open) = port.open() {
        if let Some(process) = open.watch.guest().and_then(|guest| guest.process) {
            picture.guest = Some(format!("process {process}"));
        }
        picture.mtu = Some(open.settings.mtu);
        picture.device_mtu = Some(open.mtu);
        picture.links = open.watch.links();
        picture.guest_mtu = report.ports.guest_mtu(name);
        picture.mac = port.config.mac.map(|mac| mac.0).or(open.mac);
        picture.degraded.clone_from(&open.degraded);
        picture.merges_by_lro = open.watch.merges_by_lro();
        picture.exposed = open.watch.exposed().to_vec();
        picture.host_address = open.watch.host_address().filter(|_| is_uplink);
        if let Spread::Hash(reason) = open.watch.spread() {
            picture.not_steered = Some(reason);
        }
    }
    if let Some(team) = port.team() {
        picture.members = team.status().members;
    }
    picture.path_down = report.ports.path_down(&port.config);
    picture.held_mac = info.and_then(|info| info.held_mac);
    // A port's own address is learned only on other ports.
    picture.held_mac_behind = picture.held_mac.and_then(|held| stations.behind(held, &picture));
    picture.rsc = info.map(PortInfo::rsc);
    picture
}

/// Returns drops that are findings, with the names of their reasons; 0 if the last is older than
/// [`health::DROPS_AGE`].
fn recent_drops(report: &Report<'_>, port: &RunningPort, now: Instant) -> [(&'static str, u64); 4] {
    let drops = report.counters_of(port).drops;
    let last = port.open().map(|open| &open.last);
    let mut places = 0..;
    DROPS_TOLD.map(|reason| {
        let count = drops.get(reason as usize).copied().unwrap_or_default();
        let place = places.next().unwrap_or_default();
        let recent = last.is_some_and(|last| last.is_recent(place, count, now));
        (reason.name(), if recent { count } else { 0 })
    })
}
