//! `[[port]]`: one port as it is written in the file, in `PUT /v1/config` and in the body of `POST /v1/ports`.
//!
//! Every key but the name is optional and stays absent when it was: what is absent follows the role, the device, or
//! `[switch]`, and is decided in [`PortConfig::settings`].

use super::steer::{RssKey, RssTypes, SteerMode};
use super::storm::Storm;
use super::value::{
    Account, AckLimit, FileMode, Flows, HostName, LengthLimit, MacAddress, MacLimit, Mtu,
    Namespace, PortName, Queues, SocketPath, Weight,
};
use super::vlan::{VlanId, VlanList};
use super::{IpGuard, Rate, Rule, Seconds, Size};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which way a port faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortRole {
    /// A guest, container or namespace behind one vNIC.
    Vnic,
    /// A network with many stations.
    Uplink,
}

/// What happens to a frame whose source address is not the port's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MacSpoofing {
    /// Dropped and counted as `mac_spoofed`.
    Deny,
    /// Switched.
    Allow,
}

/// Coalescing toward a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RscMode {
    /// NDIS rules: for a port whose frames end there.
    Ndis,
    /// Linux GRO rules: for uplinks and guests that forward.
    Gro,
    /// No coalescing.
    Off,
}

/// Whether what a port sends is answered, as a router would (ICMP, ICMPv6), where it is too big for its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathMtuMode {
    /// The port is told, so that TCP heals by itself.
    On,
    /// It is dropped without a word.
    Off,
}

/// Another back end, whose virtio features a vhost-user port offers in the place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// Open vSwitch with DPDK.
    OvsDpdk,
    /// The same with `userspace-tso-enable`.
    OvsDpdkTso,
}

/// Whether the queues of a port, or the entries of its indirection tables, move between workers by load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VmmqMode {
    /// They stay where they are put.
    Static,
    /// They are spread before a worker saturates, and brought together when load falls.
    Dynamic,
}

