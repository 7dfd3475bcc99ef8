//! Teams: shown, their members added and removed, and vNICs pinned to members.

use super::report::offload_names;
use super::{PortDevice, Running, RunningPort};
use api::body::{TeamBody, TeamChange, TeamHomeBody, TeamMapping, TeamMemberBody};
use config::{PortConfig, PortName, PortRole};
use devices::{team_algorithm, team_fail_back};
use ports::Offloads;
use ports::team::{HomeStatus, MemberStatus, Place, Team, TeamStatus};
use problem::Problem;
use serde_json::json;
use std::time::Instant;
use wire::Mac;

impl RunningPort {
    pub(super) fn team(&self) -> Option<&Team> {
        self.open()?.watch.team()
    }
}

impl Running {
    /// All teams, by port.
    pub fn team_bodies(&self) -> Vec<TeamBody> {
        let teams = self.ports.iter().filter(|(_, port)| port.config.device().is_team());
        teams.map(|(name, port)| self.team_body_of(name, port)).collect()
    }

    /// One team.
    pub fn team_body(&self, name: &str) -> Result<TeamBody, Problem> {
        let (name, port) = self.port(name)?;
        if !port.config.device().is_team() {
            let teams: Vec<String> = self.team_bodies().into_iter().map(|team| team.port).collect();
            let wanted = if teams.is_empty() {
                "a team (there are none)".to_owned()
            } else {
                teams.join(", ")
            };
            return Err(Problem::new(format!("port {name} is not a team"))
                .seen(port.config.device())
                .wanted(wanted)
                .remedy("`millrace team show` shows all teams"));
        }
        Ok(self.team_body_of(name, port))
    }

    fn team_body_of(&self, name: &PortName, port: &RunningPort) -> TeamBody {
        let status = port.team().map(Team::status);
        let members = status.as_ref().map_or(&[][..], |status| &status.members);
        let offloads =
            members.iter().map(|member| member.offloads).reduce(|one, other| one & other);
        TeamBody {
            port: name.to_string(),
            teaming_mode: "SwitchIndependent".to_owned(),
            load_balancing_algorithm: port.config.team_algorithm.unwrap_or_default(),
            fail_back_s: team_fail_back(&port.config).as_secs(),
            mtu: port.team().map_or(0, Team::mtu),
            tx_offloads: offload_names(offloads.unwrap_or(Offloads::empty())),
            rx_checksum: members.iter().any(|member| member.rx_checksum),
            members: members.iter().map(member_body).collect(),
            mappings: status.map_or_else(Vec::new, |status| self.mappings(&status)),
        }
    }

    fn mappings(&self, status: &TeamStatus) -> Vec<TeamHomeBody> {
        let of = |place: Place| {
            let member = status.members.iter().find(|member| member.place == place);
            member.map(|member| member.name.clone())
        };
        let owners = self.vnic_addresses();
        let body = |home: &HomeStatus| TeamHomeBody {
            mac: home.mac.to_string(),
            port: owners.iter().find(|(_, mac)| *mac == home.mac).map(|(port, _)| port.to_string()),
            home: of(home.home).unwrap_or_default(),
            current: home.current.and_then(of),
            pinned: home.pinned,
        };
        status.homes.iter().map(body).collect()
    }

    /// The addresses of each vNIC: configured, held and learned.
    fn vnic_addresses(&self) -> Vec<(PortName, Mac)> {
        let (infos, learned) = (self.infos(), self.switch.macs());
        let mut addresses = Vec::new();
        for (name, port) in &self.ports {
            let Some(open) = port.open().filter(|_| port.config.role() == PortRole::Vnic) else {
                continue;
            };
            let own = infos.iter().find(|info| info.id == open.id);
            let own = own.and_then(|info| info.settings.mac.or(info.held_mac));
            let here = learned.iter().filter(|entry| entry.port == open.id).map(|entry| entry.mac);
            addresses.extend(own.into_iter().chain(here).map(|mac| (name.clone(), mac)));
        }
        addresses.sort();
        addresses.dedup();
        addresses
    }

    fn has_team(&self) -> bool {
        self.ports.values().any(|port| port.team().is_some())
    }

    /// The addresses of a vNIC that is about to close, for [`Running::forget_in_teams`]; none if
    /// there is no team.
    pub(super) fn addresses_of(&self, vnic: &PortName) -> Vec<Mac> {
        if !self.has_team() {
            return Vec::new();
        }
        let addresses = self.vnic_addresses().into_iter().filter(|(port, _)| port == vnic);
        addresses.map(|(_, mac)| mac).collect()
    }

    /// Makes teams stop announcing addresses that are gone.
    pub(super) fn forget_in_teams(&self, gone: &[Mac]) {
        self.ports.values().filter_map(RunningPort::team).for_each(|team| team.forget(gone));
    }

