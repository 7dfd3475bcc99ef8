//! A guest with two paths to a LUN, and the bench in which it reads and writes while a team member
//! is disconnected.
//!
//! ```text
//!                    ┌ vm0 (pinned to uplink0) ┐              ┌ uplink0 ── outer0, 10.70.0.2 ┐
//! QEMU, multipath ── ┤                         ├── millrace ──┤ (a team)                     ├── tgtd, a file
//!                    └ vm1 (pinned to uplink1) ┘              └ uplink1 ── outer1, 10.71.0.2 ┘
//! ```
//!
//! The guest's side is millrace/tests/stories/guest/storage, to which the lab sends commands over
//! the console. Called by the campaign as a [`Site`] of its own.

pub(crate) mod iscsi;
pub(crate) mod paths;
mod programs;
mod target;

use crate::guest::{Console, Files, vnic};
use crate::host::{Command, Host};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::options::Options;
use crate::plan::{Arm, Bench, Measured, Plan, Values};
use crate::port::switch_error;
use crate::report::{BenchFacts, Check};
use crate::site::{self, RunResult, Site, Tell};
use crate::storage::paths::PATHS;
use crate::topology::{MEMBERS, offloads, wire};
use crate::{LabError, daemon};
use api::body::{PortBody, StateBody};
use api::client::Client;
pub(crate) use programs::Programs;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use target::PORTALS;

/// The guest's ports, each with the MAC address of its vNIC.
const PORTS: [(&str, &str); 2] = [("vm0", "52:54:00:00:00:01"), ("vm1", "52:54:00:00:00:02")];
/// The guest's interfaces at these ports.
const INTERFACES: [&str; 2] = ["eth0", "eth1"];
/// Queue pairs of each port. The guest uses all of them or one.
const PAIRS: u16 = 4;
/// The target's ends of the members' wires.
const WIRES: [&str; 2] = ["outer0", "outer1"];
/// MTU of all wires and ports in bytes; an arm sets its own at both ends, on the target's wires and
/// in the guest.
const WIDE: u16 = 9000;
/// How long a member is down. The requests start half this time before, and run for four seconds.
const DOWN: Duration = Duration::from_millis(1500);
/// The kinds of requests, as the guest's script names them.
const KINDS: [&str; 4] = ["read_bps", "random_reads_per_s", "write_bps", "random_writes_per_s"];

