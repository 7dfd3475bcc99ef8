//! Changes of a port between two frames.

use super::frame::Station;
use datapath::{
    AclAction, AclEnd, AclMark, AclProtocol, AclRule, Guards, PathMtu, PortId, PortRole,
    PortSettings, RateLimit, Rsc, RscPolicy, StormLimit, Vlan,
};
use ports::capture::Direction;
use wire::{Mac, Prefix};

/// MTUs that ports may have.
pub(super) const MTUS: [u16; 4] = [1500, 1400, 600, 9000];

/// Bits a second that nothing here reaches.
const PLENTY: u64 = 100_000_000_000;

/// Returns a port without extras, on the kernel path.
pub(crate) fn plain(role: PortRole) -> PortSettings {
    let rsc = Rsc { policy: RscPolicy::Ndis, ..Rsc::default() };
    PortSettings { role, mtu: 1500, kernel_path: true, rsc, ..PortSettings::default() }
}

/// Changes one setting. Every other change undoes what is unusual.
pub(super) fn change(settings: &mut PortSettings, what: u8, [first, second]: [u16; 2], ports: u8) {
    let station = Station::of(first as u8, ports);
    let is_on = second % 2 == 0;
    let vlan = first % 3;
    match what % 20 {
        0 => settings.vlan = Vlan::Access(if is_on { vlan } else { 0 }),
        1 => {
            let allowed = [0, 1, 2].into_iter().take(usize::from(second % 4)).collect();
            settings.vlan = Vlan::Trunk { native: vlan, allowed };
        }
        2 => settings.mtu = MTUS[usize::from(first) % MTUS.len()],
        3 => settings.isolated = is_on,
        4 => settings.mac_guard = is_on,
        5 => settings.mac = is_on.then(|| Mac(station.mac())),
        6 => settings.mac_limit = if is_on { 0 } else { 1 + first % 2 },
        7 => settings.acl.clear(),
        8 | 9 => settings.acl.push(rule(station, [first, second])),
        10 => {
            settings.guards = Guards {
                dhcp: first % 2 == 0,
                router: first % 4 < 2,
                addresses: is_on.then(|| vec![Prefix::new(station.v4().into(), 24).unwrap()]),
            };
        }
        11 => {
            let limit = RateLimit { bits_per_second: PLENTY, burst_bytes: 1 << 30 };
            settings.rate = is_on.then_some(limit);
        }
        12 => settings.rate_to = is_on.then_some(PLENTY),
        13 => settings.weight = is_on.then_some(3),
        14 => {
            settings.rsc = Rsc {
                policy: [RscPolicy::Ndis, RscPolicy::Gro, RscPolicy::Off][usize::from(first % 3)],
                ipv4: second % 8 != 1,
                ipv6: second % 8 != 2,
                length_limit_mtus: u8::from(second % 8 == 3),
                ack_limit: u16::from(second % 8 == 4),
                ..Rsc::default()
            };
        }
        15 => settings.mirror_to = is_on.then_some(PortId(first % u16::from(ports))),
        16 => settings.kernel_path = is_on,
        17 => settings.transit = is_on,
        18 => settings.back_pressure = is_on,
        _ => {
            let limit = StormLimit { frames_per_second: 100_000, bytes_per_second: 1 << 30 };
            settings.storm = is_on.then_some(limit);
            settings.path_mtu =
                [PathMtu::On, PathMtu::Off, PathMtu::WhereMtusDiffer][usize::from(first % 3)];
        }
    }
}

fn rule(station: Station, [first, second]: [u16; 2]) -> AclRule {
    let mark = AclMark { dscp: Some(8), pcp: None };
    let action = match second % 8 {
        0 => AclAction::Mark(mark),
        1 | 2 => AclAction::Allow,
        _ => AclAction::Deny,
    };
    let protocol = match first / 256 % 5 {
        0 => AclProtocol::Any,
        1 => AclProtocol::Ipv4,
        2 => AclProtocol::Ipv6,
        3 => AclProtocol::Ip(6),
        _ => AclProtocol::Ip(17),
    };
    let end = AclEnd {
        mac: (second & 0x10 != 0).then(|| Mac(station.mac())),
        prefix: (second & 0x20 != 0).then(|| Prefix::new(station.v4().into(), 24).unwrap()),
        ports: (second & 0x40 != 0).then_some(4000..=4000),
    };
    let (from, to) =
        if second & 0x80 == 0 { (end, AclEnd::default()) } else { (AclEnd::default(), end) };
    let direction = if second & 0x100 == 0 { Direction::Ingress } else { Direction::Egress };
    AclRule { action, direction, protocol, from, to }
}
