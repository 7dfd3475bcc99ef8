//! Three hosts, each with a switch and an agent, and the commands that a person uses on their
//! fleet.

use crate::etcd::{NEED, SECURE_CLIENTS};
use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run};
use crate::switch::millrace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use waiting::{eventually, until};

pub(super) const NEEDS: [Need; 3] = [NEED, Need::Tap, Need::Program("ping")];
pub(super) const FOLDER: &str = "/run/fleet";
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];
pub(super) const GUESTS: [&str; 3] = ["ga", "gb", "gc"];

/// Directory for the fleet's certificates and passwords in a secured story.
pub(super) const KEYS: &str = "/run/keys";
/// Whether this story's etcd is secured. A story has a process of its own.
static SECURED: AtomicBool = AtomicBool::new(false);

/// Secures etcd: from now on agents and commands reach it by TLS, each as its user.
pub(super) fn secured() {
    SECURED.store(true, Ordering::Relaxed);
}

/// Returns the program with the options to reach etcd as the user of this directory in `KEYS`.
fn millrace_as(directory: &str) -> Command {
    let mut command = millrace();
    if SECURED.load(Ordering::Relaxed) {
        command.env("MILLRACE_ETCD", SECURE_CLIENTS);
        command.env("MILLRACE_ETCD_CREDENTIALS", format!("{KEYS}/{directory}"));
    }
    command
}

/// A host's switch and its agent.
pub(super) struct Place {
    host: Host,
    name: &'static str,
    daemon: Child,
    pub(super) agent: Child,
}

impl Place {
    pub(super) fn new(name: &'static str) -> Place {
        let host = Host::new(name);
        wire(host, name);
        let (daemon, agent) = (start_daemon(host, name), start_agent(name));
        Place { host, name, daemon, agent }
    }

