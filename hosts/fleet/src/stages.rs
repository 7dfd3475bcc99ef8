//! Computes which hosts have a new revision after each step of its roll-out.

use crate::Name;
use crate::model::Share;

/// Returns the hosts that have the revision after each step: those of the step before and more.
/// After the last step all have it.
pub(crate) fn stages(hosts: &[Name], steps: &[Share]) -> Vec<Vec<Name>> {
    if hosts.is_empty() {
        return Vec::new();
    }
    let mut counts: Vec<usize> = steps.iter().map(|share| share.of(hosts.len())).collect();
    counts.push(hosts.len());
    let mut stages: Vec<Vec<Name>> = Vec::new();
    for count in counts {
        // A step that adds no host is left out.
        if count > stages.last().map_or(0, Vec::len) {
            stages.push(hosts.iter().take(count).cloned().collect());
        }
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(count: usize) -> Vec<Name> {
        (0..count).map(|number| format!("h{number:04}").parse().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn steps_grow_until_all_hosts_are_in_one(count in 0usize..200, steps in proptest::collection::vec(
            prop_oneof![(1u32..50).prop_map(Share::Hosts), (1u8..=100).prop_map(Share::Percent)], 0..5,
        )) {
            let hosts = hosts(count);
            let stages = stages(&hosts, &steps);
            prop_assert_eq!(stages.last().cloned().unwrap_or_default(), hosts);
            for pair in stages.windows(2) {
                prop_assert!(pair[0].len() < pair[1].len() && pair[1].starts_with(&pair[0]));
            }
        }
    }

    #[test]
    fn one_host_then_a_tenth_then_all() {
        let policy = crate::model::Policy::default();
        let counts =
            |all| stages(&hosts(all), &policy.steps).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!((counts(50), counts(5), counts(1)), (vec![1, 5, 50], vec![1, 5], vec![1]));
        assert!(counts(0).is_empty());
    }
}
