//! Counters: each written by one worker, without atomic read-modify-write, and summed by the
//! reader.

use ports::kernel_path::Carried;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Declares an enum of reasons. API, metrics and captures show their names.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Returns the name in API, metrics and captures.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a frame went no further. Up to `Storm` it is counted at the port it came from, after
    /// that at the port it was to leave by.
    DropReason {
        /// Shorter than an Ethernet header.
        Runt = "runt",
        /// A group address as source.
        BadSource = "bad_source",
        /// A claim in the virtio-net header that does not fit the frame, see frame/offload.rs.
        BadOffload = "bad_offload",
        /// A train of the kernel's whose transport the switch does not find, so it cannot segment
        /// it, see frame/merged.rs.
        UnknownTrain = "unknown_train",
        /// In so many pieces that they have less than 64 bytes each, or in pages that took too long to
        /// find: each may cost a page fault.
        Scattered = "scattered",
        /// Tagged (but for a priority) on an access port, or a VLAN the trunk does not allow.
        VlanNotAllowed = "vlan_not_allowed",
        /// A source address the port may not use.
        MacSpoofed = "mac_spoofed",
        /// A DHCP server's message from a port that may not be one.
        DhcpGuard = "dhcp_guard",
        /// A router's message from a port that may not be one.
        RouterGuard = "router_guard",
        /// An IP address the port may not use, in IP, ARP or neighbour discovery.
        IpGuard = "ip_guard",
        /// A source address that belongs to another port: its configured one, or the one it is held
        /// to.
        AddressTaken = "address_taken",
        /// Sent to 01:80:C2:00:00:00 to 0F, which no bridge forwards (IEEE 802.1Q, 8.6.3).
        ReservedAddress = "reserved_address",
        /// The destination is behind the port the frame came from.
        SamePort = "same_port",
        /// From one isolated port to another, with nowhere else to go.
        Isolated = "isolated",
        /// From one uplink to another, with nowhere else to go.
        UplinkToUplink = "uplink_to_uplink",
        /// No other port is in the frame's VLAN.
        NoPort = "no_port",
        /// The turn had reached its work limit, and the frame was to be flooded or the train to be
        /// segmented. Such frames cost many times what the port's last frames did. A train is
        /// counted at the port it was to leave by. So are a frame for a guest whose memory had the
        /// kernel work for longer than its share, see turn/slow.rs, and a flood toward many ports for
        /// which the worker has no time left, see turn/floods.rs.
        WorkLimit = "work_limit",
        /// A rule of the port's ACL denies it, counted at the port of the rule.
        AclDenied = "acl_denied",
        /// More flooded frames or bytes than the port's storm control allows.
        Storm = "storm",
        /// Above what the egress port may receive.
        RateLimited = "rate_limited",
        /// Longer than the egress port's MTU allows.
        TooBig = "too_big",
        /// The frame would lose its outer tag and then begin with the inner one.
        InnerTag = "inner_tag",
        /// The other side has no room.
        EgressFull = "egress_full",
        /// The egress port is down or broken.
        EgressDown = "egress_down",
        /// The only member of a team that the frame may leave by was down, or went down with the
        /// frame.
        PathDown = "path_down",
        /// The device refused the frame.
        EgressRefused = "egress_refused",
    }
}

impl DropReason {
    /// Returns this reason as an error if the condition holds.
    #[inline]
    pub(crate) fn when(self, holds: bool) -> Result<(), DropReason> {
        if holds { Err(self) } else { Ok(()) }
    }
}

reasons! {
    /// Why a segment ended or missed coalescing: the exception conditions of NDIS.
    RscException {
        /// Resource limit: more open flows than the limit.
        Resources = "resources",
        /// Bad IP or TCP checksum.
        BadChecksum = "bad_checksum",
        /// SYN, FIN, RST or URG.
        TcpFlags = "tcp_flags",
        /// A TCP option other than the timestamp.
        TcpOptions = "tcp_options",
        /// IPv4 options or IPv6 extension headers.
        IpOptions = "ip_options",
        /// A fragment.
        Fragment = "fragment",
        /// ECN or CWR/ECE bits differ from the segment before.
        Ecn = "ecn",
        /// The train would exceed the largest IP packet or the length limit. Not an abort in the
        /// sense of NDIS.
        Length = "length",
        /// Not the next byte of the flow.
        OutOfOrder = "out_of_order",
        /// Timestamps running backwards, or (GRO rules) headers that differ.
        HeaderChange = "header_change",
        /// Duplicate or plain ACK.
        PureAck = "pure_ack",
    }
}

