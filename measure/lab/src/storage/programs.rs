//! The benchmark program iscsi-perf as initiator, and the target, connected by a veth and by two
//! TAPs of a switch.
//!
//! ```text
//!              ┌ wire0 ──────── veth ──────── wire0 ┐
//! iscsi-perf ──┤                                    ├── tgtd, a file
//!              └ vnic0 (TAP) ─ millrace ─ vnic0 (TAP) ┘
//! ```
//!
//! The TAPs stay when a switch ends. A switch runs only during its own arm, so that a worker that
//! polls all the time takes no processor from another arm. Called by the campaign as a
//! [`Site`] of its own.

use super::iscsi::{ARMS, LOADS};
use super::target::{self, TARGET};
use crate::host::{Command, Host};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::options::Options;
use crate::plan::{Arm, Bench, Measured, Plan, Values};
use crate::report::BenchFacts;
use crate::site::{self, RunResult, Site, Tell};
use crate::topology::{VNIC, WIRE, address, congestion, wire};
use crate::{LabError, daemon};
use api::body::{PortBody, StateBody};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The links of both hosts with their networks: `10.NETWORK.0.STATION`. The second is the switch's
/// TAP.
const LINKS: [(&str, u8); 2] = [(WIRE, 72), (VNIC, 73)];
/// Last bytes of the addresses of initiator and target.
const STATIONS: [u8; 2] = [1, 2];
/// The target's addresses on [`LINKS`].
const PORTALS: [&str; 2] = ["10.72.0.2", "10.73.0.2"];
/// Directory of programs that an ordinary user's PATH lacks.
const FURTHER: &str = "/usr/sbin";

/// The running bench. Fields are dropped in this order: first the hosts, and the directory last.
pub(crate) struct Programs {
    /// `None` in an arm without a switch.
    switch: Option<Host>,
    initiator: Host,
    target: Host,
    /// Path of iscsi-perf.
    perf: String,
    /// Index in [`LINKS`] of the current arm's link.
    link: usize,
    /// Commands of switches that have ended.
    ended: Vec<Command>,
    options: Options,
    interrupt: Interrupt,
    begin: Instant,
    directory: tempfile::TempDir,
}

