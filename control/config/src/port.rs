//! `[[port]]`: one port as written in the file, in `PUT /v1/config` and in the body of
//! `POST /v1/ports`.
//!
//! Every key but the name is optional, and an absent key stays absent. Its default follows from the
//! role, the device or `[switch]`, see `defaults`.

use super::steer::{RssKey, RssTypes, SteerMode};
use super::storm::Storm;
use super::switch::KernelPathMode;
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

/// What happens to a frame with a source address that is not the port's.
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
    /// NDIS rules: for an endpoint.
    Ndis,
    /// Linux GRO rules: for uplinks and for guests that forward.
    Gro,
    /// No coalescing.
    Off,
}

/// Whether the switch answers a packet that is too big for its path with ICMP or ICMPv6, as a
/// router does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathMtuMode {
    /// It answers, so that TCP recovers.
    On,
    /// It drops the packet silently.
    Off,
}

/// Another back end, whose virtio features a vhost-user port offers instead of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// Open vSwitch with DPDK.
    OvsDpdk,
    /// Open vSwitch with DPDK and `userspace-tso-enable`.
    OvsDpdkTso,
}

/// Whether the queues of a port, or the entries of its indirection tables, move between workers by
/// load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VmmqMode {
    /// They stay where they are placed.
    Static,
    /// They are spread before a worker saturates, and moved back together when load falls.
    Dynamic,
}

impl VmmqMode {
    /// Returns the value as written.
    pub const fn name(self) -> &'static str {
        match self {
            VmmqMode::Static => "static",
            VmmqMode::Dynamic => "dynamic",
        }
    }
}

