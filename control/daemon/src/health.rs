//! Health: findings about a configuration that is valid but does not do what its owner expects.
//!
//! Findings are derived from `Picture`s, made from the running switch or, without a daemon, from a
//! file. One table, `kind`, has their severities. A finding ends with its cause; a finding about
//! drops ends ten minutes after the last drop.

pub(crate) mod kind;
mod team;

use crate::descriptors;
use crate::preflight;
use crate::settings;
use api::body::{FindingBody, HealthBody};
use config::{Config, Device, PortConfig, PortRole};
use datapath::{RscFailureReason, RscStatus, Vlan};
pub(crate) use kind::Kind;
use ports::team::MemberStatus;
use problem::Problem;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::Mac;

/// How long after the last drop a finding about drops ends. `docs/health.md` states it too.
pub(crate) const DROPS_AGE: Duration = Duration::from_secs(600);

/// What is known about a port.
pub(crate) struct Picture {
    pub(crate) name: String,
    pub(crate) role: PortRole,
    pub(crate) vlan: Vlan,
    pub(crate) isolated: bool,
    pub(crate) transit: bool,
    /// Largest IP packet in bytes, if known.
    pub(crate) mtu: Option<u16>,
    /// The MTU of its device, if open.
    pub(crate) device_mtu: Option<u16>,
    /// The devices below its device, with their MTUs.
    pub(crate) links: Vec<(String, u16)>,
    /// Its socket, and the private directory in which no guest sees that.
    pub(crate) hidden: Option<(String, &'static str)>,
    /// The MTU with which its guest was started, if the port was reopened since.
    pub(crate) guest_mtu: Option<u16>,
    pub(crate) mac: Option<Mac>,
    /// The MAC-spoofing guard is on and knows no address: none is configured, and a vhost-user
    /// device has none.
    pub(crate) mac_unknown: bool,
    /// The address that the guard learned and holds the port to instead.
    pub(crate) held_mac: Option<Mac>,
    /// The other port behind which that address was last seen.
    pub(crate) held_mac_behind: Option<String>,
    /// Why the port carries no frames, and the kind of that finding.
    pub(crate) trouble: Option<(Kind, String)>,
    /// Frames larger than its MTU; 0 once the last is older than [`DROPS_AGE`].
    pub(crate) too_big: u64,
    /// Frames from an uplink with the address of a vNIC; 0 unless there were several in one second,
    /// the last less than [`DROPS_AGE`] ago.
    pub(crate) returned: u64,
    /// Frames that arrived already coalesced at an uplink; 0 unless there were many in one second,
    /// the last less than [`DROPS_AGE`] ago.
    pub(crate) arrived_coalesced: u64,
    /// Frames that each guard dropped; 0 once the last is older than [`DROPS_AGE`].
    pub(crate) guarded: [(&'static str, u64); 3],
    pub(crate) degraded: Vec<String>,
    pub(crate) is_xdp: bool,
    /// Why the kernel's hash spreads the port's flows instead of the indirection tables.
    pub(crate) not_steered: Option<String>,
    /// Whether the device merges what it receives in a way of its own (LRO).
    pub(crate) merges_by_lro: bool,
    /// What could not be set to keep the host's own stack from the device.
    pub(crate) exposed: Vec<String>,
    /// An address of the host on the device of an uplink.
    pub(crate) host_address: Option<Ipv4Addr>,
    /// The members of a team.
    pub(crate) members: Vec<MemberStatus>,
    /// The member that the port is pinned to.
    pub(crate) member: Option<String>,
    /// Identifies the port's guest: the process of the front end, or the namespace of the device.
    pub(crate) guest: Option<String>,
    /// The member that the port's frames must leave through, and why that member carries none.
    pub(crate) path_down: Option<(String, String)>,
    /// RSC status for IPv4 and IPv6, if the port is open.
    pub(crate) rsc: Option<(RscStatus, RscStatus)>,
}

impl Picture {
    /// Returns what the configuration alone says about a port.
    pub(crate) fn of(port: &PortConfig) -> Picture {
        let settings = settings::of_keys(port);
        Picture {
            name: port.name.to_string(),
            role: port.role(),
            vlan: settings.vlan,
            isolated: settings.isolated,
            transit: settings.transit,
            mtu: port.mtu.map(|mtu| mtu.0),
            device_mtu: None,
            links: Vec::new(),
            hidden: None,
            guest_mtu: None,
            mac: port.mac.map(|mac| mac.0),
            mac_unknown: port.device().is_guest() && port.mac.is_none() && port.mac_guard(),
            held_mac: None,
            held_mac_behind: None,
            trouble: None,
            too_big: 0,
            returned: 0,
            arrived_coalesced: 0,
            guarded: Default::default(),
            degraded: Vec::new(),
            is_xdp: matches!(port.device(), Device::Xdp(_)),
            not_steered: None,
            merges_by_lro: false,
            exposed: Vec::new(),
            host_address: None,
            members: Vec::new(),
            member: port.team_member.as_ref().map(ToString::to_string),
            guest: port.netns.as_ref().map(|netns| netns.path().display().to_string()),
            path_down: None,
            rsc: None,
        }
    }

    /// Returns whether the port carries frames of a VLAN (0 for untagged).
    pub(crate) fn carries(&self, vlan: u16) -> bool {
        self.vlan.overlaps(&Vlan::Access(vlan))
    }

    /// Returns whether frames may pass from one port to the other.
    pub(crate) fn meets(&self, other: &Picture) -> bool {
        let may_talk = !(self.isolated && other.isolated);
        may_talk && !self.is_apart_from(other) && self.vlan.overlaps(&other.vlan)
    }

    /// Returns whether both ports are uplinks that exchange no frames.
    fn is_apart_from(&self, other: &Picture) -> bool {
        let are_uplinks = self.role == PortRole::Uplink && other.role == PortRole::Uplink;
        are_uplinks && !(self.transit && other.transit)
    }
}

/// Returns the findings about a configuration that is not running, on this host.
pub fn offline(config: &Config) -> HealthBody {
    let mut found = preflight::findings(&config.switch);
    found.extend(preflight::missing_devices(&config.ports));
    found.extend(descriptors::too_few(config).map(|problem| Kind::DescriptorsFew.found(problem)));
    found.extend(findings(&config.ports.iter().map(Picture::of).collect::<Vec<_>>()));
    HealthBody::of(found)
}

/// Returns all findings, port by port.
pub(crate) fn findings(ports: &[Picture]) -> Vec<FindingBody> {
    let mut found = Vec::new();
    let by_mtu = by_mtu(ports);
    let mut by_mac = HashMap::<Mac, Vec<&Picture>>::new();
    for (place, port) in ports.iter().enumerate() {
        let earlier = ports.get(..place).unwrap_or_default();
        let alike = port.mac.map(|mac| by_mac.entry(mac).or_default());
        let twin = alike.as_deref().and_then(|alike| duplicate_mac(port, alike.iter().copied()));
        alike.into_iter().for_each(|alike| alike.push(port));
        found.extend(trouble(port));
        found.extend(mtu(port, &by_mtu));
        let of_port = [
            (Kind::SocketHidden, socket_hidden(port)),
            (Kind::TooBig, too_big(port)),
            (Kind::Guarded, guarded(port)),
            (Kind::UplinksShareVlan, uplinks_share_vlan(port, earlier)),
            (Kind::UplinkHasAddress, uplink_has_address(port)),
            (Kind::OwnFramesReturn, own_frames_return(port)),
            (Kind::DuplicateMac, twin),
            (Kind::MacUnknown, mac_unknown(port)),
            (Kind::HeldMacElsewhere, held_mac_elsewhere(port)),
            (Kind::Lonely, lonely(port, ports)),
            (Kind::RscNotOperational, rsc_not_operational(port)),
            (Kind::UplinkCoalesces, uplink_coalesces(port)),
            (Kind::LargeReceive, large_receive(port)),
            (Kind::HostStackOpen, host_stack_open(port)),
            (if port.is_xdp { Kind::XdpLimits } else { Kind::Software }, degraded(port)),
            (Kind::KernelHash, not_steered(port)),
            (Kind::PathDown, team::path_down(port)),
            (Kind::SamePath, team::same_path(port, earlier)),
        ];
        found.extend(of_port.into_iter().filter_map(|(kind, told)| Some(kind.found(told?))));
        found.extend(team::findings(port, ports));
    }
    found
}

/// Returns findings about current MTUs, without past drops.
pub(crate) fn mtu_findings(ports: &[Picture]) -> Vec<Problem> {
    let by_mtu = by_mtu(ports);
    ports.iter().flat_map(|port| mtu(port, &by_mtu)).map(|found| found.problem).collect()
}

/// Returns the ports with an MTU, the largest first, so that each finds those above its own without
/// a look at thousands of others.
fn by_mtu(ports: &[Picture]) -> Vec<&Picture> {
    let mut all: Vec<_> = ports.iter().rev().filter(|port| port.mtu.is_some()).collect();
    all.sort_by_key(|port| Reverse(port.mtu));
    all
}

fn mtu(port: &Picture, by_mtu: &[&Picture]) -> Vec<FindingBody> {
    let one = [
        (Kind::DeviceMtu, device_mtu(port)),
        (Kind::GuestMtu, guest_mtu(port)),
        (Kind::MtuMismatch, mtu_mismatch(port, by_mtu)),
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
            Kind::GuestOff => told.remedy("none needed; the port comes up with its guest"),
            _ => told
                .wanted("a port that carries frames")
                .remedy("fix the cause; the port recovers by itself"),
        }),
    )
}

/// Finds a port with a larger MTU than its device: the switch would send frames that the device
/// does not carry.
fn device_mtu(port: &Picture) -> Option<Problem> {
    let (own, device) = (port.mtu?, port.device_mtu?);
    (device < own).then(|| {
        Problem::new(format!("port {} has MTU {own}, its device has {device}", port.name))
            .seen(device)
            .wanted(own)
            .remedy(format!("`ip link set DEVICE mtu {own}`, or lower the port's mtu"))
    })
}

/// Finds devices below the port's own that have a smaller MTU, for example a member of a bond.
fn link_mtus(port: &Picture) -> Vec<Problem> {
    let own = port.mtu.unwrap_or_default();
    // The first is the device itself; in a team all are members. Other findings cover both.
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

/// Finds a guest that was started with another MTU: its driver reads the MTU only when it starts.
fn guest_mtu(port: &Picture) -> Option<Problem> {
    let (own, guest) = (port.mtu?, port.guest_mtu?);
    (own != guest).then(|| {
        let name = &port.name;
        Problem::new(format!("port {name} has MTU {own}, its guest was started with MTU {guest}"))
            .seen(guest)
            .wanted(own)
            .remedy(format!("restart the guest, or set its device's MTU to {own} inside it"))
    })
}

/// Finds a port that reaches another one with a larger MTU. The finding names the largest such MTU.
fn mtu_mismatch(port: &Picture, by_mtu: &[&Picture]) -> Option<Problem> {
    let own = port.mtu?;
    let mut larger = by_mtu.iter().take_while(|other| other.mtu > Some(own));
    let largest = larger.find(|other| port.meets(other))?;
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
        Problem::new(format!("port {} dropped frames larger than its MTU", port.name))
            .seen(format!("{} frames", port.too_big))
            .wanted("none")
            .remedy("give all ports and guests of a network the same MTU")
    })
}

