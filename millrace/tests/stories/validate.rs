//! `millrace validate rsc`: what a script may rely on, and what its report shows. Whether RSC pays on
//! this host is not tested here.

use crate::browser::{self, Browser};
use crate::guest::directory;
use crate::heard::Heard;
use crate::sandbox::{Need, story};
use crate::switch::{cli, complaint, millrace};
use crate::xdp::is_xdp_possible;
use ports::kernel_path::KernelPath;
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
    let output = command.heard();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
    let (checks, notes) = (&report["checks"], &report["notes"]);
    assert!(output.status.success(), "{error}\n{checks:#}\n{notes:#}");
    assert_eq!(report["schema"], 2);
    assert_eq!(report["experiment"], "rsc");
    let case = &report["cases"][0];
    assert_eq!(case["connections"], 1);
    assert_eq!(report["bench"]["in_process"], in_process, "{}", report["notes"]);
    for arm in ["on", "off"] {
        let median = &case["arms"][arm]["throughput_bps"]["median"];
        assert!(median.as_f64().unwrap() > 0.0, "{arm}: {median}");
    }
    let depth = &case["arms"]["on"]["segments_per_train"]["median"];
    assert!(depth.as_f64().unwrap() > 1.0, "RSC coalesces: {depth}");
    assert!(!case["comparisons"].as_object().unwrap().is_empty());
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["passed"] == true));
    for list in ["commands", "notes"] {
        assert!(!report[list].as_array().unwrap().is_empty(), "{list}");
    }
}

#[test]
fn both_receivers_are_measured_and_named_in_the_first_sentence() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let short = ["--repetitions", "2", "--seconds", "0.1", "--json"];
        let measured = |receiver: &[&str]| -> (Value, String) {
            let mut command = millrace();
            command.args(["validate", "rsc", "--output", "both"]).args(receiver).args(short);
            let output = command.current_dir("/run").heard();
            let error = String::from_utf8_lossy(&output.stderr);
            let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
            let text = std::fs::read_to_string("/run/both/report.md").unwrap();
            (report, text.lines().nth(2).unwrap_or_default().to_owned())
        };
        let toward_gro = |report: &Value| -> Vec<bool> {
            let cases = report["cases"].as_array().unwrap().iter();
            cases.map(|case| case["receiver_gro"] == true).collect()
        };
        let (both, answer) = measured(&[]);
        assert_eq!(toward_gro(&both), [false, true]);
        for receiver in ["toward a receiver without GRO, 1 connection", "Toward one with GRO"] {
            assert!(answer.contains(receiver), "{answer}");
        }
        let (alone, _) = measured(&["--receiver", "tap-gro"]);
        assert_eq!(toward_gro(&alone), [true]);
        for report in [both, alone] {
            let commands = report["commands"].to_string();
            for made in ["napi = true", "echo 1 > /sys/class/net/vnic0/threaded", "--receiver"] {
                assert!(commands.contains(made), "{made}: {commands}");
            }
        }
    });
}

/// `make demo` runs it, with more and longer intervals.
#[test]
fn a_brief_verdict_is_three_lines_and_its_page_fits_a_phone() {
    story(&browser::NEEDS, || {
        let mut command = millrace();
        command.args(["validate", "rsc", "--brief", "--repetitions", "5", "--seconds", "0.05"]);
        let output = command.args(["--output", "brief"]).current_dir("/run").heard();
        let error = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, verdict) = text.rsplit_once("\n\n").expect(&error);
        let [answer, peer, trust] = verdict.lines().collect::<Vec<_>>()[..] else {
            panic!("not three lines: {verdict}\n{error}");
        };
        for part in
            ["RSC in the vSwitch Disabled → Enabled", "1 connection: ", ", 16 connections: "]
        {
            assert!(answer.contains(part), "{part}: {answer}");
        }
        assert!(answer.contains("b/s (") && answer.contains(" → "), "absolute numbers: {answer}");
        assert!(peer.starts_with("Linux bridge, GRO on: 1 connection "), "{peer}");
        assert!(trust.starts_with("Trust: ") && trust.contains("known to ±"), "{trust}");
        fits("file:///run/brief/report.html");
    });
}

