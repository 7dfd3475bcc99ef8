//! Random configurations that break no rule, for property tests.
#![allow(clippy::expect_used, reason = "only tests use it")]

use crate::{
    AckLimit, Compat, Config, Flows, HostName, LengthLimit, MacAddress, MacLimit, MacSpoofing, Mtu,
    PathMtuMode, PortConfig, PortName, PortRole, Queues, Rate, RscMode, RssKey, RssTypes, Seconds,
    Size, SteerMode, Storm, TeamAlgorithm, VlanId, Weight,
};
use proptest::option::of;
use proptest::prelude::*;
use wire::toeplitz::{HashTypes, Key};

/// Returns a strategy for configurations of up to six ports named `p0` to `p5`, some of them
/// mirroring to a neighbour, and a random `[switch]`.
pub fn config() -> impl Strategy<Value = Config> {
    let ports = proptest::collection::btree_map(0u8..6, port(), 0..6);
    (ports, any::<u32>(), rsc()).prop_map(|(ports, ageing, rsc)| {
        let names: Vec<PortName> = ports.keys().map(|place| name("p", *place)).collect();
        let mut config = Config::default();
        config.switch.mac_ageing = Seconds(ageing);
        config.switch.rsc = rsc;
        for (place, (mut port, device, mirror)) in ports {
            port.name = name("p", place);
            let device = host(&format!("d{place}{}", if device { "x" } else { "" }));
            if port.promiscuous.is_some() {
                let by = if mirror > 4 { &mut port.xdp } else { &mut port.packet };
                *by = Some(device);
                port.queues = None;
                port.vhost_client = None;
            } else if port.vhost_client.is_some() {
                port.vhost_user = format!("/run/{device}").parse().ok();
                port.compat = port.isolated.map(|_| Compat::OvsDpdkTso);
                port.follow_uplink = port.isolated;
            } else if mirror == 8 {
                port.team = Some(vec![host(&format!("{device}a")), host(&format!("{device}b"))]);
                port.queues = None;
                port.team_algorithm = port.isolated.map(|_| TeamAlgorithm::Dynamic);
                port.team_fail_back = port.mtu.map(|mtu| Seconds(mtu.0.into()));
            } else if mirror == 7 {
                port.veth = Some(device);
            } else {
                port.tap = Some(device);
                port.napi = (mirror > 4).then_some(true);
            }
            if !port.device().is_guest() {
                port.mtu = port.mtu.map(|mtu| Mtu(mtu.0.min(9216)));
            }
            port.mirror_to =
                names.get(usize::from(mirror)).filter(|other| **other != port.name).cloned();
            config.ports.push(port);
        }
        config
    })
}

fn name(prefix: &str, place: u8) -> PortName {
    format!("{prefix}{place}").parse().expect("a good name")
}

fn host(name: &str) -> HostName {
    name.parse().expect("a good name")
}

fn rsc() -> impl Strategy<Value = RscMode> {
    prop_oneof![Just(RscMode::Ndis), Just(RscMode::Gro), Just(RscMode::Off)]
}

fn port() -> impl Strategy<Value = (PortConfig, bool, u8)> {
    let device = (of(1u16..=64), of(any::<bool>()), of(68u16..), any::<bool>(), of(any::<bool>()));
    let vlan = (of(0u16..4095), any::<bool>(), of(of(Just(()))));
    let guard = (of(any::<u32>()), of(any::<bool>()), of(any::<bool>()));
    let rate = (of((1u64..1 << 40, of(0u64..1 << 40))), of(rsc()), of(any::<bool>()));
    let rest = (of(any::<u8>()), of(any::<u16>()), of(1u8..=128), 0u8..9);
    (device, vlan, guard, rate, rest).prop_map(|(device, vlan, guard, rate, rest)| {
        let mut port = PortConfig::named(name("p", 0));
        port.queues = device.0.map(Queues);
        port.promiscuous = device.1;
        port.mtu = device.2.map(Mtu);
        port.vhost_client = device.4;
        port.path_mtu = device.4.map(|on| if on { PathMtuMode::On } else { PathMtuMode::Off });
        match (vlan.0, vlan.1) {
            (Some(id), true) => {
                port.trunk = format!("1-{}", id.max(1)).parse().ok();
                port.native = vlan.2.map(|_| VlanId(id));
            }
            (id, _) => port.vlan = id.map(VlanId),
        }
        let address = |[b, c, d, e]: [u8; 4]| MacAddress(wire::Mac([2, 0, b, c, d, e]));
        port.mac = guard.0.map(|mac| address(mac.to_be_bytes()));
        port.mac_spoofing =
            guard.1.map(|deny| if deny { MacSpoofing::Deny } else { MacSpoofing::Allow });
        port.isolated = guard.2;
        port.mac_limit = guard.0.map(|limit| MacLimit(u16::from(limit.to_be_bytes()[0])));
        port.storm = guard.1.map(|off| match off {
            true => Storm::Off,
            false => Storm::Limit { frames: 1 + u64::from(rest.3), rate: Rate(1000) },
        });
        port.role = rate.2.map(|up| if up { PortRole::Uplink } else { PortRole::Vnic });
        // An uplink has no weight.
        port.weight = rate.2.filter(|up| !up).map(|_| Weight(1 + rest.3));
        // A vNIC has no transit.
        port.transit = guard.2.filter(|_| rate.2 == Some(true));
        if let Some((bits, burst)) = rate.0 {
            (port.rate, port.burst) = (Some(Rate(bits)), burst.map(Size));
            port.rate_to = burst.filter(|bits| *bits > 0).map(Rate);
        }
        (port.rsc, port.rsc_ipv6) = (rate.1, guard.2);
        let modes = [SteerMode::Guest, SteerMode::Follow, SteerMode::Rss];
        port.steer = guard.2.map(|on| modes[usize::from(on) + usize::from(rest.3 % 2 == 0)]);
        port.rss_key = rest.0.map(|byte| RssKey(guard.1.map(|_| Key([byte; 40]))));
        port.rss_types = guard.1.map(|_| RssTypes(HashTypes::from_bits_truncate(1 << rest.3)));
        (port.length_limit, port.ack_limit, port.flows) =
            (rest.0.map(LengthLimit), rest.1.map(AckLimit), rest.2.map(Flows));
        (port, device.3, rest.3)
    })
}
