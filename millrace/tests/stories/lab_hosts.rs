//! Measures between existing hosts: agents on two of them, and the running switch between them.
//!
//! ```text
//! far [10.9.0.1] veth uplink ── millrace ── tap0 [10.9.0.2] guest
//!                                  └─────── host0 [10.9.0.3] here, from where the agents are asked
//! ```

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, millrace};
use crate::topology::Topology;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];
const SHORT: [&str; 4] = ["--repetitions", "2", "--seconds", "0.2"];

/// Makes the network, with a way from here to both hosts.
fn network() -> Topology {
    let topology = Topology::new("[[port]]\nname = 'host'\ntap = 'host0'\n");
    run("ip address add 10.9.0.3/24 dev host0");
    run("ip link set host0 up");
    topology.switch.wait_for("host", "up");
    topology
}

/// An agent, started by hand on a host.
pub(crate) struct Agent {
    child: Child,
    /// The agent's name, which it printed to be typed elsewhere.
    pub(crate) name: String,
}

impl Agent {
    pub(crate) fn start(host: Host, address: &str) -> Agent {
        let program = millrace().get_program().to_owned();
        let mut command = host.command(program.to_str().unwrap());
        command.args(["lab", "agent", "--listen", address]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let usage = lines.find(|line| line.as_ref().unwrap().contains("--sender ")).unwrap();
        let name = usage.unwrap().split_once("--sender ").unwrap().1.to_owned();
        // The agent goes on printing events.
        std::thread::spawn(move || lines.for_each(drop));
        Agent { child, name }
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        signal_to(&self.child, signal);
        self.child.wait().unwrap().code()
    }
}

fn signal_to(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

fn validate(arguments: &[&str]) -> Output {
    lab(&[&["validate"], arguments].concat())
}

fn lab(arguments: &[&str]) -> Output {
    millrace().args(arguments).args(SHORT).current_dir("/run").heard()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error(output)))
}

fn policy(switch: &Switch) -> Value {
    switch.ask("rsc show guest")[0]["Policy"].clone()
}

