//! Errors of an experiment, worded for the person who runs it.

use problem::Problem;
use std::path::PathBuf;
use std::time::Duration;

/// Reason that an experiment did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program the topology needs is not installed.
    #[error("`{program}` is not installed: install the package `{package}`")]
    ProgramMissing {
        /// Name of the program.
        program: String,
        /// Package that contains it on Debian and most other systems.
        package: &'static str,
    },
    /// A command of the topology failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Last output of the command.
        output: String,
    },
    /// The kernel refused a network namespace.
    #[error("cannot create a network namespace ({0}): run as root, or allow user namespaces")]
    NamespaceRefused(String),
    /// A host ended or went silent, or answered with an error.
    #[error("the {host} host {} {doing}: {output}", if *died { "died while" } else { "could not" })]
    Host {
        /// Name of the host in the topology.
        host: String,
        /// Whether it died or went silent, rather than answering with an error.
        died: bool,
        /// What it was doing.
        doing: String,
        /// The reason, or its last output.
        output: String,
    },
    /// The daemon did not come up or did not do what was asked.
    #[error("the switch: {0}")]
    Switch(String),
    /// The sender did not reach the receiver.
    #[error("{from} did not reach {to} within {} s: the path between them carries no frames", waited.as_secs())]
    NoTraffic {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
        /// Time that it tried.
        waited: Duration,
    },
    /// A frame of full size did not pass end to end.
    #[error(
        "a full frame of MTU {mtu} does not pass end to end: it is lost at {hop}; raise that link's MTU"
    )]
    FrameLost {
        /// MTU of the links, in bytes.
        mtu: u16,
        /// First hop that did not count the frame.
        hop: &'static str,
    },
    /// No daemon answers, so there is no switch to carry the load.
    #[error("{0}")]
    NoDaemon(Box<Problem>),
    /// The experiment cannot be toggled at a running switch.
    #[error(
        "{0} cannot be measured at a running switch: between hosts `rsc`, `limits`, `jumbo`, `sweep` and `connections` can; \
         omit --sender to measure {0} between namespaces on this host"
    )]
    NotAtRunningSwitch(String),
    /// An experiment between existing hosts lacks an address, exceeds a limit, or was refused by an
    /// agent.
    #[error("{0}")]
    ExistingHosts(String),
    /// The directory named as a guest lacks a file.
    #[error(
        "{} has no {lacks}: run `cargo xtask guests qemu` and name the directory that it prints with --guest", directory.display()
    )]
    NoGuest {
        /// The directory.
        directory: PathBuf,
        /// The first file that is missing.
        lacks: &'static str,
    },
    /// A virtual machine, or its monitor, does not do what it should.
    #[error("the virtual machine: {0}")]
    Machine(String),
    /// There is no other switch to compare with.
    #[error("no other switch runs on this host")]
    NoPeer,
    /// The receiver asked for needs a TAP, which cannot be created.
    #[error(
        "--receiver {asked}: /dev/net/tun cannot be opened ({source}), so the guest's vNIC would be a veth; load the module \
         (`modprobe tun`), or give this container the device, or omit --receiver"
    )]
    NoTap {
        /// The receiver, as on the command line.
        asked: String,
        /// Error of the kernel.
        #[source]
        source: std::io::Error,
    },
    /// Two reports that cannot be compared.
    #[error("{0}")]
    Compare(String),
    /// A threshold names a figure that the experiment does not compare.
    #[error("--fail-if {0}")]
    Threshold(String),
    /// The directory to resume from has no usable state.
    #[error("cannot resume from {}: {why}; name the directory of an interrupted run, or start a new one", path.display())]
    Resume {
        /// The state file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Ctrl-C was pressed.
    #[error("interrupted")]
    Interrupted,
    /// The report could not be written.
    #[error("cannot write the report to {}: {source}; choose another directory with --output", path.display())]
    Report {
        /// The file or directory.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: std::io::Error,
    },
    /// Another operation of the system failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// Error of the kernel.
        #[source]
        source: std::io::Error,
    },
}

impl LabError {
    /// Replaces the refusal of a host by what `say` returns for its reason; other errors stay.
    pub(crate) fn where_refused(self, say: impl FnOnce(String) -> LabError) -> LabError {
        match self {
            LabError::Host { died: false, output, .. } => say(output),
            other => other,
        }
    }

    /// Returns a closure for `map_err` that adds what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> LabError {
        let doing = doing.into();
        move |source| LabError::Io { doing, source }
    }
}