/// Opens a report on a phone and on a desktop, light and dark: nothing sticks out, its first screen
/// is one, all else is folded, and axe finds no barrier.
fn fits(report: &str) {
    let mut browser = Browser::open();
    browser.look(1280, 800, false);
    browser.visit(report);
    browser.wait("it is shown", "document.querySelectorAll('body > details').length > 5");
    let folded = "[...document.querySelectorAll('details')].every(one => !one.open)";
    browser.wait("all else is folded", folded);
    let screen = "document.querySelector('.screen').getBoundingClientRect().bottom <= 800";
    browser.wait("the answer takes one screen", screen);
    for (width, height) in [(375, 812), (1280, 800)] {
        for dark in [false, true] {
            browser.look(width, height, dark);
            browser.wait(
                "nothing sticks out",
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth",
            );
            browser.picture(&format!("report-{width}-{}", if dark { "dark" } else { "light" }));
            let barriers = browser.barriers();
            assert!(barriers.is_empty(), "{width} wide, dark {dark}: {barriers:?}");
        }
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn a_virtual_machine_receives_and_the_report_says_that_it_is_emulated() {
    let needs = [
        Need::Guest("qemu"),
        Need::Program("ethtool"),
        Need::Program("ldd"),
        Need::Program("setpriv"),
    ];
    story(&needs, || {
        let guest = directory("qemu").canonicalize().unwrap();
        let mut command = millrace();
        command.args(["validate", "rsc", "--receiver", "qemu", "--guest"]).arg(&guest);
        command.args(["--repetitions", "2", "--seconds", "0.5", "--json", "--output", "machine"]);
        let output = command.current_dir("/run").heard();
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
        let bench = &report["bench"];
        assert_eq!((&bench["vnic"], &bench["emulator"]), (&"vhost-user".into(), &"tcg".into()));
        let cases = report["cases"].as_array().unwrap();
        assert_eq!((cases.len(), &cases[0]["order"]), (1, &serde_json::json!(["on", "off"])));
        let of = |arm: &str, figure: &str| {
            let median = &cases[0]["arms"][arm][figure]["median"];
            median.as_f64().unwrap_or_else(|| panic!("{arm}: {figure} is {median}"))
        };
        for arm in ["on", "off"] {
            assert!(of(arm, "throughput_bps") > 0.0 && of(arm, "receiver_cpu_s_per_s") > 0.0);
        }
        let depths = ["on", "off"].map(|arm| of(arm, "segments_per_train"));
        assert!(depths[0] > 1.0 && depths[1] <= 1.0, "segments a frame: {depths:?}");
        let account = &cases[0]["account"];
        assert!(account["received_bytes"].as_u64() > Some(1 << 20), "{account}");
        assert_eq!(account["sent_bytes"], account["received_bytes"]);
        let notes = report["notes"].to_string();
        assert!(
            notes.contains("(TCG)") && notes.contains("the meaningful figure is the ratio"),
            "{notes}"
        );
        let text = std::fs::read_to_string("/run/machine/report.md").unwrap();
        assert!(text.lines().nth(2).unwrap().contains("toward an emulated guest"), "{text}");
    });
}

#[test]
fn a_virtual_machine_that_is_not_there_is_named_with_the_remedy() {
    story(&[], || {
        let (code, error) =
            complaint("validate rsc --receiver qemu --guest /run/none --output /run/report");
        assert!(code == 1 && error.contains("/run/none has no vmlinuz"), "{code}: {error}");
        assert!(error.contains("`cargo xtask guests qemu`"), "{error}");
        let (code, error) = complaint("validate rsc --receiver tap --guest /run/none");
        assert!(code == 2 && error.contains("add --receiver qemu"), "{code}: {error}");
    });
}

#[test]
fn a_receiver_is_refused_where_it_cannot_be_had_and_the_remedy_is_named() {
    story(&[Need::Program("mount")], || {
        let (code, error) = complaint("validate acl --receiver tap");
        assert!(code == 2 && error.contains("omit --receiver"), "{code}: {error}");
        // Without /dev/net/tun the vNIC is a veth.
        let line = "mount -t tmpfs none /dev/net && exec \"$0\" validate rsc --receiver tap-gro";
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-c", line]).arg(millrace().get_program());
        let output = command.current_dir("/run").heard();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("/dev/net/tun") && error.contains("modprobe tun"), "{error}");
    });
}

#[test]
fn a_threshold_ends_a_run_with_an_exit_code_of_its_own() {
    story(&[], || {
        let end = |condition: &str| {
            let mut command = millrace();
            let short = ["--in-process", "--repetitions", "6", "--seconds", "0.1", "--json"];
            command.args(["validate", "rsc", "--output", "held"]).args(short).current_dir("/run");
            let output = command.args(["--fail-if", condition]).heard();
            let error = String::from_utf8_lossy(&output.stderr);
            let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
            assert_eq!(report["thresholds"].as_array().map(Vec::len), Some(1), "{report:#}");
            (output.status.code(), report["thresholds"][0]["met"].as_bool())
        };
        assert_eq!(end("throughput < 1000x"), (Some(5), Some(true)));
        assert_eq!(end("throughput < 0.001x"), (Some(0), Some(false)));
        let tests = std::fs::read_to_string("/run/held/junit.xml").unwrap();
        assert!(tests.contains("not throughput &lt; 0.001x"), "{tests}");
        assert!(std::path::Path::new("/run/held/report.csv").is_file());
    });
}

#[test]
fn the_lab_tries_itself_on_traffic_that_is_slowed() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let mut command = millrace();
        let short = ["--tries", "1", "--repetitions", "8", "--seconds", "0.2"];
        command.args(["validate", "self", "--json"]).args(short).current_dir("/run");
        let output = command.heard();
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
        let cases = report["cases"].as_array().unwrap();
        let truths: Vec<&Value> = cases.iter().map(|case| &case["truth"]).collect();
        assert_eq!(truths, [1.0, 0.95]);
        // The traffic is slowed: without its rate the sender would send several times as much.
        for case in cases {
            for name in case["order"].as_array().unwrap() {
                let arm = &case["arms"][name.as_str().unwrap()];
                let rate = arm["throughput_bps"]["median"].as_f64().unwrap();
                assert!(rate > 0.0 && rate < 600e6, "{name}: {rate}");
            }
        }
        let commands = report["commands"].to_string();
        for rate in [400_000_000, 380_000_000] {
            assert!(commands.contains(&format!("(-B {rate} from here on)")), "{commands}");
        }
        let checks = report["checks"].to_string();
        assert!(
            checks.contains("The same arm twice") && checks.contains("slowed by 5 %"),
            "{checks}"
        );
    });
}

