//! A burst: the frames taken at once from one ingress queue.

use crate::{Nanos, Slice, Speaker, TimeLimit, recycle};
use virtqueue::ELEMENT_WEIGHT;
use wire::vnet::VnetHeader;

/// A VLAN tag that the port took out of the frame (AF_PACKET does) and that the switch has to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, DEI and id.
    pub tci: u16,
}

/// A frame as the port has it: not parsed, not trusted.
#[derive(Clone, Debug)]
pub struct RawFrame {
    /// What the source states about checksum and segmentation.
    pub vnet: VnetHeader,
    /// A tag that travels beside the frame.
    pub vlan: Option<VlanTag>,
    /// Bytes of the frame, without the tag beside it.
    pub len: u32,
    /// Its slices in the burst's list: index of the first, and their number.
    first: u32,
    count: u32,
}

/// Up to 256 frames or about 512 KiB, whichever comes first: with more, the first frames would
/// leave the cache again before they are delivered.
#[derive(Default)]
pub struct Burst<'q> {
    frames: Vec<RawFrame>,
    slices: Vec<Slice<'q>>,
    bytes: usize,
    /// The limit until the burst is recycled.
    limit: BurstLimit,
    /// The writer of the virtio-net headers.
    speaker: Speaker,
    /// See [`Burst::waited`].
    waited: Option<Nanos>,
    /// See [`Burst::limit_time`].
    time: TimeLimit,
    /// See [`Burst::refuse`].
    refused: usize,
    refused_pieces: usize,
}

/// Frames and bytes after which a burst is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLimit {
    /// Frames.
    pub frames: usize,
    /// Bytes; the frame that reaches the limit is the last.
    pub bytes: usize,
}

impl BurstLimit {
    /// Returns the smaller number of frames and the smaller number of bytes.
    pub fn min(self, other: BurstLimit) -> BurstLimit {
        BurstLimit { frames: self.frames.min(other.frames), bytes: self.bytes.min(other.bytes) }
    }
}

impl Default for BurstLimit {
    /// Returns the most that a burst can hold.
    fn default() -> BurstLimit {
        BurstLimit { frames: Burst::FRAMES, bytes: Burst::BYTES }
    }
}

impl<'q> Burst<'q> {
    /// Frames in a full burst.
    pub const FRAMES: usize = 256;
    /// Bytes after which a burst is full.
    pub const BYTES: usize = 512 * 1024;
    /// Most bytes of one frame: virtio header, Ethernet header with tags, and an IP packet of 64
    /// KiB, rounded up.
    pub const LARGEST_FRAME: usize = 66 * 1024;
    /// Bytes of a buffer that receives a burst: the frame that fills the burst may be the largest.
    /// Pages that are never written take no memory.
    pub const BUFFER: usize = Self::BYTES + Self::LARGEST_FRAME;
    /// Most bytes of a train that the kernel hands over on a packet socket: eight times the largest
    /// IP packet (`GSO_MAX_SIZE`, "BIG TCP"), and room for headers.
    pub const LARGEST_TRAIN: usize = 8 * 65_535 + 1024;

