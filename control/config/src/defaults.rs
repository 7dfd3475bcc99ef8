//! What a port's keys mean for the data path: its settings, with defaults from the role, the device
//! or `[switch]`.

use super::port::{MacSpoofing, PathMtuMode, PortConfig, PortRole, RscMode};
use super::storm::Storm;
use super::{IpGuard, Rate, Rule, SwitchConfig};
use datapath::{Guards, PathMtu, PortId, PortSettings, RateLimit, Rsc, RscPolicy, Vlan};
use wire::Mac;

impl PortConfig {
    /// The settings for the data path, with defaults from `switch`. `device_mtu` and `device_mac`
    /// are those of the opened device; `mirror` is the place of the port that `mirror-to` names.
    pub fn settings(
        &self,
        switch: &SwitchConfig,
        device_mtu: u16,
        device_mac: Option<Mac>,
        mirror: Option<PortId>,
    ) -> PortSettings {
        PortSettings {
            role: match self.role() {
                PortRole::Vnic => datapath::PortRole::Vnic,
                PortRole::Uplink => datapath::PortRole::Uplink,
            },
            mtu: self.mtu.map_or(device_mtu, |mtu| mtu.0),
            path_mtu: match self.path_mtu {
                None => PathMtu::WhereMtusDiffer,
                Some(PathMtuMode::On) => PathMtu::On,
                Some(PathMtuMode::Off) => PathMtu::Off,
            },
            vlan: self.vlan_mode(),
            mac: self.own_mac(device_mac),
            mac_guard: self.mac_guard(),
            mac_limit: self.mac_limit().unwrap_or_else(|| switch.half_of_macs()),
            storm: self.storm().limit(),
            isolated: self.isolated.unwrap_or(false),
            rate: self.rate_limit(),
            weight: self.weight.map(|weight| weight.0),
            back_pressure: self.back_pressure.unwrap_or(false),
            rsc: self.rsc_settings(switch.rsc),
            rss: self.rss_settings(),
            mirror_to: mirror,
            guards: self.guards(),
            acl: self.acl.iter().map(Rule::compiled).collect(),
        }
    }

    /// Whether the port carries frames of a VLAN.
    pub fn carries_vlan(&self, vlan: u16) -> bool {
        self.vlan_mode().overlaps(&Vlan::Access(vlan))
    }

    fn vlan_mode(&self) -> Vlan {
        match &self.trunk {
            Some(list) => {
                Vlan::Trunk { native: self.native.map_or(0, |vlan| vlan.0), allowed: list.to_set() }
            }
            None => Vlan::Access(self.vlan.map_or(0, |vlan| vlan.0)),
        }
    }

    /// Whether forged source addresses are dropped, configured or by default.
    pub fn mac_guard(&self) -> bool {
        self.mac_spoofing.map_or(self.role() == PortRole::Vnic, |key| key == MacSpoofing::Deny)
    }

    /// Most addresses learned on the port, configured or by default; 0 for no limit, `None` for
    /// half of `mac-entries`.
    pub fn mac_limit(&self) -> Option<u16> {
        let default = (self.role() == PortRole::Vnic).then_some(64);
        self.mac_limit.map(|limit| limit.0).or(default)
    }

    /// Storm control, configured or by default.
    pub fn storm(&self) -> Storm {
        self.storm.unwrap_or(match self.role() {
            PortRole::Vnic => Storm::DEFAULT,
            PortRole::Uplink => Storm::Off,
        })
    }

    /// A TAP's address is that of its user. A packet port's is that of the host's end, which its
    /// stations do not use.
    fn own_mac(&self, device: Option<Mac>) -> Option<Mac> {
        let device = device.filter(|_| self.tap.is_some() || self.mac_guard());
        self.mac.map(|mac| mac.0).or(device)
    }

    fn guards(&self) -> Guards {
        Guards {
            dhcp: self.dhcp_guard.unwrap_or(false),
            router: self.router_guard.unwrap_or(false),
            addresses: self.ip_guard.as_ref().map(IpGuard::prefixes),
        }
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        let Rate(bits_per_second) = self.rate?;
        let ten_ms = (bits_per_second / 8 / 100).max(128 * 1024);
        let burst_bytes = self.burst.map_or(ten_ms, |burst| burst.0);
        Some(RateLimit { bits_per_second, burst_bytes })
    }

    fn rsc_settings(&self, default: RscMode) -> Rsc {
        Rsc {
            policy: match self.rsc(default) {
                RscMode::Ndis => RscPolicy::Ndis,
                RscMode::Gro => RscPolicy::Gro,
                RscMode::Off => RscPolicy::Off,
            },
            ipv4: self.rsc_ipv4.unwrap_or(true),
            ipv6: self.rsc_ipv6.unwrap_or(true),
            length_limit_mtus: self.length_limit.map_or(0, |limit| limit.0),
            ack_limit: self.ack_limit.map_or(0, |limit| limit.0),
            flows: self.flows.map_or(128, |flows| flows.0),
        }
    }
}
