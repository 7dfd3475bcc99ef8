//! A host: a network namespace with a name, as `ip netns` makes it.

use crate::sandbox::{output_of, run};
use std::path::PathBuf;
use std::process::Command;

/// One host.
#[derive(Clone, Copy)]
pub(crate) struct Host(&'static str);

impl Host {
    /// Makes a host with only its loopback, on which new interfaces send no IPv6 packets of their
    /// own.
    pub(crate) fn new(name: &'static str) -> Host {
        run(&format!("ip netns add {name}"));
        let host = Host(name);
        host.run("ip link set lo up");
        host.run("sysctl -qw net.ipv6.conf.default.accept_dad=0");
        host
    }

    /// Returns a command for a program on this host; its arguments are to be added.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0)).arg(program);
        command
    }

    /// Runs a command on this host; it must succeed. Returns what it printed.
    pub(crate) fn run(&self, line: &str) -> String {
        let mut words = line.split(' ');
        output_of(self.command(words.next().unwrap()).args(words))
    }

    /// Assigns both addresses to a device, `10.9.0.N` and `fd09::N`, and brings it up.
    pub(crate) fn assign_addresses(&self, device: &str, number: u8) {
        self.run(&format!("ip address add 10.9.0.{number}/24 dev {device}"));
        self.run(&format!("ip address add fd09::{number}/64 dev {device} nodad"));
        self.run(&format!("ip link set {device} up"));
    }

    /// Runs `work` on another thread, in which new sockets belong to this host.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = PathBuf::from("/run/netns").join(self.0);
        ports::namespace::within(Some(&path), work).unwrap()
    }
}