/// A counter with one writer.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter; for the owning worker only.
    #[inline]
    pub fn add(&self, amount: u64) {
        // One writer: a plain load and store, no lock prefix.
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Returns the value; any thread may call this.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of a port; `Count` is a worker's [`Counter`] or a sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts<Count> {
    /// Frames taken from the port (a train is one).
    pub ingress_frames: Count,
    /// Bytes of these frames.
    pub ingress_bytes: Count,
    /// Ingress frames with a partial checksum (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub unfinished_checksums: Count,
    /// Ingress frames that were trains already: the device or the sender had coalesced them, or
    /// not yet segmented them.
    pub ingress_trains: Count,
    /// Segments of these trains.
    pub ingress_train_segments: Count,
    /// Frames delivered to the port (a train is one).
    pub egress_frames: Count,
    /// Bytes of these frames.
    pub egress_bytes: Count,
    /// Egress frames that were trains, coalesced here or before.
    pub egress_trains: Count,
    /// Segments of these trains.
    pub egress_train_segments: Count,
    /// Copies delivered to the port by flooding or multicast.
    pub flooded_frames: Count,
    /// Copies delivered to the port by a mirror.
    pub mirrored_frames: Count,
    /// Trains segmented for the port.
    pub segmented_trains: Count,
    /// Segments made of those trains.
    pub segments: Count,
    /// Transport checksums completed for the port.
    pub checksums: Count,
    /// Messages to the port that a packet it sent was too big; they are egress frames as well.
    pub path_mtu_messages: Count,
    /// Frames the device itself lost before the switch saw them. Set in sums only: the device
    /// counts them.
    pub device_lost: Count,
    /// Ingress frames that the kernel carried, and their bytes; set in sums only, and part of the
    /// sums above.
    pub carried_ingress_frames: Count,
    /// See above.
    pub carried_ingress_bytes: Count,
    /// Egress frames that the kernel carried, and their bytes; set in sums only, and part of the
    /// sums above.
    pub carried_egress_frames: Count,
    /// See above.
    pub carried_egress_bytes: Count,
    /// Addresses learned at the port that had to make room for another of its own.
    pub evicted_addresses: Count,
    /// Frames from an uplink with the address of a vNIC: a loop sends the switch's own frames back,
    /// or the guest now runs on another host.
    pub returned_frames: Count,
    /// Frames that the port's guest does not want, by the addresses, modes and VLANs that its driver
    /// has set. They are not delivered, and are no drops.
    pub unwanted_frames: Count,
    /// Dropped frames, by [`DropReason::ALL`].
    pub drops: [Count; DropReason::ALL.len()],
    /// NDIS CoalescedPkts: segments that joined a train that was already open.
    pub coalesced_packets: Count,
    /// NDIS CoalescedOctets: TCP payload of those segments.
    pub coalesced_bytes: Count,
    /// NDIS CoalesceEvents: trains of more than one segment.
    pub coalescing_events: Count,
    /// Exceptions, by [`RscException::ALL`].
    pub rsc_exceptions: [Count; RscException::ALL.len()],
    /// Trains by number of segments: 1, 2, 3–4, 5–8, 9–16, 17–32, 33–64, more.
    pub train_depth: [Count; 8],
}

/// The counters of one worker at one port.
pub type PortCell = Counts<Counter>;

/// Counts frames dropped for a reason.
pub(crate) fn count_drop(cell: &PortCell, reason: DropReason, frames: usize) {
    if let Some(counter) = cell.drops.get(reason as usize) {
        counter.add(frames as u64);
    }
}

/// The counters of a port, summed over workers at one moment.
pub type PortCounters = Counts<u64>;

impl PortCounters {
    /// Adds what one worker counted.
    pub(crate) fn add(&mut self, cell: &PortCell) {
        fn each(sums: &mut [u64], counters: &[Counter]) {
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum += counter.get();
            }
        }
        self.ingress_frames += cell.ingress_frames.get();
        self.ingress_bytes += cell.ingress_bytes.get();
        self.unfinished_checksums += cell.unfinished_checksums.get();
        self.egress_frames += cell.egress_frames.get();
        self.egress_bytes += cell.egress_bytes.get();
        self.flooded_frames += cell.flooded_frames.get();
        self.mirrored_frames += cell.mirrored_frames.get();
        self.segmented_trains += cell.segmented_trains.get();
        self.segments += cell.segments.get();
        self.checksums += cell.checksums.get();
        self.path_mtu_messages += cell.path_mtu_messages.get();
        self.ingress_trains += cell.ingress_trains.get();
        self.ingress_train_segments += cell.ingress_train_segments.get();
        self.egress_trains += cell.egress_trains.get();
        self.egress_train_segments += cell.egress_train_segments.get();
        self.evicted_addresses += cell.evicted_addresses.get();
        self.returned_frames += cell.returned_frames.get();
        self.unwanted_frames += cell.unwanted_frames.get();
        self.coalesced_packets += cell.coalesced_packets.get();
        self.coalesced_bytes += cell.coalesced_bytes.get();
        self.coalescing_events += cell.coalescing_events.get();
        each(&mut self.drops, &cell.drops);
        each(&mut self.rsc_exceptions, &cell.rsc_exceptions);
        each(&mut self.train_depth, &cell.train_depth);
    }

    /// Adds what the kernel carried.
    pub(crate) fn add_carried(&mut self, carried: &Carried) {
        let Carried { ingress, egress } = carried;
        self.ingress_frames += ingress.frames;
        self.ingress_bytes += ingress.bytes;
        self.ingress_trains += ingress.trains;
        self.ingress_train_segments += ingress.train_segments;
        self.egress_frames += egress.frames;
        self.egress_bytes += egress.bytes;
        self.egress_trains += egress.trains;
        self.egress_train_segments += egress.train_segments;
        self.carried_ingress_frames += ingress.frames;
        self.carried_ingress_bytes += ingress.bytes;
        self.carried_egress_frames += egress.frames;
        self.carried_egress_bytes += egress.bytes;
    }

    /// Returns NDIS Aborts, `CoalescingExceptions` of `Get-NetAdapterStatistics`: every exception
    /// but the length limit. Segments out of order, header changes and pure ACKs end a train by the
    /// rules and are no aborts either.
    pub fn coalescing_exceptions(&self) -> u64 {
        use RscException as E;
        let abort =
            |reason: E| !matches!(reason, E::Length | E::OutOfOrder | E::HeaderChange | E::PureAck);
        E::ALL
            .iter()
            .zip(self.rsc_exceptions)
            .filter(|(reason, _)| abort(**reason))
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns the frames dropped, for all reasons.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}
