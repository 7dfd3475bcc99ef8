//! Reading and writing a header where it lies in a frame.
//!
//! Each header is a `#[repr(C)]` struct of bytes and big-endian fields, so a reference to it is a
//! checked cast and no copy. Callers hold the private copy of a frame's headers and the offsets of
//! [`crate::Parsed`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A header of fixed size that may stand at any offset: every type of bytes without padding or
/// alignment.
pub trait Header: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized {
    /// Bytes of the fixed part.
    #[allow(clippy::cast_possible_truncation, reason = "no header is 64 KiB long")]
    const LEN: u16 = size_of::<Self>() as u16;

    /// Returns the header at `offset` bytes from the start of `bytes`; `None` if they end before
    /// it does.
    #[inline]
    fn at(bytes: &[u8], offset: u16) -> Option<&Self> {
        let offset = usize::from(offset);
        Self::ref_from_bytes(bytes.get(offset..offset + size_of::<Self>())?).ok()
    }

    /// Returns the header at an offset, mutably; `None` if the bytes end before it does.
    #[inline]
    fn at_mut(bytes: &mut [u8], offset: u16) -> Option<&mut Self> {
        Some(Self::mut_from_prefix(bytes.get_mut(usize::from(offset)..)?).ok()?.0)
    }
}

impl<Bytes: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> Header for Bytes {}
