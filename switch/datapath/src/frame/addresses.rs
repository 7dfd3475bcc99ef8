//! The two MAC addresses of a frame, read in two words.

/// The first twelve bytes of a frame as two words that overlap by four bytes, so that a comparison
/// takes two steps.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Addresses(pub(crate) u64, pub(crate) u64);

impl Addresses {
    #[inline]
    pub(crate) fn read(header: &[u8]) -> Option<Addresses> {
        let both: &[u8; 12] = header.first_chunk()?;
        let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        Some(Addresses(both.first_chunk().map(word)?, both.last_chunk().map(word)?))
    }

    /// Returns the destination as [`wire::Mac::to_u64`] does.
    #[inline]
    pub(crate) fn destination(self) -> u64 {
        u64::from_be(self.0) >> 16
    }

    /// Returns the source as [`wire::Mac::to_u64`] does.
    #[inline]
    pub(crate) fn source(self) -> u64 {
        u64::from_be(self.1) << 16 >> 16
    }
}