/// Finds drops by guards: either the guest attacks, or its owner does not know about the guard.
fn guarded(port: &Picture) -> Option<Problem> {
    let drops = port.guarded.iter().filter(|(_, frames)| *frames > 0);
    let seen: Vec<_> = drops.map(|(guard, frames)| format!("{guard}: {frames} frames")).collect();
    (!seen.is_empty()).then(|| {
        let remedy = format!(
            "`millrace capture {} -w FILE` shows them; if the guest may send them, turn the guard off",
            port.name
        );
        Problem::new(format!("guards of port {} dropped frames", port.name))
            .seen(seen.join(", "))
            .wanted("none")
            .remedy(remedy)
    })
}

/// Finds another uplink in one of the port's VLANs that it does not exchange frames with. If both
/// lead to one network, guests get each broadcast twice.
fn uplinks_share_vlan(port: &Picture, earlier: &[Picture]) -> Option<Problem> {
    if port.role != PortRole::Uplink {
        return None;
    }
    let shares = |other: &&Picture| port.is_apart_from(other) && port.vlan.overlaps(&other.vlan);
    let other = earlier.iter().find(shares)?;
    Some(
        Problem::new(format!(
            "uplinks {} and {} share a VLAN and exchange no frames",
            other.name, port.name
        ))
        .seen(
            "two uplinks in one VLAN: if both lead to one network, guests get each broadcast twice, and a guest without `mac` \
             misses answers to its own broadcasts (ARP, DHCP), whose copies come back as if it had moved",
        )
        .wanted("one uplink or one team in each VLAN")
        .remedy(
            "links to one network: make them one team; two networks to be kept apart, as two paths to a storage: give each uplink \
             and its vNICs a VLAN of their own (`vlan = 10`; frames stay untagged outside); two networks to be joined: set \
             transit = true on both; a guest behind the port: set role = \"vnic\"",
        ),
    )
}

