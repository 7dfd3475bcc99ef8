//! `millrace team`: uplinks of several members, in the words of Get-VMSwitchTeam and Set-VMNetworkAdapterTeamMapping.

use crate::cli::Global;
use crate::commands::names;
use crate::output::{self, Outcome, table, word};
use clap::{Args, Subcommand};
use control::body::{TeamBody, TeamChange, TeamHomeBody, TeamMapping, TeamMemberBody};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show members, algorithm and mappings (Get-VMSwitchTeam, Get-VMNetworkAdapterTeamMapping)
    Show(Show),
    /// Add members to a team while it runs
    Add(Change),
    /// Remove members from a team while it runs
    Remove(Removal),
    /// Pin a vNIC to a member, or free it (Set-VMNetworkAdapterTeamMapping)
    Map(Map),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace team show
  millrace team show uplink0 --json | jq '.[].members[].counters'

A member that is not active says why. HOME is the member at which the network outside sees an address;
NOW is the one that stands for it while its home is down. Counters of what was not taken: `reflected`
came back from the switch outside, `copies` came in at another member as well, `to_member` was for the
host's own device.")]
struct Show {
    /// The team's port [default: all teams].
    #[arg(add = names::ports())]
    port: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace team add uplink0 eth3
  millrace team add uplink0 eth3 eth4

The new members take over their share of the addresses, which are announced from there. Nothing changes
if one of them does not open. The change is kept at a port that was added by the API; at a port
of the file it lasts until the daemon stops or reads its file again.")]
struct Change {
    /// The team's port.
    #[arg(add = names::ports())]
    port: String,
    /// Network devices of the host.
    #[arg(required = true)]
    devices: Vec<String>,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace team remove uplink0 eth3

Its addresses move to the other members first and are announced from there. The last member stays, and
so does one that a vNIC is pinned to.")]
struct Removal {
    /// The team's port.
    #[arg(add = names::ports())]
    port: String,
    /// Members of the team.
    #[arg(required = true)]
    members: Vec<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace team map uplink0 vm1 eth1     # frames of vm1 leave by eth1, or not at all
  millrace team map uplink0 vm1 --any    # frees it

Two paths of iSCSI multipath stay apart when each has a vNIC that is pinned to a member of its own.
Frames of a pinned vNIC whose member is down are dropped and counted as `path_down`.
Sets `team-member` of the vNIC's port. That is kept at a port that was added by the API; at a port
of the file it lasts until the daemon stops or reads its file again.")]
struct Map {
    /// The team's port.
    #[arg(add = names::ports())]
    port: String,
    /// The vNIC's port.
    vnic: String,
    #[command(flatten)]
    to: To,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct To {
    /// The member.
    member: Option<String>,
    /// Any member.
    #[arg(long)]
    any: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let bodies = match &arguments.verb {
        Verb::Show(Show { port }) => client.teams(port.as_deref())?,
        Verb::Add(Change { port, devices }) => {
            let change = TeamChange { add: devices.clone(), ..TeamChange::default() };
            vec![client.change_team(port, &change)?]
        }
        Verb::Remove(Removal { port, members }) => {
            let change = TeamChange { remove: members.clone(), ..TeamChange::default() };
            vec![client.change_team(port, &change)?]
        }
        Verb::Map(Map { port, vnic, to }) => {
            let mapping = TeamMapping { vnic: vnic.clone(), member: to.member.clone() };
            vec![client.map_team(port, &mapping)?]
        }
    };
    output::show(global, &bodies, |bodies| text(bodies))
}

fn text(bodies: &[TeamBody]) -> String {
    if bodies.is_empty() {
        return "There are no teams.".to_owned();
    }
    bodies.iter().map(team).collect::<Vec<_>>().join("\n\n")
}

fn team(body: &TeamBody) -> String {
    let mut text = format!(
        "{}: {} {}, MTU {}, transmit offloads: {}, receive checksum: {}\n\n",
        body.port,
        body.teaming_mode,
        word(&body.load_balancing_algorithm),
        body.mtu,
        if body.tx_offloads.is_empty() { "none".to_owned() } else { body.tx_offloads.join(" ") },
        if body.rx_checksum { "yes" } else { "no" },
    );
    let header =
        ["MEMBER", "STATE", "MTU", "SPEED", "IN", "OUT", "REPLACED", "REFLECTED", "COPIES"];
    text.push_str(&table(&header, body.members.iter().map(member)));
    for member in &body.members {
        if let Some(reason) = &member.reason {
            text.push_str(&format!("\n{}: {reason}", member.name));
        }
    }
    if !body.mappings.is_empty() {
        let header = ["ADDRESS", "VNIC", "HOME", "NOW", "PINNED"];
        text.push_str(&format!("\n\n{}", table(&header, body.mappings.iter().map(mapping))));
    }
    text
}

fn member(member: &TeamMemberBody) -> Vec<String> {
    let count = |name| member.counters.get(name).copied().unwrap_or_default().to_string();
    let speed =
        member.speed_mbit.map_or_else(|| "unknown".to_owned(), |speed| format!("{speed} Mbit/s"));
    vec![
        member.name.clone(),
        if member.active { "active" } else { "down" }.to_owned(),
        member.mtu.to_string(),
        speed,
        count("ingress_frames"),
        count("egress_frames"),
        count("replaced_sources"),
        count("reflected"),
        count("copies"),
    ]
}

fn mapping(mapping: &TeamHomeBody) -> Vec<String> {
    vec![
        mapping.mac.clone(),
        mapping.port.clone().unwrap_or_default(),
        mapping.home.clone(),
        mapping.current.clone().unwrap_or_else(|| "none".to_owned()),
        if mapping.pinned { "yes" } else { "" }.to_owned(),
    ]
}
