//! The gate after each step of a roll-out. It decides from the agents' statuses whether the next
//! step may follow.
//!
//! The time is passed as an argument. Findings that a host had before the roll-out do not count.

mod drops;

use crate::Name;
use crate::model::Policy;
use crate::shortened::shortened;
use crate::store::HostRecord;
use drops::Drops;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Findings by kind and error.
type Findings = BTreeSet<(String, String)>;

/// The result of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It cannot be decided yet; with what it waits for.
    Wait(String),
    /// The step's hosts are well: the next step may follow.
    Pass,
    /// They are not well: the roll-out stops, with the reason.
    Stop(String),
}

/// The gate of one step.
pub(crate) struct Gate<'a> {
    hosts: &'a [Name],
    revision: u64,
    policy: &'a Policy,
    /// The findings that each host had before the roll-out.
    before: &'a BTreeMap<Name, Findings>,
    began: Instant,
    /// Whether the hosts are well (true) or have new findings (false), and since when without
    /// interruption.
    state: Option<(bool, Instant)>,
    /// etcd's revision of each host's status when the hosts were found well. They pass once each
    /// has written a newer one.
    heard: BTreeMap<Name, i64>,
    drops: Drops,
}

/// Returns the findings that each host has now, which are not counted later.
pub(crate) fn findings(records: &[HostRecord], policy: &Policy) -> BTreeMap<Name, Findings> {
    let of = |record: &HostRecord| {
        let found = record.status.as_ref().map(|status| status.findings_from(policy.gate));
        (record.host.name.clone(), found.unwrap_or_default())
    };
    records.iter().map(of).collect()
}

impl<'a> Gate<'a> {
    pub(crate) fn new(
        (hosts, revision): (&'a [Name], u64),
        policy: &'a Policy,
        before: &'a BTreeMap<Name, Findings>,
        now: Instant,
    ) -> Gate<'a> {
        let (heard, drops) = Default::default();
        Gate { hosts, revision, policy, before, began: now, state: None, heard, drops }
    }

    /// Judges the agents' present statuses.
    pub(crate) fn look(&mut self, records: &[HostRecord], now: Instant) -> Verdict {
        let mut new = self.new_findings(records);
        new.extend(self.dropped(records));
        let waiting = self.waiting(records);
        let well = match (new.first(), waiting.first()) {
            (Some(_), _) => Some(false),
            (None, Some(_)) => None,
            (None, None) => Some(true),
        };
        // An unchanged state keeps its start; a new one starts now.
        let since =
            self.state.filter(|(was, _)| Some(*was) == well).map_or(now, |(_, since)| since);
        self.state = well.map(|well| (well, since));
        if well != Some(true) || since == now {
            let written = self.records(records).map(|(name, it)| (name, it.map(|it| it.written)));
            self.heard = written.map(|(name, at)| (name.clone(), at.unwrap_or_default())).collect();
        }
        let silent = self.silent(records);
        let soaked = now.duration_since(since) >= Duration::from_secs(self.policy.soak.0.into());
        let late = now.duration_since(self.began) >= Duration::from_secs(self.policy.wait.0.into());
        match (well, soaked) {
            (Some(true), true) if silent.is_empty() => Verdict::Pass,
            (Some(true), true) if late => Verdict::Stop(format!(
                "after {} s: {}",
                self.policy.wait.0,
                shortened(&silent, "; ")
            )),
            (Some(true), true) => Verdict::Wait(shortened(&silent, "; ")),
            (Some(false), true) => Verdict::Stop(shortened(&new, "; ")),
            // A finding that comes and goes would hold the roll-out for ever.
            (Some(false), false) if late => Verdict::Stop(shortened(&new, "; ")),
            (Some(true), false) => {
                Verdict::Wait(format!("{} to stay without new findings", self.counted()))
            }
            (Some(false), false) => {
                Verdict::Wait(format!("a new finding to clear: {}", shortened(&new, "; ")))
            }
            (None, _) if late => Verdict::Stop(format!(
                "after {} s: {}",
                self.policy.wait.0,
                shortened(&waiting, "; ")
            )),
            (None, _) => Verdict::Wait(shortened(&waiting, "; ")),
        }
    }

