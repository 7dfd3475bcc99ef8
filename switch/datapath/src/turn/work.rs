//! Work: a turn's cost to its worker, in units of about a nanosecond on a core of 2.7 GHz. It is
//! counted, not timed, so that a turn's limits are the same in virtual time and on a busy host; for
//! the shares of a worker it is corrected by the turn's time.

use ports::{BurstLimit, Nanos, Outgoing};

/// The work that a port's queues at one worker get together each round.
pub(crate) const QUANTUM: i64 = 8192;

/// Work of a turn: clock, loan of the ring, publish.
const TURN: u64 = 100;
/// Work of a look at an empty queue: its lock, its index.
pub(crate) const OF_LOOK: u64 = 50;
/// Work of a list for one egress queue: its lock, its publish.
const LIST: u64 = 100;
/// Work of taking, parsing and deciding on a frame.
const FRAME_IN: u64 = 40;
/// Work of handing a frame to an egress queue.
const FRAME_OUT: u64 = 30;
/// Work of the coalescer for a frame.
const COALESCE: u64 = 30;
/// Work of taking or handing on a slice of payload; a guest chooses how many a frame has.
const SLICE: u64 = 4;
/// Bytes that are copied, or summed for a checksum, in one unit of work.
const BYTES: u64 = 16;
/// Work of guards and rules for a frame of a known flow, and the additional work for a flow that is
/// new in the burst.
pub(crate) const OF_FILTERING: u64 = 12;
pub(crate) const OF_FILTERING_ANEW: u64 = 50;
/// Work of learning an address, or failing to: the table's lock and two of its cache lines.
pub(crate) const OF_LEARNING: u64 = 150;
/// Work of a frame for a port that is left alone because it is down.
pub(crate) const OF_REST: u64 = 20;
/// Work of choosing a flooded frame's queue at a port with several: the flow's hash by that port's
/// tables.
pub(crate) const OF_STEERING: u64 = 60;
/// Work of asking a port whether a flooded frame is for it.
pub(crate) const OF_ASKING: u64 = 2;
/// Work of a segment made of a train: its header, and the checksum's fixed part.
pub(crate) const OF_SEGMENT: u64 = 40;
/// Additional work of each header that is written around a segment in a tunnel.
const LAYER: u64 = 5;
/// Bytes of a CRC in one unit of work.
const CRC_BYTES: u64 = 2;

/// Work of offering a frame to a capture: an allocation and a place in a queue.
const CAPTURE: u64 = 100;
/// Work of a segment that the kernel makes of a train.
const CUT: u64 = 300;
/// The segment size that every host takes without being asked: the default send MSS over IPv4 (RFC
/// 9293, 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// The work that bursts are sized for: about 65 µs. A full burst to one vNIC costs less.
pub(crate) const TURN_TARGET: u64 = 1 << 16;
/// The work limit of a turn, about 2 ms. A turn that has reached it floods no further frame and
/// segments no further train: those are dropped and counted as `work_limit`. So no turn costs more
/// than this and its most expensive frame. Only frames that cost many times what the queue's last
/// bursts did reach it.
pub(crate) const TURN_LIMIT: u64 = 32 * TURN_TARGET;

/// The factor by which the time of a turn may differ from its work, either way.
const TRUST: u64 = 4;

/// Returns what a turn is charged: the time it took, as far as its work bears that out.
///
/// Hosts differ in what a byte costs by more than their guests do, and a worker that another
/// process interrupted has not worked. A turn of up to [`TURN_TARGET`] is charged its time whatever
/// its work, since work leaves out costs that a guest controls: descriptors behind a frame's end,
/// tiny buffers in a receiver's ring, signals.
#[inline]
pub(crate) fn charged(work: u64, took: Nanos) -> u64 {
    took.0.clamp(work / TRUST, work.saturating_mul(TRUST).max(TURN_TARGET))
}

/// Returns the work of taking, parsing and deciding.
pub(crate) fn of_taking(frames: usize, slices: usize, kernel_ns: u32) -> u64 {
    TURN + frames as u64 * (FRAME_IN + u64::from(kernel_ns)) + slices as u64 * SLICE
}

/// Returns the work of delivering frames through one queue, their bytes copied.
pub(crate) fn of_delivering(frames: usize, slices: usize, bytes: u64, kernel_ns: u32) -> u64 {
    let each = FRAME_OUT + u64::from(kernel_ns);
    LIST + frames as u64 * each + slices as u64 * SLICE + bytes / BYTES
}

