//! Teams: shown, their members added and removed, and vNICs pinned to members.

use super::Running;
use super::port::RunningPort;
use super::ports::Ports;
use super::report::{Report, offload_names};
use super::single_port::merge;
use api::body::{TeamBody, TeamChange, TeamHomeBody, TeamMapping, TeamMemberBody};
use config::{Config, PortName, PortRole};
use datapath::Switch;
use devices::team_fail_back;
use ports::Offloads;
use ports::team::{HomeStatus, MemberStatus, Place, Team, TeamStatus};
use problem::Problem;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wire::Mac;

/// Returns all teams, by port.
pub(crate) fn bodies(report: &Report<'_>) -> Vec<TeamBody> {
    let teams = report.ports.iter().filter(|(_, port)| port.config.device().is_team());
    teams.map(|(name, port)| body_of(report, name, port)).collect()
}

/// Returns one team.
///
/// # Errors
/// There is no such port, or it is not a team.
pub(crate) fn body(report: &Report<'_>, name: &str) -> Result<TeamBody, Problem> {
    let (name, port) = report.ports.port(name)?;
    if !port.config.device().is_team() {
        let teams: Vec<String> = bodies(report).into_iter().map(|team| team.port).collect();
        let wanted =
            if teams.is_empty() { "a team (there are none)".to_owned() } else { teams.join(", ") };
        return Err(Problem::new(format!("port {name} is not a team"))
            .seen(port.config.device())
            .wanted(wanted)
            .remedy("`millrace team show` shows all teams"));
    }
    Ok(body_of(report, name, port))
}

fn body_of(report: &Report<'_>, name: &PortName, port: &RunningPort) -> TeamBody {
    let status = port.team().map(Team::status);
    let members = status.as_ref().map_or(&[][..], |status| &status.members);
    let offloads = members.iter().map(|member| member.offloads).reduce(|one, other| one & other);
    TeamBody {
        port: name.to_string(),
        teaming_mode: "SwitchIndependent".to_owned(),
        load_balancing_algorithm: port.config.team_algorithm.unwrap_or_default(),
        fail_back_s: team_fail_back(&port.config).as_secs(),
        mtu: port.team().map_or(0, Team::mtu),
        tx_offloads: offload_names(offloads.unwrap_or(Offloads::empty())),
        rx_checksum: members.iter().any(|member| member.rx_checksum),
        members: members.iter().map(member_body).collect(),
        mappings: status.map_or_else(Vec::new, |status| mappings(report, &status)),
    }
}

fn mappings(report: &Report<'_>, status: &TeamStatus) -> Vec<TeamHomeBody> {
    let of = |place: Place| {
        let member = status.members.iter().find(|member| member.place == place);
        member.map(|member| member.name.clone())
    };
    let owners = vnic_addresses(report.ports, report.switch);
    let body = |home: &HomeStatus| TeamHomeBody {
        mac: home.mac.to_string(),
        port: owners.iter().find(|(_, mac)| *mac == home.mac).map(|(port, _)| port.to_string()),
        home: of(home.home).unwrap_or_default(),
        current: home.current.and_then(of),
        pinned: home.pinned,
    };
    status.homes.iter().map(body).collect()
}

/// Returns the addresses of each vNIC: configured, held and learned.
fn vnic_addresses(ports: &Ports, switch: &Switch) -> Vec<(PortName, Mac)> {
    let (infos, learned) = (switch.ports(), switch.macs());
    let mut addresses = Vec::new();
    for (name, port) in ports.iter() {
        let Some(open) = port.open().filter(|_| port.config.role() == PortRole::Vnic) else {
            continue;
        };
        let own = port.info_in(&infos).and_then(|info| info.settings.mac.or(info.held_mac));
        let here = learned.iter().filter(|entry| entry.port == open.id).map(|entry| entry.mac);
        addresses.extend(own.into_iter().chain(here).map(|mac| (name.clone(), mac)));
    }
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Returns the addresses of vNICs that are about to close, for [`forget`]; none if there is no team.
pub(super) fn addresses_of(ports: &Ports, switch: &Switch, vnics: &BTreeSet<&str>) -> Vec<Mac> {
    if ports.teams().next().is_none() {
        return Vec::new();
    }
    let all = vnic_addresses(ports, switch).into_iter();
    let addresses = all.filter(|(port, _)| vnics.contains(port.as_str()));
    addresses.map(|(_, mac)| mac).collect()
}

/// Makes teams stop announcing addresses that are gone.
pub(super) fn forget(ports: &Ports, gone: &[Mac]) {
    ports.teams().for_each(|team| team.forget(gone));
}

impl Running {
    /// Sends teams their pinned addresses, if changed. While a plan is in work, they wait for its
    /// end: a port that a later step opens again keeps its pin.
    pub(super) fn settle_pins(&mut self) {
        if self.desired.is_in_work() || self.ports.teams().next().is_none() {
            return;
        }
        let pinned = |(port, mac): (PortName, Mac)| {
            let member = self.ports.get(&port)?.config.team_member.as_ref()?;
            Some((mac, member.to_string()))
        };
        let pins: Vec<(Mac, String)> =
            vnic_addresses(&self.ports, &self.switch).into_iter().filter_map(pinned).collect();
        for (_, open) in self.ports.open_mut() {
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
}

/// Returns the configuration with network devices added to a team, and others removed.
///
/// # Errors
/// There is no such port, a device to remove is no member, a device cannot be a member, or a rule
/// refuses.
pub(crate) fn with_members(
    ports: &Ports,
    config: &Config,
    name: &str,
    change: &TeamChange,
) -> Result<Config, Problem> {
    let (_, port) = ports.port(name)?;
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
    let mut wanted = config.clone();
    for port in wanted.ports.iter_mut().filter(|port| port.name.as_str() == name) {
        *port = merge(port, &patch)?;
    }
    wanted.check()?;
    if let Some(team) = port.team() {
        team.try_members(&members).map_err(|error| {
            Problem::new(error.to_string())
                .wanted("a network device that can be opened")
                .remedy("fix the cause, or name another device; nothing was changed")
        })?;
    }
    Ok(wanted)
}

/// Returns the patch of a vNIC that pins it to a member of a team, or unpins it.
///
/// # Errors
/// There is no such team, it has no such member, or the port is not a vNIC.
pub(crate) fn pin(ports: &Ports, team: &str, mapping: &TeamMapping) -> Result<Value, Problem> {
    let (_, port) = ports.port(team)?;
    let members = port.config.members();
    if let Some(member) = &mapping.member
        && !members.contains(member)
    {
        return Err(Problem::new(format!("{member} is not a member of {team}"))
            .seen(member)
            .wanted(members.join(", "))
            .remedy("name a member of the team"));
    }
    let (_, vnic) = ports.port(&mapping.vnic)?;
    if vnic.config.role() == PortRole::Uplink {
        let vnics = ports.iter().filter(|(_, port)| port.config.role() == PortRole::Vnic);
        let vnics: Vec<_> = vnics.map(|(name, _)| name.as_str()).collect();
        return Err(Problem::new(format!("port {} is not a vNIC", mapping.vnic))
            .seen("an uplink")
            .wanted(match vnics.as_slice() {
                [] => "a vNIC (there are none)".to_owned(),
                vnics => format!("a vNIC: {}", vnics.join(", ")),
            })
            .remedy("name a vNIC"));
    }
    Ok(json!({ "team-member": mapping.member }))
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