/// Finds frames that come in at an uplink with the addresses of the switch's own guests.
fn own_frames_return(port: &Picture) -> Option<Problem> {
    (port.returned > 0).then(|| {
        Problem::new(format!("frames of this switch's guests come back at port {}", port.name))
            .seen(format!("{} frames", port.returned))
            .wanted("none: another link of this switch leads to the same network")
            .remedy(
                "make links to one network one team, or find the loop outside. Until then copies from a port with `mac` are \
                 refused (address_taken); a guest without it misses frames until it sends again: set mac. A guest that runs \
                 on two hosts also looks like this",
            )
    })
}

/// Finds another port with the same address in one VLAN. Isolated ports count too: an uplink's
/// answers reach only one of the two.
pub(crate) fn duplicate_mac<'p>(
    port: &Picture,
    others: impl IntoIterator<Item = &'p Picture>,
) -> Option<Problem> {
    let mac = port.mac?;
    let is_twin = |other: &&Picture| other.mac == Some(mac) && port.vlan.overlaps(&other.vlan);
    let twin = others.into_iter().find(is_twin)?;
    Some(
        Problem::new(format!("ports {} and {} have the same address", twin.name, port.name))
            .seen(mac)
            .wanted("a different address on each port")
            .remedy("change the address of one guest, and `mac` of its port"),
    )
}