    pub(super) fn ask(&self, line: &str) -> Value {
        let socket = format!("/run/{}.api", self.name);
        let output = cli(&format!("{line} --json --socket {socket}"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Restarts switch and agent with their state on disk.
    pub(super) fn restart(&mut self) {
        self.end();
        self.daemon = start_daemon(self.host, self.name);
        self.agent = start_agent(self.name);
    }

    pub(super) fn end(&mut self) {
        for process in [&mut self.agent, &mut self.daemon] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(super) fn end_agent(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the physical network.
pub(super) fn lay_cables() {
    run("ip link add physical type bridge forward_delay 0 stp_state 0");
    run("ip link set physical up");
}

/// Connects a host to the physical network by an uplink `wire`, and writes the host's own file,
/// which has no port.
pub(super) fn wire(host: Host, name: &str) {
    run(&format!("ip link add {name}-out type veth peer name wire netns {name}"));
    run(&format!("ip link set {name}-out up master physical"));
    host.run("ip link set wire up");
    std::fs::write(format!("/run/{name}.toml"), "[switch]\nworkers = 1\n").unwrap();
}

pub(super) fn start_daemon(host: Host, name: &str) -> Child {
    let program = millrace();
    let mut command = host.command(program.get_program().to_str().unwrap());
    command.env_remove("MILLRACE_SOCKET").env("MILLRACE_LOG", "warn");
    command.args([
        "run",
        "-c",
        &format!("/run/{name}.toml"),
        "--socket",
        &format!("/run/{name}.api"),
    ]);
    command.args(["--state-dir", &format!("/run/{name}.state")]);
    let daemon = command.spawn().unwrap();
    until("the daemon answers", || {
        cli(&format!("port list --socket /run/{name}.api")).status.success().then_some(())
    });
    daemon
}

pub(super) fn start_agent(name: &str) -> Child {
    let mut command = millrace_as(&format!("hosts/{name}"));
    command.args(["fleet", "agent", "--host", name, "--label", "role=compute"]);
    command.args([
        "--socket",
        &format!("/run/{name}.api"),
        "--state-dir",
        &format!("/run/{name}.fleet"),
    ]);
    command.spawn().unwrap()
}

pub(super) fn cli(line: &str) -> Output {
    millrace().args(line.split(' ')).heard()
}

/// Runs a fleet command as an operator of the fleet.
pub(super) fn operate(line: &str) -> Output {
    millrace_as("operator").arg("fleet").args(line.split(' ')).heard()
}

/// Runs a fleet command. Returns what it printed, and its exit code.
pub(super) fn fleet(line: &str) -> (String, i32) {
    let output = operate(line);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code().unwrap())
}

pub(super) fn status() -> Value {
    let output = operate("status --json");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Returns the revision of each host; `None` if its agent is away.
pub(super) fn revisions() -> Vec<Option<u64>> {
    revisions_of(&status())
}

pub(super) fn revisions_of(status: &Value) -> Vec<Option<u64>> {
    let hosts = status["hosts"].as_array().cloned().unwrap_or_default();
    hosts.iter().map(|host| host["status"]["revision"].as_u64()).collect()
}

pub(super) fn all_have(revision: u64) {
    let seen = eventually(|| (revisions() == [Some(revision); 3]).then_some(()));
    assert!(seen.is_some(), "not all have {revision}: {:#}", status());
}

/// Writes the model: a network with this MTU and the keys in `more`, and a port for each guest.
pub(super) fn write_model(mtu: u16, more: &str) {
    std::fs::create_dir_all(FOLDER).unwrap();
    let mut text = format!(
        "version = 1\n[[network]]\nname = 'blue'\nvlan = 10\nmtu = {mtu}\n{more}\n\
         [[class]]\nname = 'compute'\nlabels = {{ role = 'compute' }}\nworkers = 1\n\
         [[class.uplink]]\nname = 'up'\npacket = 'wire'\n\
         [rollout]\nsteps = ['1', '100%']\nwait = '20s'\nsoak = '1s'\n"
    );
    for (number, (host, guest)) in NAMES.iter().zip(GUESTS).enumerate() {
        text += &format!(
            "[[port]]\nname = 'vm-{host}'\nnetwork = 'blue'\nmac = '{}'\nhost = '{host}'\ntap = 'tap0'\nnetns = '{guest}'\n",
            mac(number)
        );
    }
    std::fs::write(format!("{FOLDER}/fleet.toml"), text).unwrap();
}

fn mac(number: usize) -> String {
    format!("52:54:00:00:00:0{}", number + 1)
}

pub(super) fn places() -> [Place; 3] {
    lay_cables();
    NAMES.map(Place::new)
}

/// Applies the first revision, and gives the guests addresses.
pub(super) fn begin(guests: &[Host; 3]) {
    until("all agents are registered", || (revisions() == [Some(0); 3]).then_some(()));
    write_model(1500, "");
    let (text, code) = fleet(&format!("apply -f {FOLDER} -m first"));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("revision 1 is in force: 3 hosts change"), "{text}");
    all_have(1);
    for (number, guest) in guests.iter().enumerate() {
        guest.run(&format!("ip link set tap0 address {}", mac(number)));
        guest.assign_addresses("tap0", u8::try_from(number).unwrap() + 1);
    }
    until("the guests reach each other", || {
        let ping = guests[0].command("ping").args(["-c", "1", "-W", "1", "10.9.0.2"]).output();
        ping.unwrap().status.success().then_some(())
    });
}

/// Most of the last requests that may lack an answer because ping did not wait.
const IN_FLIGHT: usize = 10;

/// Pings the second guest from the first while `work` runs; no answer may be missing.
pub(super) fn pings_go_on<T>(guests: &[Host; 3], work: impl FnOnce() -> T) -> T {
    let mut ping = guests[0].command("ping");
    ping.args(["-n", "-i", "0.02", "-W", "2", "10.9.0.2"]).stdout(Stdio::piped());
    let child = ping.spawn().unwrap();
    let done = work();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let text = String::from_utf8(child.heard().stdout).unwrap();
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
    let answered: Vec<usize> = text.lines().filter_map(number).collect();
    let last = *answered.last().expect("some are answered");
    let sent = text.lines().find_map(|line| line.split_once(" packets transmitted"));
    let sent: usize = sent.expect("a summary").0.parse().unwrap();
    println!("measured: {} of {sent} echo requests answered", answered.len());
    assert_eq!(answered.len(), last, "{text}");
    assert!(last + IN_FLIGHT >= sent, "the last requests are lost: {text}");
    done
}

/// Applies the directory's model, and checks that it becomes this revision on all hosts.
pub(super) fn apply_again(revision: u64) {
    let (text, code) = fleet(&format!("apply -f {FOLDER}"));
    assert!(code == 0 && text.contains(&format!("revision {revision} is in force")), "{text}");
    all_have(revision);
}

/// Waits until each host reports that etcd went back.
pub(super) fn all_hold() {
    until("all hosts report that etcd went back", || {
        let text = fleet("status").0;
        (text.matches("does not follow etcd, which was restored or lost its data").count() == 3)
            .then_some(())
    });
}
