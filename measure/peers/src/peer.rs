//! The switches: how each is started for a case with two vNICs, one core and one queue per vNIC.
//!
//! A switch is restarted for every sample, so that every sample has its own luck with memory
//! layout, and only one of them ever polls the switch's core.

mod millrace;
mod ovs;
mod testpmd;

use crate::case::Case;
use crate::process::{Process, contained, tied};
use crate::stop::Stop;
use crate::uplink::Uplink;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use traffic::measure::ProcessSample;

/// A switch that is not ready after this time never will be.
const PATIENCE: Duration = Duration::from_secs(20);
/// A reply to a message of the session that takes longer than this will not come.
const ANSWER: Duration = Duration::from_secs(10);

/// Names of the two vNICs.
const VNICS: [&str; 2] = ["first", "second"];

/// One of the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Millrace,
    /// Millrace, which after some empty turns sleeps until it is kicked: its default.
    Adaptive,
    /// Millrace, which sleeps at once.
    Never,
    /// DPDK's test program, which passes every frame of one vNIC to the other without reading it.
    Testpmd,
    /// Open vSwitch with its DPDK data path, one bridge that learns addresses.
    Ovs,
}

/// All of them; the first is ours.
pub(crate) const PEERS: [Peer; 5] =
    [Peer::Millrace, Peer::Adaptive, Peer::Never, Peer::Testpmd, Peer::Ovs];

/// Where a switch runs.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// For its sockets, logs and files. Empty.
    pub(crate) directory: PathBuf,
    /// The switch's core.
    pub(crate) switch_core: usize,
    /// The core for everything else.
    pub(crate) generator_core: usize,
    /// The Millrace binary.
    pub(crate) millrace: PathBuf,
    /// The switch's uplink, a device in our network namespace; without one the switch runs in a
    /// namespace of its own.
    pub(crate) uplink: Option<Uplink>,
}

impl Site {
    fn socket(&self, vnic: &str) -> PathBuf {
        self.directory.join(vnic).with_extension("sock")
    }

    /// The command of a switch.
    fn command(&self, program: &Path) -> Command {
        if self.uplink.is_some() { tied(program) } else { contained(program) }
    }
}

/// A running switch, and its end of both sessions.
pub(crate) struct Running {
    pub(crate) connections: [UnixStream; 2],
    /// End in this order when dropped.
    processes: Vec<Process>,
}

impl Running {
    /// The processor time of each of its processes.
    pub(crate) fn processor(&self) -> Result<Vec<ProcessSample>> {
        self.processes.iter().map(Process::processor).collect()
    }

    /// Stops it where it is, or lets it continue.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.processes.iter().try_for_each(|process| process.signal(signal))
    }

    /// Processors that it has kept busy since.
    pub(crate) fn cores_since(&self, earlier: &[ProcessSample]) -> Result<f64> {
        let now = self.processor()?;
        let usage = now.iter().zip(earlier).map(|(now, earlier)| now.since(earlier));
        Ok(usage.map(|usage| usage.percent_of_one_processor / 100.0).sum())
    }
}

impl Peer {
    /// The printed name, which `--peers` matches.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Millrace => "millrace",
            Peer::Adaptive => "millrace-adaptive",
            Peer::Never => "millrace-never",
            Peer::Testpmd => "testpmd",
            Peer::Ovs => "ovs-dpdk",
        }
    }

    /// Whether it takes part in a case: other ways to wait do only in cases with something to wait
    /// for.
    pub(crate) fn runs(self, case: &Case) -> bool {
        !matches!(self, Peer::Adaptive | Peer::Never) || !case.rest.is_zero()
    }

    /// The installed version; an error says why it cannot be used.
    pub(crate) fn version(self, millrace: &Path) -> Result<String> {
        match self {
            Peer::Millrace | Peer::Adaptive | Peer::Never => millrace::version(millrace),
            Peer::Testpmd => testpmd::version(),
            Peer::Ovs => ovs::version(),
        }
    }

    /// Bytes of huge pages that it needs to start.
    pub(crate) fn huge_bytes(self) -> usize {
        match self {
            Peer::Millrace | Peer::Adaptive | Peer::Never => 0,
            Peer::Testpmd | Peer::Ovs => 1 << 30,
        }
    }

    /// Starts it for a case and waits until it speaks vhost-user.
    pub(crate) fn start(self, case: &Case, site: &Site, stop: &Stop) -> Result<Running> {
        match self {
            Peer::Millrace => millrace::start(site, "always", stop),
            Peer::Adaptive => millrace::start(site, "adaptive", stop),
            Peer::Never => millrace::start(site, "never", stop),
            Peer::Testpmd => testpmd::start(case, site, stop),
            Peer::Ovs => ovs::start(case, site, stop),
        }
    }
}

/// Connects to the sockets on which a switch listens.
fn connect(mut process: Process, site: &Site, stop: &Stop) -> Result<Running> {
    let mut reach = |vnic: &str| {
        let socket = site.socket(vnic);
        let connection = stop.wait_for(PATIENCE, || {
            process.check()?;
            Ok(UnixStream::connect(&socket).ok())
        })?;
        patient(connection.with_context(|| {
            format!("the switch does not listen on {vnic}.sock: {}", process.last_words())
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
        let connection = stop.wait_for(PATIENCE, || {
            processes.iter_mut().try_for_each(Process::check)?;
            Ok(listener.accept().ok())
        })?;
        let words = || processes.first().map(Process::last_words).unwrap_or_default();
        let (connection, _) =
            connection.with_context(|| format!("the switch does not connect: {}", words()))?;
        patient(connection)
    };
    let [first, second] = listeners;
    let connections = [next(first)?, next(second)?];
    Ok(Running { connections, processes })
}

fn patient(connection: UnixStream) -> Result<UnixStream> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(ANSWER))?;
    Ok(connection)
}