/// Returns the report of `millrace validate`. All its checks must have passed.
fn measured(arguments: &[&str]) -> Value {
    measured_but_for(arguments, "no check")
}

/// Runs `millrace validate` and returns its report. Only checks whose name begins with `by_speed`
/// may fail: those that judge how fast this machine is.
fn measured_but_for(arguments: &[&str], by_speed: &str) -> Value {
    let mut command = millrace();
    command.arg("validate").args(arguments).arg("--json").current_dir("/run");
    let output = command.heard();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
    let (checks, notes) = (&report["checks"], &report["notes"]);
    let is_by_speed = |check: &&Value| check["name"].as_str().unwrap().starts_with(by_speed);
    let failed: Vec<&Value> =
        checks.as_array().unwrap().iter().filter(|check| check["passed"] == false).collect();
    let may_fail = !failed.is_empty() && failed.iter().all(is_by_speed);
    assert!(output.status.success() || may_fail, "{error}\n{checks:#}\n{notes:#}");
    report
}

#[test]
fn queues_that_follow_the_load_are_measured_in_phases_beside_those_that_stay() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let report = measured(&["vmmq", "--repetitions", "2", "--seconds", "0.4"]);
        let case = &report["cases"][0];
        assert_eq!(case["order"], Value::from(vec!["one", "static", "dynamic"]));
        let median = |arm: &str, key: &str| case["arms"][arm][key]["median"].as_f64().unwrap();
        for (arm, queues) in [("one", 1.0), ("static", 2.0), ("dynamic", 2.0)] {
            assert_eq!(median(arm, "uplink_queues"), queues, "{arm}");
            let [idle, low, full] = ["idle_throughput_bps", "low_throughput_bps", "throughput_bps"]
                .map(|key| median(arm, key));
            assert!(idle < low && low < full, "{arm}: {idle}, {low}, {full}");
        }
        let moves = |arm: &str| -> f64 {
            let own = case["samples"].as_array().unwrap().iter().filter(|one| one["arm"] == arm);
            let of = |one: &Value| {
                ["idle_", "low_", "full_", "after_"]
                    .map(|phase| one["values"][format!("{phase}moves")].as_f64().unwrap())
            };
            own.flat_map(of).sum()
        };
        assert!(moves("dynamic") > 0.0 && moves("static") == 0.0 && moves("one") == 0.0);
        let compared: Vec<&String> = case["comparisons"].as_object().unwrap().keys().collect();
        assert_eq!(compared, ["low_switch_cpu", "receiving_cpu", "throughput"]);
        assert_eq!(case["steps"].as_array().map(Vec::len), Some(2));
    });
}

