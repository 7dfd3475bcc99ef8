//! `millrace validate rsc`: what a script may rely on. Whether RSC pays on this host is the report's business.

use crate::sandbox::{Need, story};
use crate::switch::{cli, millrace};
use serde_json::Value;

#[test]
fn validate_in_process_keeps_its_promises() {
    story(&[], || promises(&["--in-process"], true));
}

#[test]
fn validate_in_namespaces_keeps_its_promises() {
    story(&[Need::Tap, Need::Program("ethtool")], || promises(&[], false));
}

fn promises(options: &[&str], in_process: bool) {
    if !cli("validate rsc --help").status.success() {
        println!("skipped: needs the command millrace validate");
        return;
    }
    let mut command = millrace();
    command.args(["validate", "rsc", "--quick", "--json"]).args(options).current_dir("/run");
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
    assert!(output.status.success(), "{error}\n{:#}", report["checks"]);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["experiment"], "rsc");
    assert_eq!(report["connections"], 1);
    assert_eq!(report["bench"]["in_process"], in_process, "{}", report["notes"]);
    for arm in ["on", "off"] {
        let median = &report["arms"][arm]["throughput_bps"]["median"];
        assert!(median.as_f64().unwrap() > 0.0, "{arm}: {median}");
    }
    let depth = &report["arms"]["on"]["segments_per_train"]["median"];
    assert!(depth.as_f64().unwrap() > 1.0, "RSC coalesces: {depth}");
    assert!(!report["improvement"].as_object().unwrap().is_empty());
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["passed"] == true));
    for list in ["commands", "notes"] {
        assert!(!report[list].as_array().unwrap().is_empty(), "{list}");
    }
}