    /// The member that a vNIC is pinned to, and why it carries no frames; `None` if it carries
    /// them.
    pub(super) fn path_down(&self, vnic: &PortConfig) -> Option<(String, String)> {
        let pinned = vnic.team_member.as_ref()?;
        let mut teams = self.ports.values().filter_map(RunningPort::team);
        let reason = teams.find_map(|team| team.lost(pinned.as_str()))?;
        Some((pinned.to_string(), reason))
    }

    /// Sends teams their pinned addresses, if changed. While a plan is in work, they wait for its
    /// end: a port that a later step opens again keeps its pin.
    pub(super) fn settle_pins(&mut self) {
        if self.is_in_work() || !self.has_team() {
            return;
        }
        let pinned = |(port, mac): (PortName, Mac)| {
            let member = self.ports.get(&port)?.config.team_member.as_ref()?;
            Some((mac, member.to_string()))
        };
        let pins: Vec<(Mac, String)> =
            self.vnic_addresses().into_iter().filter_map(pinned).collect();
        for port in self.ports.values_mut() {
            let PortDevice::Open(open) = &mut port.device else { continue };
            if let Some(team) = open.watch.team()
                && open.pins != pins
            {
                let without_room = team.pin(&pins);
                if !without_room.is_empty() {
                    tracing::warn!(
                        target: "control::running::team", "no room to pin {without_room:?}: their frames leave through any member"
                    );
                }
                open.pins.clone_from(&pins);
            }
        }
    }

    /// Carries out a change of a team's keys.
    pub(super) fn change_team(&mut self, port: &PortConfig) -> Result<(), String> {
        let Some(running) = self.ports.get_mut(&port.name) else { return Ok(()) };
        let PortDevice::Open(open) = &mut running.device else { return Ok(()) };
        let Some(team) = open.watch.team() else { return Ok(()) };
        team.set_algorithm(team_algorithm(port));
        team.set_fail_back(team_fail_back(port));
        if running.config.team == port.team {
            return Ok(());
        }
        // Places have other members now, so the pins must be sent again.
        open.pins.clear();
        let failed = team.set_members(&port.members());
        let reasons: Vec<String> =
            failed.into_iter().map(|(member, reason)| format!("{member}: {reason}")).collect();
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
    }

    /// Adds network devices to a team, and removes others.
    pub fn change_members(
        &mut self,
        name: &str,
        change: &TeamChange,
        now: Instant,
    ) -> Result<(), Problem> {
        let (_, port) = self.port(name)?;
        let mut members = port.config.members();
        for gone in &change.remove {
            let place = members.iter().position(|member| member == gone);
            let place = place.ok_or_else(|| {
                Problem::new(format!("{gone} is not a member of {name}"))
                    .seen(gone)
                    .wanted(members.join(", "))
                    .remedy("`millrace team show` shows the members")
            })?;
            members.remove(place);
        }
        members.extend(change.add.iter().cloned());
        let patch = json!({ "team": members });
        let mut wanted = self.config.clone();
        for port in wanted.ports.iter_mut().filter(|port| port.name.as_str() == name) {
            *port = super::ports::merge(port, &patch)?;
        }
        wanted.check()?;
        if let Some(team) = port.team() {
            team.try_members(&members).map_err(|error| {
                Problem::new(error.to_string())
                    .wanted("a network device that can be opened")
                    .remedy("fix the cause, or name another device; nothing was changed")
            })?;
        }
        self.reload(wanted, now).map(drop)
    }

    /// Pins a vNIC to a member of a team, or unpins it.
    pub fn map_member(
        &mut self,
        team: &str,
        mapping: &TeamMapping,
        now: Instant,
    ) -> Result<(), Problem> {
        let (_, port) = self.port(team)?;
        let members = port.config.members();
        if let Some(member) = &mapping.member
            && !members.contains(member)
        {
            return Err(Problem::new(format!("{member} is not a member of {team}"))
                .seen(member)
                .wanted(members.join(", "))
                .remedy("name a member of the team"));
        }
        self.patch(&mapping.vnic, &json!({ "team-member": mapping.member }), now).map(drop)
    }
}

fn member_body(member: &MemberStatus) -> TeamMemberBody {
    let counters = member.counters.named().into_iter();
    TeamMemberBody {
        name: member.name.clone(),
        queue: member.place.index(),
        active: member.active,
        reason: member.idle_reason(),
        mac: member.mac.to_string(),
        mtu: member.mtu,
        speed_mbit: member.speed,
        tx_offloads: offload_names(member.offloads),
        rx_checksum: member.rx_checksum,
        vlans_heard: member.vlans.clone(),
        counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
    }
}