fn mac_unknown(port: &Picture) -> Option<Problem> {
    let seen = match port.held_mac {
        Some(mac) => format!("no mac, held to {mac}"),
        None => "no mac".to_owned(),
    };
    port.mac_unknown.then(|| {
        Problem::new(format!(
            "port {}: the MAC-spoofing guard trusts the first address from which the guest sends",
            port.name
        ))
        .seen(seen)
        .wanted("the guest's address")
        .remedy("set mac; for a guest with several addresses set mac-spoofing = \"allow\"")
    })
}

fn socket_hidden(port: &Picture) -> Option<Problem> {
    let (socket, directory) = port.hidden.as_ref()?;
    Some(
        Problem::new(format!(
            "port {}: no guest sees its socket, because the daemon's {directory} is its own (`PrivateTmp` of its unit)",
            port.name
        ))
        .seen(socket)
        .wanted("a socket in a directory that guests see, such as /run/millrace")
        .remedy("move the socket there, or set PrivateTmp=no in a drop-in (`systemctl edit millrace`) and restart"),
    )
}

/// Finds another port behind which the held address was seen: the guest took it while the other
/// station was silent.
fn held_mac_elsewhere(port: &Picture) -> Option<Problem> {
    let (mac, other) = (port.held_mac?, port.held_mac_behind.as_ref()?);
    Some(
        Problem::new(format!(
            "port {} is held to an address that is also behind {other}",
            port.name
        ))
        .seen(format!("{mac}, last seen behind {other}"))
        .wanted("a different address on each machine")
        .remedy(format!(
            "set mac to the guest's own address, and find out which machine uses {mac}"
        )),
    )
}

