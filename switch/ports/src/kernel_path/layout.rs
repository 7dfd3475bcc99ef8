//! The memory that the programs and this process share: the key of a flow, a flow, and the words
//! that control all.

/// The key of a flow, in the order of a frame's bytes but for the interface and the addresses,
/// which are aligned.
pub(super) mod key {
    /// The kernel's number of the interface that receives the flow.
    pub(in super::super) const INTERFACE: i16 = 0;
    /// IP's protocol number.
    pub(in super::super) const PROTOCOL: i16 = 4;
    /// 4 or 6.
    pub(in super::super) const FAMILY: i16 = 5;
    /// Destination and source address of Ethernet.
    pub(in super::super) const STATIONS: i16 = 8;
    /// Source and destination port.
    pub(in super::super) const PORTS: i16 = 20;
    /// Source address of IP; an IPv4 address is followed by zeros.
    pub(in super::super) const SOURCE: i16 = 24;
    /// Destination address of IP.
    pub(in super::super) const DESTINATION: i16 = 40;
    /// Bytes of all.
    pub(in super::super) const SIZE: usize = 56;
}

/// Offsets in a flow.
pub(super) struct Flow;

impl Flow {
    /// [`Flow::OFF`], [`Flow::ON`], or else the flow is pending: the time when the judge last left a
    /// frame of it to the switch.
    pub(super) const STATE: i16 = 0;
    /// Ports by number.
    pub(super) const FROM: i16 = 8;
    pub(super) const TO: i16 = 12;
    /// Their generations when the flow was decided.
    pub(super) const FROM_GENERATION: i16 = 16;
    pub(super) const TO_GENERATION: i16 = 20;
    /// The interface that frames are redirected to, and how.
    pub(super) const INTERFACE: i16 = 24;
    pub(super) const WAY: i16 = 28;
    /// Bytes of the longest frame, or segment with its headers.
    pub(super) const LONGEST: i16 = 32;
    /// Counts of what was carried: frames as they came and their bytes; among them trains, and the
    /// segments of these.
    pub(super) const FRAMES: i16 = 40;
    pub(super) const BYTES: i16 = 48;
    pub(super) const TRAINS: i16 = 56;
    /// When the last frame was carried.
    pub(super) const SEEN: i16 = 64;
    pub(super) const TRAIN_SEGMENTS: i16 = 72;
    /// The offsets of all that is counted.
    pub(super) const COUNTS: [i16; 5] =
        [Flow::FRAMES, Flow::BYTES, Flow::TRAINS, Flow::TRAIN_SEGMENTS, Flow::SEEN];
    /// Bytes of all: two cache lines.
    pub(super) const SIZE: usize = 128;

    pub(super) const OFF: u64 = 0;
    pub(super) const ON: u64 = 1;

    /// [`Flow::WAY`]: out of the interface.
    pub(super) const OUT: u32 = 0;
    /// [`Flow::WAY`]: into the other end of the pair, in another namespace.
    pub(super) const TO_PEER: u32 = 1;
}

/// Offsets of the words that control all flows.
pub(super) mod control {
    /// The time up to which flows are carried.
    pub(in super::super) const LEASE: i16 = 0;
    /// Frames that the judge hid and the carrier did not take.
    pub(in super::super) const UNMATCHED: i16 = 8;
    /// Bytes of all.
    pub(in super::super) const SIZE: usize = 16;
}
