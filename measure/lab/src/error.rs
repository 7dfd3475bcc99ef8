//! Errors of an experiment, for the person who runs it.

use problem::Problem;
use std::path::PathBuf;
use std::time::Duration;

/// Why an experiment did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program the topology needs is not installed.
    #[error("`{program}` is not installed: install the package `{package}`")]
    ProgramMissing {
        /// What was called.
        program: String,
        /// The package that has it on Debian and most other systems.
        package: &'static str,
    },
    /// A command of the topology failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// As typed.
        command: String,
        /// What it printed last.
        output: String,
    },
    /// The kernel refused a network namespace.
    #[error("cannot create a network namespace ({0}): run as root, or allow user namespaces")]
    NamespaceRefused(String),
    /// A host ended or went silent, or answered with an error.
    #[error("the {host} host {} {doing}: {output}", if *died { "died while" } else { "could not" })]
    Host {
        /// Its name in the topology.
        host: String,
        /// Whether it gave no answer.
        died: bool,
        /// What it was asked.
        doing: String,
        /// The reason, or what it printed last.
        output: String,
    },
    /// The daemon did not come up or did not do what was asked.
    #[error("the switch: {0}")]
    Switch(String),
    /// Sender and receiver did not find each other.
    #[error("{from} did not reach {to} within {} s: the path between them carries no frames", waited.as_secs())]
    NoTraffic {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
        /// How long it tried.
        waited: Duration,
    },
    /// A full frame did not come through.
    #[error(
        "a full frame of MTU {mtu} does not pass end to end: it is lost at {hop}; raise that link's MTU"
    )]
    FrameLost {
        /// Of the links, in bytes.
        mtu: u16,
        /// Where it was not seen any more.
        hop: &'static str,
    },
    /// No daemon answers whose switch could carry the load.
    #[error("{0}")]
    NoDaemon(Box<Problem>),
    /// A feature that is not toggled at a running switch.
    #[error(
        "{0} cannot be toggled at a running switch: between hosts only `rsc` and `limits` can be measured; omit --sender to \
         validate {0} between namespaces on this host"
    )]
    NotBetweenHosts(String),
    /// An experiment between hosts lacks something.
    #[error("{0}")]
    Between(String),
    /// What should be a guest is none.
    #[error(
        "{} has no {lacks}: run `scripts/guests qemu` and name the directory that it prints with --guest", directory.display()
    )]
    NoGuest {
        /// What was named.
        directory: PathBuf,
        /// The first file that is not there.
        lacks: &'static str,
    },
    /// A virtual machine does not do what it should.
    #[error("the virtual machine: {0}")]
    Machine(String),
    /// Nothing to compare the switch with.
    #[error("no other switch runs on this host")]
    NoPeer,
    /// A receiver that takes a TAP.
    #[error(
        "--receiver {asked}: /dev/net/tun cannot be opened ({source}), so the guest's vNIC would be a veth; load the module \
         (`modprobe tun`), or give this container the device, or omit --receiver"
    )]
    NoTap {
        /// What was asked for.
        asked: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// Two reports that cannot be compared.
    #[error("{0}")]
    Compare(String),
    /// A threshold of a figure that there is not.
    #[error("--fail-if {0}")]
    Threshold(String),
    /// There is nothing to go on with.
    #[error("cannot resume from {}: {why}; name the directory of an interrupted run, or start a new one", path.display())]
    Resume {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Someone pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The report could not be written.
    #[error("cannot write the report to {}: {source}; choose another directory with --output", path.display())]
    Report {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// Anything else of the system.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

impl LabError {
    /// The same; where a host has refused, what `say` makes of its reason.
    pub(crate) fn where_refused(self, say: impl FnOnce(String) -> LabError) -> LabError {
        match self {
            LabError::Host { died: false, output, .. } => say(output),
            other => other,
        }
    }

    /// For `map_err` where only the deed has to be said.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> LabError {
        let doing = doing.into();
        move |source| LabError::Io { doing, source }
    }
}