fn lonely(port: &Picture, ports: &[Picture]) -> Option<Problem> {
    let uplink = |other: &Picture| other.role == PortRole::Uplink && other.name != port.name;
    let reached = |other: &Picture| uplink(other) && port.vlan.overlaps(&other.vlan);
    (port.isolated && !ports.iter().any(reached)).then(|| {
        Problem::new(format!("port {} is isolated and its VLAN has no uplink", port.name))
            .seen("no uplink")
            .wanted("an uplink in its VLAN: an isolated port reaches nothing else")
            .remedy("add an uplink to the VLAN, or set isolated = false")
    })
}

/// Finds RSC that is not operational. If it fails for both address families, there is one finding.
/// A port that is down has its own finding instead.
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
            "turn on checksum and TCP segmentation offload behind the port, or set rsc = \"off\""
        }
        _ => "remove the cause, or set rsc = \"off\"",
    };
    Some(
        Problem::new(format!("port {}: RSC is on for {families} but not operational", port.name))
            .seen(status.failure_reason.name())
            .wanted("NoFailure")
            .remedy(remedy),
    )
}

/// Finds an uplink whose device coalesces, or whose sender does not segment (TSO over a veth): a
/// comparison of RSC on and off would show nothing.
fn uplink_coalesces(port: &Picture) -> Option<Problem> {
    (port.arrived_coalesced > 0).then(|| {
        // In a team all links are members, otherwise the others are below the first.
        let own = if port.members.is_empty() { 1 } else { port.links.len() };
        let mut devices: Vec<&str> = port.links.iter().take(own).map(|(it, _)| &**it).collect();
        if devices.is_empty() {
            devices.push("DEVICE");
        }
        let each = |words: &str, end: &str| {
            let lines = devices.iter().map(|it| format!("`ethtool {words} {it}{end}`"));
            lines.collect::<Vec<_>>().join(", ")
        };
        let (shown, off) = (each("-k", ""), each("-K", " gro off lro off"));
        Problem::new(format!(
            "port {}: frames arrive already coalesced, or not yet segmented",
            port.name
        ))
        .seen(format!("{} frames", port.arrived_coalesced))
        .wanted("single segments, if RSC of the switch is to be measured or turned off")
        .remedy(format!(
            "none needed in production. To measure: if {shown} shows generic-receive-offload or \
             large-receive-offload on, the device merges them: {off}; if both are off, a \
             sender on this host, such as one behind a veth, leaves them unsegmented: `ethtool -K ITS-DEVICE tso off gso off`"
        ))
    })
}

/// Finds a device of which the kernel may not be able to hand over what it merges.
fn uplink_has_address(port: &Picture) -> Option<Problem> {
    let address = port.host_address?;
    let (device, _) = port.links.first().cloned().unwrap_or_default();
    let problem = Problem::new(format!(
        "port {}: {device} has an address of this host, which guests cannot reach: what the host sends there passes the \
         switch by",
        port.name
    ));
    Some(problem.seen(address).wanted("the host's address at a port of the switch").remedy(
        "move it to a TAP port in the host's namespace (docs/tutorials/one-nic.md); none needed if guests and host need not \
         reach each other",
    ))
}

