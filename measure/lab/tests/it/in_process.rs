//! A short run of the whole validation in one process: two TCP stacks through the real switch, with
//! RSC toggled under their traffic.

use lab::options::{Options, RscOptions};
use lab::runner::{self, Outcome};
use lab::validate;
use lab::{Interrupt, LabError};
use std::time::Duration;

fn options(place: &tempfile::TempDir) -> Options {
    Options {
        connections: vec![1, 4],
        repetitions: 2,
        interval: Duration::from_millis(100),
        rsc: RscOptions { in_process: true, ..RscOptions::default() },
        output: Some(place.path().join("report")),
        ..Options::new("unused in process".into())
    }
}

fn run(options: &Options, interrupt: &Interrupt) -> Result<Outcome, LabError> {
    runner::run(&validate::campaign, options, interrupt)
}

#[test]
fn both_arms_carry_traffic_and_are_what_they_say() {
    let place = tempfile::tempdir().unwrap();
    let outcome = run(&options(&place), &Interrupt::default()).unwrap();
    let report = serde_json::to_value(&outcome.report).unwrap();
    let schema = lab::report::json_schema();
    jsonschema::validator_for(&schema).unwrap().validate(&report).unwrap();
    assert!(report["bench"]["in_process"].as_bool().unwrap());
    assert_eq!(report["cases"].as_array().unwrap().len(), 2);
    for case in report["cases"].as_array().unwrap() {
        assert_eq!(case["ended"], "complete");
        let median = |arm: &str, key: &str| case["arms"][arm][key]["median"].as_f64().unwrap();
        assert!(median("on", "throughput_bps") > 1e6 && median("off", "throughput_bps") > 1e6);
        assert!(median("on", "segments_per_train") > 1.0, "{case:#}");
        assert_eq!(median("off", "segments_per_train"), 1.0);
        assert_eq!((median("on", "bad_checksums"), median("off", "bad_checksums")), (0.0, 0.0));
    }
    assert!(
        report["latency"][0]["arms"]["on"]["latency_median_ns"]["median"].as_f64().unwrap() > 0.0
    );
    // On a loaded machine the stacks take turns, so that little waits to be coalesced.
    let had_nothing = |check: &&lab::report::Check| check.seen.contains("nothing to coalesce");
    let failed: Vec<_> = outcome.report.checks.iter().filter(|check| !check.passed).collect();
    assert!(failed.iter().all(had_nothing), "{failed:#?}");
    assert_eq!(outcome.exit_code(), u8::from(!failed.is_empty()));
    let text = std::fs::read_to_string(outcome.directory.join("report.md")).unwrap();
    assert!(text.contains("IN PROCESS"));
}

#[test]
fn an_interruption_before_anything_was_measured_leaves_no_report() {
    let place = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::default();
    interrupt.set();
    let error = run(&options(&place), &interrupt).unwrap_err();
    assert!(matches!(error, LabError::Interrupted));
    assert!(!place.path().join("report").exists());
}
