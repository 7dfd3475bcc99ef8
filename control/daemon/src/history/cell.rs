//! Counts in 16 bits: exact below 4,096, above that rounded to one part in 4,096.
//!
//! Five bits of exponent and eleven of mantissa, as in a floating-point number without a sign. The
//! largest count is that of 560 Gbit/s for a minute; a larger one is kept as that. The code with all
//! bits set means that nothing is known.

/// Bits of the mantissa.
const MANTISSA: u32 = 11;
/// The mantissa's range, which is the first bit of each count that is not small.
const UNIT: u64 = 1 << MANTISSA;
/// The code of what is not known.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// Returns the code of a count.
pub(super) fn encode(count: u64) -> u16 {
    if count < UNIT {
        return u16::try_from(count).unwrap_or(UNKNOWN - 1);
    }
    let shift = count.ilog2() - MANTISSA;
    let half = (1 << shift) >> 1;
    // A mantissa that is rounded up to the next power of two carries into the exponent.
    let mantissa = (count.saturating_add(half) >> shift) - UNIT;
    let code = (u64::from(shift) + 1) * UNIT + mantissa;
    u16::try_from(code).unwrap_or(UNKNOWN).min(UNKNOWN - 1)
}

/// Returns the count of a code.
pub(super) fn decode(code: u16) -> u64 {
    let (exponent, mantissa) = (code >> MANTISSA, u64::from(code) % UNIT);
    if exponent == 0 { mantissa } else { (UNIT + mantissa) << (exponent - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_count_returns_within_one_part_in_4096(count in 0_u64..1 << 41) {
            let again = decode(encode(count));
            prop_assert!(again.abs_diff(count) * 4096 <= count, "{again}");
        }

        #[test]
        fn more_is_never_kept_as_less(one: u64, other: u64) {
            let (one, other) = (one.min(other), one.max(other));
            prop_assert!(encode(one) <= encode(other) && encode(other) < UNKNOWN);
        }
    }

    #[test]
    fn small_counts_are_exact() {
        assert!((0..4096).all(|count| decode(encode(count)) == count));
    }
}
