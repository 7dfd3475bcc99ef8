//! `millrace guide` as a person follows it, with traffic by NTttcp's own command line. The remedies
//! that it prints are typed as they are.

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, cli, complaint, millrace};
use crate::topology::{Family, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Output, Stdio};
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];
/// The user's directory for states.
const HOME: &str = "/run/home";
/// The state file of the story.
const STATE: &str = "/run/guide.json";

/// Traffic from the far host to the guest, until it is dropped.
struct Traffic([Child; 2]);

impl Traffic {
    fn start(topology: &Topology) -> Traffic {
        Traffic::by(topology, "-M 1,*,ADDRESS -l 64k -a 6 -t 300")
    }

    fn by(topology: &Topology, line: &str) -> Traffic {
        let line = line.replace("ADDRESS", &Family::V4.guest().to_string());
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

/// Runs a guide that keeps its state in the user's own directory.
fn guide_at_home(line: &str) -> Output {
    let mut command = millrace();
    command.env("XDG_STATE_HOME", HOME).arg("guide").args(line.split(' '));
    command.args(["--yes", "--json", "--seconds", "2"]).heard()
}

/// Returns the commands between backquotes.
fn commands(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
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
        drop(traffic);
        // A finished guide is shown again, and waits for nothing.
        let shown = guide(&["--json"]);
        let told = String::from_utf8_lossy(&shown.stderr);
        assert_eq!((shown.status.code(), json(&shown)), (Some(0), document.clone()), "{told}");
        let ended = document["ended"].as_str().unwrap();
        assert!(told.contains(&format!("guide rsc for port guest finished at {ended}")), "{told}");
        assert!(told.contains("--restart"), "{told}");
        // Unsegmented trains from the sender: RSC has nothing to do.
        topology.far.run("ethtool -K veth tso on gso on");
        let traffic = Traffic::start(&topology);
        let output = guide(&["--json", "--restart"]);
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
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("continues from /run/guide.json"), "{told}");
        for part in ["Switch ns/Byte", "document: Enabled", "another quantity", "nothing was found"]
        {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
    });
}

#[test]
fn the_linux_guide_gives_a_container_its_address_again_and_uses_all_queues() {
    story(&NEEDS, || {
        // With the key, one queue is somebody's choice; without it, more workers bring more.
        let topology = Topology::new("queues = 1\n");
        let output = guide_at_home("linux --port guest --wait 1s");
        let document = json(&output);
        assert_eq!((output.status.code(), &document["verdict"]), (Some(1), &"stopped".into()));
        let queues = task(&document, "The vNIC has several queue pairs (VMBus channels)");
        let remedy = queues["remedy"].as_str().unwrap();
        assert_eq!(queues["status"], "problem", "{queues:#}");
        assert!(remedy.contains("`millrace port set uplink queues="), "{remedy}");
        let added = task(&document, "Add a TAP port while the switch runs, and remove it");
        assert_eq!(added["status"], "passed", "{added:#}");
        assert!(std::path::Path::new(HOME).join("millrace/guide-linux-guest.json").exists());
        // The remedies, as they are printed.
        topology.switch.tell("port set uplink queues=2");
        let changed = cli("port set guest queues=2 --wait up");
        let told = String::from_utf8_lossy(&changed.stderr);
        assert!(remedy.contains(told.trim()), "{remedy} should say as well: {told}");
        let typed = commands(&told);
        assert!(
            typed.contains(&"nsenter --net=/run/netns/guest ip address add 10.9.0.2/24 dev tap0")
        );
        let given_back = typed.into_iter().filter(|line| line.starts_with("nsenter"));
        given_back.for_each(|line| drop(run(line)));
        let _traffic = Traffic::by(&topology, "-M 16,*,ADDRESS -l 64k -p 20001 -t 300");
        let output = guide_at_home("linux --port guest");
        let document = json(&output);
        assert_eq!(output.status.code(), Some(0), "{document:#}");
        assert_eq!(document["verdict"], "done", "{document:#}");
        let measured = &document["measurements"][0];
        assert_eq!((&measured["queues"], &measured["queues_used"]), (&2.into(), &2.into()));
    });
}