fn large_receive(port: &Picture) -> Option<Problem> {
    port.merges_by_lro.then(|| {
        let (device, _) = port.links.first().cloned().unwrap_or_default();
        Problem::new(format!("port {}: large-receive-offload is on at {device}", port.name))
            .seen("segments merged by the device: some drivers merge so that the kernel drops them")
            .wanted("large-receive-offload off; GRO merges as well, and all of it is carried")
            .remedy(format!("`ethtool -K {device} lro off`"))
    })
}

fn host_stack_open(port: &Picture) -> Option<Problem> {
    (!port.exposed.is_empty()).then(|| {
        let problem = Problem::new(format!(
            "port {}: its container may reach the host's own stack past the switch",
            port.name
        ));
        let problem = problem.seen(port.exposed.join("; "));
        problem.wanted("a host's end without a stack").remedy("each names its own")
    })
}

fn degraded(port: &Picture) -> Option<Problem> {
    if port.is_xdp && !port.degraded.is_empty() {
        let problem = Problem::new(format!("port {}: AF_XDP has limits on this device", port.name));
        let problem = problem.seen(port.degraded.join("; ")).wanted("no limits");
        return Some(
            problem.remedy("each limit names its own; ignore those for frames you do not have"),
        );
    }
    (!port.degraded.is_empty()).then(|| {
        Problem::new(format!(
            "port {}: the switch does offloads in software because the kernel lacks them",
            port.name
        ))
        .seen(port.degraded.join("; "))
        .wanted("all offloads in the kernel")
        .remedy("use a newer kernel; without one only speed is lost")
    })
}

