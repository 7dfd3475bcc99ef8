//! What the configuration means for the data path: a port's settings and the switch's options, with
//! defaults from the role, the device or `[switch]`.
//!
//! The configuration's crate knows nothing of the data path, so that a program that only reads or
//! writes configurations does not compile it.

mod acl;

use config::{
    IpGuard, KernelPathMode, PathMtuMode, Poll, PortConfig, PortRole, Rate, RscMode, Scale,
    SteerMode, Storm, SwitchConfig, Workers,
};
use datapath::{
    Guards, PathMtu, PortId, PortSettings, RateLimit, Rsc, RscPolicy, Rss, Steer, StormLimit,
    SwitchOptions, Vlan, Wait, WorkerOptions,
};
use wire::Mac;

/// Returns a port's settings, with defaults from `switch`. `device_mtu` and `device_mac` are those
/// of the opened device; `mirror` is the number of the port that `mirror-to` names.
pub(crate) fn of_port(
    port: &PortConfig,
    switch: &SwitchConfig,
    device_mtu: u16,
    device_mac: Option<Mac>,
    mirror: Option<PortId>,
) -> PortSettings {
    PortSettings {
        role: match port.role() {
            PortRole::Vnic => datapath::PortRole::Vnic,
            PortRole::Uplink => datapath::PortRole::Uplink,
        },
        mtu: port.mtu.map_or(device_mtu, |mtu| mtu.0),
        path_mtu: match port.path_mtu {
            None => PathMtu::WhereMtusDiffer,
            Some(PathMtuMode::On) => PathMtu::On,
            Some(PathMtuMode::Off) => PathMtu::Off,
        },
        vlan: vlan(port),
        mac: own_mac(port, device_mac),
        mac_guard: port.mac_guard(),
        mac_limit: port.mac_limit().unwrap_or_else(|| switch.half_of_macs()),
        storm: storm(port.storm()),
        isolated: port.isolated.unwrap_or(false),
        transit: port.transit.unwrap_or(false),
        rate: rate(port),
        rate_to: port.rate_to.map(|rate| rate.0),
        weight: port.weight.map(|weight| weight.0),
        back_pressure: port.back_pressure.unwrap_or(false),
        kernel_path: port.kernel_path.unwrap_or(switch.kernel_path) == KernelPathMode::Auto,
        rsc: rsc(port, switch),
        rss: rss(port),
        mirror_to: mirror,
        guards: guards(port),
        acl: port.acl.iter().map(acl::compiled).collect(),
    }
}

/// Returns a port's settings as far as its keys alone decide them.
pub(crate) fn of_keys(port: &PortConfig) -> PortSettings {
    of_port(port, &SwitchConfig::default(), 0, None, None)
}

/// Returns the options with which the switch starts.
pub(crate) fn of_switch(switch: &SwitchConfig) -> SwitchOptions {
    let workers = match &switch.workers {
        Workers::Auto | Workers::Count(_) => {
            let count = Scale::of(&switch.workers).workers;
            vec![WorkerOptions { cpu: None }; usize::from(count)]
        }
        Workers::Cores(cores) => {
            cores.iter().map(|core| WorkerOptions { cpu: Some(usize::from(*core)) }).collect()
        }
    };
    SwitchOptions {
        workers,
        wait: match switch.poll {
            Poll::Always => Wait::Always,
            Poll::Adaptive => Wait::Adaptive,
            Poll::Never => Wait::Never,
        },
        mac_entries: switch.mac_entries.0 as usize,
        mac_ageing_s: switch.mac_ageing.0,
    }
}

fn vlan(port: &PortConfig) -> Vlan {
    match &port.trunk {
        Some(list) => Vlan::Trunk {
            native: port.native.map_or(0, |vlan| vlan.0),
            allowed: list.ids().collect(),
        },
        None => Vlan::Access(port.vlan.map_or(0, |vlan| vlan.0)),
    }
}

