//! The order in which the arms run: A B B A A B B A …
//!
//! Reversing every other round cancels a drift that is the same for all arms (a machine that warms
//! up, a neighbour that slowly takes more of the CPU), which A B A B would credit to one of them.

/// Returns the round and arm of each run, of `arms` arms over `rounds` rounds: forward in even
/// rounds, backward in odd ones.
pub fn sequence(arms: usize, rounds: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..arms).map(move |place| {
            let arm = if round % 2 == 0 { place } else { arms - 1 - place };
            (round, arm)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_arms_run_abba() {
        let order: Vec<usize> = sequence(2, 4).map(|(_, arm)| arm).collect();
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
    }

    proptest! {
        #[test]
        fn each_round_has_each_arm_once(arms in 1..5usize, rounds in 0..9usize) {
            let all: Vec<_> = sequence(arms, rounds).collect();
            prop_assert_eq!(all.len(), arms * rounds);
            for round in all.chunks(arms) {
                let mut seen: Vec<usize> = round.iter().map(|(_, arm)| *arm).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..arms).collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_steady_drift_weighs_the_same_on_both_arms(rounds in 1..20usize) {
            let mut sums = [0usize; 2];
            for (time, (_, arm)) in sequence(2, 2 * rounds).enumerate() {
                sums[arm] += time;
            }
            prop_assert_eq!(sums[0], sums[1]);
        }
    }
}