    /// Returns the hosts that have not reported since they were found well: the revision may have
    /// broken them.
    fn silent(&self, records: &[HostRecord]) -> Vec<String> {
        let is_silent = |(name, record): &(&Name, Option<&HostRecord>)| {
            record.is_none_or(|it| Some(&it.written) == self.heard.get(*name))
        };
        let silent = self.records(records).filter(is_silent);
        silent.map(|(name, _)| format!("host {name} to report again")).collect()
    }

    fn counted(&self) -> String {
        match self.hosts.len() {
            1 => "1 host".to_owned(),
            count => format!("{count} hosts"),
        }
    }

    fn records<'r>(
        &self,
        records: &'r [HostRecord],
    ) -> impl Iterator<Item = (&'a Name, Option<&'r HostRecord>)> + use<'a, 'r> {
        let hosts = self.hosts;
        hosts.iter().map(move |name| (name, records.iter().find(|it| it.host.name == *name)))
    }

    /// Returns the findings that hosts have with the revision and did not have before.
    fn new_findings(&self, records: &[HostRecord]) -> Vec<String> {
        let none = Findings::new();
        let mut all = Vec::new();
        for (name, record) in self.records(records) {
            let status = record.and_then(|record| record.status.as_ref());
            let Some(status) = status.filter(|status| status.wanted == self.revision) else {
                continue;
            };
            let before = self.before.get(name).unwrap_or(&none);
            let found = status.findings_from(self.policy.gate);
            all.extend(
                found.difference(before).map(|(kind, text)| format!("host {name}: {kind}: {text}")),
            );
        }
        all
    }

    /// Returns the hosts with the revision in force that drop more than the policy permits.
    fn dropped(&mut self, records: &[HostRecord]) -> Vec<String> {
        let mut all = Vec::new();
        for (name, record) in self.records(records) {
            let status = record.and_then(|record| record.status.as_ref());
            if let Some(status) = status.filter(|status| status.revision == self.revision) {
                self.drops.note(name, status);
                let above = self.drops.above(name, &self.policy.drops);
                all.extend(above.iter().map(|what| format!("host {name}: {what}")));
            }
        }
        all
    }

    /// Returns the hosts that have not applied the revision, with the reasons.
    fn waiting(&self, records: &[HostRecord]) -> Vec<String> {
        let wanted = self.revision;
        let of = |(name, record): (&Name, Option<&HostRecord>)| match record
            .and_then(|record| record.status.as_ref())
        {
            None => Some(format!("host {name}: its agent is away")),
            Some(status) if status.revision != wanted => {
                Some(format!("host {name} has revision {}, not {wanted}", status.revision))
            }
            Some(_) => None,
        };
        self.records(records).filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Host;
    use crate::store::Status;
    use api::body::{FindingBody, Severity};
    use config::Seconds;
    use problem::Problem;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn finding(severity: Severity, text: &str) -> FindingBody {
        FindingBody { severity, kind: "mtu_mismatch".to_owned(), problem: Problem::new(text) }
    }

    /// Returns a host with its revision and findings; none if its agent is away.
    fn record(host: &str, said: Option<(u64, Vec<FindingBody>)>) -> HostRecord {
        let status = said.map(|(revision, findings)| Status {
            revision,
            wanted: 7,
            findings,
            ..Status::default()
        });
        HostRecord { host: Host { name: name(host), labels: BTreeMap::new() }, status, written: 0 }
    }

    /// Returns the verdicts of looks at these seconds; all hosts write their status anew before
    /// each.
    fn looks(before: &[HostRecord], looks: Vec<(u64, Vec<HostRecord>)>) -> Vec<Verdict> {
        let policy = Policy { wait: Seconds(60), soak: Seconds(5), ..Policy::default() };
        let (hosts, before) = ([name("a"), name("b")], findings(before, &policy));
        let start = Instant::now();
        let mut gate = Gate::new((&hosts[..], 7), &policy, &before, start);
        let look = |(at, mut records): (u64, Vec<HostRecord>)| {
            records.iter_mut().for_each(|it| it.written = i64::try_from(at).unwrap());
            gate.look(&records, start + Duration::from_secs(at))
        };
        looks.into_iter().map(look).collect()
    }

    fn well() -> Vec<HostRecord> {
        vec![record("a", Some((7, vec![]))), record("b", Some((7, vec![])))]
    }

    #[test]
    fn hosts_pass_once_all_have_applied_it_and_stayed_well() {
        let half = vec![record("a", Some((7, vec![]))), record("b", Some((6, vec![])))];
        let verdicts = looks(&[], vec![(0, half), (3, well()), (7, well()), (8, well())]);
        assert_eq!(verdicts[0], Verdict::Wait("host b has revision 6, not 7".into()));
        assert_eq!(verdicts[1], Verdict::Wait("2 hosts to stay without new findings".into()));
        assert_eq!((&verdicts[2], &verdicts[3]), (&verdicts[1], &Verdict::Pass));
    }

    #[test]
    fn a_finding_that_comes_and_goes_holds_the_roll_out_no_longer_than_its_wait() {
        let bad = || {
            let findings = vec![finding(Severity::Warning, "port y: MTU 9000 over 1500")];
            vec![record("a", Some((7, findings))), record("b", Some((7, vec![])))]
        };
        let all = (0..32).map(|turn| (2 * turn, if turn % 2 == 0 { bad() } else { well() }));
        let verdicts = looks(&[], all.collect());
        assert!(verdicts[..30].iter().all(|it| matches!(it, Verdict::Wait(_))), "{verdicts:?}");
        assert!(matches!(&verdicts[30], Verdict::Stop(why) if why.contains("MTU 9000")));
    }

    #[test]
    fn a_new_finding_that_persists_stops_it_and_an_old_one_does_not() {
        let old = || finding(Severity::Warning, "port x: uplink down");
        let new = || finding(Severity::Warning, "port y: MTU 9000 over 1500");
        let with =
            |findings| vec![record("a", Some((7, findings))), record("b", Some((7, vec![])))];
        let before = with(vec![old()]);
        let verdicts = looks(&before, vec![(0, with(vec![old()])), (5, with(vec![old()]))]);
        assert_eq!(verdicts[1], Verdict::Pass);
        let verdicts = looks(
            &before,
            vec![
                (0, with(vec![new()])),
                (4, well()),
                (6, with(vec![new()])),
                (11, with(vec![new(), old()])),
            ],
        );
        assert!(
            matches!(&verdicts[2], Verdict::Wait(why) if why.contains("a new finding to clear")),
            "{verdicts:?}"
        );
        assert_eq!(
            verdicts[3],
            Verdict::Stop("host a: mtu_mismatch: port y: MTU 9000 over 1500".into())
        );
        // A finding below the gate's severity does not count.
        let info = || with(vec![finding(Severity::Info, "worth knowing")]);
        assert_eq!(looks(&[], vec![(0, info()), (5, info())])[1], Verdict::Pass);
    }

    #[test]
    fn a_host_that_is_away_or_late_stops_it_after_wait() {
        let away = || vec![record("a", Some((7, vec![]))), record("b", None)];
        let verdicts = looks(&[], vec![(0, away()), (59, away()), (60, away())]);
        assert_eq!(verdicts[1], Verdict::Wait("host b: its agent is away".into()));
        assert_eq!(verdicts[2], Verdict::Stop("after 60 s: host b: its agent is away".into()));
        assert_eq!(
            looks(&[], vec![(60, vec![])])[0],
            Verdict::Stop(
                "after 60 s: host a: its agent is away; host b: its agent is away".into()
            )
        );
    }

    #[test]
    fn a_host_that_falls_silent_does_not_pass() {
        let policy = Policy { wait: Seconds(60), soak: Seconds(5), ..Policy::default() };
        let (hosts, before) = ([name("a"), name("b")], findings(&[], &policy));
        let start = Instant::now();
        let mut gate = Gate::new((&hosts[..], 7), &policy, &before, start);
        let mut look = |at, written: [i64; 2]| {
            let mut records = well();
            records.iter_mut().zip(written).for_each(|(it, written)| it.written = written);
            gate.look(&records, start + Duration::from_secs(at))
        };
        look(0, [10, 11]);
        let silent = Verdict::Wait("host b to report again".into());
        assert_eq!(look(20, [12, 11]), silent);
        assert!(matches!(look(60, [12, 11]), Verdict::Stop(why) if why.contains("host b")));
        assert_eq!(look(61, [12, 13]), Verdict::Pass);
    }
}
