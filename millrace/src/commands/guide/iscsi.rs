//! *Direct Connect iSCSI Storage To Hyper-V Guest Benefits From VMQ & Jumbo Frames*: two vNICs of
//! one guest, each pinned to a member of its own.

use super::document::Document;
use super::place::Place;
use super::prerequisites::{DAEMON, WORKERS};
use super::script::{Activity, End, Guide, Sight, Task};
use api::body::{FindingBody, PortBody};
use std::collections::BTreeSet;

/// The guide.
pub(super) const GUIDE: Guide<Place> = Guide {
    name: "iscsi",
    title: "Direct Connect iSCSI Storage To Hyper-V Guest Benefits From VMQ & Jumbo Frames",
    is_of_one_vnic: false,
    activities: &[
        Activity { title: "Prerequisites", tasks: &[DAEMON, WORKERS] },
        Activity {
            title: "Two paths",
            tasks: &[
                Task {
                    title: "Two members, on two physical switches",
                    windows: "Get-VMSwitchTeam",
                    here: "millrace team show",
                    repeats: false,
                    look: members,
                },
                Task {
                    title: "Two vNICs of the guest, each pinned to a member",
                    windows: "Set-VMNetworkAdapterTeamMapping -VMNetworkAdapterName iscsi1 -PhysicalNetAdapterName NIC1",
                    here: "millrace team map TEAM iscsi1 MEMBER1",
                    repeats: false,
                    look: pinned,
                },
                Task {
                    title: "Never both on the same member, and both paths up",
                    windows: "Get-VMNetworkAdapterTeamMapping",
                    here: "millrace check",
                    repeats: true,
                    look: apart,
                },
            ],
        },
        Activity {
            title: "VMQ and jumbo frames on both paths",
            tasks: &[Task {
                title: "Queues and MTU of both vNICs",
                windows: "Get-NetAdapterVmqQueue; Get-NetAdapterAdvancedProperty -DisplayName 'Jumbo Packet'",
                here: "millrace port list",
                repeats: false,
                look: both,
            }],
        },
        Activity {
            title: "Pull one path",
            tasks: &[Task {
                title: "In the guest the other path carries on (MPIO)",
                windows: "mpclaim -s -d",
                here: "multipath -ll",
                repeats: false,
                look: pull,
            }],
        },
    ],
};

fn members(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let teams = place.client.teams(None)?;
    let active: Vec<_> = teams
        .iter()
        .flat_map(|team| team.members.iter().filter(|member| member.active))
        .map(|member| member.name.as_str())
        .collect();
    let seen = match teams.first() {
        None => "the switch has no team".to_owned(),
        Some(team) => format!("team {}, active: {}", team.port, active.join(", ")),
    };
    let sight = Sight::check(
        active.len() > 1,
        seen,
        "a team with two active members",
        "a port with `team = [\"eth1\", \"eth2\"]`, each device to a switch of its own (docs/storage.md)",
    );
    Ok(if teams.is_empty() { sight.stop() } else { sight })
}

/// Returns the ports that are pinned to a member, with the members.
fn pins(ports: &[PortBody]) -> Vec<(&str, String)> {
    let pinned = ports.iter().filter_map(|port| Some((port, port.config.team_member.as_ref()?)));
    pinned.map(|(port, member)| (port.name.as_str(), member.to_string())).collect()
}

fn pinned(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let ports = place.client.ports()?;
    let pins = pins(&ports);
    let used: BTreeSet<_> = pins.iter().map(|(_, member)| member).collect();
    let seen = pins.iter().map(|(port, member)| format!("{port} to {member}")).collect::<Vec<_>>();
    let seen = if seen.is_empty() { "no vNIC is pinned".to_owned() } else { seen.join(", ") };
    Ok(Sight::check(
        used.len() > 1,
        seen,
        "two vNICs of the guest, pinned to two members",
        "`millrace team map TEAM VNIC MEMBER` for each, or `team-member` of the ports (docs/storage.md)",
    ))
}

fn apart(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let health = place.client.health()?;
    let is_ours =
        |it: &&FindingBody| ["same_path", "path_down", "member_down"].contains(&it.kind.as_str());
    Ok(match health.findings.iter().find(is_ours) {
        None => Sight::passed("no finding same_path, path_down or member_down"),
        Some(FindingBody { kind, problem, .. }) => {
            Sight::problem(format!("{kind}: {}", problem.error), &problem.wanted, &problem.remedy)
        }
    })
}

fn both(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let ports = place.client.ports()?;
    let own: Vec<_> = ports.iter().filter(|port| port.config.team_member.is_some()).collect();
    let words = |port: &&PortBody| {
        let mtu = port.mtu.map_or_else(|| "not open".to_owned(), |mtu| mtu.to_string());
        format!("{}: {} queues, MTU {mtu}", port.name, port.queues.len())
    };
    let seen = own.iter().map(words).collect::<Vec<_>>().join("; ");
    let mtus: BTreeSet<_> = own.iter().map(|port| port.mtu).collect();
    if own.is_empty() {
        return Ok(Sight::noted("no vNIC is pinned"));
    }
    Ok(Sight::check(
        mtus.len() == 1,
        seen,
        "the same MTU on both paths; several queues and MTU 9000 help",
        "`millrace port set PORT mtu=9000 queues=4`, the members' devices and the target too; then `millrace guide jumbo`",
    ))
}

fn pull(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let ports = place.client.ports()?;
    let member = pins(&ports).first().map_or("MEMBER".to_owned(), |(_, member)| member.clone());
    Ok(Sight::noted("not done for you: it interrupts a path of a guest's storage").remedy(format!(
        "while the guest writes: `ip link set {member} down` on the host; `multipath -ll` in the guest shows the path failed \
         and the other active, `millrace check` the finding path_down; then `ip link set {member} up`. `millrace validate \
         storage` does it in namespaces"
    )))
}
