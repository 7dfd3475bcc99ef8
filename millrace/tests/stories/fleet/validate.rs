//! `millrace fleet validate`: the agents of two hosts measure a feature of the one's switch.
//!
//! ```text
//! far, near: host0 (10.9.0.N, the host's own TAP) ── millrace ── wire ── physical
//!            eth1 ── management ── etcd
//! ```

use super::hosts::{cli, lay_cables, operate, start_daemon, wire};
use crate::etcd::{Etcd, NEED};
use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::millrace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use waiting::until;

const NEEDS: [Need; 3] = [NEED, Need::Tap, Need::Program("ethtool")];
const ETCD: &str = "10.8.0.254";

/// A host with its switch and its agent.
struct Site {
    host: Host,
    name: &'static str,
    number: u8,
    daemon: Child,
    agent: Child,
}

impl Site {
    fn new(name: &'static str, number: u8) -> Site {
        let host = Host::new(name);
        wire(host, name);
        // A veth carries trains whole, which would leave nothing to coalesce. So frames have the
        // MTU's size, as in a real network.
        host.run("ethtool -K wire tso off gso off");
        let ports =
            "\n[[port]]\nname = 'up'\npacket = 'wire'\n\n[[port]]\nname = 'host'\ntap = 'host0'\n";
        std::fs::write(format!("/run/{name}.toml"), format!("[switch]\nworkers = 1\n{ports}"))
            .unwrap();
        let daemon = start_daemon(host, name);
        host.assign_addresses("host0", number);
        run(&format!("ip link add m{number} type veth peer name eth1 netns {name}"));
        run(&format!("ip link set m{number} master management up"));
        host.run(&format!("ip address add 10.8.0.{number}/24 dev eth1"));
        host.run("ip link set eth1 up");
        let agent = start_agent(host, name, Some(number));
        Site { host, name, number, daemon, agent }
    }

    /// Kills the agent, and starts it again.
    fn restart_agent(&mut self, takes_part: bool) {
        end(&mut self.agent);
        self.agent = start_agent(self.host, self.name, takes_part.then_some(self.number));
    }

    /// Returns what the switch does with trains toward the host.
    fn policy(&self) -> Value {
        let output = cli(&format!("rsc show host --json --socket /run/{}.api", self.name));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()[0]["Policy"].clone()
    }

