//! An etcd of three members, each on a separate host, and the faults that they suffer.

use super::NETWORK;
use crate::etcd::{Etcd, PROGRAM};
use crate::host::Host;
use crate::sandbox::run;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;
use waiting::until;

pub(super) const COUNT: usize = 3;
const NAMES: [&str; COUNT] = ["e0", "e1", "e2"];
/// Longest time to wait for a member's answer.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Members {
    hosts: [Host; COUNT],
    processes: [Option<Child>; COUNT],
}

impl Members {
    /// Starts all members and waits until one of them leads.
    pub(super) fn new() -> Members {
        let hosts = NAMES.map(Host::new);
        for (number, name) in NAMES.into_iter().enumerate() {
            super::connect(name, 11 + number);
        }
        let mut members = Members { hosts, processes: [None, None, None] };
        members.start_all();
        members
    }

    /// Starts members that do not run, with the existing data, and waits for a leader.
    pub(super) fn start_all(&mut self) {
        for number in 0..COUNT {
            self.start(number);
        }
        until("etcd has a leader", || self.leader());
    }

    pub(super) fn start(&mut self, number: usize) {
        if self.processes[number].is_some() {
            return;
        }
        let name = NAMES[number];
        let [client, peer] = [2379, 2380].map(|port| format!("http://{}:{port}", address(number)));
        let cluster: Vec<String> =
            (0..COUNT).map(|it| format!("{}=http://{}:2380", NAMES[it], address(it))).collect();
        let mut etcd = self.hosts[number].command(PROGRAM);
        etcd.args(["--name", name, "--data-dir", &data(name), "--log-level", "error"]);
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &cluster.join(",")]);
        etcd.env("ETCD_UNSUPPORTED_ARCH", "arm64").stdout(Stdio::null()).stderr(Stdio::null());
        self.processes[number] = Some(etcd.spawn().unwrap());
    }

    /// Kills a member, as a power cut would.
    pub(super) fn kill(&mut self, number: usize) {
        if let Some(mut process) = self.processes[number].take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(super) fn kill_all(&mut self) {
        (0..COUNT).for_each(|number| self.kill(number));
    }

    /// Stops a member's process or lets it continue.
    pub(super) fn signal(&self, number: usize, signal: Signal) {
        if let Some(process) = &self.processes[number] {
            kill_process(Pid::from_child(process), signal).unwrap();
        }
    }

    /// Returns the member that leads, if a member that answers knows one.
    pub(super) fn leader(&self) -> Option<usize> {
        let status = |number| ask(number, "/v3/maintenance/status", "{}");
        (0..COUNT).find(|number| {
            status(*number).is_some_and(|it| {
                it["leader"].is_string() && it["leader"] == it["header"]["member_id"]
            })
        })
    }

    /// Removes the routes between a member and the others, or restores them. Agents still reach all
    /// members.
    pub(super) fn isolate(&self, number: usize, is_isolated: bool) {
        let verb = if is_isolated { "add" } else { "del" };
        for other in (0..COUNT).filter(|other| *other != number) {
            self.hosts[number].run(&format!("ip route {verb} blackhole {}/32", address(other)));
        }
    }

    /// Compacts all of etcd's history. Returns false if no member did.
    pub(super) fn compact(&self) -> bool {
        (0..COUNT).any(|number| {
            let Some(status) = ask(number, "/v3/maintenance/status", "{}") else { return false };
            let body = format!("{{\"revision\": {}}}", status["header"]["revision"]);
            ask(number, "/v3/kv/compaction", &body).is_some_and(|it| it["header"].is_object())
        })
    }

    /// Copies the data of all members, none of which may run.
    pub(super) fn back_up(&self) {
        for name in NAMES {
            Etcd::copy(&data(name), &format!("{}.backup", data(name)));
        }
    }

    pub(super) fn restore(&self) {
        for name in NAMES {
            Etcd::copy(&format!("{}.backup", data(name)), &data(name));
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Returns the members' client URLs.
pub(super) fn endpoints() -> String {
    let of = |number| format!("http://{}:2379", address(number));
    [0, 1, 2].map(of).join(",")
}

fn address(number: usize) -> String {
    format!("{NETWORK}.{}", 11 + number)
}

fn data(name: &str) -> String {
    format!("/run/{name}.data")
}

/// Connects to one member.
pub(super) fn connect_to(number: usize) -> Option<TcpStream> {
    let member = format!("{}:2379", address(number)).parse().unwrap();
    TcpStream::connect_timeout(&member, MEMBER_TIMEOUT).ok()
}

/// Sends a request to one member, and returns the answer.
fn ask(number: usize, path: &str, body: &str) -> Option<Value> {
    let mut stream = connect_to(number)?;
    stream.set_read_timeout(Some(MEMBER_TIMEOUT)).unwrap();
    let head = format!("POST {path} HTTP/1.0\r\ncontent-length: {}", body.len());
    write!(stream, "{head}\r\n\r\n{body}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// Unplugs a host's cable to the management network, or plugs it in.
pub(super) fn plug(name: &str, is_in: bool) {
    run(&format!("ip link set {name}-m {}", if is_in { "up" } else { "down" }));
}
