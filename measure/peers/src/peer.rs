//! The switches: how each is started for a case with two vNICs, one core and one queue per vNIC.
//!
//! A switch is restarted for every sample, so that samples differ in memory layout by chance, and
//! only one switch at a time polls the switch's core.

mod millrace;
mod ovs;
mod testpmd;
mod uplink;

use crate::case::Case;
use crate::process::{Process, in_our_namespace, in_own_namespace};
use crate::stop::Stop;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use traffic::measure::ProcessSample;
pub(crate) use uplink::{Driver, UPLINK, Uplink};

/// Timeout of a switch's start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a reply in the vhost-user session.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Names of the two vNICs.
const VNICS: [&str; 2] = ["first", "second"];

/// One of the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Millrace with `poll = "always"`.
    Millrace,
    /// Millrace with `poll = "adaptive"`, its default: sleeps after some idle turns until it is
    /// notified.
    Adaptive,
    /// Millrace with `poll = "never"`: sleeps as soon as it is idle.
    Never,
    /// DPDK's test program, which forwards every frame of one vNIC to the other without reading it.
    Testpmd,
    /// Open vSwitch with its DPDK data path and one bridge that learns addresses.
    Ovs,
}

/// All switches, Millrace first.
pub(crate) const PEERS: [Peer; 5] =
    [Peer::Millrace, Peer::Adaptive, Peer::Never, Peer::Testpmd, Peer::Ovs];

/// Files, cores and devices of a switch under test.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Empty directory for its sockets, logs and files.
    pub(crate) directory: PathBuf,
    /// The switch's core.
    pub(crate) switch_core: usize,
    /// The core for everything else.
    pub(crate) generator_core: usize,
    /// The Millrace binary.
    pub(crate) millrace: PathBuf,
    /// The switch's uplink, a device in our network namespace. Without one, the switch runs in a
    /// namespace of its own.
    pub(crate) uplink: Option<Uplink>,
}

impl Setup {
    fn socket(&self, vnic: &str) -> PathBuf {
        self.directory.join(vnic).with_extension("sock")
    }

    /// Returns the command that starts a switch in the right namespace.
    fn command(&self, program: &Path) -> Command {
        if self.uplink.is_some() { in_our_namespace(program) } else { in_own_namespace(program) }
    }
}

/// A running switch, and the connections of both sessions.
pub(crate) struct Running {
    pub(crate) connections: [UnixStream; 2],
    /// Dropped in this order, which ends them.
    processes: Vec<Process>,
}

impl Running {
    /// Returns the processor time of each of its processes.
    pub(crate) fn processor(&self) -> Result<Vec<ProcessSample>> {
        self.processes.iter().map(Process::processor).collect()
    }

    /// Sends a signal to all processes, to stop them or let them continue.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.processes.iter().try_for_each(|process| process.signal(signal))
    }

    /// Returns the processors that it has kept busy since `earlier`.
    pub(crate) fn cores_since(&self, earlier: &[ProcessSample]) -> Result<f64> {
        let now = self.processor()?;
        let usage = now.iter().zip(earlier).map(|(now, earlier)| now.since(earlier));
        Ok(usage.map(|usage| usage.percent_of_one_processor / 100.0).sum())
    }
}

impl Peer {
    /// Returns the printed name, which `--peers` matches.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Millrace => "millrace",
            Peer::Adaptive => "millrace-adaptive",
            Peer::Never => "millrace-never",
            Peer::Testpmd => "testpmd",
            Peer::Ovs => "ovs-dpdk",
        }
    }

    /// Returns whether it takes part in a case: Millrace's other `poll` settings do only in cases
    /// with a rest.
    pub(crate) fn runs(self, case: &Case) -> bool {
        !matches!(self, Peer::Adaptive | Peer::Never) || !case.rest.is_zero()
    }

    /// Returns the installed version.
    ///
    /// # Errors
    /// It is not installed, or cannot be used: the error says why.
    pub(crate) fn version(self, millrace: &Path) -> Result<String> {
        match self {
            Peer::Millrace | Peer::Adaptive | Peer::Never => millrace::version(millrace),
            Peer::Testpmd => testpmd::version(),
            Peer::Ovs => ovs::version(),
        }
    }

    /// Returns the bytes of huge pages that it needs to start.
    pub(crate) fn huge_bytes(self) -> usize {
        match self {
            Peer::Millrace | Peer::Adaptive | Peer::Never => 0,
            Peer::Testpmd | Peer::Ovs => 1 << 30,
        }
    }

    /// Starts it for a case, and waits until both sockets are connected.
    pub(crate) fn start(self, case: &Case, setup: &Setup, stop: &Stop) -> Result<Running> {
        match self {
            Peer::Millrace => millrace::start(setup, "always", stop),
            Peer::Adaptive => millrace::start(setup, "adaptive", stop),
            Peer::Never => millrace::start(setup, "never", stop),
            Peer::Testpmd => testpmd::start(case, setup, stop),
            Peer::Ovs => ovs::start(case, setup, stop),
        }
    }
}

/// Connects to the sockets on which a switch listens.
fn connect(mut process: Process, setup: &Setup, stop: &Stop) -> Result<Running> {
    let mut reach = |vnic: &str| {
        let socket = setup.socket(vnic);
        let connection = stop.wait_for(START_TIMEOUT, || {
            process.check()?;
            Ok(UnixStream::connect(&socket).ok())
        })?;
        with_timeout(connection.with_context(|| {
            format!("the switch does not listen on {vnic}.sock: {}", process.log_tail())
        })?)
    };
    let [first, second] = VNICS;
    let connections = [reach(first)?, reach(second)?];
    Ok(Running { connections, processes: vec![process] })
}

/// Waits until a switch has connected to both sockets on which we listen.
fn accept(
    mut processes: Vec<Process>,
    listeners: &[UnixListener; 2],
    stop: &Stop,
) -> Result<Running> {
    let mut next = |listener: &UnixListener| {
        listener.set_nonblocking(true)?;
        let connection = stop.wait_for(START_TIMEOUT, || {
            processes.iter_mut().try_for_each(Process::check)?;
            Ok(listener.accept().ok())
        })?;
        let words = || processes.first().map(Process::log_tail).unwrap_or_default();
        let (connection, _) =
            connection.with_context(|| format!("the switch does not connect: {}", words()))?;
        with_timeout(connection)
    };
    let [first, second] = listeners;
    let connections = [next(first)?, next(second)?];
    Ok(Running { connections, processes })
}

/// Makes a connection blocking, with a timeout of replies.
fn with_timeout(connection: UnixStream) -> Result<UnixStream> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(connection)
}
