//! Configuration health: what is legal, runs, and still will not do what its owner expects.
//!
//! Judged from `Picture`s, which come from the running switch, or from a file alone when no daemon is asked. How much each
//! finding matters is one table, `kind`; a finding is gone as soon as its cause is, drops ten minutes after the last.

mod kind;
mod team;

use crate::Problem;
use crate::body::{FindingBody, HealthBody};
use crate::config::{Config, PortConfig, PortRole, SwitchConfig};
use datapath::{RscFailureReason, RscStatus, Vlan};
pub(crate) use kind::Kind;
use ports::team::MemberStatus;
use std::time::Duration;
use wire::Mac;

/// How long drops are a finding after the last of them. `docs/health.md` says so too.
pub(crate) const DROPS_AGE: Duration = Duration::from_secs(600);

/// A port as far as it is known.
pub(crate) struct Picture {
    pub(crate) name: String,
    pub(crate) role: PortRole,
    pub(crate) vlan: Vlan,
    pub(crate) isolated: bool,
    /// Largest IP packet in bytes, where known.
    pub(crate) mtu: Option<u16>,
    /// That of its device, where it is open.
    pub(crate) device_mtu: Option<u16>,
    /// Those of the devices below, by name.
    pub(crate) links: Vec<(String, u16)>,
    /// That its guest was started with, where the port was opened anew since.
    pub(crate) guest_mtu: Option<u16>,
    pub(crate) mac: Option<Mac>,
    /// The MAC-spoofing guard is on and knows no address: none is configured, and a vhost-user device has none.
    pub(crate) mac_unknown: bool,
    /// The address it is held to instead.
    pub(crate) held_mac: Option<Mac>,
    /// The port behind which that address was seen last, where it is another one.
    pub(crate) held_mac_behind: Option<String>,
    /// Why it carries no frames, and what kind of finding that is.
    pub(crate) trouble: Option<(Kind, String)>,
    /// Frames that did not fit its MTU; 0 where the last was longer ago than [`DROPS_AGE`].
    pub(crate) too_big: u64,
    /// Frames that each guard dropped; the same holds.
    pub(crate) guarded: [(&'static str, u64); 3],
    pub(crate) degraded: Vec<String>,
    pub(crate) is_xdp: bool,
    /// Why the kernel's hash spreads its flows, where tables were to.
    pub(crate) not_steered: Option<String>,
    /// Of a team: its members.
    pub(crate) members: Vec<MemberStatus>,
    /// The member that it is pinned to.
    pub(crate) member: Option<String>,
    /// What its guest is known by: the process of its front end, or the namespace of its device.
    pub(crate) guest: Option<String>,
    /// The member that its frames leave by, and why it carries none, where that is so.
    pub(crate) path_down: Option<(String, String)>,
    /// IPv4 and IPv6, of an open port.
    pub(crate) rsc: Option<(RscStatus, RscStatus)>,
}

impl Picture {
    /// What the configuration alone tells.
    pub(crate) fn of(port: &PortConfig) -> Picture {
        let settings = port.settings(&SwitchConfig::default(), 0, None, None);
        Picture {
            name: port.name.to_string(),
            role: port.role(),
            vlan: settings.vlan,
            isolated: settings.isolated,
            mtu: port.mtu.map(|mtu| mtu.0),
            device_mtu: None,
            links: Vec::new(),
            guest_mtu: None,
            mac: port.mac.map(|mac| mac.0),
            mac_unknown: port.vhost_user.is_some() && port.mac.is_none() && port.mac_guard(),
            held_mac: None,
            held_mac_behind: None,
            trouble: None,
            too_big: 0,
            guarded: Default::default(),
            degraded: Vec::new(),
            is_xdp: port.xdp.is_some(),
            not_steered: None,
            members: Vec::new(),
            member: port.team_member.as_ref().map(ToString::to_string),
            guest: port.netns.as_ref().map(|netns| netns.path().display().to_string()),
            path_down: None,
            rsc: None,
        }
    }

    /// Whether frames of a VLAN (0: untagged) meet the port.
    pub(crate) fn carries(&self, vlan: u16) -> bool {
        carries(&self.vlan, vlan)
    }

    /// Whether frames may go from one to the other.
    pub(crate) fn meets(&self, other: &Picture) -> bool {
        let may_talk = !(self.isolated && other.isolated);
        may_talk && self.vlan.overlaps(&other.vlan)
    }
}

/// What is found in a configuration that does not run.
pub fn offline(config: &Config) -> HealthBody {
    HealthBody::of(findings(&config.ports.iter().map(Picture::of).collect::<Vec<_>>()))
}

/// All findings, port by port.
pub(crate) fn findings(ports: &[Picture]) -> Vec<FindingBody> {
    let mut found = Vec::new();
    for (place, port) in ports.iter().enumerate() {
        let earlier = ports.get(..place).unwrap_or_default();
        found.extend(trouble(port));
        found.extend(mtu(port, ports));
        let of_port = [
            (Kind::TooBig, too_big(port)),
            (Kind::Guarded, guarded(port)),
            (Kind::DuplicateMac, duplicate_mac(port, earlier)),
            (Kind::MacUnknown, mac_unknown(port)),
            (Kind::HeldMacElsewhere, held_mac_elsewhere(port)),
            (Kind::Lonely, lonely(port, ports)),
            (Kind::RscNotOperational, rsc_not_operational(port)),
            (if port.is_xdp { Kind::XdpLimits } else { Kind::Software }, degraded(port)),
            (Kind::KernelHash, not_steered(port)),
            (Kind::PathDown, team::path_down(port)),
            (Kind::SamePath, team::same_path(port, earlier)),
        ];
        found.extend(of_port.into_iter().filter_map(|(kind, told)| Some(kind.found(told?))));
        found.extend(team::findings(port));
    }
    found
}

/// Findings about MTUs as they are now; what was too big once is no matter.
pub(crate) fn mtu_findings(ports: &[Picture]) -> Vec<Problem> {
    ports.iter().flat_map(|port| mtu(port, ports)).map(|found| found.problem).collect()
}

fn mtu(port: &Picture, ports: &[Picture]) -> Vec<FindingBody> {
    let one = [
        (Kind::DeviceMtu, device_mtu(port)),
        (Kind::GuestMtu, guest_mtu(port)),
        (Kind::MtuMismatch, mtu_mismatch(port, ports)),
        (Kind::TeamMtus, team::mtus(port)),
    ];
    let one = one.into_iter().filter_map(|(kind, told)| Some(kind.found(told?)));
    let below = link_mtus(port).into_iter().map(|told| Kind::LinkMtu.found(told));
    one.chain(below).collect()
}

fn trouble(port: &Picture) -> Option<FindingBody> {
    let (kind, reason) = port.trouble.as_ref()?;
    let told = Problem::new(format!("port {} {reason}", port.name));
    Some(
        kind.found(match kind {
            Kind::GuestOff => told.remedy("none is needed; the port is up as soon as its guest is"),
            _ => told
                .wanted("a port that carries frames")
                .remedy("fix the cause; the port recovers by itself"),
        }),
    )
}

/// The switch would send what the device does not carry.
fn device_mtu(port: &Picture) -> Option<Problem> {
    let (own, device) = (port.mtu?, port.device_mtu?);
    (device < own).then(|| {
        Problem::new(format!("port {} has MTU {own}, its device has {device}", port.name))
            .seen(device)
            .wanted(own)
            .remedy("`ip link set DEVICE mtu`, or lower the port's mtu")
    })
}

/// A device below the port's own, a member of a bond say, that carries less.
fn link_mtus(port: &Picture) -> Vec<Problem> {
    let own = port.mtu.unwrap_or_default();
    // The first is the device itself, or all are a team's members: each has a finding of its own.
    let below = port.links.iter().skip(if port.members.is_empty() { 1 } else { usize::MAX });
    let smaller = below.filter(|(_, mtu)| *mtu < own);
    let finding = |(link, mtu): &(String, u16)| {
        Problem::new(format!("port {} has MTU {own}, {link} below its device has {mtu}", port.name))
            .seen(mtu)
            .wanted(own)
            .remedy(format!("`ip link set {link} mtu {own}`, or lower the port's mtu"))
    };
    smaller.map(finding).collect()
}

/// A driver reads the MTU when it starts.
fn guest_mtu(port: &Picture) -> Option<Problem> {
    let (own, guest) = (port.mtu?, port.guest_mtu?);
    (own != guest).then(|| {
        let name = &port.name;
        Problem::new(format!("port {name} has MTU {own}, its guest was started with MTU {guest}"))
            .seen(guest)
            .wanted(own)
            .remedy("start the guest anew, or set the MTU of its device in the guest")
    })
}

/// One finding for the smaller side, against the largest it meets.
fn mtu_mismatch(port: &Picture, ports: &[Picture]) -> Option<Problem> {
    let own = port.mtu?;
    let larger = ports.iter().filter(|other| other.mtu.is_some_and(|mtu| mtu > own));
    let largest = larger.filter(|other| port.meets(other)).max_by_key(|other| other.mtu)?;
    let (name, other) = (&port.name, &largest.name);
    let mtu = largest.mtu.unwrap_or_default();
    Some(
        Problem::new(format!("{name} has MTU {own}, {other} has {mtu}"))
            .seen(own)
            .wanted(mtu)
            .remedy(format!("raise {name} or lower {other}")),
    )
}

fn too_big(port: &Picture) -> Option<Problem> {
    (port.too_big > 0).then(|| {
        Problem::new(format!("frames too big for port {} were dropped", port.name))
            .seen(format!("{} frames", port.too_big))
            .wanted("none")
            .remedy("give all ports of a network the same MTU, guests included")
    })
}

/// A guard that drops is a guest that attacks, or one whose owner does not know of the guard.
fn guarded(port: &Picture) -> Option<Problem> {
    let drops = port.guarded.iter().filter(|(_, frames)| *frames > 0);
    let seen: Vec<_> = drops.map(|(guard, frames)| format!("{guard}: {frames} frames")).collect();
    (!seen.is_empty()).then(|| {
        let remedy = format!(
            "`millrace capture {}` shows them; turn the guard off where the guest may send them",
            port.name
        );
        Problem::new(format!("guards of port {} dropped frames", port.name))
            .seen(seen.join(", "))
            .wanted("none")
            .remedy(remedy)
    })
}

fn duplicate_mac(port: &Picture, earlier: &[Picture]) -> Option<Problem> {
    let mac = port.mac?;
    let twin = earlier.iter().find(|other| other.mac == Some(mac) && port.meets(other))?;
    Some(
        Problem::new(format!("ports {} and {} have the same address", twin.name, port.name))
            .seen(mac)
            .wanted("an address of its own for each port")
            .remedy("change one of the two guests' addresses and its `mac`"),
    )
}

fn mac_unknown(port: &Picture) -> Option<Problem> {
    let seen = match port.held_mac {
        Some(mac) => format!("no mac, held to {mac}"),
        None => "no mac".to_owned(),
    };
    port.mac_unknown.then(|| {
        Problem::new(format!(
            "port {}: the MAC-spoofing guard trusts the first address that its guest sends from",
            port.name
        ))
        .seen(seen)
        .wanted("the guest's address")
        .remedy("set mac, or mac-spoofing = \"allow\" for a guest with several addresses")
    })
}

/// An owner of the address that was silent until the guest took it.
fn held_mac_elsewhere(port: &Picture) -> Option<Problem> {
    let (mac, other) = (port.held_mac?, port.held_mac_behind.as_ref()?);
    Some(
        Problem::new(format!("port {} is held to an address that {other} has too", port.name))
            .seen(format!("{mac}, last seen behind {other}"))
            .wanted("an address of its own for each machine")
            .remedy("set mac to the guest's own address, and find out which machine sends from this one"),
    )
}

fn lonely(port: &Picture, ports: &[Picture]) -> Option<Problem> {
    let uplink = |other: &Picture| other.role == PortRole::Uplink && other.name != port.name;
    let reached = |other: &Picture| uplink(other) && port.vlan.overlaps(&other.vlan);
    (port.isolated && !ports.iter().any(reached)).then(|| {
        Problem::new(format!("port {} is isolated and its VLAN has no uplink", port.name))
            .seen("isolated, no uplink")
            .wanted("an uplink, the only thing an isolated port reaches")
            .remedy("add an uplink to its VLAN, or set isolated = false")
    })
}

/// One sentence for both families where they fail alike, as they mostly do. A port that is down is told as that.
fn rsc_not_operational(port: &Picture) -> Option<Problem> {
    let (ipv4, ipv6) = port.rsc.filter(|_| port.trouble.is_none())?;
    let fails = |status: RscStatus| status.enabled && !status.operational;
    let (families, status) = match (fails(ipv4), fails(ipv6)) {
        (true, true) => ("IPv4 and IPv6", ipv4),
        (true, false) => ("IPv4", ipv4),
        (false, true) => ("IPv6", ipv6),
        (false, false) => return None,
    };
    let remedy = match status.failure_reason {
        RscFailureReason::Capability => {
            "turn on checksum and TCP segmentation offload behind the port, or rsc = \"off\""
        }
        _ => "turn it on, or set rsc = \"off\"",
    };
    Some(
        Problem::new(format!("port {}: RSC is on for {families} but not operational", port.name))
            .seen(status.failure_reason.name())
            .wanted("NoFailure")
            .remedy(remedy),
    )
}

fn degraded(port: &Picture) -> Option<Problem> {
    if port.is_xdp && !port.degraded.is_empty() {
        let problem = Problem::new(format!("port {}: AF_XDP has its limits here", port.name));
        let problem = problem.seen(port.degraded.join("; ")).wanted("none of them");
        return Some(problem.remedy("each names its own; none matters where no such frames come"));
    }
    (!port.degraded.is_empty()).then(|| {
        Problem::new(format!(
            "port {}: offloads are done in software because the kernel lacks them",
            port.name
        ))
        .seen(port.degraded.join("; "))
        .wanted("all offloads")
        .remedy("use a newer kernel; only speed is lost")
    })
}

fn not_steered(port: &Picture) -> Option<Problem> {
    let reason = port.not_steered.as_ref()?;
    Some(
        Problem::new(format!(
            "port {}: the kernel's hash spreads flows over its queues, and none can be moved",
            port.name
        ))
        .seen(reason)
        .wanted("an indirection table for each vNIC")
        .remedy("give the daemon CAP_BPF outside of any user namespace, or set queues = 1"),
    )
}

fn carries(vlan: &Vlan, id: u16) -> bool {
    match vlan {
        Vlan::Access(own) => *own == id,
        Vlan::Trunk { native, allowed } => *native == id || allowed.contains(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let config = Config::from_toml("t", text).unwrap();
        offline(&config).findings.into_iter().map(|found| found.problem.error).collect()
    }

    #[test]
    fn mtu_mismatch_names_both_ports_once() {
        let text = "[[port]]\nname='vm3'\ntap='t'\nmtu=9000\n[[port]]\nname='uplink0'\npacket='e'\nmtu=1500\n";
        assert_eq!(found(text), ["uplink0 has MTU 1500, vm3 has 9000"]);
        assert!(found(&text.replace("mtu=9000", "mtu=9000\nvlan=5")).is_empty());
        assert!(found(&text.replace("9000", "1500")).is_empty());
    }

    #[test]
    fn twins_and_the_lonely_are_found() {
        let twins = "[[port]]\nname='a'\ntap='t'\nmac='52:54:00:00:00:01'\n[[port]]\nname='b'\ntap='u'\nmac='52:54:00:00:00:01'\n";
        assert_eq!(found(twins), ["ports a and b have the same address"]);
        assert!(found(&twins.replace("'u'", "'u'\nvlan=5")).is_empty());
        let lonely = "[[port]]\nname='a'\ntap='t'\nisolated=true\nvlan=5";
        assert_eq!(found(lonely), ["port a is isolated and its VLAN has no uplink"]);
        assert!(found(&format!("{lonely}\n[[port]]\nname='u'\npacket='e'\ntrunk='5'")).is_empty());
    }

    #[test]
    fn a_guard_without_an_address_is_told() {
        let text = "[[port]]\nname='a'\nvhost-user='/run/a'\n";
        let told =
            "port a: the MAC-spoofing guard trusts the first address that its guest sends from";
        assert_eq!(found(text), [told]);
        assert!(found(&format!("{text}mac='52:54:00:00:00:01'")).is_empty());
        assert!(found(&format!("{text}mac-spoofing='allow'")).is_empty());
        assert!(found(&format!("{text}role='uplink'")).is_empty());
    }

    #[test]
    fn a_device_smaller_than_its_port_is_found() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\npacket='e'\nmtu=9000").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        port.device_mtu = Some(9000);
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.device_mtu = Some(1500);
        assert_eq!(findings(&[port])[0].problem.error, "port u has MTU 9000, its device has 1500");
    }

    #[test]
    fn an_uplink_that_is_not_steered_is_told_with_the_reason() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\npacket='e'\nqueues=2").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.not_steered = Some("not permitted".to_owned());
        let found = findings(&[port]);
        assert!(found[0].problem.error.starts_with("port u: the kernel's hash spreads flows"));
        assert_eq!(found[0].problem.seen, "not permitted");
    }

    #[test]
    fn limits_of_an_xdp_port_are_told() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\nxdp='e'").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.degraded = vec!["tags are lost".to_owned()];
        let found = findings(&[port]);
        assert_eq!(found[0].problem.error, "port u: AF_XDP has its limits here");
        assert_eq!(found[0].problem.seen, "tags are lost");
    }

    #[test]
    fn rsc_that_cannot_is_told_with_the_reason() {
        let mut port =
            Picture::of(&Config::from_toml("t", "[[port]]\nname='a'\ntap='t'").unwrap().ports[0]);
        let status =
            |operational, failure_reason| RscStatus { enabled: true, operational, failure_reason };
        let good = status(true, RscFailureReason::NoFailure);
        port.rsc = Some((good, good));
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.rsc = Some((status(false, RscFailureReason::Capability), good));
        port.trouble = Some((Kind::GuestOff, "is down: it waits".to_owned()));
        let off = findings(std::slice::from_ref(&port));
        assert_eq!(off.iter().map(|found| &*found.kind).collect::<Vec<_>>(), ["guest_off"]);
        port.trouble = None;
        let findings = findings(&[port]);
        assert_eq!(findings[0].problem.error, "port a: RSC is on for IPv4 but not operational");
        assert_eq!(findings[0].problem.seen, "Capability");
    }
}