#[test]
fn every_queue_pair_of_a_vnic_carries_traffic_by_table_and_by_flow() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let load = ["vrss", "--queues", "4"];
        let report = measured(&[&load[..], &["--repetitions", "2", "--seconds", "0.3"]].concat());
        let case = &report["cases"][0];
        for (arm, pairs) in [("one", 1.0), ("rss", 4.0), ("follow", 4.0)] {
            let figures = &case["arms"][arm];
            assert_eq!(figures["vnic_queues"]["median"], pairs, "{arm}");
            assert_eq!(figures["vnic_silent_queues"]["max"], 0.0, "{arm}");
        }
        let commands = report["commands"].to_string();
        for change in ["queues=4 steer=\\\"follow\\\"", "queues=1 steer="] {
            assert!(commands.contains(change), "{change}: {commands}");
        }
    });
}

#[test]
fn a_rate_is_measured_while_the_guest_sends_and_while_it_receives() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let few = ["rate", "--connections", "1", "--repetitions", "2", "--seconds", "1"];
        let report = measured_but_for(&few, "The arms were as labelled");
        let cases = report["cases"].as_array().unwrap();
        let ways: Vec<&Value> = cases.iter().map(|case| &case["way"]).collect();
        assert_eq!(ways, ["send", "receive"]);
        for case in cases {
            for (arm, rate) in [("50Mbit", 50e6), ("200Mbit", 200e6), ("1Gbit", 1e9)] {
                let median = case["arms"][arm]["throughput_bps"]["median"].as_f64().unwrap();
                assert!(median > 0.0 && median < 1.03 * rate, "{arm}: {median}");
            }
        }
        let commands = report["commands"].to_string();
        for change in ["rate=\\\"1Gbit\\\"", "rate-to=\\\"50Mbit\\\""] {
            assert!(commands.contains(change), "{change}: {commands}");
        }
    });
}

/// Each round trip's delay is checked by the run itself.
#[test]
fn a_rate_is_measured_over_long_round_trips() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let few = ["rate", "--connections", "1", "--repetitions", "2", "--seconds", "0.5"];
        let far = [&few[..], &["--round-trip", "20"]].concat();
        let report = measured_but_for(&far, "The arms were as labelled");
        let checks = report["checks"].to_string();
        assert!(checks.contains("A round trip takes at least 20 ms"), "{checks}");
        assert!(report["bench"]["description"].to_string().contains("delayed by 20 ms"));
    });
}