impl Programs {
    /// Starts the initiator and the target. Call it while this process has one thread.
    ///
    /// # Errors
    /// A program is not installed, namespaces are refused, or a host does not start.
    pub(crate) fn make(
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn Site>, LabError> {
        let perf = find("iscsi-perf", "libiscsi-bin")?;
        let programs = [find("tgtd", "tgt")?, find("tgtadm", "tgt")?];
        let directory = site::prepare(interrupt)?;
        let at = directory.path();
        let start = |name| Host::start(name, &options.program, at);
        let (mut initiator, mut target) = (start("initiator")?, start("target")?);
        connect(&mut initiator, &mut target, options.mtu)?;
        target::serve(&mut target, &programs, PORTALS, &at.join("lun"))?;
        Ok(Box::new(Programs {
            switch: None,
            initiator,
            target,
            perf,
            link: 0,
            ended: Vec::new(),
            options: options.clone(),
            interrupt: interrupt.clone(),
            begin: Instant::now(),
            directory,
        }))
    }

    /// Runs a switch between the TAPs, with this `poll` setting of its worker.
    fn run_switch(&mut self, poll: &str) -> Result<(), LabError> {
        let (at, program) = (self.directory.path(), &self.options.program);
        let mut switch = Host::start("switch", program, at)?;
        let (path, sides) = (at.join("switch"), [&self.initiator, &self.target]);
        let text = configuration(&path, poll, sides.map(Host::process));
        let are_up = |ports: &[PortBody]| ports.iter().all(|port| port.state == StateBody::Up);
        let are_up = |ports: &[PortBody]| ports.len() == sides.len() && are_up(ports);
        daemon::run(&mut switch, program, (&path, &text), &self.interrupt, are_up)?;
        self.switch = Some(switch);
        Ok(())
    }

    fn end_switch(&mut self) {
        for command in self.switch.take().iter().flat_map(|switch| switch.commands()) {
            if !self.ended.iter().any(|known| known.command == command.command) {
                self.ended.push(command.clone());
            }
        }
    }

    /// Runs one of [`LOADS`] for `seconds`, and returns the requests per second.
    fn read(&mut self, how: &str, seconds: u64) -> Result<f64, LabError> {
        let (perf, portal) = (&self.perf, PORTALS[self.link]);
        let line = format!("{perf} {how} -t {seconds} iscsi://{portal}/{TARGET}/1");
        let said = self.initiator.run(&line)?;
        let nothing = || LabError::Command { command: line.clone(), output: said.clone() };
        average(&said).ok_or_else(nothing)
    }

    /// Returns the bytes that the initiator has received over each of its links.
    fn arrived(&mut self) -> Result<[u64; 2], LabError> {
        let [wire, vnic] = LINKS.map(|(link, _)| self.initiator.read(link));
        Ok([wire?.arrived_bytes, vnic?.arrived_bytes])
    }
}

/// Returns a program's path, or an error that names its package.
fn find(program: &str, package: &'static str) -> Result<String, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from(FURTHER)]);
    let found = places.map(|place| place.join(program)).find(|path| path.is_file());
    let missing = LabError::ProgramMissing { program: program.to_owned(), package };
    found.map(|path| path.display().to_string()).ok_or(missing)
}

/// Creates both links of each host. The switch opens existing TAPs, so they keep their addresses
/// when it ends.
fn connect(initiator: &mut Host, target: &mut Host, mtu: u16) -> Result<(), LabError> {
    wire(initiator, WIRE, WIRE, target.process(), mtu)?;
    for (host, station) in [initiator, target].into_iter().zip(STATIONS) {
        host.run(&format!("ip tuntap add {VNIC} mode tap"))?;
        for (link, network) in LINKS {
            host.run(&format!("ip link set {link} mtu {mtu} up"))?;
            address(host, link, network, station)?;
        }
    }
    Ok(())
}

/// Returns the configuration of a switch with two TAPs, in the namespaces of these processes; all
/// other settings are the defaults.
fn configuration(path: &Path, poll: &str, sides: [u32; 2]) -> String {
    let api = path.with_extension("api");
    let mut text = format!("[switch]\nsocket = {api:?}\npoll = \"{poll}\"\n");
    for (name, process) in ["initiator", "target"].into_iter().zip(sides) {
        text += &format!("[[port]]\nname = \"{name}\"\ntap = \"{VNIC}\"\n");
        text += &format!("netns = \"/proc/{process}/ns/net\"\n");
    }
    text
}

/// Returns iscsi-perf's last average: the requests per second over its whole run.
fn average(said: &str) -> Option<f64> {
    let (_, last) = said.rsplit_once("iops average ")?;
    last.split_ascii_whitespace().next()?.parse().ok()
}

impl Bench for Programs {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        self.end_switch();
        let poll = ARMS.iter().find(|way| way.name == arm.name).and_then(|way| way.poll);
        self.link = usize::from(poll.is_some());
        poll.map_or(Ok(()), |poll| self.run_switch(poll))
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)?;
        self.switch.as_mut().map_or(Ok(()), Host::check)
    }

    /// Measures all loads; iscsi-perf accepts whole seconds only.
    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        let (mut values, before) = (Values::new(), self.arrived()?);
        let seconds = (interval + Duration::from_millis(500)).as_secs().clamp(1, 10);
        for (key, how, each) in LOADS {
            values.insert(key.into(), each * self.read(how, seconds)?);
            self.pass(Duration::ZERO)?;
        }
        let after = self.arrived()?;
        for (key, link) in [("own_bytes", self.link), ("other_bytes", 1 - self.link)] {
            values.insert(key.into(), (after[link] - before[link]) as f64);
        }
        Ok(Measured { values, usage: Vec::new() })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Site for Programs {
    fn facts(&self) -> BenchFacts {
        BenchFacts {
            description: "tgtd serves a file to iscsi-perf, each in a network namespace of its own; nothing is pinned to a \
                          processor."
                .into(),
            mtu: Some(self.options.mtu),
            vnic: Some("tap".into()),
            congestion: congestion(),
            ..BenchFacts::default()
        }
    }

    fn run(&mut self, _: Load, plan: &Plan, _: &Interrupt, progress: Tell<'_>) -> RunResult {
        Ok((plan.run(self, progress), None))
    }

    fn commands(&self) -> Vec<Command> {
        let hosts = self.switch.iter().chain([&self.target, &self.initiator]);
        let told = hosts.flat_map(|host| host.commands());
        self.ended.iter().chain(told).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_average_is_that_of_the_whole_run() {
        let said = "connected\n\r00:00:01 - lba 8, iops current 9 (1 MB/s), iops average 9 (1 MB/s)  \
                    \riops average 4677 (18 MB/s)    \n\nfinished.\n";
        assert_eq!(average(said), Some(4677.0));
        assert_eq!(average("Login Failed."), None);
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        assert!(find("sh", "dash").unwrap().ends_with("/sh"));
        let error = find("no-such-program-here", "tgt").unwrap_err().to_string();
        assert!(error.ends_with("install the package `tgt`"), "{error}");
    }
}