#[test]
fn two_hosts_validate_the_switch_between_them() {
    story(&NEEDS, || {
        let topology = network();
        let far = Agent::start(topology.far, "10.9.0.1:5900");
        let guest = Agent::start(topology.guest, "10.9.0.2:0");
        topology.switch.tell("rsc off guest");
        let hosts = ["--sender", &far.name, "--receiver", &guest.name, "--json"];
        let several = validate(&[&["rsc"], &hosts[..]].concat());
        assert_eq!(several.status.code(), Some(1));
        assert!(error(&several).contains("several vNICs (guest, host)"), "{}", error(&several));
        let output = validate(&[&["rsc", "--port", "guest"], &hosts[..]].concat());
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{}\n{:#}", error(&output), report["checks"]);
        assert_eq!(
            report["cases"][0]["account"]["sent_bytes"],
            report["cases"][0]["account"]["received_bytes"]
        );
        assert!(
            report["latency"][0]["arms"]["on"]["latency_median_ns"]["median"].as_f64() > Some(0.0)
        );
        assert_eq!(report["bench"]["hosts"].as_array().map(Vec::len), Some(2));
        assert_eq!(policy(&topology.switch), "off", "what was before is again");
        // Without a receiver, this host receives.
        let here = ["limits", "--port", "host", "--sender", &far.name, "--json"];
        let limits = validate(&here);
        assert_eq!(
            limits.status.code(),
            Some(0),
            "{}\n{:#}",
            error(&limits),
            json(&limits)["checks"]
        );
        let shown = topology.switch.ask("port show host");
        for key in ["length-limit", "ack-limit", "rsc"] {
            assert_eq!(shown["config"][key], Value::Null, "{key} was not said before");
        }
        assert_eq!((far.end(Signal::INT), guest.end(Signal::TERM)), (Some(130), Some(130)));
    });
}

#[test]
fn a_switch_in_use_is_measured_as_it_is() {
    story(&NEEDS, || {
        let topology = network();
        let far = Agent::start(topology.far, "10.9.0.1:5900");
        let guest = Agent::start(topology.guest, "10.9.0.2:0");
        // With RSC off, which these commands do not turn on.
        topology.switch.tell("rsc off guest");
        let before = topology.switch.ask("port show guest")["config"].clone();
        let hosts = ["--sender", &far.name, "--receiver", &guest.name, "--port", "guest", "--json"];
        let measured = |command: &[&str]| {
            let output = lab(&[command, &hosts].concat());
            let report = json(&output);
            let told = format!("{}\n{:#}", error(&output), report["checks"]);
            (output.status.code(), report, told)
        };
        let (code, sweep, told) =
            measured(&["sweep", "--connections", "1,2", "--blocks", "4096,65536"]);
        assert_eq!(code, Some(0), "{told}");
        let cases = sweep["cases"].as_array().unwrap();
        assert!(cases.len() == 4 && cases.iter().all(|case| case["way"] == "receive"));
        let (code, connections, told) = measured(&["connections", "--connections", "1,8"]);
        assert_eq!(code, Some(0), "{told}");
        for report in [&sweep, &connections] {
            assert_eq!(report["bench"]["hosts"].as_array().map(Vec::len), Some(2));
            for case in report["cases"].as_array().unwrap() {
                let rate = &case["arms"]["measured"]["throughput_bps"]["median"];
                assert!(rate.as_f64() > Some(0.0), "{case:#}");
            }
        }
        // The path has no jumbo frames: there is nothing to compare, and the check says so.
        let (code, _, told) = measured(&["validate", "jumbo"]);
        assert!(code == Some(1) && told.contains("millrace mtu check"), "{told}");
        assert_eq!(topology.switch.ask("port show guest")["config"], before);
    });
}

#[test]
fn a_path_with_jumbo_frames_is_compared_with_segments_of_another_without_any_change() {
    story(&NEEDS, || {
        let topology = network();
        topology.far.run("ip link set veth mtu 9000");
        run("ip link set uplink mtu 9000");
        for port in ["uplink", "guest"] {
            topology.switch.tell(&format!("port set {port} mtu=9000"));
        }
        let far = Agent::start(topology.far, "10.9.0.1:5900");
        let guest = Agent::start(topology.guest, "10.9.0.2:0");
        let hosts = ["--sender", &far.name, "--receiver", &guest.name, "--port", "guest"];
        let output = validate(&[&["jumbo", "--json"], &hosts[..]].concat());
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{}\n{:#}", error(&output), report["checks"]);
        let of = |arm: &str| report["cases"][0]["arms"][arm]["segment_bytes"]["median"].as_f64();
        // Both ends are read one after the other, so neither figure is exact.
        assert!(of("on") > Some(2000.0) && of("off") < Some(1700.0), "{:?}", (of("on"), of("off")));
        assert!(report["commands"].to_string().contains("--mss 1460"), "{:#}", report["commands"]);
    });
}

#[test]
fn what_was_before_is_again_after_an_interrupt_and_after_an_agents_end() {
    story(&NEEDS, || {
        let topology = network();
        let far = Agent::start(topology.far, "10.9.0.1:5900");
        topology.switch.tell("rsc off guest");
        // The guest is a namespace of this host.
        let receiver = ["--receiver-netns", "guest", "--to", "10.9.0.2", "--port", "guest"];
        let begin = |report: &str, far: &Agent| {
            let mut long = millrace();
            long.args(["validate", "rsc", "--seconds", "0.2", "--output", report]).args(receiver);
            long.args(["--sender", &far.name]).current_dir("/run");
            let run = long.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            until("RSC is toggled", || (policy(&topology.switch) != "off").then_some(()));
            let before = topology.switch.counter("guest", "/egress_bytes");
            let moved = || topology.switch.counter("guest", "/egress_bytes") > before + (1 << 20);
            until("bytes arrive", || moved().then_some(()));
            run
        };
        for signal in [Signal::INT, Signal::HUP] {
            let run = begin("interrupted", &far);
            signal_to(&run, signal);
            assert_eq!(run.heard().status.code(), Some(130));
            assert_eq!(policy(&topology.switch), "off");
        }
        for (signal, why) in [(Signal::INT, "the agent was interrupted"), (Signal::KILL, "")] {
            let far = Agent::start(topology.far, "10.9.0.1:5901");
            let run = begin("failed", &far);
            far.end(signal);
            let told = run.heard();
            assert_eq!(told.status.code(), Some(1), "{}", error(&told));
            assert_eq!(policy(&topology.switch), "off");
            let page = std::fs::read_to_string("/run/failed/report.md").unwrap();
            assert!(page.contains(why), "{page}");
        }
    });
}

#[test]
fn what_is_not_there_or_not_possible_is_told() {
    story(&[], || {
        let nobody = "0123456789abcdef@127.0.0.1:9";
        let told = |arguments: &[&str]| {
            let output = validate(&[arguments, &["--sender", nobody]].concat());
            (output.status.code(), error(&output))
        };
        let (code, said) = told(&["rsc"]);
        assert_eq!(code, Some(3), "{said}");
        for (command, why) in [
            (&["validate", "lso"][..], "sending guest's own device"),
            (&["validate", "acl"], "guard it"),
            (&["validate", "hotplug"], "ten times a second"),
            (&["validate", "xdp"], "reopened"),
            (&["validate", "vrss"], "reopened with other queues"),
            (&["validate", "vmmq"], "reopened with other queues"),
            (&["validate", "team"], "pulled"),
            (&["validate", "iscsi"], "programs"),
            (&["validate", "migration", "--guest", "/run"], "boots"),
            (&["validate", "self"], "known beforehand"),
            (&["ladder"], "own device"),
            (&["sweep", "--queues", "2"], "reopened with other queues"),
            (&["sweep", "--mtu", "9000"], "theirs"),
        ] {
            let output = millrace().args(command).args(["--sender", nobody]).heard();
            let said = error(&output);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
            assert!(said.contains(why) && said.contains("omit "), "{command:?}: {said}");
        }
        let _switch = Switch::start("");
        let (code, said) = told(&["rsc", "--port", "nosuch"]);
        assert!(code == Some(1) && said.contains("nosuch"), "{said}");
        let (code, said) = told(&["rsc"]);
        assert!(code == Some(1) && said.contains("no vNIC"), "{said}");
    });
}
