//! The payload, and the check that every byte arrived as it left.
//!
//! Without `--verify` a buffer is full of one letter and nothing is checked. With it, each
//! connection (or datagram) begins with a number of 8 bytes. A pattern follows: a fixed block of
//! pseudo-random bytes, repeated for ever and entered at a place that the number gives. The block's
//! length is a prime, so no buffer or segment size divides it: a byte that is lost, doubled,
//! swapped with another connection's or changed does not fit.

/// Length of the block in bytes.
const PERIOD: usize = 65_521;
/// Length of the number in front, in bytes.
pub(crate) const HEADER: usize = 8;
const SEED: u64 = 0x4d69_6c6c_7261_6365;

/// The block, repeated far enough that a whole buffer can be cut out anywhere.
#[derive(Debug)]
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// Makes a pattern from which buffers of up to `longest` bytes can be cut.
    pub(crate) fn new(longest: usize) -> Pattern {
        let mut state = SEED;
        let mut bytes: Vec<u8> = (0..PERIOD).map(|_| next(&mut state)).collect();
        let repeat = longest.div_ceil(PERIOD).max(1);
        let block = bytes.clone();
        for _ in 0..repeat {
            bytes.extend_from_slice(&block);
        }
        Pattern { bytes }
    }

    /// Returns up to `length` bytes of the stream `number` at `offset` behind its header.
    pub(crate) fn at(&self, number: u64, offset: u64, length: usize) -> &[u8] {
        let start = place(number, offset);
        let end = (start + length).min(self.bytes.len());
        self.bytes.get(start..end).unwrap_or_default()
    }
}

/// Returns the place in the block of a byte of a stream.
#[allow(clippy::cast_possible_truncation, reason = "a remainder of PERIOD fits")]
fn place(number: u64, offset: u64) -> usize {
    let period = PERIOD as u64;
    (((number % period) * 7919 + offset % period) % period) as usize
}

/// Returns the next byte of a xorshift64* generator.
fn next(state: &mut u64) -> u8 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let [high, ..] = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes();
    high
}

/// Checks one connection's bytes, in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    header: [u8; HEADER],
    seen: u64,
}

/// The first byte that differs from what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Offset in the connection's stream, or in its datagram, header included.
    pub(crate) offset: u64,
    pub(crate) sent: u8,
    pub(crate) received: u8,
}

impl Checker {
    /// Checks the next bytes.
    ///
    /// # Errors
    /// [`Mismatch`] at the first byte that differs from the pattern.
    pub(crate) fn check(&mut self, pattern: &Pattern, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut rest = bytes;
        while let Some((first, more)) = rest.split_first() {
            let Some(slot) = usize::try_from(self.seen).ok().and_then(|at| self.header.get_mut(at))
            else {
                break;
            };
            *slot = *first;
            self.seen += 1;
            rest = more;
        }
        let number = u64::from_be_bytes(self.header);
        while !rest.is_empty() {
            let wanted = pattern.at(number, self.seen - HEADER as u64, rest.len());
            let (piece, more) = rest.split_at(wanted.len().min(rest.len()));
            if piece != wanted {
                return Err(self.find(wanted, piece));
            }
            self.seen += piece.len() as u64;
            rest = more;
        }
        Ok(())
    }

    fn find(&self, wanted: &[u8], piece: &[u8]) -> Mismatch {
        let pairs = wanted.iter().zip(piece).zip(self.seen..);
        let differing = pairs.into_iter().find(|((sent, received), _)| sent != received);
        let ((sent, received), offset) = differing.unwrap_or(((&0, &0), self.seen));
        Mismatch { offset, sent: *sent, received: *received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(pattern: &Pattern, number: u64, length: usize) -> Vec<u8> {
        let mut bytes = number.to_be_bytes().to_vec();
        while bytes.len() < length {
            let left = length - bytes.len();
            bytes.extend_from_slice(pattern.at(
                number,
                (bytes.len() - HEADER) as u64,
                left.min(1000),
            ));
        }
        bytes
    }

    fn check(pattern: &Pattern, bytes: &[u8], cut: usize) -> Result<(), Mismatch> {
        let mut checker = Checker::default();
        bytes.chunks(cut).try_for_each(|piece| checker.check(pattern, piece))
    }

    proptest! {
        #[test]
        fn a_stream_fits_however_it_is_cut_and_no_changed_byte_does(
            number: u64, length in 9usize..200_000, cut in 1usize..70_000, at: prop::sample::Index, flip in 1u8..=255,
        ) {
            let pattern = Pattern::new(65_536);
            let mut bytes = stream(&pattern, number, length);
            prop_assert_eq!(check(&pattern, &bytes, cut), Ok(()));
            let place = HEADER + at.index(length - HEADER);
            bytes[place] ^= flip;
            let found = check(&pattern, &bytes, cut).unwrap_err();
            prop_assert_eq!(found.offset, place as u64);
        }

        #[test]
        fn a_lost_stretch_is_noticed(number: u64, at in 8usize..50_000, lost in 1usize..60_000) {
            let pattern = Pattern::new(65_536);
            let mut bytes = stream(&pattern, number, 150_000);
            bytes.drain(at..at + lost);
            prop_assert!(check(&pattern, &bytes, 4096).is_err());
        }
    }
}