/// How a team spreads what leaves by it over its members, in the words of `Set-VMSwitchTeam`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TeamAlgorithm {
    /// All frames of an address leave by its home member.
    #[default]
    HyperVPort,
    /// TCP and UDP leave by the member of their flow, which may change after a pause.
    Dynamic,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PortConfig {
    /// Its name: 1 to 32 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$", example = "vm1")]
    pub name: PortName,
    /// Opens (and creates, where there is none) this TAP device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "tap1")]
    pub tap: Option<HostName>,
    /// Uses this network device of the host as an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth1")]
    pub packet: Option<HostName>,
    /// Uses these network devices of the host as one uplink: 1 to 8, all of which carry frames. They may change while the
    /// port is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 8, example = json!(["eth1", "eth2"]))]
    pub team: Option<Vec<HostName>>,
    /// How a team spreads what leaves by it; `hyper-v-port` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_algorithm: Option<TeamAlgorithm>,
    /// How long a team member whose link came back has to stay up before it is used again; 1 s where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1s")]
    pub team_fail_back: Option<Seconds>,
    /// The team member that a vNIC's frames leave by: this one or none. Any where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth1")]
    pub team_member: Option<HostName>,
    /// Uses this network device of the host as an uplink by AF_XDP, past the host's stack, which gets no frame of it meanwhile; by
    /// AF_PACKET where AF_XDP cannot be had, which `millrace port show` tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth1")]
    pub xdp: Option<HostName>,
    /// Serves a virtual machine, a DPDK application or a user-mode Linux at this Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^/", max_length = 107, example = "/run/millrace/vm1.sock")]
    pub vhost_user: Option<SocketPath>,
    /// The switch connects to the socket, again after each failure, and the guest's side listens; default no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_client: Option<bool>,
    /// Permissions of the vhost-user socket, in octal. Default: 0660 with `socket-group`, else what the daemon's umask
    /// leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^0?[0-7]{3}$", example = "0660")]
    pub socket_mode: Option<FileMode>,
    /// Owner of the vhost-user socket, by name or number; the daemon's user where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "libvirt-qemu")]
    pub socket_owner: Option<Account>,
    /// Group of the vhost-user socket, by name or number; the daemon's group where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "kvm")]
    pub socket_group: Option<Account>,
    /// Most memory in bytes that a vhost-user port's front end may have mapped; 0: no limit. The host's memory where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "4GiB")]
    pub memory_limit: Option<Size>,
    /// Offers a vhost-user port's guest what another back end offers, so that it may move from there and back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compat: Option<Compat>,
    /// Shows a vhost-user port's guest its link down while the team member it is pinned to, or else every uplink of its VLANs, carries no
    /// frames; no where absent. QEMU's guests are told by the end of the connection, so it needs `reconnect` and split rings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_uplink: Option<bool>,
    /// The network namespace the device lives in (a name of `ip netns`, or a path), where it is not the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, example = "web")]
    pub netns: Option<Namespace>,
    /// Queue pairs; 1 where absent, at an xdp port as many as the device has receive queues, which is the only number that it
    /// takes. A vhost-user guest may use fewer. At a packet port each has a ring of 8 MiB, and an eBPF program spreads the flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 64)]
    pub queues: Option<Queues>,
    /// Takes frames for all stations; yes where absent. Packet and xdp ports only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<bool>,
    /// The kernel behind a TAP port takes frames by NAPI; no where absent. It coalesces them (GRO) once its polling is threaded or
    /// has a `gro_flush_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi: Option<bool>,
    /// Largest IP packet in bytes, 68 to 9216, at a vhost-user port 65535; the device's own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 68, maximum = 65535, example = 1500)]
    pub mtu: Option<Mtu>,
    /// Tells the port, as a router would, that a packet it sent is too big for the port it was to leave by. Where absent, `on`
    /// toward ports of another MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<PathMtuMode>,
    /// Which way it faces; `uplink` for a packet or xdp port and a team, `vnic` for the others where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<PortRole>,
    /// Access mode: untagged frames belong to this VLAN, 0 to 4094; 0 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 0, maximum = 4094, example = 10)]
    pub vlan: Option<VlanId>,
    /// Trunk mode: the tagged VLANs that may pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10,20-30")]
    pub trunk: Option<VlanList>,
    /// The VLAN of a trunk's untagged frames; 0 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 0, maximum = 4094)]
    pub native: Option<VlanId>,
    /// The guest's address; where absent the device's own, and at a vhost-user port the first that it sends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){5}$", example = "52:54:00:12:34:56")]
    pub mac: Option<MacAddress>,
    /// The guard against forged source addresses; `deny` for a vNIC and `allow` for an uplink where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_spoofing: Option<MacSpoofing>,
    /// Most addresses learned at the port, one more evicts the port's own oldest; 0: no limit. 64 for a vNIC and half of
    /// `mac-entries` for an uplink where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, maximum = 65535)]
    pub mac_limit: Option<MacLimit>,
    /// Most frames and bits a second that the port may send to groups and unknown addresses, or `off`;
    /// `10000/s,100Mbit` for a vNIC and `off` for an uplink where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10000/s,100Mbit")]
    pub storm: Option<Storm>,
    /// Reaches uplinks only; no where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// Rate limit of what the port sends into the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1Gbit")]
    pub rate: Option<Rate>,
    /// Burst size of the rate limit. Default: 10 ms at `rate`, at least 128 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "256KiB")]
    pub burst: Option<Size>,
    /// What the port gets of an uplink that is short of room, beside the others that send to it, 1 to 100; 1 where absent and
    /// another port has one. Where none has, those that find room first take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 100, example = 10)]
    pub weight: Option<Weight>,
    /// Frames for a guest or an uplink without room wait in this port's own queue instead of being dropped; default no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_pressure: Option<bool>,
    /// Coalescing toward the port; the `rsc` of `[switch]` for a vNIC and `off` for an uplink where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc: Option<RscMode>,
    /// Coalescing of IPv4; yes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc_ipv4: Option<bool>,
    /// Coalescing of IPv6; yes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc_ipv6: Option<bool>,
    /// Maximum payload of a train in multiples of the MTU; 0 or absent: as much as IP allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, maximum = 255)]
    pub length_limit: Option<LengthLimit>,
    /// Segments after which a train with a pure ACK ends; 0 or absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, maximum = 65535)]
    pub ack_limit: Option<AckLimit>,
    /// Trains open at once for one queue, 1 to 128; 128 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 128)]
    pub flows: Option<Flows>,
    /// Which of its queues a frame toward the port goes to; `follow` for a vhost-user vNIC and `rss` for the others where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer: Option<SteerMode>,
    /// Key of the RSS hash of frames toward the port: 40 bytes in hex, `random`, or `microsoft` for that of its test vectors.
    /// `random` where absent: drawn each time that the port is opened. What comes from an uplink is spread by another key,
    /// which is always random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^(random|microsoft|([0-9A-Fa-f]:?){80})$", example = "random")]
    pub rss_key: Option<RssKey>,
    /// What RSS hashes; `ipv4,tcpv4,udpv4,ipv6,tcpv6,udpv6` where absent. `-ex`: by the home address of mobile IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ipv4,tcpv4,udpv4,ipv6,tcpv6,udpv6")]
    pub rss_types: Option<RssTypes>,
    /// Whether the queues from the port move between workers by load, at an uplink with indirection tables the entries of
    /// these; `static` where absent. The entries of a vNIC at such an uplink stay where its own port says `static`, and move
    /// where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmmq: Option<VmmqMode>,
    /// Drops what only a DHCP server sends; no where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_guard: Option<bool>,
    /// Drops router advertisements and redirects; no where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_guard: Option<bool>,
    /// The IP addresses and prefixes the port may use, in ARP and neighbour discovery too; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["10.0.0.5", "fd00::/64"]))]
    pub ip_guard: Option<IpGuard>,
    /// Rules about what the port sends (`in`) and receives (`out`). The first that matches decides; what none matches
    /// passes. `mark dscp N pcp N in ...` marks what the port sends and decides nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, example = json!(["deny in tcp to 10.0.0.0/8 port 22-23"]))]
    pub acl: Vec<Rule>,
    /// Mirror: the port that gets a copy of all frames this port sends and receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$", example = "monitor")]
    pub mirror_to: Option<PortName>,
}

