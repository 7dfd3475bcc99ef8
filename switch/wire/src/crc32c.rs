//! CRC-32C (RFC 9260, appendix A), the checksum of SCTP, as a value that grows piece by piece.
//!
//! Only checksums that a sender left unfinished are computed, so tables are enough.

/// What a byte contributes once it was shifted out, and as many bytes more as the table's number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "a byte is below 256, in a constant that the compiler has evaluated"
)]
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut register, mut bit) = (byte as u32, 0);
        while bit < 8 {
            register = register >> 1 ^ if register & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// A checksum under way.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c(u32::MAX)
    }
}

impl Crc32c {
    /// Adds the next bytes.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Crc32c {
        let [zero, one, two, three, four, five, six, seven] = &TABLES;
        let of = |table: &[u32; 256], byte: u8| table[usize::from(byte)];
        let (words, rest) = bytes.as_chunks::<8>();
        let eight = words.iter().fold(self.0, |register, word| {
            let [a, b, c, d, e, f, g, h] = *word;
            let [i, j, k, l] = register.to_le_bytes();
            of(seven, a ^ i)
                ^ of(six, b ^ j)
                ^ of(five, c ^ k)
                ^ of(four, d ^ l)
                ^ of(three, e)
                ^ of(two, f)
                ^ of(one, g)
                ^ of(zero, h)
        });
        let shift = |register: u32, byte: &u8| {
            let [low, ..] = register.to_le_bytes();
            of(zero, low ^ byte) ^ register >> 8
        };
        Crc32c(rest.iter().fold(eight, shift))
    }

    /// Returns the four bytes to write into an SCTP header.
    pub fn finish(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The test vectors of RFC 3720, B.4, in the order of the bytes on the wire.
    #[test]
    fn known_values() {
        let up: Vec<u8> = (0..32).collect();
        for (bytes, crc) in [
            (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&up, [0x4e, 0x79, 0xdd, 0x46]),
        ] {
            assert_eq!(Crc32c::default().with(bytes).finish(), crc);
        }
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            let pieces = Crc32c::default().with(first).with(second);
            prop_assert_eq!(pieces.finish(), Crc32c::default().with(&bytes).finish());
        }
    }
}