#[test]
fn an_xdp_uplink_is_measured_beside_a_packet_uplink() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        if !is_xdp_possible() {
            return println!("skipped: needs the right to load eBPF programs");
        }
        let report = measured(&["xdp", "--repetitions", "2", "--seconds", "0.2"]);
        let seen = "packet uplink0, then xdp uplink0 (native, copied)";
        assert!(report["checks"].to_string().contains(seen), "{:#}", report["checks"]);
        let bridges = ["linux_bridge", "linux_bridge_no_gro"];
        for arm in ["packet", "packet_rsc_off", "xdp", "xdp_rsc_off"].into_iter().chain(bridges) {
            let median = &report["cases"][0]["arms"][arm]["throughput_bps"]["median"];
            assert!(median.as_f64() > Some(1e6), "{arm}: {median}");
        }
    });
}

#[test]
fn what_the_kernel_carries_is_measured_three_ways_beside_a_bridge() {
    story(&[Need::Program("ethtool")], || {
        if let Err(why) = KernelPath::load() {
            return println!("skipped: needs the right to load eBPF programs: {why}");
        }
        let few = ["--connections", "2", "--repetitions", "2", "--seconds", "0.2"];
        let report = measured(&[&["kernel-path"][..], &few].concat());
        let cases = report["cases"].as_array().unwrap();
        let ways: Vec<&Value> = cases.iter().map(|case| &case["way"]).collect();
        assert_eq!(ways, ["receive", "send", "between"]);
        for case in cases {
            for arm in ["on", "off", "off_gro", "linux_bridge", "linux_bridge_no_gro"] {
                let median = &case["arms"][arm]["throughput_bps"]["median"];
                assert!(median.as_f64() > Some(1e6), "{}, {arm}: {median}", case["way"]);
            }
        }
        let trips = &report["latency"][0]["arms"]["on"]["latency_p99_ns"]["median"];
        assert!(trips.as_f64() > Some(0.0), "{trips}");
    });
}

#[test]
fn a_team_of_two_carries_more_than_one_and_its_outage_is_measured() {
    let needs = [Need::Tap, Need::Program("ethtool"), Need::Program("tc")];
    story(&needs, || {
        let few = ["--repetitions", "2", "--seconds", "0.5", "--connections", "16", "--pulls", "5"];
        let report = measured_but_for(&[&["team"][..], &few].concat(), "Outage of the guest");
        let checks = report["checks"].to_string();
        for algorithm in ["a pull, by hyper-v-port", "a pull, by dynamic"] {
            assert!(checks.contains(algorithm), "{checks}");
        }
        assert!(checks.contains("of 5 pulls of the guest's member"), "{checks}");
        let of = |arm: &str| {
            report["cases"][0]["arms"][arm]["throughput_bps"]["median"].as_f64().unwrap()
        };
        println!("measured: {:.0} and {:.0} Mbit/s; {checks}", of("one") / 1e6, of("two") / 1e6);
        assert!(of("two") > 1.3 * of("one"), "{:#}", report["cases"][0]["arms"]);
    });
}

#[test]
fn what_rules_and_vlans_cost_is_measured_with_both_in_force() {
    story(&[Need::Tap, Need::Program("ethtool"), Need::Program("ping")], || {
        for (experiment, seen) in [("acl", "100 rules"), ("vlan", "untagged, then trunk 1-4094")] {
            let report = measured(&[experiment, "--repetitions", "2", "--seconds", "0.2"]);
            assert!(report["checks"].to_string().contains(seen), "{:#}", report["checks"]);
        }
    });
}

