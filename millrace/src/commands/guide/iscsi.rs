//! *Direct Connect iSCSI Storage To Hyper-V Guest Benefits From VMQ & Jumbo Frames*: two vNICs of
//! one guest, each pinned to a member of its own.

use super::document::Document;
use super::place::Place;
use super::prerequisites::{DAEMON, WORKERS};
use super::progress::Progress;
use super::script::{Activity, End, Guide, Sight, Task};
use crate::output::tell;
use api::body::{FindingBody, PortBody, TeamBody};
use config::PortRole;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often a wait for a member looks.
const GLANCE: Duration = Duration::from_millis(200);
/// Bytes of the other paths from which on they carried storage, not only ARP.
const LEAST_BYTES: u64 = 4096;

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
                    repeats: true,
                    look: members,
                },
                Task {
                    title: "Two vNICs of the guest, each pinned to a member",
                    windows: "Set-VMNetworkAdapterTeamMapping -VMNetworkAdapterName iscsi1 -PhysicalNetAdapterName NIC1",
                    here: "millrace team map TEAM iscsi1 MEMBER1",
                    repeats: true,
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
                repeats: true,
                look: both,
            }],
        },
        Activity {
            title: "Pull one path",
            tasks: &[Task {
                title: "While one member is down, the other path carries on (MPIO)",
                windows: "Disable-NetAdapter NIC1; mpclaim -s -d",
                here: "ip link set MEMBER1 down; multipath -ll",
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
    let down = teams.iter().flat_map(|team| team.members.iter().filter(|member| !member.active));
    let up: Vec<_> = down.map(|member| format!("`ip link set {} up`", member.name)).collect();
    let remedy = match up.as_slice() {
        [] => "a port with `team = [\"eth1\", \"eth2\"]`, each device to a switch of its own \
               (docs/teaming.md)"
            .to_owned(),
        up => format!("{}, and plug it in", up.join(", ")),
    };
    let sight = Sight::check(active.len() > 1, seen, "a team with two active members", remedy);
    Ok(if teams.is_empty() { sight.stop() } else { sight })
}

/// Returns the ports that are pinned to a member, with the members.
fn pins(ports: &[PortBody]) -> Vec<(&str, String)> {
    let pinned = ports.iter().filter_map(|port| Some((port, port.config.team_member.as_ref()?)));
    pinned.map(|(port, member)| (port.name.as_str(), member.to_string())).collect()
}

fn pinned(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let ports = place.client.ports()?;
    let teams = place.client.teams(None)?;
    let pins = pins(&ports);
    let used: BTreeSet<_> = pins.iter().map(|(_, member)| member).collect();
    let seen = pins.iter().map(|(port, member)| format!("{port} to {member}")).collect::<Vec<_>>();
    let seen = if seen.is_empty() { "no vNIC is pinned".to_owned() } else { seen.join(", ") };
    Ok(Sight::check(
        used.len() > 1,
        seen,
        "two vNICs of the guest, pinned to two members",
        format!("{}, or `team-member` of the ports (docs/storage.md)", map(&ports, teams.first())),
    ))
}

/// Returns the commands that pin two vNICs of a guest to the members of a team. Which vNICs are of
/// one guest is known only of those in one network namespace.
fn map(ports: &[PortBody], team: Option<&TeamBody>) -> String {
    let vnics = || ports.iter().filter(|port| port.role == PortRole::Vnic);
    let within = |netns| vnics().filter(move |port| port.config.netns.as_ref() == Some(netns));
    let mut all = vnics().filter_map(|port| port.config.netns.as_ref());
    let (Some(team), Some(netns)) = (team, all.find(|netns| within(*netns).count() > 1)) else {
        let team = team.map_or("TEAM", |team| team.port.as_str());
        return format!("`millrace team map {team} VNIC MEMBER` for each of the guest's two vNICs");
    };
    let of_one = within(netns);
    let lines = of_one.zip(&team.members).map(|(vnic, member)| {
        format!("`millrace team map {} {} {}`", team.port, vnic.name, member.name)
    });
    lines.collect::<Vec<_>>().join(", ")
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
    let teams = place.client.teams(None)?;
    let members: Vec<_> = teams.iter().flat_map(|team| &team.members).collect();
    let seen = own.iter().map(words);
    let seen = seen.chain(members.iter().map(|it| format!("{}: MTU {}", it.name, it.mtu)));
    let seen = seen.collect::<Vec<_>>().join("; ");
    if own.is_empty() {
        return Ok(Sight::noted("no vNIC is pinned").remedy("as above; the next run looks again"));
    }
    let largest = own.iter().filter_map(|port| port.mtu).max().unwrap_or_default();
    // A member that is down has MTU 0 until it is open.
    let links = members.iter().filter(|it| it.mtu > 0 && it.mtu < largest);
    let links = links.map(|it| format!("`ip link set {} mtu {largest}`", it.name));
    let vnics = own.iter().filter(|port| port.mtu.is_some_and(|mtu| mtu < largest));
    let vnics = vnics.map(|port| format!("`millrace port set {} mtu={largest}`", port.name));
    let raise: Vec<_> = links.chain(vnics).collect();
    Ok(Sight::check(
        raise.is_empty(),
        seen,
        "the same MTU on both paths and their members",
        format!("{}; the switches and the target too", raise.join(", ")),
    )
    .hint("several queues and MTU 9000 help: `millrace guide vmmq`, `millrace guide jumbo` for one of the vNICs"))
}

/// A member that went down while the guide waited.
struct Pulled {
    member: String,
    since: Instant,
    /// Bytes of the vNICs pinned to other members, when it went down.
    others: u64,
}

fn pull(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let ports = place.client.ports()?;
    let pins = pins(&ports);
    let members: BTreeSet<_> = pins.iter().map(|(_, member)| member.as_str()).collect();
    let Some(first) = members.first().filter(|_| members.len() > 1) else {
        return Ok(Sight::noted("not looked at: no two vNICs are pinned to two members")
            .remedy("as above; the next run looks again"));
    };
    let advice = format!(
        "while the guest writes, on the host: `ip link set {first} down`; the guest's `multipath -ll` shows one path failed \
         and one active. Then `ip link set {first} up`. `millrace validate storage` does it in namespaces"
    );
    tell(&format!("    {advice}"));
    let begin = Instant::now();
    let (mut pulled, mut progress) = (None::<Pulled>, Progress::default());
    while begin.elapsed() < place.traffic_timeout {
        let down = down(place, &members)?;
        match (&pulled, down) {
            (None, Some(member)) => {
                let others = carried(place, &pins, &member)?;
                progress.end();
                tell(&format!(
                    "    {member} is down; let the guest write on, then plug it in again"
                ));
                pulled = Some(Pulled { member, since: Instant::now(), others });
            }
            (Some(pulled), None) => {
                let bytes = carried(place, &pins, &pulled.member)?.saturating_sub(pulled.others);
                return Ok(survived(&pulled.member, pulled.since.elapsed(), bytes));
            }
            _ => {}
        }
        let left = place.traffic_timeout.saturating_sub(begin.elapsed()).as_secs();
        if pulled.is_none() {
            progress.show("waiting until a member is down", &format!("{left} s left"));
        }
        place.interrupt.pass(GLANCE)?;
    }
    let seen = pulled.map_or_else(
        || "no member went down".to_owned(),
        |pulled| format!("{} is still down", pulled.member),
    );
    Ok(Sight::noted(format!("{seen} within {} s", place.traffic_timeout.as_secs())).remedy(advice))
}

/// Returns a member of these that carries no frames.
fn down(place: &Place, members: &BTreeSet<&str>) -> Result<Option<String>, End> {
    let teams = place.client.teams(None)?;
    let mut all = teams.into_iter().flat_map(|team| team.members);
    Ok(all.find(|it| members.contains(it.name.as_str()) && !it.active).map(|it| it.name))
}

/// Returns the bytes that the vNICs pinned to other members have carried.
fn carried(place: &Place, pins: &[(&str, String)], member: &str) -> Result<u64, End> {
    let others = pins.iter().filter(|(_, other)| other != member);
    let bytes = others.map(|(port, _)| {
        let counters = place.client.counters(port)?;
        Ok(counters.ingress_bytes + counters.egress_bytes)
    });
    bytes.sum()
}

/// Judges what the other paths have carried while a member was down.
fn survived(member: &str, down: Duration, bytes: u64) -> Sight {
    Sight::check(
        bytes >= LEAST_BYTES,
        format!(
            "{member} was down for {:.0} s; the vNICs of the other members carried {bytes} bytes meanwhile",
            down.as_secs_f64()
        ),
        format!("at least {LEAST_BYTES} bytes: the guest's storage by the other path"),
        "let the guest write while the member is down; if it does, its multipath does not use the other path: \
         `multipath -ll` in the guest (docs/storage.md)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::Status;

    #[test]
    fn a_pull_passes_only_if_the_other_path_carried_frames() {
        let status = |bytes| survived("eth1", Duration::from_secs(5), bytes).status;
        assert_eq!(status(1 << 20), Some(Status::Passed));
        assert_eq!(status(300), Some(Status::Problem));
    }
}
