//! `millrace team`: teamed uplinks, in the terms of Get-VMSwitchTeam and
//! Set-VMNetworkAdapterTeamMapping.

use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Outcome, table, word};
use api::body::{TeamBody, TeamChange, TeamHomeBody, TeamMapping, TeamMemberBody};
use clap::{Args, Subcommand};

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
    /// Pin a vNIC to a member, or unpin it (Set-VMNetworkAdapterTeamMapping)
    Map(Map),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace team show
  millrace team show uplink0 --json | jq '.[].members[].counters'

An inactive member has a reason. HOME is the member at which the network sees an address; NOW is the
member that carries it while its home is down. Counters of ignored frames: `reflected` frames came
back from the physical switch, `copies` also arrived at another member, `to_member` frames were for
the host's own device, and `probes` are those with which members find out whether they hear each
other.")]
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

The new members take over their share of the addresses and announce it. If one of them cannot be
opened, nothing changes. On a port added through the API the change persists; on a port from the
file it lasts until the daemon stops or rereads its file.")]
struct Change {
    /// The team's port.
    #[arg(add = names::ports())]
    port: String,
    /// Network devices of the host.
    #[arg(required = true, add = names::devices())]
    devices: Vec<String>,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace team remove uplink0 eth3

The addresses first move to the other members, which announce them. The last member cannot be
removed, nor one that a vNIC is pinned to.")]
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
  millrace team map uplink0 vm1 --any    # unpins it

To keep two paths of iSCSI multipath apart, pin the vNIC of each to its own member.
While its member is down, a pinned vNIC's frames are dropped and counted as `path_down`.
Sets `team-member` of the vNIC's port. On a port added through the API the change persists; on a
port from the file it lasts until the daemon stops or rereads its file.")]
struct Map {
    /// The team's port.
    #[arg(add = names::ports())]
    port: String,
    /// The vNIC's port.
    #[arg(add = names::ports())]
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