/// Returns the port's own address. That of a TAP or veth is that of its user. A packet port's is that
/// of the host's end, which the stations behind the port do not use: with the spoofing guard, such a
/// port holds the first address that it sends from.
fn own_mac(port: &PortConfig, device: Option<Mac>) -> Option<Mac> {
    let device = device.filter(|_| port.device().is_made());
    port.mac.map(|mac| mac.0).or(device)
}

fn storm(storm: Storm) -> Option<StormLimit> {
    match storm {
        Storm::Off => None,
        Storm::Limit { frames, rate } => {
            Some(StormLimit { frames_per_second: frames, bytes_per_second: rate.0.div_ceil(8) })
        }
    }
}

fn rate(port: &PortConfig) -> Option<RateLimit> {
    let Rate(bits_per_second) = port.rate?;
    let default = RateLimit::default_burst(bits_per_second);
    let burst_bytes = port.burst.map_or(default, |burst| burst.0);
    Some(RateLimit { bits_per_second, burst_bytes })
}

/// Returns the coalescing that a port's keys ask for, as far as the switch allows it.
pub(crate) fn rsc(port: &PortConfig, switch: &SwitchConfig) -> Rsc {
    let mode = if switch.software_rsc { port.rsc(switch.rsc) } else { RscMode::Off };
    Rsc {
        policy: match mode {
            RscMode::Ndis => RscPolicy::Ndis,
            RscMode::Gro => RscPolicy::Gro,
            RscMode::Off => RscPolicy::Off,
        },
        ipv4: port.rsc_ipv4.unwrap_or(true),
        ipv6: port.rsc_ipv6.unwrap_or(true),
        length_limit_mtus: port.length_limit.map_or(0, |limit| limit.0),
        ack_limit: port.ack_limit.map_or(0, |limit| limit.0),
        flows: port.flows.map_or(128, |flows| flows.0),
    }
}

fn rss(port: &PortConfig) -> Rss {
    Rss {
        steer: match port.steer() {
            SteerMode::Guest => Steer::Guest,
            SteerMode::Follow => Steer::Follow,
            SteerMode::Rss => Steer::Rss,
        },
        key: port.rss_key.and_then(|key| key.0),
        types: port.rss_types.map(|types| types.0).unwrap_or_default(),
    }
}

fn guards(port: &PortConfig) -> Guards {
    Guards {
        dhcp: port.dhcp_guard.unwrap_or(false),
        router: port.router_guard.unwrap_or(false),
        addresses: port.ip_guard.as_ref().map(IpGuard::prefixes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;

    fn read(text: &str) -> Config {
        Config::from_toml("switch.toml", text).unwrap()
    }

    #[test]
    fn a_whole_file_reads() {
        let config = read(include_str!("../../config/tests/switch.toml"));
        let vm1 = config.port("vm1").unwrap();
        let settings = of_port(vm1, &SwitchConfig::default(), 1500, None, None);
        assert_eq!(settings.mtu, 9000);
        assert_eq!(settings.vlan, datapath::Vlan::Access(10));
        assert_eq!(settings.rate.map(|rate| rate.bits_per_second), Some(1_000_000_000));
    }

    #[test]
    fn what_is_absent_follows_the_role() {
        let config = read("[[port]]\nname='v'\ntap='t'\n[[port]]\nname='u'\npacket='e'");
        let own = wire::Mac([2, 0, 0, 0, 0, 1]);
        let switch = SwitchConfig::default();
        let settings = |name| of_port(config.port(name).unwrap(), &switch, 1500, Some(own), None);
        assert_eq!((settings("v").mac, settings("v").mac_guard), (Some(own), true));
        // One station behind an uplink filled the table of all VLANs.
        assert_eq!((settings("v").mac_limit, settings("u").mac_limit), (64, 4096));
        assert_eq!((settings("v").storm.is_some(), settings("u").storm), (true, None));
        assert_eq!(settings("v").rsc.policy, datapath::RscPolicy::Ndis);
        assert_eq!((settings("u").mac, settings("u").mac_guard), (None, false));
        assert_eq!(settings("u").rsc.policy, datapath::RscPolicy::Off);
        assert_eq!(settings("u").role, datapath::PortRole::Uplink);
    }
}
