//! Reads the tests of a run from nextest's JUnit report.

use anyhow::{Context, Result};
use roxmltree::{Document, Node};

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The test failed and printed this.
    Failed(String),
    /// The test printed `skipped: ` and this reason.
    Skipped(String),
}

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Test {
    /// The program and the name within it, as `cargo nextest run` prints them.
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) outcome: Outcome,
}

/// Returns the tests of a report.
///
/// # Errors
/// The text is not a JUnit report.
pub(crate) fn read(report: &str) -> Result<Vec<Test>> {
    let document = Document::parse(report).context("a report that is not XML")?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    cases.map(|case| test(case).context("a test without a name or a time")).collect()
}

fn test(case: Node<'_, '_>) -> Option<Test> {
    let program = case.attribute("classname").or_else(|| case.parent()?.attribute("name"))?;
    Some(Test {
        name: format!("{program} {}", case.attribute("name")?),
        seconds: case.attribute("time")?.parse().ok()?,
        outcome: outcome(case),
    })
}

fn outcome(case: Node<'_, '_>) -> Outcome {
    let texts = |names: &[&str]| -> String {
        let printed = case.children().filter(|node| names.iter().any(|it| node.has_tag_name(*it)));
        printed.filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
    };
    let bad = ["failure", "error"];
    if case.children().any(|node| bad.iter().any(|it| node.has_tag_name(*it))) {
        let printed = texts(&["system-out", "system-err"]);
        let printed = if printed.trim().is_empty() { texts(&bad) } else { printed };
        return Outcome::Failed(printed.trim_matches('\n').to_owned());
    }
    match texts(&["system-out"]).lines().find_map(reason) {
        Some(reason) => Outcome::Skipped(reason.to_owned()),
        None => Outcome::Passed,
    }
}

/// Returns the reason in a line `skipped: REASON`. The harness may have put the test's name before
/// it.
fn reason(line: &str) -> Option<&str> {
    let own = line.split_once(" ... ").filter(|(test, _)| test.starts_with("test "));
    own.map_or(line, |(_, own)| own).strip_prefix("skipped: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" failures="1" errors="0" time="1.5">
  <testsuite name="millrace::stories" tests="4" disabled="0" errors="0" failures="1">
    <testcase name="mtu::works" classname="millrace::stories" timestamp="2026-11-27T16:00:00Z" time="1.250">
      <system-out>
running 1 test
no skipped: here
test mtu::works ... ok</system-out>
      <system-err></system-err>
    </testcase>
    <testcase name="xdp::skips" classname="millrace::stories" time="0.100">
      <system-out>running 1 test
test xdp::skips ... skipped: needs the right to &lt;load&gt; programs
ok</system-out>
    </testcase>
    <testcase name="tap::skips" classname="millrace::stories" time="0.1">
      <system-out>running 1 test
skipped: needs root
skipped: needs more
test tap::skips ... ok</system-out>
    </testcase>
    <testcase name="vhost::fails" classname="millrace::stories" time="0.050">
      <failure type="test failure" message="thread panicked at a.rs:1:1">thread panicked</failure>
      <system-out>skipped: not really</system-out>
      <system-err>thread &apos;vhost::fails&apos; panicked at a.rs:1:1:
told</system-err>
    </testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn each_test_of_a_report_has_its_name_its_time_and_its_outcome() {
        let tests = read(REPORT).unwrap_or_default();
        let names: Vec<_> = tests.iter().map(|test| (test.name.as_str(), test.seconds)).collect();
        let at = |name| format!("millrace::stories {name}");
        let wanted = [
            (at("mtu::works"), 1.25),
            (at("xdp::skips"), 0.1),
            (at("tap::skips"), 0.1),
            (at("vhost::fails"), 0.05),
        ];
        assert!(names.iter().copied().eq(wanted.iter().map(|(name, time)| (name.as_str(), *time))));
        let outcomes: Vec<Outcome> = tests.into_iter().map(|test| test.outcome).collect();
        let told = "skipped: not really\nthread 'vhost::fails' panicked at a.rs:1:1:\ntold";
        let wanted = [
            Outcome::Passed,
            Outcome::Skipped("needs the right to <load> programs".into()),
            Outcome::Skipped("needs root".into()),
            Outcome::Failed(told.into()),
        ];
        assert_eq!(outcomes, wanted);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        assert!(read("error: could not compile").is_err());
        assert!(read("<testsuites><testcase name='x'/></testsuites>").is_err());
    }
}
