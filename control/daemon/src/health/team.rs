//! Findings about teams: members that carry no frames, and members that differ.

use super::{Kind, Picture};
use api::body::FindingBody;
use config::PortRole;
use ports::team::{Apart, MemberStatus, Place};
use problem::Problem;

/// Most VLANs that a finding names.
const MOST_NAMED: usize = 20;

/// Finds a pinned vNIC with a member that carries no frames: the vNIC has no other path.
pub(super) fn path_down(port: &Picture) -> Option<Problem> {
    let (member, reason) = port.path_down.as_ref()?;
    Some(
        Problem::new(format!(
            "port {} is pinned to member {member}, which carries no frames",
            port.name
        ))
        .seen(reason)
        .wanted("a member that carries frames")
        .remedy(format!(
            "bring {member} up, or unpin: `millrace team map TEAM {} --any`",
            port.name
        )),
    )
}

/// Finds two vNICs of one guest that are pinned to the same member: two vNICs are meant to have two
/// paths.
pub(super) fn same_path(port: &Picture, earlier: &[Picture]) -> Option<Problem> {
    let (guest, member) = (port.guest.as_ref()?, port.member.as_ref()?);
    let is_same = |other: &&Picture| {
        other.guest.as_ref() == Some(guest) && other.member.as_ref() == Some(member)
    };
    let other = earlier.iter().find(is_same)?;
    Some(
        Problem::new(format!(
            "ports {} and {} of one guest are pinned to the same member",
            other.name, port.name
        ))
        .seen(member)
        .wanted("different members, so that the loss of one leaves a path")
        .remedy(format!("`millrace team map TEAM {} MEMBER`, or unpin with `--any`", port.name)),
    )
}

/// Returns the findings about a team's members, among all ports.
pub(super) fn findings(port: &Picture, ports: &[Picture]) -> Vec<FindingBody> {
    if port.members.is_empty() {
        return Vec::new();
    }
    let down = port.members.iter().filter_map(|member| down(port, member));
    let (vlans, unreachable) = (vlans(port), unreachable(port));
    let (apart, vlans, unreachable) = match are_pinned(port, ports) {
        true => (unreachable.or(vlans).map(|it| on_purpose(port, it)), None, None),
        false => (None, vlans, unreachable),
    };
    let alike = [
        (Kind::TeamSpeeds, speeds(port)),
        (Kind::TeamAddresses, addresses(port)),
        (Kind::TeamVlans, vlans),
        (Kind::TeamUnreachable, unreachable),
        (Kind::TeamPathMtu, path_mtu(port)),
        (Kind::TeamApart, apart),
    ];
    let alike = alike.into_iter().filter_map(|(kind, told)| Some(kind.found(told?)));
    down.map(|told| Kind::MemberDown.found(told)).chain(alike).collect()
}

/// Whether every vNIC that reaches the team is pinned to a member, so that the loss of one moves
/// no vNIC into another network. Without vNICs none is.
fn are_pinned(port: &Picture, ports: &[Picture]) -> bool {
    let is_vnic = |other: &&Picture| other.role == PortRole::Vnic && other.meets(port);
    let mut vnics = ports.iter().filter(is_vnic).peekable();
    vnics.peek().is_some() && vnics.all(|vnic| vnic.member.is_some())
}

/// Returns what is known of members in networks of their own where no vNIC can move: two paths to a
/// storage look like this.
fn on_purpose(port: &Picture, told: Problem) -> Problem {
    Problem::new(format!("team {}: its members are in networks of their own", port.name))
        .seen(told.seen)
        .remedy("none needed while every vNIC is pinned to a member; one that is not would lose its network with its member")
}

fn down(port: &Picture, member: &MemberStatus) -> Option<Problem> {
    let reason = member.trouble.as_ref()?;
    Some(
        Problem::new(format!("team {}: member {} carries no frames", port.name, member.name))
            .seen(reason)
            .wanted("all members active")
            .remedy("fix the cause; the member recovers by itself"),
    )
}

/// Finds members with different MTUs, for [`super::mtu_findings`].
pub(super) fn mtus(port: &Picture) -> Option<Problem> {
    let mtu = |member: &MemberStatus| (member.mtu > 0).then(|| u32::from(member.mtu));
    differing(&port.members, mtu).map(|seen| {
        Problem::new(format!("team {}: its members have different MTUs", port.name))
            .seen(seen)
            .wanted("the same MTU on all members")
            .remedy("`ip link set MEMBER mtu MTU`; the team has the smallest MTU of its members")
    })
}

