//! `millrace guide rsc` as a person follows it, with traffic by NTttcp's own command line: once
//! where coalescing shows, and once where it cannot.

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{cli, complaint, millrace};
use crate::topology::{Family, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Output, Stdio};
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];
/// The state file of the story.
const STATE: &str = "/run/guide.json";

/// Traffic from the far host to the guest, until it is dropped.
struct Traffic([Child; 2]);

impl Traffic {
    fn start(topology: &Topology) -> Traffic {
        let line = format!("-M 1,*,{} -l 64k -a 6 -t 300", Family::V4.guest());
        let ntttcp = |host: Host, side: &str| {
            let program = millrace().get_program().to_owned();
            let mut command = host.command(program.to_str().unwrap());
            command.args(["ntttcp", side]).args(line.split(' '));
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let receiver = ntttcp(topology.guest, "-R");
        let traffic = Traffic([receiver, ntttcp(topology.far, "-S")]);
        until("traffic flows", || {
            (topology.switch.counter("guest", "/egress_bytes") > 1 << 20).then_some(())
        });
        traffic
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn guide(more: &[&str]) -> Output {
    let line = ["guide", "rsc", "--port", "guest", "--yes", "--seconds", "2", "--state", STATE];
    millrace().args(line).args(more).heard()
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"))
}

/// Returns the result of a task, by its title.
fn task<'d>(document: &'d Value, title: &str) -> &'d Value {
    let activities = document["activities"].as_array().unwrap().iter();
    let mut tasks = activities.flat_map(|activity| activity["tasks"].as_array().unwrap());
    tasks.find(|task| task["title"] == title).unwrap_or(&Value::Null)
}

#[test]
fn the_rsc_guide_shows_an_effect_and_refuses_to_compare_nothing() {
    story(&NEEDS, || {
        // The far host's TSO is off.
        let topology = Topology::new("");
        run("ethtool -K uplink gro off");
        let traffic = Traffic::start(&topology);
        let output = guide(&["--json"]);
        let document = json(&output);
        assert_eq!(output.status.code(), Some(0), "{document:#}");
        assert_eq!((&document["verdict"], &document["schema"]), (&"done".into(), &1.into()));
        let [on, off] = [0, 1].map(|place| &document["measurements"][place]);
        assert!(on["segments_per_frame"].as_f64() >= Some(1.5), "{on:#}");
        assert_eq!((&on["name"], &off["name"]), (&"on".into(), &"off".into()));
        assert_eq!(off["segments_per_frame"], 1.0, "{off:#}");
        assert_eq!(document["table"]["rows"].as_array().map(Vec::len), Some(6));
        let shown = topology.switch.ask("port show guest");
        assert_eq!(shown["config"]["rsc"], Value::Null, "the setting is as it was");
        assert!(!std::path::Path::new(STATE).exists(), "a finished guide begins anew");
        drop(traffic);
        // Unsegmented trains from the sender: RSC has nothing to do.
        topology.far.run("ethtool -K veth tso on gso on");
        let traffic = Traffic::start(&topology);
        let output = guide(&["--json"]);
        let document = json(&output);
        assert_eq!(output.status.code(), Some(1), "{document:#}");
        assert_eq!(document["verdict"], "stopped");
        let measured = task(&document, "Generate traffic and capture measurements");
        assert_eq!(measured["status"], "problem", "{measured:#}");
        assert!(measured["remedy"].as_str().unwrap().contains("tso off gso off"), "{measured:#}");
        assert_eq!(task(&document, "Compare the measurements"), &Value::Null);
        drop(traffic);
        // The remedy helps, and the next run continues where this one stopped.
        topology.far.run("ethtool -K veth tso off gso off");
        let _traffic = Traffic::start(&topology);
        let output = guide(&[]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}");
        for part in
            ["done before: ReceiveSegmentCoalescing Enabled", "Segments/Frame", "document: Enabled"]
        {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
    });
}

#[test]
fn a_guide_that_cannot_begin_says_why_and_a_list_changes_nothing() {
    story(&NEEDS, || {
        let topology = Topology::new("[[port]]\nname = 'other'\ntap = 'tap1'\n");
        let (code, told) = complaint("guide rsc --yes");
        assert!(code == 2 && told.contains("guest, other") && told.contains("--port"), "{told}");
        let (code, told) =
            complaint(&format!("guide jumbo --sender {}@127.0.0.1:5900", "0".repeat(32)));
        assert!(code == 2 && told.contains("guide jumbo --sender"), "{told}");
        for name in ["rsc", "vmmq", "linux", "jumbo", "iscsi"] {
            let listed = cli(&format!("guide {name} --list"));
            let said = String::from_utf8_lossy(&listed.stdout);
            assert!(listed.status.success() && said.contains("millrace status"), "{said}");
        }
        // No traffic comes: it says so, and ends.
        let output = guide(&["--wait", "1s", "--json"]);
        let document = json(&output);
        assert_eq!(output.status.code(), Some(1), "{document:#}");
        let measured = task(&document, "Generate traffic and capture measurements");
        assert_eq!(measured["wanted"], "traffic above 1 MB/s", "{measured:#}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("ntttcp -S -M 1,*,10.9.0.2 -l 64k -a 6 -t 30"), "{told}");
        assert!(topology.switch.ask("port list").as_array().map(Vec::len) == Some(3));
    });
}

#[test]
fn what_was_before_is_again_after_an_interrupt() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let policy = || topology.switch.ask("rsc show guest")[0]["Policy"].clone();
        topology.switch.tell("rsc off guest");
        let mut command = millrace();
        command.args(["guide", "rsc", "--yes", "--state", STATE, "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // It waits, because no traffic is started.
        until("RSC is on for the measurement", || (policy() == "ndis").then_some(()));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.heard();
        assert_eq!(output.status.code(), Some(130));
        let document = json(&output);
        assert_eq!((&document["verdict"], policy()), (&"unfinished".into(), "off".into()));
        assert_eq!(task(&document, "Review the RSC adapter status")["status"], "problem");
        let kept: Value = serde_json::from_slice(&std::fs::read(STATE).unwrap()).unwrap();
        assert_eq!(kept["activities"], document["activities"]);
    });
}
