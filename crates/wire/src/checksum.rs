//! The Internet checksum (RFC 1071) as a value that can be added up piece by piece.

/// A ones-complement sum of 16-bit big-endian words, folded to 16 bits. Not yet inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sum(pub u16);
