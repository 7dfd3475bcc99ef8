//! Drop rates of a step's hosts, from the counters of two statuses that a host wrote with the
//! revision in force.

use crate::Name;
use crate::store::Status;
use std::collections::BTreeMap;

/// The drop rates of all hosts.
#[derive(Default)]
pub(super) struct Drops {
    hosts: BTreeMap<Name, Rates>,
}

/// The last status of a host, and its rates between that and the one before.
struct Rates {
    at: u64,
    drops: BTreeMap<String, u64>,
    /// Frames a second, by reason.
    rates: BTreeMap<String, u64>,
}

impl Drops {
    /// Takes a host's status into account.
    pub(super) fn note(&mut self, host: &Name, status: &Status) {
        let mut rates = BTreeMap::new();
        if let Some(last) = self.hosts.get(host) {
            // A host's clock may be set back. Then this status is skipped, and the next one counts.
            let seconds = status.at.saturating_sub(last.at);
            if status.at == last.at {
                return;
            }
            // Counters of a switch that has started again begin at 0.
            let rate = |(reason, now): (&String, &u64)| {
                let more = now.saturating_sub(last.drops.get(reason).copied().unwrap_or_default());
                (reason.clone(), more.checked_div(seconds).unwrap_or_default())
            };
            rates = status.drops.iter().map(rate).collect();
        }
        let (at, drops) = (status.at, status.drops.clone());
        self.hosts.insert(host.clone(), Rates { at, drops, rates });
    }

    /// Returns the rates of a host that are above these limits, as text.
    pub(super) fn above(&self, host: &Name, limits: &BTreeMap<String, u64>) -> Vec<String> {
        let rates = self.hosts.get(host).map(|it| &it.rates);
        let of = |(reason, limit): (&String, &u64)| {
            let rate = *rates?.get(reason)?;
            (rate > *limit)
                .then(|| format!("{rate} frames a second dropped as {reason}, {limit} permitted"))
        };
        limits.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_growth_between_a_hosts_last_two_statuses() {
        let (host, other) = ("a".parse().unwrap(), "b".parse().unwrap());
        let limits = BTreeMap::from([("storm".to_owned(), 10), ("too_big".to_owned(), 0)]);
        let mut drops = Drops::default();
        let mut note = |at, storm, too_big| {
            let counts = [("storm", storm), ("too_big", too_big), ("runt", 1000 * at)];
            let counts = counts.map(|(reason, count)| (reason.to_owned(), count)).into();
            drops.note(&host, &Status { at, drops: counts, ..Status::default() });
            drops.above(&host, &limits)
        };
        let none: [String; 0] = [];
        assert_eq!(note(100, 5000, 7), none, "one status is no rate");
        assert_eq!(note(102, 5020, 7), none, "10 a second");
        let storm = ["15 frames a second dropped as storm, 10 permitted"];
        assert_eq!(note(104, 5050, 7), storm);
        assert_eq!(note(104, 9000, 9), storm, "the same second");
        assert_eq!(note(105, 20, 0), none, "the switch has started again");
        assert_eq!(note(107, 20, 3), ["1 frames a second dropped as too_big, 0 permitted"]);
        assert_eq!(note(90, 9000, 9), none, "the clock was set back");
        assert_eq!(drops.above(&other, &limits), none);
    }
}
