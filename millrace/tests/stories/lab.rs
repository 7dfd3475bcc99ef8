//! The lab's long commands: what a script may rely on. The measured figures are not tested here.

use crate::heard::Heard;
use crate::sandbox::{Need, story};
use crate::switch::millrace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];
/// Options for a short run: only the function is tested.
const SHORT: [&str; 4] = ["--repetitions", "2", "--seconds", "0.1"];

fn lab(arguments: &[&str]) -> Output {
    millrace().args(arguments).args(SHORT).current_dir("/run").heard()
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).expect(&error)
}

#[test]
fn a_ladder_has_each_step_both_ways() {
    story(&NEEDS, || {
        let output = lab(&["ladder", "--json", "--output", "ladder"]);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{:#}", report["checks"]);
        let cases = report["cases"].as_array().unwrap();
        let ways: Vec<&Value> = cases.iter().map(|case| &case["way"]).collect();
        assert_eq!(ways, ["send", "receive"]);
        for case in cases {
            let order = ["base", "checksum", "lso", "rsc", "limits"];
            assert_eq!(case["order"], Value::from(order.to_vec()));
            assert_eq!(case["steps"].as_array().map(Vec::len), Some(4));
        }
        for file in ["report.html", "report.md", "report.json"] {
            assert!(Path::new("/run/ladder").join(file).is_file(), "{file}");
        }
        assert!(!Path::new("/run/ladder/state.json").exists(), "there is nothing to resume");
    });
}

#[test]
fn a_ladder_with_queues_goes_on_to_channels_and_vrss() {
    story(&NEEDS, || {
        let output = lab(&["ladder", "--queues", "2", "--json", "--output", "channels"]);
        let report = json(&output);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}\n{:#}", report["checks"]);
        for case in report["cases"].as_array().unwrap() {
            let order = case["order"].as_array().unwrap();
            assert_eq!(order[4..], ["limits", "channels", "vrss"].map(Value::from));
            let of = |arm: &str, key: &str| case["arms"][arm][key]["median"].as_f64();
            let key = "vnic_silent_queues";
            assert_eq!((of("limits", "vnic_queues"), of("limits", key)), (Some(1.0), Some(0.0)));
            assert_eq!(of("vrss", key), Some(0.0));
            assert_eq!(of("channels", "vnic_queues"), Some(2.0));
        }
        let commands = report["commands"].to_string();
        for change in ["rss set vnic --equal 1", "queues=2 steer=\\\"rss\\\""] {
            assert!(commands.contains(change), "{change}: {commands}");
        }
    });
}

#[test]
fn two_paths_are_shown_by_letter_and_the_report_tells_which_one_is_which() {
    story(&NEEDS, || {
        let output = lab(&["validate", "jumbo", "--two-paths", "--json", "--output", "which"]);
        let report = json(&output);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{shown}\n{:#}", report["checks"]);
        let arms = &report["cases"][0]["arms"];
        let of = |arm: &str, key: &str| arms[arm][key]["median"].as_f64();
        let frame = "frame_bytes_on_the_wire";
        assert!(of("jumbo", frame) > Some(1514.0) && of("standard", frame) <= Some(1514.0));
        for arm in ["jumbo", "standard"] {
            // Both paths are in each interval, whichever it is about.
            for key in ["throughput_bps", "path_a_bps", "path_b_bps"] {
                assert!(of(arm, key) > Some(0.0), "{arm}: {key}: {arms:#}");
            }
        }
        let jumbo = arms["jumbo"]["label"].as_str().unwrap();
        let answer = format!("{jumbo} has the jumbo frames");
        assert!(report["checks"].to_string().contains(&answer), "{:#}", report["checks"]);
        let account = &report["cases"][0]["account"];
        assert_eq!(account["sent_bytes"], account["received_bytes"]);
    });
}

#[test]
fn a_sweep_opens_its_ports_anew_with_each_number_of_queues() {
    story(&NEEDS, || {
        let loads = ["sweep", "--queues", "1,2", "--connections", "8", "--blocks", "4096,65536"];
        let output = lab(&[&loads[..], &["--json", "--output", "queues"]].concat());
        let report = json(&output);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}\n{:#}", report["checks"]);
        let cases = report["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4, "two ways, two blocks");
        for case in cases {
            assert_eq!(case["order"], Value::from(vec!["queues_2", "queues_1"]));
            for (arm, queues) in [("queues_1", 1.0), ("queues_2", 2.0)] {
                let median = |key: &str| case["arms"][arm][key]["median"].as_f64().unwrap();
                assert!(median("throughput_bps") > 0.0, "{arm}: {case:#}");
                assert_eq!((median("uplink_queues"), median("vnic_queues")), (queues, queues));
            }
            assert_eq!(case["comparisons"]["throughput"]["pairs"], 2);
        }
        let text = std::fs::read_to_string("/run/queues/report.md").unwrap();
        assert!(text.contains("medians of 1 queue → 2 queues"), "{text}");
    });
}

#[test]
fn an_interrupted_sweep_reports_what_it_has_and_goes_on_where_it_was() {
    story(&NEEDS, || {
        let loads = ["sweep", "--connections", "1,3", "--blocks", "512,65536", "--output", "sweep"];
        let mut sweep = millrace();
        sweep.args(loads).args(SHORT).current_dir("/run").stdout(Stdio::null());
        let mut sweep = sweep.spawn().unwrap();
        let state = Path::new("/run/sweep/state.json");
        waiting::until("a load is finished", || state.is_file().then_some(()));
        let process = Pid::from_raw(i32::try_from(sweep.id()).unwrap()).unwrap();
        kill_process(process, Signal::INT).unwrap();
        assert_eq!(sweep.wait().unwrap().code(), Some(130));
        let text = std::fs::read_to_string("/run/sweep/report.json").unwrap();
        let before: Value = serde_json::from_str(&text).unwrap();
        assert!(before["notes"].to_string().contains("Interrupted"), "{}", before["notes"]);
        let output = lab(&["sweep", "--resume", "sweep", "--json"]);
        let after = json(&output);
        assert_eq!(output.status.code(), Some(0), "{:#}", after["checks"]);
        assert_eq!(after["cases"].as_array().map(Vec::len), Some(8));
        let first = |report: &Value| report["cases"][0]["samples"].clone();
        assert_eq!(first(&after), first(&before), "the first load was not measured again");
        assert_eq!(after["date"], before["date"]);
        assert!(!state.exists());
        let again = lab(&["sweep", "--resume", "sweep"]);
        assert_eq!(again.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&again.stderr).contains("cannot resume"));
    });
}

#[test]
fn many_connections_are_carried_and_accounted_for() {
    story(&NEEDS, || {
        // A thousand connections on two busy cores spend most of their time on retransmissions.
        let many = if std::env::var_os("MILLRACE_LONG").is_some() { 1000 } else { 100 };
        let connections = format!("1,{many}");
        let output =
            lab(&["connections", "--connections", &connections, "--json", "--output", "many"]);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{:#}", report["checks"]);
        let case = &report["cases"][1];
        assert_eq!(case["connections"], many);
        let bytes = |whose: &str| case["account"][whose].as_f64().unwrap();
        // A few connections that keep losing frames may still be trying.
        let accounted = bytes("received_bytes") + bytes("undelivered_bytes");
        assert!((accounted / bytes("sent_bytes") - 1.0).abs() < 0.01, "{case:#}");
    });
}

#[test]
fn two_reports_are_compared_and_what_cannot_be_is_refused() {
    story(&[], || {
        for name in ["a", "b"] {
            let output = lab(&["validate", "rsc", "--in-process", "--output", name]);
            // On a busy machine an interval of a tenth of a second may go by without a frame, which
            // fails a check.
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let compare = |arguments: &[&str]| {
            let mut command = millrace();
            command.args(["report", "compare"]).args(arguments).current_dir("/run");
            command.heard()
        };
        // Two intervals are too few to compare, which is a different result from no difference.
        let same = compare(&["a/report.json", "b/report.json", "--json"]);
        assert_eq!(same.status.code(), Some(4));
        let found = json(&same);
        assert_eq!(found["regressions"], 0);
        assert_eq!(found["too_few_samples"], found["figures"].as_array().unwrap().len());
        steady("a/report.json", "steady.json", 1e9);
        steady("a/report.json", "slower.json", 0.9e9);
        let worse = compare(&["steady.json", "slower.json"]);
        assert_eq!(worse.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&worse.stdout).contains("REGRESSION"));
        assert_eq!(compare(&["a/report.json", "nowhere.json"]).status.code(), Some(2));
        for of in ["report", "comparison", "ntttcp"] {
            let schema = millrace().args(["report", "schema", of]).heard();
            assert_eq!(json(&schema)["type"], "object", "{of}");
        }
    });
}

/// Copies a report with this throughput, and enough intervals to see it.
fn steady(from: &str, to: &str, rate: f64) {
    let run = Path::new("/run");
    let text = std::fs::read_to_string(run.join(from)).unwrap();
    let mut report: Value = serde_json::from_str(&text).unwrap();
    let case = &mut report["cases"][0];
    let mut sample = case["samples"][0].clone();
    sample["arm"] = "on".into();
    sample["values"]["throughput_bps"] = rate.into();
    case["samples"] = vec![sample; 8].into();
    std::fs::write(run.join(to), report.to_string()).unwrap();
}
