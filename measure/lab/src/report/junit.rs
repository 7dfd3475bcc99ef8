//! A report as JUnit XML, which CI systems show: each check and each threshold is a test.

use super::Report;
use super::headline::verdict;
use crate::plan::Ended;
use quick_junit::{NonSuccessKind, Report as Tests, TestCase, TestCaseStatus, TestSuite};

/// Returns the checks, the thresholds of `--fail-if`, and whether everything was measured, as
/// tests.
pub(super) fn junit(report: &Report) -> Result<String, quick_junit::SerializeError> {
    let mut tests = Tests::new(&report.title);
    let class = format!("millrace.{}", report.experiment);
    let mut checks = TestSuite::new("checks");
    for check in &report.checks {
        let failed = (!check.passed).then_some(check.seen.as_str());
        checks.add_test_case(case(&class, &check.name, failed, &check.seen));
    }
    let cases = report.cases.iter().chain(&report.latency);
    let broke = cases.filter_map(|case| match &case.ended {
        Ended::Failed(why) => Some(why.as_str()),
        Ended::Interrupted => Some("interrupted"),
        _ => None,
    });
    let broke = broke.reduce(|first, _| first);
    let answer = verdict(report);
    checks.add_test_case(case(&class, "Measured to the end", broke, &answer));
    tests.add_test_suite(checks);
    if !report.thresholds.is_empty() {
        let mut suite = TestSuite::new("thresholds");
        for one in &report.thresholds {
            let name = format!("not {} ({})", one.condition, one.load);
            suite.add_test_case(case(&class, &name, one.met.then_some(&one.seen), &one.seen));
        }
        tests.add_test_suite(suite);
    }
    tests.to_string()
}

fn case(class: &str, name: &str, failed: Option<&str>, seen: &str) -> TestCase {
    let status = match failed {
        None => TestCaseStatus::success(),
        Some(why) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(why);
            status
        }
    };
    let mut case = TestCase::new(name, status);
    case.set_classname(class).set_system_out(seen);
    case
}