/// Returns the work of one frame to one port, not segmented.
pub(crate) fn of_copy(bytes: u32, kernel_ns: u32) -> u64 {
    FRAME_OUT + u64::from(kernel_ns) + u64::from(bytes) / BYTES
}

/// Returns the work of the coalescer for these frames.
pub(crate) fn of_coalescing(frames: usize) -> u64 {
    frames as u64 * COALESCE
}

/// Returns the work of copying a frame for a capture, and this many bytes of it.
pub(crate) fn of_capturing(bytes: usize) -> u64 {
    CAPTURE + bytes as u64 / BYTES
}

/// Returns the work of the kernel for a train that it has to segment within our call.
///
/// Many devices can segment it themselves. If the segments are as long as any path takes, their
/// bytes cost more than the cuts, so honest bulk traffic is charged nothing here.
pub(crate) fn of_cutting(frame: &Outgoing<'_>) -> u64 {
    match frame.vnet.gso_size.get() {
        0 | DEFAULT_MSS.. => 0,
        size => u64::from(frame.len.div_ceil(size.into())) * CUT,
    }
}

/// Returns the work of a checksum over this many bytes.
pub(crate) fn of_checksum(bytes: u32) -> u64 {
    u64::from(bytes) / BYTES
}

/// Returns the work of SCTP's checksum over this many bytes.
pub(crate) fn of_crc(bytes: u32) -> u64 {
    u64::from(bytes) / CRC_BYTES
}

/// Returns the work of a segment, in addition to [`OF_SEGMENT`], whose headers of so many bytes are
/// a tunnel's: they are copied, and each of the layers may have a checksum over those inside.
pub(crate) fn of_tunnel(headers: u16, layers: usize) -> u64 {
    let bytes = u64::from(headers) / BYTES;
    bytes + layers as u64 * (LAYER + bytes)
}

/// The work of one turn so far.
///
/// Filtering is charged but does not count toward [`TURN_LIMIT`]: the cost of a flood, which has
/// that limit, includes the rules of its receivers.
pub(crate) struct Meter {
    work: u64,
    filtering: u64,
    later: u64,
    sender: u64,
    receivers: u64,
}

impl Meter {
    /// Creates a meter that starts with the work of taking the burst.
    pub(crate) fn new(work: u64) -> Meter {
        Meter { work, filtering: 0, later: 0, sender: 0, receivers: 0 }
    }

    /// Adds work that counts toward the turn's limit.
    #[inline]
    pub(crate) fn add(&mut self, work: u64) {
        self.work += work;
    }

    /// Adds work of port guards and ACL rules, which does not count toward [`TURN_LIMIT`].
    #[inline]
    pub(crate) fn add_filtering(&mut self, work: u64) {
        self.filtering += work;
    }

    /// Adds work that the turn leaves to a later one, and that its sender is charged for all the same.
    pub(crate) fn add_later(&mut self, work: u64) {
        self.later += work;
    }

    /// Returns that work.
    pub(crate) fn later(&self) -> u64 {
        self.later
    }

    /// Adds CPU time of a slow delivery that the sender pays, see [`slow`](crate::turn::slow).
    pub(crate) fn add_sender(&mut self, time: u64) {
        self.sender += time;
    }

    /// Returns that time.
    pub(crate) fn sender(&self) -> u64 {
        self.sender
    }

    /// Adds CPU time of a slow delivery that a receiver pays.
    pub(crate) fn add_receivers(&mut self, time: u64) {
        self.receivers += time;
    }

    /// Returns that time.
    pub(crate) fn receivers(&self) -> u64 {
        self.receivers
    }

    /// Returns whether the turn would have reached [`TURN_LIMIT`] with this much more work.
    pub(crate) fn would_reach_limit(&self, more: u64) -> bool {
        self.work + more >= TURN_LIMIT
    }

    /// Returns the turn's work.
    pub(crate) fn total(&self) -> u64 {
        self.work + self.filtering
    }
}

/// The estimated cost of a queue's frames, from its last bursts, in sixteenths: 16 is the work of
/// passing the same frames on unchanged to one vNIC. Floods, segmentation and system calls raise
/// it. It rises at once and falls slowly.
#[derive(Clone, Copy)]
pub(crate) struct CostEstimate(u64);

