//! *Direct Connect iSCSI Storage To Hyper-V Guest Benefits From VMQ & Jumbo Frames*: two vNICs of
//! one guest, each with a link of its own: a member of a team, or an uplink of a second network.

use super::document::Document;
use super::paths::{Link, Path, links, paths};
use super::place::Place;
use super::prerequisites::{DAEMON, WORKERS};
use super::progress::Progress;
use super::script::{Activity, End, Guide, Sight, Task};
use super::vmmq;
use crate::output::{pluralized, tell};
use api::body::{FindingBody, PortBody, TeamBody};
use config::{Device, PortRole};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often a wait for a link looks.
const GLANCE: Duration = Duration::from_millis(200);
/// Bytes of the other paths from which on they carried storage, not only ARP.
const LEAST_BYTES: u64 = 4096;

/// The remedy of a task that needs an earlier one.
const NEXT: &str = "as above; the next run looks again";

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
                    title: "Two links, to two physical switches",
                    windows: "Get-VMSwitchTeam; Get-NetAdapter",
                    here: "millrace team show; millrace port list",
                    repeats: true,
                    look: two_links,
                },
                Task {
                    title: "Two vNICs of the guest, each with a link of its own",
                    windows: "Set-VMNetworkAdapterTeamMapping -VMNetworkAdapterName iscsi1 -PhysicalNetAdapterName NIC1",
                    here: "millrace team map TEAM iscsi1 MEMBER1",
                    repeats: true,
                    look: two_vnics,
                },
                Task {
                    title: "Never both on the same link, and both paths up",
                    windows: "Get-VMNetworkAdapterTeamMapping",
                    here: "millrace check",
                    repeats: true,
                    look: apart,
                },
                Task {
                    title: "The guest sees the link of a vNIC go down with its path",
                    windows: "",
                    here: "millrace port set VNIC follow-uplink=true",
                    repeats: true,
                    look: follows,
                },
            ],
        },
        Activity {
            title: "VMQ and jumbo frames on both paths",
            tasks: &[Task {
                title: "Several queues and one MTU on both paths",
                windows: "Get-NetAdapterVmqQueue; Get-NetAdapterAdvancedProperty -DisplayName 'Jumbo Packet'",
                here: "millrace port list",
                repeats: true,
                look: both,
            }],
        },
        Activity {
            title: "Pull one path",
            tasks: &[Task {
                title: "While one link is down, the other path carries on (MPIO)",
                windows: "Disable-NetAdapter NIC1; mpclaim -s -d",
                here: "ip link set DEVICE1 down; multipath -ll",
                repeats: false,
                look: pull,
            }],
        },
    ],
};

/// Returns the ports, and the links out of this host.
fn switch(place: &Place) -> Result<(Vec<PortBody>, Vec<Link>), End> {
    let (ports, teams) = (place.client.ports()?, place.client.teams(None)?);
    let links = links(&ports, &teams);
    Ok((ports, links))
}

/// Returns the paths of the guest's vNICs.
fn own<'p>(place: &Place, ports: &'p [PortBody]) -> Vec<Path<'p>> {
    let named: Vec<&str> = place.port.split(',').filter(|name| !name.is_empty()).collect();
    paths(ports, &named)
}

fn two_links(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (_, links) = switch(place)?;
    let (active, down): (Vec<&Link>, Vec<&Link>) = links.iter().partition(|link| link.is_active);
    let words = |link: &&Link| {
        let kind = if link.is_member { "member of team" } else { "uplink" };
        format!("{} ({kind} {})", link.device, link.port)
    };
    let seen = match active.as_slice() {
        [] => "no link is up".to_owned(),
        active => active.iter().map(words).collect::<Vec<_>>().join(", "),
    };
    let up = down.iter().map(|link| format!("`{}ip link set {} up`", link.prefix, link.device));
    let remedy = match up.collect::<Vec<_>>().as_slice() {
        [] => "a port with `team = [\"eth1\", \"eth2\"]`, each device to a switch of its own; for two separate networks two \
               ports instead, such as `packet = \"eth1\"` with `vlan = 10` and `packet = \"eth2\"` with `vlan = 20` \
               (docs/teaming.md)"
            .to_owned(),
        up => format!("{}, and plug it in", up.join(", ")),
    };
    let wanted = "two links that are up: members of a team, or uplinks of two networks";
    let sight = Sight::check(active.len() > 1, seen, wanted, remedy);
    Ok(if links.len() < 2 { sight.stop() } else { sight })
}