fn not_steered(port: &Picture) -> Option<Problem> {
    let reason = port.not_steered.as_ref()?;
    Some(
        Problem::new(format!(
            "port {}: the kernel's hash spreads flows over its queues, so no flow can be moved",
            port.name
        ))
        .seen(reason)
        .wanted("an indirection table per vNIC")
        .remedy("give the daemon CAP_BPF outside any user namespace, or set queues = 1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let config = Config::from_toml("t", text).unwrap();
        let found = offline(&config).findings.into_iter();
        // Devices of these files are on no host.
        let found = found.filter(|found| found.kind != "device_missing");
        found.map(|found| found.problem.error).collect()
    }

    #[test]
    fn mtu_mismatch_names_both_ports_once() {
        let text = "[[port]]\nname='vm3'\ntap='t'\nmtu=9000\n[[port]]\nname='uplink0'\npacket='e'\nmtu=1500\n";
        assert_eq!(found(text), ["uplink0 has MTU 1500, vm3 has 9000"]);
        assert!(found(&text.replace("mtu=9000", "mtu=9000\nvlan=5")).is_empty());
        let apart = format!("[[port]]\nname='far'\ntap='v'\nmtu=9200\nvlan=5\n{text}");
        assert_eq!(found(&apart), ["uplink0 has MTU 1500, vm3 has 9000"]);
        assert!(found(&text.replace("9000", "1500")).is_empty());
    }

    #[test]
    fn twins_and_the_lonely_are_found() {
        let twins = "[[port]]\nname='a'\ntap='t'\nmac='52:54:00:00:00:01'\n[[port]]\nname='b'\ntap='u'\nmac='52:54:00:00:00:01'\n";
        assert_eq!(found(twins), ["ports a and b have the same address"]);
        assert!(found(&twins.replace("'u'", "'u'\nvlan=5")).is_empty());
        let third = format!(
            "{}{}",
            twins.replace("'u'", "'u'\nvlan=5"),
            twins[..twins.len() / 2].replace("'a'", "'c'").replace("'t'", "'v'\nvlan=5")
        );
        assert_eq!(found(&third), ["ports b and c have the same address"]);
        let lonely = "[[port]]\nname='a'\ntap='t'\nisolated=true\nvlan=5";
        assert_eq!(found(lonely), ["port a is isolated and its VLAN has no uplink"]);
        assert!(found(&format!("{lonely}\n[[port]]\nname='u'\npacket='e'\ntrunk='5'")).is_empty());
    }

    /// Two packet ports on one bridge turned one broadcast into 210,000 frames a second, and
    /// nothing was found.
    #[test]
    fn uplinks_of_one_vlan_are_found_unless_both_allow_transit() {
        let two =
            "[[port]]\nname='a'\npacket='e'\nvlan=500\n[[port]]\nname='b'\npacket='f'\nvlan=500\n";
        assert_eq!(found(two), ["uplinks a and b share a VLAN and exchange no frames"]);
        assert!(found(&two.replace("'f'\nvlan=500", "'f'\nvlan=501")).is_empty());
        assert!(found(&format!("{two}role='vnic'\nmac-spoofing='allow'")).is_empty());
        assert!(!found(&format!("{two}transit=true")).is_empty());
        assert!(found(&two.replace("vlan=500", "vlan=500\ntransit=true")).is_empty());
    }

    #[test]
    fn a_guard_without_an_address_is_told() {
        let text = "[[port]]\nname='a'\nvhost-user='/run/a'\n";
        let told =
            "port a: the MAC-spoofing guard trusts the first address from which the guest sends";
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
    fn a_device_with_lro_is_named_with_the_remedy() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\npacket='e'").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        port.links = vec![("e".to_owned(), 1500)];
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.merges_by_lro = true;
        let found = findings(&[port]);
        assert_eq!(found[0].problem.error, "port u: large-receive-offload is on at e");
        assert_eq!(found[0].problem.remedy, "`ethtool -K e lro off`");
    }

    /// Guests and host could not reach each other, and nothing was found.
    #[test]
    fn an_uplink_with_an_address_of_the_host_is_told() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\npacket='e'").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        port.links = vec![("e".to_owned(), 1500)];
        port.host_address = Some([192, 0, 2, 10].into());
        let found = findings(&[port]);
        assert_eq!(found[0].kind, "uplink_has_address");
        assert!(found[0].problem.error.contains("e has an address of this host"));
        assert_eq!(found[0].problem.seen, "192.0.2.10");
    }

    /// The finding named GRO and LRO only, where a sender's TSO over a veth was the cause.
    #[test]
    fn both_causes_of_what_arrives_coalesced_are_told_with_their_remedies() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\npacket='e'").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        port.links = vec![("e".to_owned(), 1500)];
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.arrived_coalesced = 7;
        let remedy = &findings(&[port])[0].problem.remedy;
        for part in ["`ethtool -k e` shows", "`ethtool -K e gro off lro off`", "tso off gso off`"] {
            assert!(remedy.contains(part), "{part} is missing: {remedy}");
        }
    }

    #[test]
    fn a_host_s_end_with_a_stack_is_told() {
        let text = "[[port]]\nname='a'\nveth='eth0'\nnetns='a'";
        let mut port = Picture::of(&Config::from_toml("t", text).unwrap().ports[0]);
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.exposed = vec!["IPv6: `sysctl`".to_owned()];
        let found = findings(&[port]);
        assert_eq!(
            (&*found[0].kind, &*found[0].problem.seen),
            ("host_stack_open", "IPv6: `sysctl`")
        );
    }

    #[test]
    fn limits_of_an_xdp_port_are_told() {
        let config = Config::from_toml("t", "[[port]]\nname='u'\nxdp='e'").unwrap();
        let mut port = Picture::of(&config.ports[0]);
        assert!(findings(std::slice::from_ref(&port)).is_empty());
        port.degraded = vec!["tags are lost".to_owned()];
        let found = findings(&[port]);
        assert_eq!(found[0].problem.error, "port u: AF_XDP has limits on this device");
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