impl Default for CostEstimate {
    fn default() -> CostEstimate {
        CostEstimate(CostEstimate::PLAIN)
    }
}

impl CostEstimate {
    const PLAIN: u64 = 16;

    /// Returns the burst limit for a turn of about [`TURN_TARGET`]; it is one frame at least.
    #[allow(clippy::cast_possible_truncation, reason = "at most 16 times the target")]
    pub(crate) fn limit(self) -> BurstLimit {
        let plain = TURN_TARGET * CostEstimate::PLAIN / self.0;
        let frames = (plain / (FRAME_IN + FRAME_OUT)).max(1) as usize;
        let bytes = (plain * BYTES).max(1) as usize;
        let full = BurstLimit::default();
        BurstLimit { frames: full.frames.min(frames), bytes: full.bytes.min(bytes) }
    }

    /// Updates the estimate with a burst and the work that it took.
    pub(crate) fn note(&mut self, frames: usize, bytes: usize, work: u64) {
        // The work of passing frames of one slice on to one vNIC.
        let plain = frames as u64 * (FRAME_IN + FRAME_OUT) + bytes as u64 / BYTES;
        let seen = (work * CostEstimate::PLAIN / plain.max(1)).max(CostEstimate::PLAIN);
        self.0 = seen.max(self.0 - (self.0 - seen.min(self.0)) / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::Burst;

    #[test]
    fn a_full_burst_to_one_vnic_is_not_cut() {
        let full = BurstLimit { frames: Burst::FRAMES, bytes: Burst::BYTES };
        let mut cost = CostEstimate::default();
        for len in [60, 1514, 9014, 65_549] {
            let frames = (Burst::BYTES / len).min(Burst::FRAMES);
            let bytes = frames * len;
            let work = of_taking(frames, frames, 0)
                + of_delivering(frames, frames, bytes as u64, 0)
                + of_coalescing(frames);
            assert!(work <= TURN_TARGET, "{len} bytes: {work}");
            cost.note(frames, bytes, work);
            assert_eq!(cost.limit(), full, "after frames of {len} bytes");
        }
    }

    #[test]
    fn a_turn_is_charged_its_time_unless_it_was_interrupted() {
        let (work, trusted) = (TURN_TARGET, 4 * TURN_TARGET);
        let times = [work / 3, work, 3 * work];
        assert_eq!(times.map(|took| charged(work, Nanos(took))), times);
        assert_eq!(charged(work, Nanos(20_000_000)), trusted, "its core was another's");
        assert_eq!(charged(work, Nanos(0)), work / 4, "the clock stood still");
        assert_eq!(charged(320, Nanos(50_000)), 50_000, "ten thousand elements, hardly a frame");
        assert_eq!(charged(320, Nanos(20_000_000)), TURN_TARGET);
    }

    #[test]
    fn a_train_pays_for_its_cuts_only_where_they_outweigh_its_bytes() {
        let cutting = |size, len| {
            let mut vnet = wire::vnet::VnetHeader::default();
            vnet.gso_size.set(size);
            of_cutting(&Outgoing { vnet, header: &[], payload: &[], len })
        };
        assert_eq!(
            [(0, 1514), (536, 65_000), (1448, 65_226)].map(|(size, len)| cutting(size, len)),
            [0; 3]
        );
        assert_eq!(cutting(48, 65_520), 1365 * CUT);
        assert_eq!(cutting(1, 128), 128 * CUT);
    }

    #[test]
    fn dear_frames_come_in_short_bursts_and_cheap_ones_in_long_ones_again() {
        let mut cost = CostEstimate::default();
        // 256 frames, each a system call of 5 us.
        cost.note(256, 256 * 60, of_taking(256, 256, 0) + of_delivering(256, 256, 256 * 60, 5000));
        let short = cost.limit().frames;
        assert!((8..32).contains(&short), "{short}");
        let turns = (0..).take_while(|_| {
            cost.note(short, short * 60, of_taking(short, short, 0));
            cost.limit().frames < Burst::FRAMES
        });
        assert!((4..32).contains(&turns.count()));
        cost.note(1, 60, u64::MAX >> 8);
        assert_eq!(cost.limit(), BurstLimit { frames: 1, bytes: 1 });
    }
}
