//! A descriptor, copied out of guest memory. Split (virtio 1.2, section 2.7.5) and packed (2.8.13)
//! have the same fields, two of them in another order.

use guestmem::Gpa;

/// The chain goes on.
pub(crate) const NEXT: u16 = 1;
/// Flag: the buffer is for the device to write.
pub(crate) const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub(crate) const INDIRECT: u16 = 4;
/// Flags that say how a descriptor is to be read.
pub(crate) const KIND: u16 = NEXT | WRITE | INDIRECT;
/// Packed: the driver's wrap counter when it was made available.
pub(crate) const AVAIL: u16 = 1 << 7;
/// Packed: the wrap counter's opposite when made available, its value when used.
pub(crate) const USED: u16 = 1 << 15;

/// Bytes of a descriptor.
pub(crate) const BYTES: usize = 16;

/// A private copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) gpa: Gpa,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    /// Split: the next descriptor. Packed: the buffer's id.
    pub(crate) tag: u16,
}

impl Descriptor {
    /// Decodes an entry of an indirect table of either format: address, length, flags and next; or
    /// address, length, id and flags.
    pub(crate) fn from_table(bytes: &[u8; BYTES], flags_last: bool) -> Descriptor {
        let word = u128::from_le_bytes(*bytes);
        #[allow(clippy::cast_possible_truncation, reason = "fields are cut out of a word")]
        let (gpa, len, first, last) =
            (Gpa(word as u64), (word >> 64) as u32, (word >> 96) as u16, (word >> 112) as u16);
        let (flags, tag) = if flags_last { (last, first) } else { (first, last) };
        Descriptor { gpa, len, flags, tag }
    }
}