    /// Returns the number of files of experiments in the agent's state directory.
    fn files(&self) -> usize {
        let all = std::fs::read_dir(format!("/run/{}.fleet", self.name)).unwrap();
        all.filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().starts_with("exp"))
            .count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        end(&mut self.agent);
        end(&mut self.daemon);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn start_agent(host: Host, name: &str, number: Option<u8>) -> Child {
    let mut command = host.command(millrace().get_program().to_str().unwrap());
    command.env("MILLRACE_LOG", "warn").args(["fleet", "agent", "--insecure-http"]);
    command.args(["--host", name, "--etcd", &format!("http://{ETCD}:2379")]);
    command.args(["--state-dir", &format!("/run/{name}.fleet")]);
    command.args(["--socket", &format!("/run/{name}.api")]);
    if let Some(number) = number {
        command.args(["--lab-address", &format!("10.9.0.{number}")]);
    }
    let agent = command.spawn().unwrap();
    until("the agent reports", || {
        let status: Value = serde_json::from_slice(&operate("status --json").stdout).ok()?;
        let record = status["hosts"].as_array()?.iter().find(|it| it["name"] == name)?;
        (record["status"]["lab"].is_string() == number.is_some() && !record["status"].is_null())
            .then_some(())
    });
    agent
}

fn validate(line: &str) -> Output {
    operate(&format!("validate rsc {line}"))
}

/// Starts an experiment. Returns the command's process and its lines.
fn begun(command: &mut Command) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    (child, lines)
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the number of processes that measure.
fn measuring() -> usize {
    let all = std::fs::read_dir("/proc").unwrap();
    let lines = all.filter_map(|it| std::fs::read(it.ok()?.path().join("cmdline")).ok());
    let words = |line: Vec<u8>| String::from_utf8_lossy(&line).replace('\0', " ");
    lines
        .map(words)
        .filter(|line| line.contains(" lab agent ") || line.contains(" lab-host "))
        .count()
}

fn is_over(far: &Site, near: &Site, before: &Value) -> bool {
    measuring() == 0 && near.files() + far.files() == 0 && near.policy() == *before
}

/// Checks that a port that is changed during an experiment gives no figures, and keeps the change.
fn no_figures_come_of_a_port_that_someone_changes(near: &Site, before: &Value) {
    let mut command = millrace();
    let all = "fleet validate rsc --from far --to near --port host --json".split(' ');
    let measured = command.args(all).stdout(Stdio::piped()).spawn().unwrap();
    until("an arm is in force", || (near.policy() != *before).then_some(()));
    let set = |key: &str| {
        let changed = cli(&format!("port set host {key} --socket /run/near.api"));
        assert!(changed.status.success(), "{}", error(&changed));
    };
    set("length-limit=7");
    let output = measured.heard();
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(near.policy(), *before);
    let port = cli("port show host --json --socket /run/near.api");
    let port: Value = serde_json::from_slice(&port.stdout).unwrap();
    assert_eq!(port["config"]["length-limit"], 7, "{port}");
    set("length-limit=");
}

#[test]
fn two_hosts_measure_a_feature_and_leave_nothing() {
    story(&NEEDS, || {
        lay_cables();
        run("ip link add management type bridge forward_delay 0 stp_state 0");
        run("ip link set management up");
        run(&format!("ip address add {ETCD}/24 dev management"));
        let _etcd = Etcd::reached_at(ETCD);
        let [mut far, near] =
            [("far", 1), ("near", 2)].map(|(name, number)| Site::new(name, number));
        let before = near.policy();

        let output = validate("--from far --to near --port host --quick --repetitions 2 --json");
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error(&output)));
        assert_eq!(output.status.code(), Some(0), "{}\n{:#}", error(&output), report["checks"]);
        let account = &report["cases"][0]["account"];
        assert!(account["received_bytes"].as_u64() > Some(1 << 20), "{account}");
        assert_eq!(account["sent_bytes"], account["received_bytes"]);
        assert_eq!(near.policy(), before);

        // The message of the receiver's command is passed on.
        let output = validate("--from far --to near --port nosuch");
        assert_eq!(output.status.code(), Some(1));
        assert!(error(&output).contains("nosuch"), "{}", error(&output));

        no_figures_come_of_a_port_that_someone_changes(&near, &before);

        // A second experiment is refused. Ctrl-C makes both hosts end their parts and restores the
        // switch.
        let mut command = millrace();
        let (mut first, mut lines) =
            begun(command.args("fleet validate rsc --from far --to near --port host".split(' ')));
        assert!(lines.any(|line| line.contains("host near measures")), "it has begun");
        let second = validate("--from far --to near");
        assert!(error(&second).contains("another experiment is running"), "{}", error(&second));
        until("the feature is toggled", || (near.policy() != before).then_some(()));
        assert!(measuring() > 0);
        kill_process(Pid::from_child(&first), Signal::INT).unwrap();
        assert_eq!(first.wait().unwrap().code(), Some(130));
        until("nothing is left", || is_over(&far, &near, &before).then_some(()));

        // The same holds if an agent is killed during an experiment.
        let mut command = millrace();
        let (first, mut lines) =
            begun(command.args("fleet validate rsc --from far --to near --port host".split(' ')));
        assert!(lines.any(|line| line.contains("host near measures")), "it has begun");
        until("the feature is toggled", || (near.policy() != before).then_some(()));
        far.restart_agent(false);
        lines.for_each(drop);
        assert_eq!(first.heard().status.code(), Some(1));
        until("nothing is left", || is_over(&far, &near, &before).then_some(()));

        let output = validate("--from far --to near");
        assert!(
            error(&output).contains("host far takes part in no experiment"),
            "{}",
            error(&output)
        );
        assert_eq!(output.status.code(), Some(1));
    });
}
