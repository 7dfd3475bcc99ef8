//! The memory that a turn may ask for, by its limit of work (docs/sharing.md, "Work").

/// Segments of the dearest turn: 70 units each until the limit is reached, then one train more of
/// 64 KiB in segments of 48.
const SEGMENTS: u64 = (32 << 16) / 70 + (64 << 10) / 48;

/// Returns the size of the largest allocation, for headers of a number of bytes: all of a turn lie
/// in one buffer, which doubles.
pub(crate) const fn most_in_one_allocation(header: u64) -> u64 {
    (SEGMENTS * header).next_power_of_two()
}

/// Returns the size of all allocations: the buffer on its way there, and lists of the segments and
/// their pieces.
pub(crate) const fn most_allocated(header: u64) -> u64 {
    4 * most_in_one_allocation(header)
}