/// The running bench. Fields are dropped in this order: first what uses the hosts, and the
/// directory last.
pub(crate) struct StorageSite {
    console: Console,
    client: Client,
    guest: Host,
    switch: Host,
    target: Host,
    /// The file behind the LUN.
    lun: PathBuf,
    /// The wire whose member is disconnected next, and the other.
    next: [&'static str; 2],
    begin: Instant,
    _directory: tempfile::TempDir,
}

impl StorageSite {
    /// Starts the hosts, the switch, the target and the guest. Call it while this process has one
    /// thread.
    ///
    /// # Errors
    /// The guest's files are missing, namespaces are refused, or the guest finds no target.
    pub(crate) fn make(
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn Site>, LabError> {
        let files = Files::find(options.guest(), "storage")?;
        let directory = site::prepare(interrupt)?;
        let at = directory.path();
        let start = |name| Host::start(name, &options.program, at);
        let (mut guest, mut switch, mut target) =
            (start("guest (QEMU)")?, start("switch")?, start("target")?);
        connect(&mut target, &mut switch)?;
        let path = at.join("switch");
        let text = configuration(&path);
        let ready = |port: &PortBody| {
            port.state == StateBody::Up || port.reason.starts_with("waiting for a guest")
        };
        let are_ready =
            |ports: &[PortBody]| ports.len() == 1 + PORTS.len() && ports.iter().all(ready);
        let of = (path.as_path(), text.as_str());
        let client = daemon::run(&mut switch, &options.program, of, interrupt, are_ready)?;
        let lun = at.join("lun");
        let programs = ["tgtd", "tgtadm"].map(|name| files.program(name));
        target::serve(&mut target, &programs, PORTALS, &lun)?;
        let vnics = PORTS.map(|(name, mac)| vnic(name, &path.with_extension(name), mac, PAIRS));
        let [one, other] = vnics.map(|vnic| format!("{vnic},host_mtu={WIDE}"));
        let path = at.join("console");
        files.start(&mut guest, &Console::device(&path), &format!("{one} {other}"))?;
        let mut console = Console::open(&path, interrupt)?;
        let attach = format!("storage attach {}", PORTALS.join(" "));
        console.run(&attach)?;
        Ok(Box::new(StorageSite {
            console,
            client,
            guest,
            switch,
            target,
            lun,
            next: WIRES,
            begin: Instant::now(),
            _directory: directory,
        }))
    }

    /// Runs a command of millrace/tests/stories/guest/storage in the guest, and returns the numbers
    /// that it prints.
    fn ask(&mut self, what: &str) -> Result<Vec<f64>, LabError> {
        self.console.run(&format!("storage {what}")).map(|said| numbers(&said))
    }

    /// Returns the queue pairs in use by the vNIC that uses fewer.
    fn pairs(&self) -> Result<f64, LabError> {
        let ports = self.client.rss(None).map_err(switch_error)?;
        let own = ports.iter().filter(|port| PORTS.iter().any(|(name, _)| *name == port.port));
        Ok(own.map(|port| port.queues_in_use).min().unwrap_or(0) as f64)
    }

    /// Makes requests of each kind for `time`. The mean frame size is that of the frames that
    /// arrive at the target during writes.
    fn requests(&mut self, time: Duration) -> Result<Values, LabError> {
        let mut values = Values::from([("queue_pairs".to_owned(), self.pairs()?)]);
        for kind in KINDS {
            let before = self.target.read(WIRES[0])?;
            let said = self.ask(&format!("measure {kind} {}", time.as_secs_f64()))?;
            values.insert(kind.into(), said.first().copied().unwrap_or_default());
            let (frames, bytes) = self.target.read(WIRES[0])?.arrived_since(&before);
            if kind == "write_bps" {
                values.insert("frame_bytes".into(), bytes as f64 / frames.max(1) as f64);
            }
        }
        Ok(values)
    }

    /// Disconnects a member while the guest copies, and reconnects it; the members take turns.
    fn pull(&mut self) -> Result<Values, LabError> {
        let [wire, other] = self.next;
        self.next = [other, wire];
        target::fill(&mut self.target, &self.lun)?;
        self.console.tell("storage load 4")?;
        self.console.interrupt.pass(DOWN / 2)?;
        self.target.set_up(wire, false)?;
        let before = self.target.read(other)?;
        self.console.interrupt.pass(DOWN)?;
        let (_, carried) = self.target.read(other)?.arrived_since(&before);
        self.target.set_up(wire, true)?;
        let said = self.console.until("0")?;
        self.ask("whole")?;
        let wrong = target::wrong(&mut self.target, &self.lun)?;
        let [copied, errors, longest_ns] = numbers(&said)[..] else {
            return Err(LabError::Machine(format!("it said of its requests only {said:?}")));
        };
        let figures = [
            ("copied_bytes", copied),
            ("io_errors", errors),
            ("path_change_ms", longest_ns / 1e6),
            ("carried_bytes", carried as f64),
            ("wrong_copies", wrong),
        ];
        Ok(figures.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Checks that `millrace check` has a finding with these words.
    fn finding(&self, words: &str) -> Result<Check, LabError> {
        let found = self.console.interrupt.wait_for(Duration::from_secs(3), || {
            let health = self.client.health().map_err(switch_error)?;
            let mut found = health.findings.into_iter().map(|found| found.problem);
            let found = found.find(|problem| problem.error.contains(words));
            Ok(found.map(|problem| format!("{} ({})", problem.error, problem.seen)))
        })?;
        let name = format!("`millrace check` finds \"{words}\"");
        Ok(Check { name, passed: found.is_some(), seen: found.unwrap_or_else(|| "nothing".into()) })
    }
}

/// Returns the numbers among the words.
fn numbers(said: &str) -> Vec<f64> {
    said.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// A wire from each member to the target, which carries frames of MTU size.
fn connect(target: &mut Host, switch: &mut Host) -> Result<(), LabError> {
    for ((link, portal), member) in WIRES.into_iter().zip(PORTALS).zip(MEMBERS) {
        wire(target, link, member, switch.process(), WIDE)?;
        target.run(&format!("ip address add {portal}/24 dev {link}"))?;
        target.set_offloads(link, &offloads(false, false))?;
        switch.run(&format!("ip link set {member} mtu {WIDE} up"))?;
        switch.set_offloads(member, &offloads(false, false))?;
    }
    Ok(())
}

/// Returns the switch's configuration: a team, and a vNIC for each of its members.
fn configuration(path: &Path) -> String {
    let api = path.with_extension("api");
    let mut text = format!(
        "[switch]\nsocket = {api:?}\nworkers = 1\n[[port]]\nname = \"uplink\"\nteam = {MEMBERS:?}\nteam-fail-back = 0\nmtu = {WIDE}\n"
    );
    for ((name, mac), member) in PORTS.into_iter().zip(MEMBERS) {
        let (socket, more) = (path.with_extension(name), "follow-uplink = true");
        text += &format!("[[port]]\nname = \"{name}\"\nvhost-user = {socket:?}\nmac = \"{mac}\"\n");
        text += &format!("mtu = {WIDE}\nqueues = {PAIRS}\nteam-member = \"{member}\"\n{more}\n");
    }
    text
}

impl Bench for StorageSite {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        let Some(paths) = PATHS.iter().find(|paths| paths.name == arm.name) else { return Ok(()) };
        WIRES.into_iter().try_for_each(|wire| self.target.set_mtu(wire, paths.mtu))?;
        for interface in INTERFACES {
            self.console.run(&format!("ethtool -L {interface} combined {}", paths.pairs))?;
        }
        self.ask(&format!("mtu {}", paths.mtu)).map(drop)
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.console.interrupt.pass(time)?;
        self.switch.check()
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        let mut values = self.requests(interval)?;
        values.extend(self.pull()?);
        Ok(Measured { values, usage: Vec::new() })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Site for StorageSite {
    fn facts(&self) -> BenchFacts {
        BenchFacts {
            description: "An emulated guest reaches one iSCSI target through two pinned ports."
                .into(),
            ..BenchFacts::default()
        }
    }

    /// Checks the findings of `millrace check` for two vNICs on one member, and for members with
    /// different MTUs.
    fn checks(&mut self, _: &Interrupt) -> Result<Vec<Check>, LabError> {
        let pin = |member: &str| {
            let change = json!({ "team-member": member });
            self.client.change_port(PORTS[1].0, &change).map(drop).map_err(switch_error)
        };
        pin(MEMBERS[0])?;
        let one_member = self.finding("are pinned to the same member")?;
        pin(MEMBERS[1])?;
        self.switch.set_mtu(MEMBERS[1], 1500)?;
        let other_mtu = self.finding("its members have different MTUs")?;
        self.switch.set_mtu(MEMBERS[1], WIDE)?;
        self.ask("whole")?;
        Ok(vec![one_member, other_mtu])
    }

    fn run(&mut self, _: Load, plan: &Plan, _: &Interrupt, progress: Tell<'_>) -> RunResult {
        Ok((plan.run(self, progress), None))
    }

    fn commands(&self) -> Vec<Command> {
        let hosts = [&self.switch, &self.target, &self.guest];
        hosts.into_iter().flat_map(|host| host.commands().iter().cloned()).collect()
    }
}
