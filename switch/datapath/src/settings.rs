//! An operator's settings of a port; the worker reads them through the view.

pub(crate) mod acl;
pub(crate) mod guard;
pub(crate) mod mark;
pub(crate) mod vlan;

use crate::settings::acl::AclRule;
use crate::settings::guard::Guards;
use crate::settings::vlan::Tagging;
use ports::Announced;
use wire::Mac;
use wire::toeplitz::{HashTypes, Key};

pub use crate::settings::vlan::Vlan;

/// A port's number in the switch's tables, used again after the port was removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PortId(pub u16);

/// The side of the switch that a port is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PortRole {
    /// A guest, container or namespace behind one vNIC.
    #[default]
    Vnic,
    /// A physical or outside network with many stations.
    Uplink,
}

/// Token bucket on what a port sends into the switch. Frames above it wait in the port's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Long-run rate, in bits per second.
    pub bits_per_second: u64,
    /// Bytes that may pass at once after a pause.
    pub burst_bytes: u64,
}

impl RateLimit {
    /// Returns the burst, in bytes, of a rate without a configured one: 8 ms. From 50 Mbit on, a
    /// second's rate, this and a train of 64 KiB are at most 102 % of the rate.
    pub const fn default_burst(bits_per_second: u64) -> u64 {
        bits_per_second / 8 / 125
    }
}

/// Storm control: limits on the frames of a port that are flooded (broadcast, multicast, unknown
/// destination). A frame of unknown destination that only one port can receive is not counted: it
/// costs no more than any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StormLimit {
    /// Frames per second; a tenth of it may pass at once.
    pub frames_per_second: u64,
    /// Bytes per second; a tenth of it, and at most 64 KiB, may pass at once.
    pub bytes_per_second: u64,
}

/// How segments on their way *out of* a port are coalesced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RscPolicy {
    /// Not at all.
    #[default]
    Off,
    /// NDIS rules: for a port where the frames end.
    Ndis,
    /// Linux GRO rules: a train can be segmented again byte for byte; for uplinks and guests that
    /// forward.
    Gro,
}

/// Receive segment coalescing on one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rsc {
    /// The rules, or off.
    pub policy: RscPolicy,
    /// Applies to IPv4.
    pub ipv4: bool,
    /// Applies to IPv6.
    pub ipv6: bool,
    /// Most payload of a train, in multiples of the MTU (FreeBSD hn(4): 25, 12 with several
    /// queues); 0: as much as IP allows.
    pub length_limit_mtus: u8,
    /// The number of segments at which a train ends when a segment without payload joins it (hn(4):
    /// 2); 0: no limit. Segments with payload may take a train past it.
    pub ack_limit: u16,
    /// Trains open at once for one egress queue; at most 128.
    pub flows: u8,
}

impl Default for Rsc {
    fn default() -> Rsc {
        Rsc {
            policy: RscPolicy::Off,
            ipv4: true,
            ipv6: true,
            length_limit_mtus: 0,
            ack_limit: 0,
            flows: 128,
        }
    }
}

/// How the queue of a frame toward a port is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Steer {
    /// By the flow's entry of the indirection table.
    #[default]
    Rss,
    /// For TCP and UDP, the pair's queue that the other side last sent the flow from; otherwise as
    /// `Rss`.
    Follow,
    /// By the table that the guest's driver has set; otherwise as `Follow`.
    Guest,
}

/// Receive-side scaling of a port. Its indirection table is set entry by entry, see
/// [`crate::Switch::set_rss_entries`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rss {
    /// How the queue is chosen.
    pub steer: Steer,
    /// The key of the hash; `None`: one drawn at random when the port was added.
    pub key: Option<Key>,
    /// The header fields that are hashed.
    pub types: HashTypes,
}

/// Whether the switch answers a packet that is too big for its egress port, as a router does, to
/// the port that sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PathMtu {
    /// Toward ports of another MTU.
    #[default]
    WhereMtusDiffer,
    /// Toward all ports.
    On,
    /// Never: such packets are dropped silently.
    Off,
}

/// The settings of a port that can change while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortSettings {
    /// The side of the switch that the port is on.
    pub role: PortRole,
    /// Largest IP packet that leaves through this port, in bytes.
    pub mtu: u16,
    /// Whether the port is told that its packets are too big for another.
    pub path_mtu: PathMtu,
    /// VLAN mode.
    pub vlan: Vlan,
    /// The port's own address. It belongs to this port alone in the port's VLANs and is known there
    /// without being learned. No other vNIC may send from it, and no uplink while this port is up.
    pub mac: Option<Mac>,
    /// MAC-spoofing guard: the port may send from one address only. That is [`PortSettings::mac`],
    /// or without it the first address it sends from, which it holds until it goes down or is
    /// removed. No other vNIC may send from a held address.
    pub mac_guard: bool,
    /// The most addresses learned at the port, each counted in each VLAN that it sends in; 0: no
    /// limit. One more takes the place of the one learned first. The port's own address, configured
    /// or held, is not learned.
    pub mac_limit: u16,
    /// Limit on what the port floods.
    pub storm: Option<StormLimit>,
    /// Isolated ports reach uplinks only, never each other.
    pub isolated: bool,
    /// Whether an uplink exchanges frames with other uplinks that allow it too.
    pub transit: bool,
    /// Limit on what the port sends.
    pub rate: Option<RateLimit>,
    /// Limit on what the port receives, in bits per second. What is above it waits, and is dropped
    /// where too much waits.
    pub rate_to: Option<u64>,
    /// The weight of a vNIC among those that send to an uplink that is short of room, 1 to 100.
    /// While no port has a weight, the first to find room takes it. Beside ports with a weight, a
    /// port without one counts as 1.
    pub weight: Option<u8>,
    /// Coalescing on the way out of this port.
    pub rsc: Rsc,
    /// How frames toward the port are spread over its queues.
    pub rss: Rss,
    /// If a receiver has no room, the port's frames wait in its own queue instead of being dropped.
    pub back_pressure: bool,
    /// A port that gets a copy of all frames that this port sends and receives.
    pub mirror_to: Option<PortId>,
    /// Whether the kernel may carry flows from and to the port.
    pub kernel_path: bool,
    /// The frames that the port may not send, whatever its rules say.
    pub guards: Guards,
    /// Rules about the frames that the port sends and receives. The first that matches decides; a
    /// frame without a match passes.
    pub acl: Vec<AclRule>,
}

impl PortSettings {
    /// Returns the VLANs and addresses with which the station behind the port is announced.
    pub fn announced(&self) -> Announced {
        let is_tagged = |vlan: &u16| self.vlan.tagging(*vlan) == Some(Tagging::Tagged(*vlan));
        let own = self.guards.addresses.iter().flatten();
        let addresses = own.filter(|own| own.first == own.last).map(|own| own.first).collect();
        Announced { tagged: (1..4095).filter(is_tagged).collect(), addresses }
    }
}