impl PortConfig {
    /// Keys that name the device or how it is opened.
    const REOPENING: [&'static str; 14] = [
        "tap",
        "packet",
        "xdp",
        "vhost-user",
        "vhost-client",
        "socket-mode",
        "socket-owner",
        "socket-group",
        "memory-limit",
        "compat",
        "netns",
        "queues",
        "promiscuous",
        "napi",
    ];
    /// Keys that a guest's driver reads when it starts.
    const READ_BY_DRIVER: [&'static str; 2] = ["mtu", "mac"];

    /// Whether another value of this key takes closing the port and opening it again.
    pub fn reopens(&self, key: &str) -> bool {
        let is_read = self.vhost_user.is_some() && PortConfig::READ_BY_DRIVER.contains(&key);
        is_read || PortConfig::REOPENING.contains(&key) || self.team.is_none() && key == "team"
    }

    /// The members of its team; none, if it is no team.
    pub fn members(&self) -> Vec<String> {
        self.team.iter().flatten().map(ToString::to_string).collect()
    }

    /// A port with nothing but a name.
    pub fn named(name: PortName) -> PortConfig {
        PortConfig {
            name,
            tap: None,
            packet: None,
            team: None,
            team_algorithm: None,
            team_fail_back: None,
            team_member: None,
            xdp: None,
            vhost_user: None,
            vhost_client: None,
            socket_mode: None,
            socket_owner: None,
            socket_group: None,
            memory_limit: None,
            compat: None,
            follow_uplink: None,
            netns: None,
            queues: None,
            promiscuous: None,
            napi: None,
            mtu: None,
            path_mtu: None,
            role: None,
            vlan: None,
            trunk: None,
            native: None,
            mac: None,
            mac_spoofing: None,
            mac_limit: None,
            storm: None,
            isolated: None,
            rate: None,
            burst: None,
            weight: None,
            back_pressure: None,
            rsc: None,
            rsc_ipv4: None,
            rsc_ipv6: None,
            length_limit: None,
            ack_limit: None,
            flows: None,
            steer: None,
            rss_key: None,
            rss_types: None,
            vmmq: None,
            dhcp_guard: None,
            router_guard: None,
            ip_guard: None,
            acl: Vec::new(),
            mirror_to: None,
        }
    }

    /// Whether its device is an interface of the host.
    pub(crate) fn is_interface(&self) -> bool {
        self.packet.is_some() || self.xdp.is_some()
    }

    /// Which way it faces, configured or by default.
    pub fn role(&self) -> PortRole {
        let faces_network = self.is_interface() || self.team.is_some();
        self.role.unwrap_or(if faces_network { PortRole::Uplink } else { PortRole::Vnic })
    }

    /// Coalescing, configured or by default.
    pub fn rsc(&self, default: RscMode) -> RscMode {
        self.rsc.unwrap_or(match self.role() {
            PortRole::Vnic => default,
            PortRole::Uplink => RscMode::Off,
        })
    }

    /// The kind and name of its device, as in `tap tap1` or `vhost-user /run/millrace/vm1.sock`.
    pub fn device(&self) -> String {
        match self.devices().next() {
            Some((key, device)) => format!("{key} {device}"),
            None => "no device".to_owned(),
        }
    }

    /// The devices it names by their keys: one, unless a rule is broken.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&'static str, String)> {
        let text = |key, device: Option<String>| device.map(|device| (key, device));
        [
            text("tap", self.tap.as_ref().map(ToString::to_string)),
            text("packet", self.packet.as_ref().map(ToString::to_string)),
            text("team", self.team.as_ref().map(|_| self.members().join("+"))),
            text("xdp", self.xdp.as_ref().map(ToString::to_string)),
            text("vhost-user", self.vhost_user.as_ref().map(ToString::to_string)),
        ]
        .into_iter()
        .flatten()
    }
}
