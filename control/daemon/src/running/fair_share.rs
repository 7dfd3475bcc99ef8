//! Fair shares of a limited number: each owner keeps as many as any other, unless it has fewer.

/// The most that each owner may keep so that all together keep at most `most`. At least 1, even
/// with more than `most` owners.
pub(super) fn fair_share(counts: impl IntoIterator<Item = usize>, most: usize) -> usize {
    let mut counts: Vec<usize> = counts.into_iter().collect();
    counts.sort_unstable();
    let (mut left, all) = (most, counts.len());
    for (place, count) in counts.into_iter().enumerate() {
        if count * (all - place) > left {
            return (left / (all - place)).max(1);
        }
        left -= count;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_large_ones_share_what_the_small_ones_leave() {
        assert_eq!(fair_share([3, 100, 100], 23), 10);
        assert_eq!(fair_share([100, 100, 100], 30), 10);
        assert_eq!(fair_share([100, 100, 100], 32), 10);
        assert_eq!(fair_share([0, 0, 7], 5), 5);
        assert_eq!(fair_share([1, 2, 3], 6), 6);
        assert_eq!(fair_share([9; 20], 6), 1);
        assert_eq!(fair_share([], 6), 6);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn nothing_is_kept_beyond_the_limit_and_nothing_is_left_that_all_could_keep(
            counts in proptest::collection::vec(0usize..200, 0..20),
            most in 1usize..1000,
        ) {
            let kept = |level: usize| counts.iter().map(|count| *count.min(&level)).sum::<usize>();
            let level = fair_share(counts.iter().copied(), most);
            prop_assert!(level >= 1 && (level == 1 || kept(level) <= most), "{}", level);
            let all = kept(usize::MAX);
            prop_assert!(kept(level) == all || kept(level + 1) > most, "{}", level);
        }
    }
}