    /// Returns an empty burst with capacity for a full one.
    pub fn new() -> Burst<'q> {
        Burst {
            frames: Vec::with_capacity(Self::FRAMES),
            slices: Vec::with_capacity(4 * Self::FRAMES),
            bytes: 0,
            limit: BurstLimit::default(),
            speaker: Speaker::Guest,
            waited: None,
            time: TimeLimit::NONE,
            refused: 0,
            refused_pieces: 0,
        }
    }

    /// Limits the time of taking. What is not taken by then waits.
    pub fn limit_time(&mut self, time: TimeLimit) {
        self.time = time;
    }

    /// Returns the limit of the time of taking.
    #[inline]
    pub fn time(&self) -> &TimeLimit {
        &self.time
    }

    /// Counts page faults from now on, if they are limited.
    #[inline]
    pub(crate) fn start_counting(&mut self) {
        self.time.start_counting();
    }

    /// Returns the limit of the time of taking its frames, and as many bytes of another.
    #[inline]
    pub(crate) fn time_with(&self, next: usize) -> TimeLimit {
        let frames = self.taken() + usize::from(next > 0);
        self.time.for_pages(frames, self.bytes + next, 0)
    }

    /// Returns whether there were more page faults than its frames explain.
    pub fn has_faulted(&self) -> bool {
        self.time_with(0).has_faulted()
    }

    /// Counts a frame that was taken and is not in the burst: it has too many pieces for its bytes,
    /// or they took too long to find.
    /// Its pieces have been found, and fill the burst.
    pub fn refuse(&mut self, pieces: usize) {
        self.refused += 1;
        self.refused_pieces += pieces;
    }

    /// Returns the pieces of the frames that were refused: what finding and refusing them has cost.
    #[inline]
    pub fn refused_pieces(&self) -> usize {
        self.refused_pieces
    }

    /// Returns how many frames were refused.
    #[inline]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Returns how many frames were taken, the refused ones included.
    #[inline]
    pub fn taken(&self) -> usize {
        self.frames.len() + self.refused
    }

    /// Notes who writes the virtio-net headers of its frames.
    pub fn set_speaker(&mut self, speaker: Speaker) {
        self.speaker = speaker;
    }

    /// Returns who writes the virtio-net headers of its frames.
    #[inline]
    pub fn speaker(&self) -> Speaker {
        self.speaker
    }

    /// Notes how long its first frame waited.
    pub fn set_waited(&mut self, waited: Option<Nanos>) {
        self.waited = waited;
    }

    /// Returns how long its first frame in the queue's order waited for the switch, which is longer
    /// than the others did. `None` if the port does not know.
    #[inline]
    pub fn waited(&self) -> Option<Nanos> {
        self.waited
    }

    /// Limits the burst until it is recycled.
    pub fn limit(&mut self, limit: BurstLimit) {
        self.limit = limit;
    }

    /// Lowers the limit of bytes until the burst is recycled.
    pub(crate) fn limit_bytes(&mut self, most: usize) {
        self.limit.bytes = self.limit.bytes.min(most);
    }

    /// Whether no more frames should be pushed.
    pub fn is_full(&self) -> bool {
        self.frames.len() >= self.limit.frames || self.bytes >= self.limit.bytes
    }

    /// Returns how many frames still fit.
    pub fn room(&self) -> usize {
        if self.bytes + self.refused_pieces * ELEMENT_WEIGHT >= self.limit.bytes {
            0
        } else {
            self.limit.frames.saturating_sub(self.taken())
        }
    }

    /// Returns how many bytes still fit.
    pub fn room_bytes(&self) -> usize {
        self.limit.bytes.saturating_sub(self.bytes)
    }

    /// Returns the bytes of its frames, without tags beside them.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of slices of all its frames.
    #[inline]
    pub fn slice_count(&self) -> usize {
        self.slices.len()
    }

    /// Adds a frame; its bytes are the slices in order.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a burst holds far less than 4 GiB and 4 G slices"
    )]
    #[inline]
    pub fn push(&mut self, vnet: VnetHeader, vlan: Option<VlanTag>, slices: &[Slice<'q>]) {
        let start = self.slices.len() as u32;
        let len: usize = slices.iter().map(Slice::len).sum();
        // Most frames are one slice; an inlined caller knows which it is.
        match slices {
            [slice] => self.slices.push(*slice),
            _ => self.slices.extend_from_slice(slices),
        }
        let (len, count) = (len as u32, slices.len() as u32);
        self.frames.push(RawFrame { vnet, vlan, len, first: start, count });
        self.bytes += len as usize;
    }

    /// Adds untagged frames of one slice each, with fewer checks than [`Burst::push`].
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "as above")]
    pub fn extend(&mut self, frames: impl Iterator<Item = (VnetHeader, Slice<'q>)> + Clone) {
        let mut place = self.slices.len() as u32;
        self.slices.extend(frames.clone().map(|(_, slice)| slice));
        self.frames.extend(frames.map(|(vnet, slice)| {
            let first = place;
            place += 1;
            self.bytes += slice.len();
            RawFrame { vnet, vlan: None, len: slice.len() as u32, first, count: 1 }
        }));
    }

    /// Keeps the frames for which `keeps`, called with each frame and its slices, returns `true`.
    /// The others leave the burst; their buffers are released with the rest.
    pub fn retain(&mut self, mut keeps: impl FnMut(&RawFrame, &[Slice<'q>]) -> bool) {
        let Burst { frames, slices, bytes, .. } = self;
        frames.retain(|frame| {
            let first = frame.first as usize;
            let of_frame = slices.get(first..first + frame.count as usize).unwrap_or_default();
            let kept = keeps(frame, of_frame);
            *bytes -= if kept { 0 } else { frame.len as usize };
            kept
        });
    }

    /// Returns the frames in order of arrival.
    #[inline]
    pub fn frames(&self) -> &[RawFrame] {
        &self.frames
    }

    /// Returns the bytes of one of its frames.
    #[inline]
    pub fn slices(&self, frame: &RawFrame) -> &[Slice<'q>] {
        let first = frame.first as usize;
        self.slices.get(first..first + frame.count as usize).unwrap_or_default()
    }

    /// Ends the loan and keeps the capacity for the next burst.
    pub fn recycle<'next>(mut self) -> Burst<'next> {
        self.frames.clear();
        Burst {
            frames: self.frames,
            slices: recycle(self.slices),
            bytes: 0,
            limit: BurstLimit::default(),
            speaker: Speaker::Guest,
            waited: None,
            time: TimeLimit::NONE,
            refused: 0,
            refused_pieces: 0,
        }
    }
}