/// How a team spreads its egress frames over its members, named as in `Set-VMSwitchTeam`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TeamAlgorithm {
    /// All frames of an address leave through its home member.
    #[default]
    HyperVPort,
    /// TCP and UDP flows leave through a member per flow, which may change after a pause.
    Dynamic,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PortConfig {
    /// The port's name: 1 to 32 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$", example = "vm1")]
    pub name: PortName,
    /// Opens this TAP device, and creates it if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "tap1")]
    pub tap: Option<HostName>,
    /// Makes a veth pair for a container: the end of this name is in `netns`, the other one is the
    /// switch's. The pair stays when the daemon ends, and goes when the port is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth0")]
    pub veth: Option<HostName>,
    /// Uses this network device of the host as an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth1")]
    pub packet: Option<HostName>,
    /// Uses these 1 to 8 network devices of the host as one uplink. All of them carry frames;
    /// members can change while the port is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 8, example = json!(["eth1", "eth2"]))]
    pub team: Option<Vec<HostName>>,
    /// How a team spreads its egress frames over its members. Default: `hyper-v-port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_algorithm: Option<TeamAlgorithm>,
    /// How long the link of a recovered team member must stay up before the member is used again.
    /// Default: 1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1s")]
    pub team_fail_back: Option<Seconds>,
    /// Pins a vNIC to a team member: its frames leave through this member or not at all. Default:
    /// any member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth1")]
    pub team_member: Option<HostName>,
    /// Uses this network device of the host as an uplink by AF_XDP, bypassing the host's stack,
    /// which receives none of its frames meanwhile. If AF_XDP is not available, the port uses
    /// AF_PACKET; `millrace port show` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[^/]+$", max_length = 15, example = "eth1")]
    pub xdp: Option<HostName>,
    /// Serves a virtual machine, a DPDK application or a user-mode Linux at this Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^/", max_length = 107, example = "/run/millrace/vm1.sock")]
    pub vhost_user: Option<SocketPath>,
    /// The switch connects to the socket, and reconnects after a failure; the guest's side listens.
    /// Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_client: Option<bool>,
    /// Permissions of the vhost-user socket, in octal. Default: 0660 with `socket-group`, otherwise
    /// by the daemon's umask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^0?[0-7]{3}$", example = "0660")]
    pub socket_mode: Option<FileMode>,
    /// Owner of the vhost-user socket, by name or number. Default: the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "libvirt-qemu")]
    pub socket_owner: Option<Account>,
    /// Group of the vhost-user socket, by name or number. Default: the daemon's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "kvm")]
    pub socket_group: Option<Account>,
    /// Most memory in bytes that a vhost-user port's front end may map; 0 for no limit. Default:
    /// the host's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "4GiB")]
    pub memory_limit: Option<Size>,
    /// Offers a vhost-user port's guest the features of another back end, so that it can migrate
    /// from there and back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compat: Option<Compat>,
    /// Takes a vhost-user guest's link down while the team member that its port is pinned to, or
    /// otherwise every uplink of its VLANs, carries no frames. Default: no. User-mode Linux and
    /// crosvm are told by a message. The switch tells a QEMU guest by closing the connection, so QEMU
    /// needs `reconnect` and split rings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_uplink: Option<bool>,
    /// The device's network namespace: a name from `ip netns`, or a path. Default: the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, example = "web")]
    pub netns: Option<Namespace>,
    /// Queue pairs. Default on a vhost-user port: 8, of which the guest uses one per processor. On a
    /// switch with several workers a TAP has one per processor, up to 8, and a packet uplink one per
    /// worker; otherwise 1. An xdp port has as many as its device has receive queues, and no other
    /// number is accepted. On a packet port each has a ring of 8 MiB, and an eBPF program spreads the
    /// flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 64)]
    pub queues: Option<Queues>,
    /// Receives frames for all stations. Default: yes. Packet and xdp ports only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<bool>,
    /// The kernel behind a TAP port receives frames by NAPI. Default: no. The kernel coalesces them
    /// (GRO) if its polling is threaded or `gro_flush_timeout` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi: Option<bool>,
    /// Largest IP packet in bytes, 68 to 9216, on a vhost-user port 65535. Default: the device's
    /// MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 68, maximum = 65535, example = 1500)]
    pub mtu: Option<Mtu>,
    /// Answers a packet from the port that is too big for its egress port with ICMP, as a router
    /// does. Default: `on` toward ports with a different MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<PathMtuMode>,
    /// Which way the port faces. Default: `uplink` for a packet port, an xdp port and a team,
    /// `vnic` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<PortRole>,
    /// Access mode: untagged frames belong to this VLAN, 0 to 4094. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 0, maximum = 4094, example = 10)]
    pub vlan: Option<VlanId>,
    /// Trunk mode: the tagged VLANs that may pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10,20-30")]
    pub trunk: Option<VlanList>,
    /// The VLAN of a trunk's untagged frames. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, minimum = 0, maximum = 4094)]
    pub native: Option<VlanId>,
    /// The guest's address. Default: the device's; on a vhost-user port the first address from
    /// which the guest sends. A veth that the switch makes gets it, and a change while the port is
    /// open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){5}$", example = "52:54:00:12:34:56")]
    pub mac: Option<MacAddress>,
    /// The guard against forged source addresses. Default: `deny` for a vNIC, `allow` for an
    /// uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_spoofing: Option<MacSpoofing>,
    /// Most addresses learned on the port; one more evicts the port's oldest. 0 for no limit.
    /// Default: 64 for a vNIC, half of `mac-entries` for an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, maximum = 65535)]
    pub mac_limit: Option<MacLimit>,
    /// Most frames and bits per second that the port may send to groups and unknown addresses, or
    /// `off`. Default: `10000/s,100Mbit` for a vNIC and for an uplink with `transit`, `off` for
    /// other uplinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10000/s,100Mbit")]
    pub storm: Option<Storm>,
    /// Lets the port reach uplinks only. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// Lets an uplink exchange frames with other uplinks that have `transit` too. Default: no, so
    /// that two uplinks to one network are not a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transit: Option<bool>,
    /// Rate limit for frames from the port into the switch. Frames above it wait in the port's own
    /// queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1Gbit")]
    pub rate: Option<Rate>,
    /// Burst size of the rate limit `rate`. Default: 8 ms at `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "256KiB")]
    pub burst: Option<Size>,
    /// Rate limit for frames from the switch to the port. What is above it waits: 20 ms at the rate, at
    /// least 96 KiB. What has no room is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1Gbit")]
    pub rate_to: Option<Rate>,
    /// Share of a congested uplink relative to other ports that send to it, 1 to 100. Default: 1 if
    /// another port has a weight; if none has, room is first come, first served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 100, example = 10)]
    pub weight: Option<Weight>,
    /// Frames for a guest or an uplink without room wait in this port's queue instead of being
    /// dropped. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_pressure: Option<bool>,
    /// Whether the kernel may carry established flows from and to this `veth` or `packet` port. Default:
    /// `kernel-path` of `[switch]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<KernelPathMode>,
    /// Coalescing toward the port. Default: `rsc` of `[switch]` for a vNIC, `off` for an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc: Option<RscMode>,
    /// Coalescing of IPv4. Default: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc_ipv4: Option<bool>,
    /// Coalescing of IPv6. Default: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsc_ipv6: Option<bool>,
    /// Maximum payload of a train in multiples of the MTU. Default: 0, as much as IP allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, maximum = 255)]
    pub length_limit: Option<LengthLimit>,
    /// Segments after which a train with a pure ACK ends. Default: 0, no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>, maximum = 65535)]
    pub ack_limit: Option<AckLimit>,
    /// Most open trains per queue, 1 to 128. Default: 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 128)]
    pub flows: Option<Flows>,
    /// Which of the port's queues receives a frame. `guest`: the one that the guest's driver says, or
    /// `follow` while it has said nothing. `follow`: for TCP and UDP the queue pair from which the
    /// guest last sent the flow, otherwise as `rss`. `rss`: the one that the switch's table names.
    /// Default: `guest` for a vhost-user vNIC, `rss` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer: Option<SteerMode>,
    /// Key of the RSS hash for frames toward the port: 40 bytes in hex, `random`, or `microsoft`
    /// for the key of Microsoft's test vectors. Default: `random`, drawn each time the port is
    /// opened. Frames from an uplink are spread by a separate key, which is always random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^(random|microsoft|([0-9A-Fa-f]:?){80})$", example = "random")]
    pub rss_key: Option<RssKey>,
    /// What RSS hashes. Default: `ipv4,tcpv4,udpv4,ipv6,tcpv6,udpv6`. Types with `-ex` use the home
    /// address of mobile IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ipv4,tcpv4,udpv4,ipv6,tcpv6,udpv6")]
    pub rss_types: Option<RssTypes>,
    /// Whether the port's queues move between workers by load; at an uplink with indirection
    /// tables, whether their entries do. Default: `dynamic`. A vNIC's entries at such an uplink stay
    /// if the vNIC's port says `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmmq: Option<VmmqMode>,
    /// Drops messages that only a DHCP server sends. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_guard: Option<bool>,
    /// Drops router advertisements and redirects. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_guard: Option<bool>,
    /// The IP addresses and prefixes that the port may use, also in ARP and neighbour discovery.
    /// Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["10.0.0.5", "fd00::/64"]))]
    pub ip_guard: Option<IpGuard>,
    /// Rules for frames that the port sends (`in`) and receives (`out`). The first match decides; a
    /// frame without a match passes. `mark dscp N pcp N in ...` marks frames that the port sends;
    /// it does not decide whether they pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, example = json!(["deny in tcp to 10.0.0.0/8 port 22-23"]))]
    pub acl: Vec<Rule>,
    /// Mirror: the port that gets a copy of every frame this port sends or receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$", example = "monitor")]
    pub mirror_to: Option<PortName>,
}

impl PortConfig {
    /// Keys that name the device and its place.
    const OF_THE_DEVICE: [&'static str; 13] = [
        "tap",
        "veth",
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
        "promiscuous",
    ];
    /// Keys that say how the device is opened.
    const OF_OPENING: [&'static str; 2] = ["queues", "napi"];
    /// Keys that a guest's driver reads when it starts.
    const READ_BY_DRIVER: [&'static str; 2] = ["mtu", "mac"];

    /// Returns whether a change of this key reopens the port.
    pub fn reopens(&self, key: &str) -> bool {
        let device = self.device();
        let is_read = device.is_guest() && PortConfig::READ_BY_DRIVER.contains(&key);
        is_read
            || PortConfig::names_device(key)
            || PortConfig::OF_OPENING.contains(&key)
            || key == "team" && !device.is_team()
    }

    /// Returns whether a key names the port's device and its place. `team` does not, because members
    /// change while the port is open.
    pub fn names_device(key: &str) -> bool {
        PortConfig::OF_THE_DEVICE.contains(&key)
    }

    /// Returns a port with only a name.
    pub fn named(name: PortName) -> PortConfig {
        PortConfig { name, ..PortConfig::default() }
    }
}
