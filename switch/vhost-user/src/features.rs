//! Features of a virtio-net device, at their bit numbers.

use bitflags::bitflags;
use wire::vnet::VnetHeader;

bitflags! {
    /// Features that a device offers and a driver acknowledges (virtio 1.2, sections 5.1.3 and 6;
    /// vhost-user protocol).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        /// The device completes partial checksums of frames from the guest.
        const CSUM = 1 << 0;
        /// The guest takes frames with a partial checksum.
        const GUEST_CSUM = 1 << 1;
        /// The guest may change its receive offloads while it runs.
        const CTRL_GUEST_OFFLOADS = 1 << 2;
        /// The configuration space tells the MTU.
        const MTU = 1 << 3;
        /// The configuration space tells the address.
        const MAC = 1 << 5;
        /// The legacy feature that the `HOST_` features replaced. Offered only in place of another
        /// back end ([`Compat`](crate::Compat)).
        const GSO = 1 << 6;
        /// The guest takes trains of TCP over IPv4.
        const GUEST_TSO4 = 1 << 7;
        /// The guest takes trains of TCP over IPv6.
        const GUEST_TSO6 = 1 << 8;
        /// The guest takes trains with ECN.
        const GUEST_ECN = 1 << 9;
        /// The guest takes UDP datagrams to be fragmented, of which we send none. Offered only in
        /// place of another back end.
        const GUEST_UFO = 1 << 10;
        /// The guest sends trains of TCP over IPv4.
        const HOST_TSO4 = 1 << 11;
        /// The guest sends trains of TCP over IPv6.
        const HOST_TSO6 = 1 << 12;
        /// The guest sends trains with ECN.
        const HOST_ECN = 1 << 13;
        /// A frame may take several receive buffers.
        const MRG_RXBUF = 1 << 15;
        /// The configuration space tells the link state.
        const STATUS = 1 << 16;
        /// There is a control queue.
        const CTRL_VQ = 1 << 17;
        /// Commands about receive modes.
        const CTRL_RX = 1 << 18;
        /// Commands about VLAN filters.
        const CTRL_VLAN = 1 << 19;
        /// Commands about more receive modes.
        const CTRL_RX_EXTRA = 1 << 20;
        /// The guest announces itself when asked.
        const GUEST_ANNOUNCE = 1 << 21;
        /// Several queue pairs.
        const MQ = 1 << 22;
        /// The guest may set its address by command.
        const CTRL_MAC_ADDR = 1 << 23;
        /// vhost: writes to the guest are logged, for a migration.
        const LOG_ALL = 1 << 26;
        /// Headers and payload may lie in descriptors as the driver likes.
        const ANY_LAYOUT = 1 << 27;
        /// Tables of descriptors.
        const INDIRECT_DESC = 1 << 28;
        /// Notification by position.
        const EVENT_IDX = 1 << 29;
        /// vhost-user: protocol features are negotiated too.
        const PROTOCOL_FEATURES = 1 << 30;
        /// Virtio 1.0 or newer.
        const VERSION_1 = 1 << 32;
        /// Packed rings.
        const RING_PACKED = 1 << 34;
        /// Buffers are used in the order they were made available.
        const IN_ORDER = 1 << 35;
        /// The guest may ask, for each ring, that signals are held back.
        const VQ_NOTF_COAL = 1 << 52;
        /// The guest may ask, for all rings, that signals are held back.
        const NOTF_COAL = 1 << 53;
        /// The guest takes trains of UDP over IPv4.
        const GUEST_USO4 = 1 << 54;
        /// The guest takes trains of UDP over IPv6.
        const GUEST_USO6 = 1 << 55;
        /// The guest sends trains of UDP.
        const HOST_USO = 1 << 56;
        /// The header of a received frame has its hash.
        const HASH_REPORT = 1 << 57;
        /// The guest may set by which queue it receives a frame: receive-side scaling.
        const RSS = 1 << 60;
        /// The guest reads segment and duplicate-ACK counts of trains.
        const RSC_EXT = 1 << 61;
        /// The configuration space tells speed and duplex mode.
        const SPEED_DUPLEX = 1 << 63;
    }
}

impl Features {
    /// Features that a guest can turn off and on at run time by
    /// `VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET` (section 5.1.6.5.6).
    pub const GUEST_OFFLOADS: Features = Features::GUEST_CSUM
        .union(Features::GUEST_TSO4)
        .union(Features::GUEST_TSO6)
        .union(Features::GUEST_ECN)
        .union(Features::GUEST_USO4)
        .union(Features::GUEST_USO6);

    /// Features that a port offers if it stands in for no other back end and its settings allow
    /// all.
    pub const OWN: Features = Features::all().difference(Features::GSO.union(Features::GUEST_UFO));

    /// Features of receive-side scaling.
    pub const SCALING: Features = Features::RSS.union(Features::HASH_REPORT);

    /// Features that a device can serve only if it gets the commands of the guest's driver.
    pub const COMMANDED: Features =
        Features::SCALING.union(Features::NOTF_COAL).union(Features::VQ_NOTF_COAL);

    /// Returns the length of the virtio-net header in bytes. The one with `num_buffers` is for
    /// drivers that take `VERSION_1` or `MRG_RXBUF`; the longest has the hash too.
    pub fn header_len(self) -> usize {
        if self.contains(Features::HASH_REPORT) {
            VnetHeader::HASH_LEN
        } else if self.intersects(Features::VERSION_1 | Features::MRG_RXBUF) {
            VnetHeader::LEN
        } else {
            VnetHeader::LEGACY_LEN
        }
    }

    /// Returns the names of the features in lower case, for `port show`.
    pub fn names(self) -> Vec<String> {
        self.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect()
    }
}
