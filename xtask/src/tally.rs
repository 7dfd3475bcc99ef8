//! Counts the results of all steps.

use crate::junit::{Outcome, Test};
use std::collections::BTreeMap;

/// Number of slowest tests that are named.
const SLOWEST: usize = 10;

/// The counts of all steps, and what the summary names.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    reasons: Vec<String>,
    slowest: Vec<(f64, String)>,
}

/// The counts of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    /// Counts a step that passes or fails as one.
    pub(crate) fn check(&mut self, has_passed: bool) {
        let (passed, failed) = if has_passed { (1, 0) } else { (0, 1) };
        self.add(Counts { passed, failed, skipped: 0 });
    }

    /// Counts a step that could not run.
    pub(crate) fn skip(&mut self, step: &str, reason: &str) {
        self.add(Counts { skipped: 1, ..Counts::default() });
        self.reasons.push(format!("{step}: {reason}"));
    }

    /// Counts the tests of a step, and `others` that have no report. The step has failed if its
    /// command failed without a failed test, or if no test ran at all: a filter that matches
    /// nothing must not look like success.
    pub(crate) fn tests(
        &mut self,
        step: &str,
        tests: &[Test],
        others: Counts,
        has_succeeded: bool,
    ) -> Counts {
        let mut counts = others;
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for test in tests {
            self.slowest.push((test.seconds, test.name.clone()));
            match &test.outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::Skipped(reason) => {
                    counts.skipped += 1;
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
        if others.skipped > 0 {
            reasons.insert("ignored by their attribute", others.skipped);
        }
        let has_none = counts.passed + counts.skipped == 0;
        if counts.failed == 0 && (has_none || !has_succeeded) {
            counts.failed = 1;
        }
        self.slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
        self.slowest.truncate(SLOWEST);
        self.reasons.extend(reasons.iter().map(|(reason, count)| match count {
            1 => format!("{step}: {reason}"),
            _ => format!("{step}: {count} times {reason}"),
        }));
        self.add(counts);
        counts
    }

    fn add(&mut self, counts: Counts) {
        self.passed += counts.passed;
        self.failed += counts.failed;
        self.skipped += counts.skipped;
    }

    /// Returns whether anything failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed > 0
    }

    /// Returns the slowest tests, what was skipped, and the counts as the last line.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for (seconds, name) in &self.slowest {
            text.push_str(&format!("slow: {seconds:7.1} s  {name}\n"));
        }
        for reason in &self.reasons {
            text.push_str(&format!("skipped: {reason}\n"));
        }
        let Tally { passed, failed, skipped, .. } = self;
        text + &format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, seconds: f64, outcome: Outcome) -> Test {
        Test { name: name.into(), seconds, outcome }
    }

    fn skipped() -> Outcome {
        Outcome::Skipped("needs root".into())
    }

    #[test]
    fn the_last_line_has_the_sums_of_all_steps() {
        let mut tally = Tally::default();
        tally.check(true);
        tally.skip("spelling", "needs typos");
        let tests = [
            test("a", 0.5, Outcome::Passed),
            test("b", 2.0, Outcome::Failed(String::new())),
            test("c", 0.1, skipped()),
            test("d", 0.1, skipped()),
        ];
        let others = Counts { passed: 3, failed: 0, skipped: 1 };
        let counts = tally.tests("tests", &tests, others, false);
        assert_eq!(counts, Counts { passed: 4, failed: 1, skipped: 3 });
        let summary = tally.summary();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(lines.first(), Some(&"slow:     2.0 s  b"));
        assert_eq!(lines.last(), Some(&"5 passed, 1 failed, 4 skipped"));
        assert!(summary.contains("skipped: spelling: needs typos\n"), "{summary}");
        assert!(summary.contains("skipped: tests: 2 times needs root\n"), "{summary}");
        assert!(tally.has_failed());
    }

    #[test]
    fn a_step_that_runs_no_test_has_failed() {
        let mut tally = Tally::default();
        assert_eq!(tally.tests("loom", &[], Counts::default(), true).failed, 1);
        assert!(tally.has_failed());
    }

    #[test]
    fn a_command_that_fails_without_a_failed_test_has_failed() {
        let mut tally = Tally::default();
        let tests = [test("a", 0.5, Outcome::Passed)];
        let counts = tally.tests("tests", &tests, Counts::default(), false);
        assert_eq!(counts, Counts { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_step_whose_tests_are_all_skipped_has_not_failed() {
        let mut tally = Tally::default();
        tally.tests("tests", &[test("a", 0.5, skipped())], Counts::default(), true);
        assert!(!tally.has_failed());
    }

    #[test]
    fn ten_slowest_tests_are_named() {
        let mut tally = Tally::default();
        let tests: Vec<Test> =
            (0..30_u32).map(|n| test(&format!("t{n}"), f64::from(n), Outcome::Passed)).collect();
        tally.tests("tests", &tests, Counts::default(), true);
        assert_eq!(tally.summary().lines().count(), 11);
        assert!(tally.summary().starts_with("slow:    29.0 s  t29\n"));
    }
}