/// A guest with two vNICs, and a team whose members lead to one bridge.
fn two_paths() -> (Switch, Host) {
    let (net, guest) = (Host::new("net"), Host::new("guest"));
    net.run("ip link add br0 type bridge");
    net.run("ip link set br0 up");
    net.run("ip address add 10.9.2.1/24 dev br0");
    let mut ports =
        "[[port]]\nname = 'team'\nteam = ['eth1', 'eth2']\nteam-fail-back = 0\n".to_owned();
    for path in [1, 2] {
        run(&format!("ip link add eth{path} type veth peer name p{path} netns net"));
        run(&format!("ip link set eth{path} up"));
        net.run(&format!("ip link set p{path} master br0 up"));
        ports += &format!(
            "[[port]]\nname = 'iscsi{path}'\ntap = 'tap{path}'\nnetns = 'guest'\nqueues = 2\n"
        );
    }
    let switch = Switch::start(&ports);
    for path in [1, 2] {
        guest.assign_addresses(&format!("tap{path}"), 10 * path);
    }
    guest.run("ip address add 10.9.2.2/24 dev tap2");
    for port in ["team", "iscsi1", "iscsi2"] {
        switch.wait_for(port, "up");
    }
    (switch, guest)
}

#[test]
fn the_iscsi_guide_waits_for_a_pull_and_sees_the_other_path_carry_on() {
    story(&[Need::Tap, Need::Program("ping")], || {
        let (_switch, guest) = two_paths();
        let (code, told) = complaint("team map team team eth1");
        assert!(code == 1 && told.contains("a vNIC: iscsi1, iscsi2"), "{told}");
        let output = guide_at_home("iscsi --wait 1s");
        let document = json(&output);
        assert_eq!((output.status.code(), &document["verdict"]), (Some(1), &"problems".into()));
        let pinned = task(&document, "Two vNICs of the guest, each with a link of its own");
        let typed = commands(pinned["remedy"].as_str().unwrap());
        let wanted = ["millrace team map team iscsi1 eth1", "millrace team map team iscsi2 eth2"];
        assert_eq!(typed[..2], wanted, "{pinned:#}");
        typed[..2].iter().for_each(|line| {
            let said = cli(line.strip_prefix("millrace ").unwrap());
            assert!(said.status.success(), "{line}: {}", String::from_utf8_lossy(&said.stderr));
        });
        // No member goes down here, so the note stands and the state is kept for the next run.
        let output = guide_at_home("iscsi --wait 1s");
        let document = json(&output);
        assert_eq!((output.status.code(), &document["verdict"]), (Some(0), &"noted".into()));
        let mut command = millrace();
        let log = std::fs::File::create("/run/guide.log").unwrap();
        command.env("XDG_STATE_HOME", HOME).args(["guide", "iscsi", "--yes", "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let says = |words: &str| {
            let told = std::fs::read_to_string("/run/guide.log").unwrap();
            told.contains(words).then_some(())
        };
        until("the guide says what to type", || says("`ip link set eth1 down`"));
        run("ip link set eth1 down");
        until("the guide sees it", || says("eth1 is down"));
        guest.run("ping -q -c 20 -i 0.01 -s 1000 10.9.2.1");
        run("ip link set eth1 up");
        let output = child.heard();
        let document = json(&output);
        assert_eq!(output.status.code(), Some(0), "{document:#}");
        assert_eq!(document["verdict"], "done", "{document:#}");
    });
}

/// `check` advised two uplinks for two storage networks, and the guide called the lack of a team a
/// problem.
#[test]
fn the_iscsi_guide_and_check_agree_on_two_separate_networks() {
    const QUEUES: &str = "Several queues and one MTU on both paths";
    story(&NEEDS, || {
        let _guest = Host::new("guest");
        let mut ports = String::new();
        for (path, net) in [(1, "net1"), (2, "net2")] {
            let far = Host::new(net);
            run(&format!("ip link add eth{path} type veth peer name far netns {net}"));
            run(&format!("ip link set eth{path} up"));
            far.run("ip link set far up");
            ports += &format!("[[port]]\nname = 'storage{path}'\npacket = 'eth{path}'\n");
            ports += &format!("[[port]]\nname = 'vm{path}'\ntap = 'tap{path}'\nnetns = 'guest'\n");
        }
        let switch = Switch::start(&(ports + "[switch]\nworkers = 2\n"));
        for port in ["storage1", "storage2", "vm1", "vm2"] {
            switch.wait_for(port, "up");
        }
        let kinds = || {
            let health: Value = serde_json::from_slice(&cli("check --json").stdout).unwrap();
            let findings = health["findings"].as_array().unwrap().iter();
            findings.map(|it| it["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert!(kinds().contains(&"uplinks_share_vlan".to_owned()), "{:?}", kinds());
        let document = json(&guide_at_home("iscsi --wait 1s"));
        let vnics = task(&document, "Two vNICs of the guest, each with a link of its own");
        assert_eq!(
            (&document["verdict"], &vnics["status"]),
            (&"problems".into(), &"problem".into())
        );
        for line in commands(vnics["remedy"].as_str().unwrap()) {
            assert!(cli(line.strip_prefix("millrace ").unwrap()).status.success(), "{line}");
        }
        assert!(!kinds().contains(&"uplinks_share_vlan".to_owned()), "{:?}", kinds());
        let document = json(&guide_at_home("iscsi --wait 1s"));
        assert_eq!(document["verdict"], "noted", "no link was pulled: {document:#}");
        assert_eq!(task(&document, QUEUES)["status"], "passed", "{document:#}");
        switch.tell("port set vm2 queues=1");
        switch.wait_for("vm2", "up");
        let document = json(&guide_at_home("iscsi --wait 1s"));
        let queues = task(&document, QUEUES);
        assert_eq!(queues["status"], "problem", "{queues:#}");
        let typed = queues["remedy"].as_str().unwrap();
        assert!(typed.starts_with("`millrace port set vm2 queues="), "{typed}");
    });
}

#[test]
fn a_guide_that_cannot_begin_says_why_and_a_list_changes_nothing() {
    story(&NEEDS, || {
        let topology = Topology::new("[[port]]\nname = 'other'\ntap = 'tap1'\n");
        let (code, told) = complaint("guide rsc --yes");
        assert!(code == 2 && told.contains("guest, other") && told.contains("--port"), "{told}");
        // It began, and looked at the uplink as if it were a vNIC.
        let (code, told) = complaint("guide rsc --yes --port uplink");
        assert!(code == 2 && told.contains("port uplink is not a vNIC"), "{told}");
        assert!(told.contains("an uplink (packet uplink)"), "{told}");
        assert!(told.contains("`--port guest` or `--port other`"), "{told}");
        let (code, told) = complaint("guide iscsi --yes --port guest,uplink");
        assert!(code == 2 && told.contains("port uplink is not a vNIC"), "{told}");
        let (code, told) =
            complaint(&format!("guide jumbo --sender {}@127.0.0.1:5900", "0".repeat(32)));
        assert!(code == 2 && told.contains("guide jumbo --sender"), "{told}");
        let network = format!("--network a={}@127.0.0.1:5910", "0".repeat(32));
        let (code, told) = complaint(&format!("guide vmmq --port guest {network}"));
        assert!(code == 2 && told.contains("guide jumbo"), "{told}");
        for name in ["rsc", "vmmq", "linux", "jumbo", "iscsi"] {
            let listed = cli(&format!("guide {name} --list"));
            let said = String::from_utf8_lossy(&listed.stdout);
            assert!(listed.status.success() && said.contains("millrace status"), "{said}");
        }
        let listed = cli("guide --list");
        let said = String::from_utf8_lossy(&listed.stdout);
        for part in ["rsc", "Windows d.VMMQ Performance", "`millrace guide GUIDE --list`"] {
            assert!(listed.status.success() && said.contains(part), "{part} is missing: {said}");
        }
        // No traffic comes: it says so, and ends.
        let output = guide(&["--wait", "3s", "--json"]);
        let document = json(&output);
        assert_eq!(output.status.code(), Some(1), "{document:#}");
        let measured = task(&document, "Generate traffic and capture measurements");
        assert_eq!(measured["wanted"], "traffic above 1 MB/s", "{measured:#}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("ntttcp -S -M 1,*,10.9.0.2 -l 64k -a 6 -t 30"), "{told}");
        assert_eq!(told.matches("waiting for traffic toward guest").count(), 1, "{told}");
        assert!(measured["remedy"].as_str().unwrap().contains("dport 5000-5001"), "{measured:#}");
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