fn speeds(port: &Picture) -> Option<Problem> {
    differing(&port.members, |member: &MemberStatus| member.speed).map(|seen| {
        Problem::new(format!("team {}: its members have different speeds", port.name))
            .seen(format!("{seen} (Mbit/s)"))
            .wanted("the same speed on all members")
            .remedy("use links of one speed: addresses and flows are spread evenly")
    })
}

/// Finds two members with the same address. With algorithm `dynamic` frames leave with a member's
/// address, which a physical switch must see on only one port.
fn addresses(port: &Picture) -> Option<Problem> {
    let mut rest = port.members.iter();
    let twins = std::iter::from_fn(|| {
        let one = rest.next()?;
        let other = rest.clone().find(|other| other.mac == one.mac && one.mtu > 0);
        Some(other.map(|other| (one, other)))
    });
    let (one, other) = twins.flatten().next()?;
    Some(
        Problem::new(format!("team {}: two members have the same address", port.name))
            .seen(format!("{} and {}: {}", one.name, other.name, one.mac))
            .wanted("a different address on each member")
            .remedy(format!("`ip link set {} address ADDRESS`", other.name)),
    )
}

/// Returns each member with its value, if two values differ.
fn differing(
    members: &[MemberStatus],
    value: impl Fn(&MemberStatus) -> Option<u32>,
) -> Option<String> {
    let known: Vec<(&str, u32)> =
        members.iter().filter_map(|member| Some((&*member.name, value(member)?))).collect();
    let (_, first) = known.first()?;
    let differ = known.iter().any(|(_, value)| value != first);
    let text = |(name, value): &(&str, u32)| format!("{name}: {value}");
    differ.then(|| known.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// Finds a VLAN that arrives at one member and not at another: the physical switch allows it on one
/// of its ports only. Of a member that has received no group frame, it is not certain until the
/// member has been silent for a minute.
fn vlans(port: &Picture) -> Option<Problem> {
    let active: Vec<&MemberStatus> = port.members.iter().filter(|member| member.active).collect();
    let lacks = |member: &&MemberStatus| {
        if let Some(broadcasts) = member.silent {
            return Some(format!(
                "{} has received no frame for a group for a minute or longer, another member {broadcasts} broadcasts",
                member.name
            ));
        }
        let others = active.iter().flat_map(|other| &other.vlans);
        let mut missing: Vec<u16> =
            others.filter(|vlan| !member.vlans.contains(vlan)).copied().collect();
        missing.sort_unstable();
        missing.dedup();
        let is_known = !missing.is_empty() && !member.vlans.is_empty();
        is_known.then(|| format!("{} has not received {}", member.name, vlan_names(&missing)))
    };
    let seen: Vec<String> = active.iter().filter_map(lacks).collect();
    (!seen.is_empty()).then(|| {
        Problem::new(format!("team {}: its members receive different VLANs", port.name))
            .seen(seen.join("; "))
            .wanted("the same VLANs on all members")
            .remedy("allow the same VLANs on all physical switch ports of the team")
    })
}

/// Finds members that do not hear each other's small probes.
fn unreachable(port: &Picture) -> Option<Problem> {
    let seen = apart(port, |apart| apart.bytes.is_none())?;
    let what = "its members do not hear each other, so the loss of one may cut guests off";
    Some(
        Problem::new(format!("team {}: {what}", port.name))
            .seen(format!("lost probes {seen}"))
            .wanted("all members in one layer 2 network, with the same VLANs")
            .remedy(
                "put the physical switch ports of all members into the same VLANs, without port isolation; members that are in two \
                 networks on purpose are better two ports, each with an uplink of its own",
            ),
    )
}

/// Finds members between which only small probes pass.
fn path_mtu(port: &Picture) -> Option<Problem> {
    let seen = apart(port, |apart| apart.bytes.is_some())?;
    Some(
        Problem::new(format!("team {}: frames of its MTU do not pass between members", port.name))
            .seen(format!("lost probes {seen}"))
            .wanted("the team's MTU on all physical switch ports between its members")
            .remedy(
                "raise the MTU of the physical switches, or lower the members': `ip link set MEMBER mtu MTU`",
            ),
    )
}

/// Returns the members that are apart, each once with the others and the VLANs.
fn apart(port: &Picture, is_asked: impl Fn(&Apart) -> bool) -> Option<String> {
    let name = |place: &Place| port.members.iter().find(|member| member.place == *place);
    let names = |places: &[Place]| {
        let names = places.iter().filter_map(|place| Some(&*name(place)?.name));
        names.collect::<Vec<_>>().join(", ")
    };
    let of = |member: &MemberStatus| {
        let asked: Vec<&Apart> = member.apart.iter().filter(|apart| is_asked(apart)).collect();
        let first = asked.first()?;
        let vlans: Vec<u16> = asked.iter().map(|apart| apart.vlan).collect();
        let bytes = first.bytes.map_or(String::new(), |bytes| format!("of {bytes} bytes "));
        let from = names(&first.from);
        Some(format!("{bytes}between {} and {from} ({})", member.name, vlan_names(&vlans)))
    };
    let seen: Vec<String> = port.members.iter().filter_map(of).collect();
    (!seen.is_empty()).then(|| seen.join("; "))
}

/// Returns the first [`MOST_NAMED`] VLANs by name, and how many there are more.
fn vlan_names(vlans: &[u16]) -> String {
    let named: Vec<String> = vlans.iter().take(MOST_NAMED).map(vlan_name).collect();
    let more = match vlans.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

fn vlan_name(vlan: &u16) -> String {
    if *vlan == 0 { "untagged frames".to_owned() } else { format!("VLAN {vlan}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use ports::Offloads;
    use ports::team::MemberCounters;
    use wire::Mac;

    fn member(name: &str) -> MemberStatus {
        MemberStatus {
            name: name.to_owned(),
            place: Place(name.as_bytes()[1] - b'1'),
            active: true,
            trouble: None,
            mac: Mac([2, 0, 0, 0, 0, name.as_bytes()[1]]),
            mtu: 1500,
            speed: Some(10_000),
            offloads: Offloads::empty(),
            rx_checksum: true,
            degraded: Vec::new(),
            vlans: vec![0, 10],
            silent: None,
            apart: Vec::new(),
            counters: MemberCounters::default(),
        }
    }

    #[test]
    fn two_vnics_of_one_guest_at_one_member_are_found() {
        let text = |members: [&str; 2], guests: [&str; 2]| {
            let team = "[[port]]\nname='up'\nteam=['e1','e2']\n";
            let port = |which: usize| {
                format!(
                    "[[port]]\nname='p{which}'\ntap='t{which}'\nnetns='{}'\nteam-member='{}'\n",
                    guests[which], members[which]
                )
            };
            let config = Config::from_toml("t", &(port(0) + &port(1) + team)).unwrap();
            let [one, two] = [0, 1].map(|which| Picture::of(&config.ports[which]));
            same_path(&two, &[one]).map(|problem| (problem.error, problem.seen))
        };
        let wanted = ("ports p0 and p1 of one guest are pinned to the same member", "e1");
        let wanted = Some((wanted.0.to_owned(), wanted.1.to_owned()));
        assert_eq!(text(["e1", "e1"], ["a", "a"]), wanted);
        assert_eq!(text(["e1", "e2"], ["a", "a"]), None);
        assert_eq!(text(["e1", "e1"], ["a", "b"]), None);
    }

    fn found(members: Vec<MemberStatus>) -> Vec<(String, String)> {
        let config = Config::from_toml("t", "[[port]]\nname='up'\nteam=['e1','e2']").unwrap();
        let port = Picture { members, ..Picture::of(&config.ports[0]) };
        let found = findings(&port, &[]).into_iter();
        found.map(|found| (found.problem.error, found.problem.seen)).collect()
    }

    #[test]
    fn members_that_are_alike_are_no_news() {
        assert_eq!(found(vec![member("e1"), member("e2")]), []);
    }

    #[test]
    fn members_that_differ_are_named() {
        let other = MemberStatus { mtu: 9000, speed: Some(1000), vlans: vec![0], ..member("e2") };
        let config = Config::from_toml("t", "[[port]]\nname='up'\nteam=['e1','e2']").unwrap();
        let port = Picture { members: vec![member("e1"), other], ..Picture::of(&config.ports[0]) };
        let found = findings(&port, &[]).into_iter().map(|found| found.problem);
        let problems = mtus(&port).into_iter().chain(found);
        let seen: Vec<String> = problems.map(|problem| problem.seen).collect();
        assert_eq!(
            seen,
            ["e1: 1500, e2: 9000", "e1: 10000, e2: 1000 (Mbit/s)", "e2 has not received VLAN 10"]
        );
    }

    #[test]
    fn members_of_one_address_are_named() {
        let twin = MemberStatus { mac: member("e1").mac, ..member("e2") };
        let wanted = ("team up: two members have the same address", "e1 and e2: 02:00:00:00:00:31");
        let wanted = [(wanted.0.to_owned(), wanted.1.to_owned())];
        assert_eq!(found(vec![member("e1"), twin.clone()]), wanted);
    }

    /// A station that reached only one member and sent in all VLANs made a line of 20 kB.
    #[test]
    fn of_many_vlans_the_first_are_named() {
        let other = MemberStatus { vlans: (0..4095).collect(), ..member("e2") };
        let seen = found(vec![member("e1"), other]).remove(0).1;
        assert!(seen.ends_with("VLAN 21 and 4073 more") && seen.len() < 300, "{seen}");
    }

    #[test]
    fn a_member_that_has_heard_nothing_yet_lacks_no_vlan() {
        let silent = MemberStatus { vlans: Vec::new(), ..member("e2") };
        assert_eq!(found(vec![member("e1"), silent]), []);
    }

    /// A member in another access VLAN heard nothing for 12 minutes, and nothing was found.
    #[test]
    fn a_member_that_stays_silent_is_named() {
        let silent = MemberStatus { vlans: Vec::new(), silent: Some(40), ..member("e2") };
        let seen = "e2 has received no frame for a group for a minute or longer, another member 40 broadcasts";
        let error = "team up: its members receive different VLANs";
        let found = found(vec![member("e1"), silent]);
        assert_eq!(found, [(error.to_owned(), seen.to_owned())]);
    }

    /// `check` warned of two storage networks that `guide iscsi` asks for.
    #[test]
    fn members_in_two_networks_are_no_fault_where_every_vnic_is_pinned() {
        let apart = Apart { vlan: 0, from: vec![Place(0)], bytes: None };
        let silent = Some(40);
        let other = MemberStatus { apart: vec![apart], silent, ..member("e2") };
        let kinds = |vnics: &str| {
            let text = format!("[[port]]\nname='up'\nteam=['e1','e2']\n{vnics}");
            let config = Config::from_toml("t", &text).unwrap();
            let mut ports: Vec<_> = config.ports.iter().map(Picture::of).collect();
            ports[0].members = vec![member("e1"), other.clone()];
            let found = findings(&ports[0], &ports);
            found.into_iter().map(|found| found.kind).collect::<Vec<_>>()
        };
        let fault = ["team_vlans", "team_unreachable"];
        assert_eq!(kinds(""), fault);
        let pinned = "[[port]]\nname='a'\ntap='a'\nteam-member='e1'\n";
        assert_eq!(kinds(pinned), ["team_apart"]);
        let mixed = format!("{pinned}[[port]]\nname='b'\ntap='b'\n");
        assert_eq!(kinds(&mixed), fault);
    }

    #[test]
    fn members_that_do_not_hear_each_other_are_named() {
        let apart = |vlan, bytes| Apart { vlan, from: vec![Place(0), Place(2)], bytes };
        let other = |apart| MemberStatus { apart, ..member("e2") };
        let seen = |apart| found(vec![member("e1"), other(apart), member("e3")]).remove(0);
        assert_eq!(
            seen(vec![apart(0, None), apart(7, None)]).1,
            "lost probes between e2 and e1, e3 (untagged frames, VLAN 7)"
        );
        let (error, seen) = seen(vec![apart(0, Some(9000))]);
        assert_eq!(error, "team up: frames of its MTU do not pass between members");
        assert_eq!(seen, "lost probes of 9000 bytes between e2 and e1, e3 (untagged frames)");
    }

    #[test]
    fn a_member_that_is_down_is_named_with_the_reason() {
        let reason = Some("its device has no carrier".to_owned());
        let down = MemberStatus { active: false, trouble: reason, ..member("e2") };
        assert_eq!(
            found(vec![member("e1"), down]),
            [(
                "team up: member e2 carries no frames".to_owned(),
                "its device has no carrier".to_owned()
            )]
        );
    }
}