fn two_vnics(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (ports, links) = switch(place)?;
    let paths = own(place, &ports);
    if let Some(sight) = too_many(&paths, &place.port) {
        return Ok(sight);
    }
    let used: BTreeSet<_> = paths.iter().map(|path| &path.link).collect();
    let seen = paths.iter().map(|path| format!("{} by {}", path.vnic.name, path.link));
    let seen = match paths.len() {
        0 => "no vNIC is pinned to a member, or has an uplink of its own".to_owned(),
        _ => seen.collect::<Vec<_>>().join(", "),
    };
    let remedy = match place.client.teams(None)?.first() {
        None => by_vlans(&ports, &links),
        Some(team) => by_members(&ports, team),
    };
    Ok(Sight::check(
        used.len() > 1,
        seen,
        "two vNICs of the guest, pinned to two members or in the VLANs of two uplinks",
        remedy,
    ))
}

/// Returns that somebody must say which vNICs are meant: more than two have links, and none is
/// named.
fn too_many(paths: &[Path<'_>], named: &str) -> Option<Sight> {
    let [first, second, _, ..] = paths else { return None };
    let names: Vec<&str> = paths.iter().map(|path| path.vnic.name.as_str()).collect();
    named.is_empty().then(|| {
        Sight::problem(
            format!("{} vNICs have a link of their own: {}", paths.len(), names.join(", ")),
            "two, of one guest",
            format!("`millrace guide iscsi --port {},{}`", first.vnic.name, second.vnic.name),
        )
    })
}

/// Returns the commands that give each uplink and a vNIC a VLAN of their own.
fn by_vlans(ports: &[PortBody], links: &[Link]) -> String {
    let lines =
        links.iter().zip(vnics_of_one_guest(ports)).zip(1..).map(|((link, vnic), place)| {
            let vlan = 10 * place;
            format!(
                "`millrace port set {} vlan={vlan}`, `millrace port set {vnic} vlan={vlan}`",
                link.port
            )
        });
    format!("{}; frames stay untagged outside", lines.collect::<Vec<_>>().join(", "))
}

/// Returns the commands that pin two vNICs of a guest to the members of a team.
fn by_members(ports: &[PortBody], team: &TeamBody) -> String {
    let lines =
        team.members.iter().zip(vnics_of_one_guest(ports)).map(|(member, vnic)| {
            format!("`millrace team map {} {vnic} {}`", team.port, member.name)
        });
    let lines = lines.collect::<Vec<_>>().join(", ");
    format!("{lines}, or `team-member` of the ports (docs/storage.md)")
}

/// Returns the names of two vNICs of a guest. Which are of one guest is known only of those in one
/// network namespace; others get names to be replaced.
fn vnics_of_one_guest(ports: &[PortBody]) -> [&str; 2] {
    let vnics = || ports.iter().filter(|port| port.role == PortRole::Vnic);
    let within = |netns| vnics().filter(move |port| port.config.netns.as_ref() == Some(netns));
    let pair = vnics().filter_map(|port| port.config.netns.as_ref()).find_map(|netns| {
        let mut names = within(netns).map(|port| port.name.as_str());
        Some([names.next()?, names.next()?])
    });
    pair.unwrap_or(["VNIC1", "VNIC2"])
}

fn apart(place: &mut Place, _: &Document) -> Result<Sight, End> {
    const OURS: [&str; 6] = [
        "same_path",
        "path_down",
        "member_down",
        "uplink_down",
        "uplinks_share_vlan",
        "team_unreachable",
    ];
    let health = place.client.health()?;
    let is_ours = |it: &&FindingBody| OURS.contains(&it.kind.as_str());
    Ok(match health.findings.iter().find(is_ours) {
        None => Sight::passed(format!("no finding of {}", OURS.join(", "))),
        Some(FindingBody { kind, problem, .. }) => {
            Sight::problem(format!("{kind}: {}", problem.error), &problem.wanted, &problem.remedy)
        }
    })
}

fn follows(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let ports = place.client.ports()?;
    Ok(judge_follows(&own(place, &ports)))
}

/// Judges whether guests notice that a path is down. A TAP's link stays up.
fn judge_follows(paths: &[Path<'_>]) -> Sight {
    let is_guest = |path: &&Path<'_>| matches!(path.vnic.config.device(), Device::VhostUser(_));
    let stays = |path: &&Path<'_>| path.vnic.config.follow_uplink != Some(true);
    let stay = paths.iter().filter(is_guest).filter(stays).map(|path| path.vnic.name.as_str());
    let stay: Vec<&str> = stay.collect();
    if paths.is_empty() {
        return Sight::noted("no vNIC has a link of its own").remedy(NEXT);
    }
    if !stay.is_empty() {
        let set = stay.iter().map(|name| format!("`millrace port set {name} follow-uplink=true`"));
        return Sight::problem(
            format!("{}: the guest's link stays up while its path is down", stay.join(", ")),
            "follow-uplink = true, so that multipath (MPIO) in the guest notices at once, not by iSCSI's timers",
            set.collect::<Vec<_>>().join(", "),
        );
    }
    if paths.iter().all(|path| is_guest(&path)) {
        return Sight::passed("follow-uplink is on at each vNIC");
    }
    Sight::passed("TAPs: their links stay up while a path is down").remedy(
        "`follow-uplink` is for virtual machines; multipath behind a TAP waits for iSCSI's timers: docs/storage.md has short ones",
    )
}

fn both(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (ports, links) = switch(place)?;
    let paths = own(place, &ports);
    if paths.is_empty() {
        return Ok(Sight::noted("no vNIC has a link of its own").remedy(NEXT));
    }
    let is_used = |link: &&Link| paths.iter().any(|path| path.link == link.device);
    let links: Vec<&Link> = links.iter().filter(is_used).collect();
    let words = |path: &Path<'_>| {
        let mtu = path.vnic.mtu.map_or_else(|| "not open".to_owned(), |mtu| mtu.to_string());
        let queues = pluralized(vmmq::in_use(path.vnic), "queue", "queues");
        format!("{}: {queues} in use, MTU {mtu}", path.vnic.name)
    };
    let seen = paths.iter().map(words);
    let seen = seen.chain(links.iter().map(|it| format!("{}: MTU {}", it.device, it.mtu)));
    let seen = seen.collect::<Vec<_>>().join("; ");
    let is_uplink = |port: &&PortBody| links.iter().any(|it| !it.is_member && it.port == port.name);
    let uplinks = ports.iter().filter(is_uplink);
    let all: Vec<&PortBody> = paths.iter().map(|path| path.vnic).chain(uplinks).collect();
    let queues = vmmq::several_queues(&all, place.client.switch()?.workers.len());
    let raise = raise(&paths, &links);
    let mtus = (!raise.is_empty())
        .then(|| format!("{}; the switches and the target too", raise.join(", ")));
    let remedies: Vec<_> = queues.into_iter().chain(mtus).collect();
    Ok(Sight::check(
        remedies.is_empty(),
        seen,
        "several queues (VMQ) and the same MTU on both paths, and no smaller one at their links",
        remedies.join("; "),
    )
    .hint("MTU 9000 helps: `millrace guide jumbo` for one of the vNICs"))
}

/// Returns the commands that give both paths the largest MTU of their vNICs.
fn raise(paths: &[Path<'_>], links: &[&Link]) -> Vec<String> {
    let largest = paths.iter().filter_map(|path| path.vnic.mtu).max().unwrap_or_default();
    // A link that is down has MTU 0 until it is open.
    let small = links.iter().filter(|it| it.mtu > 0 && it.mtu < largest);
    let links = small.flat_map(|it| {
        let device = format!("`{}ip link set {} mtu {largest}`", it.prefix, it.device);
        let port =
            (!it.is_member).then(|| format!("`millrace port set {} mtu={largest}`", it.port));
        std::iter::once(device).chain(port)
    });
    let vnics = paths.iter().filter(|path| path.vnic.mtu.is_some_and(|mtu| mtu < largest));
    let vnics = vnics.map(|path| format!("`millrace port set {} mtu={largest}`", path.vnic.name));
    links.chain(vnics).collect()
}

/// A link that went down while the guide waited.
struct Pulled {
    link: String,
    since: Instant,
    /// Bytes of the vNICs of other links, when it went down.
    others: u64,
}

fn pull(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (ports, links) = switch(place)?;
    let paths = own(place, &ports);
    let is_used = |link: &&Link| paths.iter().any(|path| path.link == link.device);
    let used: Vec<&Link> = links.iter().filter(is_used).collect();
    let [first, _, ..] = used.as_slice() else {
        return Ok(Sight::noted("not looked at: no two vNICs have a link each").remedy(NEXT));
    };
    let set = format!("{}ip link set {}", first.prefix, first.device);
    let advice = format!(
        "while the guest writes, on the host: `{set} down`; the guest's `multipath -ll` shows one path failed \
         and one active. Then `{set} up`. `millrace validate storage` does it in namespaces"
    );
    tell(&format!("    {advice}"));
    let begin = Instant::now();
    let (mut pulled, mut progress) = (None::<Pulled>, Progress::default());
    while begin.elapsed() < place.traffic_timeout {
        let down = down(place, &paths)?;
        match (&pulled, down) {
            (None, Some(link)) => {
                let others = carried(place, &paths, &link)?;
                progress.end();
                tell(&format!("    {link} is down; let the guest write on, then plug it in again"));
                pulled = Some(Pulled { link, since: Instant::now(), others });
            }
            (Some(pulled), None) => {
                let bytes = carried(place, &paths, &pulled.link)?.saturating_sub(pulled.others);
                return Ok(survived(&pulled.link, pulled.since.elapsed(), bytes));
            }
            _ => {}
        }
        let left = place.traffic_timeout.saturating_sub(begin.elapsed()).as_secs();
        if pulled.is_none() {
            progress.show("waiting until a link is down", &format!("{left} s left"));
        }
        place.interrupt.pass(GLANCE)?;
    }
    let seen = pulled.map_or_else(
        || "no link went down".to_owned(),
        |pulled| format!("{} is still down", pulled.link),
    );
    Ok(Sight::noted(format!("{seen} within {} s", place.traffic_timeout.as_secs())).remedy(advice))
}

/// Returns a link of these paths that carries no frames.
fn down(place: &Place, paths: &[Path<'_>]) -> Result<Option<String>, End> {
    let (_, links) = switch(place)?;
    let is_used = |link: &Link| paths.iter().any(|path| path.link == link.device);
    Ok(links.into_iter().find(|it| is_used(it) && !it.is_active).map(|it| it.device))
}

/// Returns the bytes that the vNICs of other links have carried.
fn carried(place: &Place, paths: &[Path<'_>], link: &str) -> Result<u64, End> {
    let others = paths.iter().filter(|path| path.link != link);
    let bytes = others.map(|path| {
        let counters = place.client.counters(&path.vnic.name)?;
        Ok(counters.ingress_bytes + counters.egress_bytes)
    });
    bytes.sum()
}

/// Judges what the other paths have carried while a link was down.
fn survived(link: &str, down: Duration, bytes: u64) -> Sight {
    Sight::check(
        bytes >= LEAST_BYTES,
        format!(
            "{link} was down for {:.0} s; the vNICs of the other links carried {bytes} bytes meanwhile",
            down.as_secs_f64()
        ),
        format!("at least {LEAST_BYTES} bytes: the guest's storage by the other path"),
        "let the guest write while the link is down; if it does, its multipath does not use the other path: \
         `multipath -ll` in the guest (docs/storage.md)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::Status;
    use crate::commands::guide::paths::tests::port;
    use serde_json::json;

    #[test]
    fn a_pull_passes_only_if_the_other_path_carried_frames() {
        let status = |bytes| survived("eth1", Duration::from_secs(5), bytes).status;
        assert_eq!(status(1 << 20), Some(Status::Passed));
        assert_eq!(status(300), Some(Status::Problem));
    }

    #[test]
    fn two_of_three_vnics_have_to_be_named() {
        let ports = ["a", "b", "lan"].map(|name| port(&json!({"name": name, "tap": name})));
        let paths = ports.iter().map(|vnic| Path { vnic, link: format!("to-{}", vnic.name) });
        let paths: Vec<_> = paths.collect();
        let sight = too_many(&paths, "").unwrap();
        assert_eq!(sight.remedy, "`millrace guide iscsi --port a,b`");
        assert!(sight.seen.ends_with("a, b, lan"), "{}", sight.seen);
        assert!(too_many(&paths, "a,b").is_none() && too_many(&paths[..2], "").is_none());
    }

    #[test]
    fn a_virtual_machine_has_to_see_its_link_go_down() {
        let judged = |configs: [serde_json::Value; 2]| {
            let ports = configs.map(|config| port(&config));
            let paths = ports.iter().map(|vnic| Path { vnic, link: "e1".to_owned() });
            judge_follows(&paths.collect::<Vec<_>>())
        };
        let vm =
            |name, follows| json!({"name": name, "vhost-user": "/run/s", "follow-uplink": follows});
        let sight = judged([vm("a", true), vm("b", false)]);
        assert_eq!(sight.remedy, "`millrace port set b follow-uplink=true`");
        assert_eq!(sight.status, Some(Status::Problem));
        assert_eq!(judged([vm("a", true), vm("b", true)]).status, Some(Status::Passed));
        let taps = judged([json!({"name": "a", "tap": "a"}), json!({"name": "b", "tap": "b"})]);
        assert_eq!(taps.status, Some(Status::Passed));
        assert!(taps.remedy.contains("timers"), "{}", taps.remedy);
    }
}