#[test]
fn a_guest_moves_there_and_back_over_each_transport_and_its_stream_stays_whole() {
    let needs = [Need::Tap, Need::Guest("qemu"), Need::Program("ping"), Need::Program("ethtool")];
    story(&needs, || {
        let (code, error) = complaint("validate migration --guest /run --output /run/report");
        assert!(code == 1 && error.contains("/run has no vmlinuz"), "{code}: {error}");
        let guest = directory("qemu").canonicalize().unwrap().display().to_string();
        let short = ["--repetitions", "1", "--seconds", "0.3"];
        let report = measured(&[&["migration", "--guest", &guest][..], &short].concat());
        let case = &report["cases"][0];
        let order = ["mtu1500_1", "mtu9000_1", "mtu9000_4", "mtu1500_4"];
        let arms = case["order"].as_array().unwrap();
        assert_eq!(arms[..order.len()], order.map(Value::from));
        let (peer, notes) =
            (&case["arms"]["ovs_dpdk"]["ping_outage_ms"], report["notes"].to_string());
        assert!(
            peer.is_object() || notes.contains("OVS-DPDK, memory by a direct wire was left out"),
            "{notes}"
        );
        println!("measured: {}", report["checks"][0]["seen"]);
        for arm in order {
            let of = |key: &str| case["arms"][arm][key]["median"].as_f64();
            for key in ["total_s", "downtime_ms", "cpu_s_per_gib", "ping_outage_ms", "gap_ms"] {
                assert!(of(key).is_some(), "{arm}: {key}: {:#}", case["arms"][arm]);
            }
            // More bytes than the guest's kernel alone sends.
            assert!(of("sent_bytes") > Some(3e7) && of("received_bytes") > Some(1e5), "{arm}");
        }
    });
}

#[test]
fn programs_read_by_iscsi_through_the_switch_and_over_a_veth() {
    story(&[Need::Tap, Need::Program("tgtd"), Need::Program("iscsi-perf")], || {
        let short = ["--repetitions", "1", "--seconds", "1", "--mtu", "9000"];
        let report = measured(&[&["iscsi"][..], &short].concat());
        let arms = &report["cases"][0]["arms"];
        for arm in ["millrace", "veth", "always"] {
            for key in ["sequential_bps", "random_32_per_s", "random_1_per_s"] {
                let median = arms[arm][key]["median"].as_f64();
                assert!(median > Some(0.0), "{arm}: {key}: {arms:#}");
            }
        }
    });
}

#[test]
fn a_guest_with_two_paths_to_its_storage_goes_on_when_a_member_is_pulled() {
    story(&[Need::Guest("qemu")], || {
        let guest = directory("qemu").canonicalize().unwrap().display().to_string();
        let short = ["--repetitions", "1", "--seconds", "0.5"];
        let report = measured(&[&["storage", "--guest", &guest][..], &short].concat());
        let case = &report["cases"][0];
        println!("measured: {:#}", report["checks"]);
        for (arm, pairs) in
            [("mtu1500_1", 1.0), ("mtu9000_1", 1.0), ("mtu9000_4", 4.0), ("mtu1500_4", 4.0)]
        {
            let of = |key: &str| case["arms"][arm][key]["median"].as_f64();
            assert_eq!(of("queue_pairs"), Some(pairs), "{arm}");
            for key in ["read_bps", "random_reads_per_s", "write_bps"] {
                assert!(of(key) > Some(0.0), "{arm}: {key}: {:#}", case["arms"][arm]);
            }
            // A busy host may end no random write in half a second, behind the ordered writes. The
            // copy shows that they are written.
            assert!(of("random_writes_per_s").is_some(), "{arm}: {:#}", case["arms"][arm]);
            assert!(of("copied_bytes") >= Some(8e6) && of("path_change_ms") > Some(0.0), "{arm}");
        }
        let text = report["checks"].to_string();
        assert!(text.contains("of one guest are pinned to the same member"), "{text}");
        assert!(text.contains("its members have different MTUs"), "{text}");
    });
}
