//! The mixing step of the keyed flow hashes.

/// Multiplies, and returns both halves of the product as one word: each bit of either factor
/// reaches all of it. Words that are only added or xored can be chosen to cancel out under every
/// seed.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the halves")]
pub(crate) fn mix(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}
