//! Runs shell lines at an end of a connection, a guest or a host with the same tools, and transfers
//! between two of them.

use crate::guest;
use crate::host::Host;
use crate::sandbox::output_of;
use std::cell::RefCell;
use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use waiting::until_all_moved;

/// An end of a connection.
pub(crate) trait Shell {
    /// Runs a line in a shell with the commands of busybox and bash; it must succeed. Returns what
    /// it printed.
    fn run(&mut self, line: &str) -> String;
}

impl Shell for Host {
    /// Uses the tools of the guests, so that both ends do the same in the same way.
    fn run(&mut self, line: &str) -> String {
        let busybox = busybox();
        if !Path::new(TOOLS).exists() {
            std::fs::create_dir(TOOLS).unwrap();
            output_of(Command::new(&busybox).args(["--install", "-s", TOOLS]));
        }
        let path = format!("{TOOLS}:{}", env::var("PATH").unwrap());
        let mut command = self.command("sh");
        output_of(command.args(["-c", line]).env("PATH", path).env("BUSYBOX", &busybox))
    }
}

/// Directory in which a host finds the guests' tools.
const TOOLS: &str = "/run/tools";

fn busybox() -> PathBuf {
    guest::directory("uml").join("busybox").canonicalize().unwrap()
}

/// Returns a line that prints bytes, of which no two MiB are alike: the tools themselves, numbered.
/// Both ends have the same.
fn content(mib: usize) -> String {
    let file = "${BUSYBOX:-/bin/busybox}";
    format!("i=0; while [ $i -lt {} ]; do echo $i; cat {file}; i=$((i + 1)); done", mib.div_ceil(2))
}

/// Returns the addresses of both families: `10.9.0.N` and `fd09::N`.
pub(crate) fn addresses(number: u8) -> [IpAddr; 2] {
    [IpAddr::from([10, 9, 0, number]), IpAddr::from([0xfd09, 0, 0, 0, 0, 0, 0, u16::from(number)])]
}

/// A transfer over TCP in the background.
pub(crate) struct Transfer {
    port: u16,
    mib: usize,
}

impl Transfer {
    /// Starts to send this number of MiB from one end to the other, which has this address.
    pub(crate) fn start(
        from: &mut dyn Shell,
        to: &mut dyn Shell,
        (address, port): (IpAddr, u16),
        mib: usize,
    ) -> Transfer {
        let sum = format!("/run/sum.{port}");
        to.run(&format!(
            "nc -l -p {port} -e sh -c 'md5sum >{sum}.new && mv {sum}.new {sum}' >/dev/null 2>&1 &"
        ));
        to.run(&format!("until netstat -ltn | grep -q ':{port} '; do sleep 0.1; done"));
        let content = content(mib);
        from.run(&format!(
            "bash -c 'exec 3>/dev/tcp/{address}/{port}; {{ {content}; }} >&3; echo $? >/run/sent.{port}' \
             >/run/said.{port} 2>&1 &"
        ));
        Transfer { port, mib }
    }

    /// Returns whether the receiver has seen the end.
    pub(crate) fn done(&self, to: &mut dyn Shell) -> bool {
        !to.run(&format!("cat /run/sum.{} 2>/dev/null || true", self.port)).is_empty()
    }

    /// Waits for the end and compares the received bytes with the sent ones.
    pub(crate) fn check(self, from: &mut dyn Shell, to: &mut dyn Shell) {
        // Both closures use the same end.
        let to = RefCell::new(to);
        until_all_moved(
            "the last byte has arrived",
            || self.done(*to.borrow_mut()).then_some(()),
            || received(*to.borrow_mut()),
        );
        let to = to.into_inner();
        let Transfer { port, mib } = self;
        let arrived = to.run(&format!("cat /run/sum.{port}; rm /run/sum.{port}"));
        let said = from.run(&format!("cat /run/said.{port}"));
        assert_eq!(arrived, sum(mib), "what was sent did not arrive: {said}");
    }
}

/// Returns the number of bytes that an end's devices have received.
fn received(end: &mut dyn Shell) -> u64 {
    let devices = end.run("cat /proc/net/dev");
    let numbers = devices
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split(' ').find(|word| !word.is_empty()));
    numbers.map(|number| number.parse::<u64>().unwrap()).sum()
}

/// Returns the checksum of the content, computed here.
fn sum(mib: usize) -> String {
    let line = format!("{{ {}; }} | md5sum", content(mib));
    output_of(Command::new("sh").args(["-c", &line]).env("BUSYBOX", busybox()))
}

/// Sends this number of MiB and checks them, with nothing else going on.
pub(crate) fn send(from: &mut dyn Shell, to: &mut dyn Shell, end: (IpAddr, u16), mib: usize) {
    Transfer::start(from, to, end, mib).check(from, to);
}

/// Waits for one answer to a ping; fails the story if none comes.
pub(crate) fn ping(from: &mut dyn Shell, address: IpAddr) {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    from.run(&format!("ping {family} -c 3 -W 5 {address}"));
}
