//! A port of the running configuration, with its device if that is open.

use super::sample::Sample;
use super::stations::Stations;
use crate::health::Kind;
use api::body::{QueueVnicBody, StateBody};
use config::{PortConfig, PortRole, VmmqMode};
use datapath::{PortId, PortInfo, PortSettings, PortState};
use devices::{Condition, Watch, team_algorithm, team_fail_back};
use ports::packet::Spread;
use ports::steering::Steering;
use ports::team::Team;
use problem::Problem;
use std::sync::Arc;
use wire::Mac;

/// A port of the configuration.
pub(super) struct RunningPort {
    pub(super) config: PortConfig,
    pub(super) device: PortDevice,
    /// The device's address when it was first opened.
    pub(super) first_mac: Option<Mac>,
}

/// The device of a port.
pub(super) enum PortDevice {
    /// In the switch.
    Open(Box<OpenPort>),
    /// Not open, with the reason.
    Closed {
        /// Why.
        reason: String,
        /// Whether this process may not open it.
        denied: bool,
    },
}

/// A port in the switch.
pub(super) struct OpenPort {
    pub(super) id: PortId,
    /// The device's own MTU, in bytes.
    pub(super) mtu: u16,
    pub(super) mac: Option<Mac>,
    pub(super) degraded: Vec<String>,
    pub(super) watch: Box<dyn Watch>,
    /// The NUMA node of its guest's memory, if known.
    pub(super) home: Option<usize>,
    /// The settings last sent to the switch.
    pub(super) settings: PortSettings,
    /// Whether the switch has announced the port's address and is to do so again, in case the first
    /// announcement got lost.
    pub(super) announces: bool,
    /// For an uplink with indirection tables: the vNICs that have one.
    pub(super) stations: Stations,
    /// Why the guest's link is down (`follow-uplink`).
    pub(super) link_down: Option<String>,
    /// The guest's front end at the last poll: how many have connected, and whether one is.
    pub(super) front_ends: (u64, bool),
    /// For a team: the addresses pinned to members, as last sent.
    pub(super) pins: Vec<(Mac, String)>,
    /// The counters and rates of the last poll.
    pub(super) last: Sample,
}

impl RunningPort {
    /// Returns the port in the switch, if its device is open.
    pub(super) fn open(&self) -> Option<&OpenPort> {
        match &self.device {
            PortDevice::Open(open) => Some(open),
            PortDevice::Closed { .. } => None,
        }
    }

    /// Returns the port in the switch, if its device is open, to change it.
    pub(super) fn open_mut(&mut self) -> Option<&mut OpenPort> {
        match &mut self.device {
            PortDevice::Open(open) => Some(open),
            PortDevice::Closed { .. } => None,
        }
    }

    /// Returns why its device is not open.
    pub(super) fn closed(&self) -> Option<&str> {
        match &self.device {
            PortDevice::Open(_) => None,
            PortDevice::Closed { reason, .. } => Some(reason),
        }
    }

    /// Whether its queues, or the entries of its tables, move by load.
    pub(super) fn is_dynamic(&self) -> bool {
        self.config.vmmq() == VmmqMode::Dynamic
    }

    /// Returns what the switch says about it, in the list of all ports.
    pub(super) fn info_in<'a>(&self, infos: &'a [PortInfo]) -> Option<&'a PortInfo> {
        let id = self.open()?.id;
        let place = infos.binary_search_by_key(&id, |info| info.id).ok()?;
        infos.get(place)
    }

    /// Returns why it carries no frames, as a finding. A guest that is off is not a fault, unless it
    /// is an uplink.
    pub(super) fn trouble(&self, info: Option<&PortInfo>) -> Option<(Kind, String)> {
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

    /// Returns the state and its reason: the guest's current state; otherwise what the worker knows,
    /// then what the link reports.
    pub(super) fn state(&self, info: Option<&PortInfo>) -> (StateBody, String) {
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

    /// Returns its team, if it is one and open.
    pub(super) fn team(&self) -> Option<&Team> {
        self.open()?.watch.team()
    }

    /// Takes over the port's new keys, and gives its device the MTU and the address that changed.
    ///
    /// # Errors
    /// The kernel refuses one of them.
    pub(super) fn change_device(&mut self, wanted: &PortConfig) -> Result<(), Problem> {
        let before = std::mem::replace(&mut self.config, wanted.clone());
        let PortDevice::Open(open) = &mut self.device else { return Ok(()) };
        if wanted.rate != before.rate {
            open.watch.set_rate(wanted.rate);
        }
        if let Some(mtu) = wanted.mtu.filter(|mtu| before.mtu != Some(*mtu)) {
            open.watch.set_mtu(mtu.0)?;
            open.mtu = open.watch.state().mtu;
        }
        if let Some(mac) = wanted.mac.filter(|mac| before.mac != Some(*mac))
            && open.watch.set_mac(mac.0)?
        {
            (open.mac, self.first_mac) = (Some(mac.0), Some(mac.0));
        }
        Ok(())
    }

    /// Carries out a change of a team's keys.
    ///
    /// # Errors
    /// The members that could not be opened, with the reasons.
    pub(super) fn change_team(&mut self, wanted: &PortConfig) -> Result<(), String> {
        let PortDevice::Open(open) = &mut self.device else { return Ok(()) };
        let Some(team) = open.watch.team() else { return Ok(()) };
        team.set_algorithm(team_algorithm(wanted));
        team.set_fail_back(team_fail_back(wanted));
        if self.config.team == wanted.team {
            return Ok(());
        }
        // Places have other members now, so the pins must be sent again.
        open.pins.clear();
        let failed = team.set_members(&wanted.members());
        let reasons: Vec<String> =
            failed.into_iter().map(|(member, reason)| format!("{member}: {reason}")).collect();
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
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

impl OpenPort {
    /// Returns what steers its ingress queues.
    pub(super) fn steering(&self) -> Option<Arc<dyn Steering>> {
        match self.watch.spread() {
            Spread::Tables(steering) => Some(steering),
            Spread::Single | Spread::Hash(_) => None,
        }
    }

    /// Returns for each ingress queue of an uplink the vNICs whose tables name it.
    pub(super) fn queue_vnics(&self) -> Vec<Vec<QueueVnicBody>> {
        let Some(steering) = self.steering() else { return Vec::new() };
        let mut queues = vec![Vec::new(); steering.queues().into()];
        for (vnic, of) in self.stations.vnics() {
            let Ok(table) = steering.table(vnic) else { continue };
            let mut counts = vec![0; queues.len()];
            for named in table {
                counts.get_mut(usize::from(named)).into_iter().for_each(|count| *count += 1);
            }
            for (vnics, entries) in queues.iter_mut().zip(counts) {
                if entries > 0 {
                    vnics.push(QueueVnicBody {
                        port: of.map(|(port, _)| port.to_string()),
                        mac: of.map(|(_, (mac, _))| mac.to_string()),
                        vlan: of.map(|(_, (_, vlan))| vlan),
                        entries,
                    });
                }
            }
        }
        queues
    }
}
