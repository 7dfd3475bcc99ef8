//! Arms of the migration experiment: the transport of the guest's memory in each.

/// Transport of the guest's memory in an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    /// Name of the arm in JSON.
    pub(crate) name: &'static str,
    /// Name of the arm for readers.
    pub(crate) label: &'static str,
    /// MTU of the uplinks and of the hosts' own ports, in bytes.
    pub(crate) mtu: u16,
    /// Number of connections; more than one needs QEMU's multifd.
    pub(crate) channels: u8,
    /// Whether memory bypasses the switch, over a direct wire from the host to the physical switch.
    pub(crate) direct: bool,
}

/// Arms that form a ring, in which each differs from its neighbours in one thing. The steps, and
/// the comparison of the last arm with the first, are the four questions.
pub(crate) const TRANSPORTS: [Transport; 4] = [
    through("mtu1500_1", "MTU 1500, 1 channel", 1500, 1),
    through("mtu9000_1", "MTU 9000, 1 channel", 9000, 1),
    through("mtu9000_4", "MTU 9000, 4 channels", 9000, 4),
    through("mtu1500_4", "MTU 1500, 4 channels", 1500, 4),
];

/// Returns a transport through the switch.
const fn through(name: &'static str, label: &'static str, mtu: u16, channels: u8) -> Transport {
    Transport { name, label, mtu, channels, direct: false }
}

/// Arms of Millrace and of Open vSwitch with DPDK that differ in the switch alone.
const DIRECT: [Transport; 2] = [
    Transport { direct: true, ..through("millrace", "Millrace, memory by a direct wire", 1500, 1) },
    Transport { direct: true, ..through(PEER, "OVS-DPDK, memory by a direct wire", 1500, 1) },
];
/// Name of the arm of Open vSwitch with DPDK.
pub(crate) const PEER: &str = "ovs_dpdk";

/// Returns all arms in their order.
pub(crate) fn transports() -> impl Iterator<Item = Transport> {
    TRANSPORTS.into_iter().chain(DIRECT)
}
