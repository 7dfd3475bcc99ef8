//! Two hosts, the physical switch between them, and a guest that migrates back and forth under a
//! stream and pings.

use super::migration_host::{MigrationHost, SwitchKind};
use super::observation::{self, PingCounts};
use super::stream::Stream;
use crate::LabError;
use crate::guest::Files;
use crate::host::{Command, Host};
use crate::interrupt::Interrupt;
use crate::machine::VirtualMachine;
use crate::migration::transport::Transport;
use crate::plan::Values;
use crate::usage::{Reading as _, Sides, used_s};
use ports::link::LinkOffload;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Addresses of the guest and of the client.
const GUEST: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";
/// Port on which the guest returns a stream.
const STREAM: u16 = 7000;
/// Port on which QEMU listens for memory.
const MEMORY: u16 = 4444;
/// Timeout of the guest's answer, and of the start of a capture.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes per GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Parts that all pairs share.
pub(super) struct Context {
    pub(super) files: Files,
    /// Path of this binary.
    pub(super) program: PathBuf,
    pub(super) interrupt: Interrupt,
}

/// The hosts with their guest. Fields are dropped in this order: first what uses the hosts.
pub(super) struct HostPair {
    stream: Stream,
    /// The virtual machine that runs the guest.
    guest: VirtualMachine,
    /// Index in `hosts` of the guest's host.
    current: usize,
    hosts: [MigrationHost; 2],
    physical: Host,
}

impl HostPair {
    /// Starts the hosts with switches of a kind, and boots the guest on the first. The hosts keep
    /// their files in `directory`.
    ///
    /// # Errors
    /// A host, a switch, the guest or the stream does not start.
    pub(super) fn start(
        context: &Context,
        kind: SwitchKind,
        directory: &Path,
    ) -> Result<HostPair, LabError> {
        std::fs::create_dir(directory).map_err(LabError::io("making a directory for hosts"))?;
        let own = (&*context.program, directory);
        let [name, first, second] = match kind {
            SwitchKind::Millrace => ["physical", "host-a", "host-b"],
            SwitchKind::OpenVswitch => ["physical-ovs", "ovs-a", "ovs-b"],
        };
        let mut physical = Host::start(name, own.0, own.1)?;
        physical.run("ip link add bridge0 type bridge forward_delay 0 stp_state 0")?;
        physical.run("ip link set bridge0 mtu 9000 up")?;
        physical.run(&format!("ip address add {CLIENT}/24 dev bridge0"))?;
        if kind == SwitchKind::OpenVswitch {
            // Open vSwitch forwards partial checksums unchanged, so the bridge must compute them.
            physical.set_offloads("bridge0", &[(LinkOffload::TxCsum, false)])?;
        }
        let mut start =
            |which| MigrationHost::start(which, kind, &mut physical, own, &context.interrupt);
        let mut hosts = [start((first, 1))?, start((second, 2))?];
        let line = format!(
            "ip address add {GUEST}/24 dev eth0; ip link set eth0 up; \
             while :; do nc -l -p {STREAM} -e cat; done >/dev/null 2>&1 &"
        );
        let guest = VirtualMachine::boot(
            &context.files,
            hosts[0].for_machine(),
            &line,
            &context.interrupt,
        )?;
        let stream = connect(&physical, &context.interrupt)?;
        let stream = Stream::start(stream).map_err(LabError::io("starting the stream"))?;
        Ok(HostPair { stream, guest, current: 0, hosts, physical })
    }

    /// Starts an arm: sets the MTU of the memory's path, in bytes, and resumes the stream.
    ///
    /// # Errors
    /// A daemon refuses the MTU.
    pub(super) fn enter(&self, mtu: u16) -> Result<(), LabError> {
        self.stream.pause(false);
        self.hosts.iter().try_for_each(|host| host.set_mtu(mtu))
    }

    /// Pauses the stream until [`HostPair::enter`].
    pub(super) fn leave(&self) {
        self.stream.pause(true);
    }

    /// Waits for `time` while the stream flows.
    ///
    /// # Errors
    /// A switch has ended, or the interrupt is set.
    pub(super) fn pass(&mut self, time: Duration, interrupt: &Interrupt) -> Result<(), LabError> {
        interrupt.pass(time)?;
        self.hosts.iter_mut().try_for_each(|host| host.switch.check())
    }

    /// Returns every command so far.
    pub(super) fn commands(&self) -> impl Iterator<Item = Command> {
        let hosts = self.hosts.iter().flat_map(MigrationHost::commands);
        self.physical.commands().iter().cloned().chain(hosts)
    }

    /// Runs one migration under load, which begins `around` before it and ends `around` after it.
    /// Returns its figures.
    ///
    /// # Errors
    /// QEMU reports a failure, a program does not start, or the stream breaks.
    pub(super) fn migrate(
        &mut self,
        context: &Context,
        by: Transport,
        around: Duration,
    ) -> Result<Values, LabError> {
        let interrupt = &context.interrupt;
        let [from, to] = [self.current, 1 - self.current];
        let mut other =
            VirtualMachine::wait(&context.files, self.hosts[to].for_machine(), interrupt)?;
        let before = self.stream.settle(interrupt)?;
        let captures = match by.direct {
            true => [None, None],
            false => [Some(self.capture(context, from)?), Some(self.capture(context, to)?)],
        };
        let pings = observation::ping(&self.physical, GUEST)?;
        self.pass(around, interrupt)?;
        let [(leaves, _), (arrives, address)] =
            [from, to].map(|host| self.hosts[host].memory(by.direct));
        let wires = [self.physical.read(&leaves)?, self.physical.read(&arrives)?];
        let (sides, begin) = (self.sides(&other), Instant::now());
        let address = format!("{address}:{MEMORY}");
        let (status, [stop, resume]) =
            self.guest.migrate(&mut other, &address, by.channels, interrupt)?;
        let used = self.sides(&other).since(&sides);
        let seconds = begin.elapsed().as_secs_f64();
        let (frames, bytes) = self.physical.read(&leaves)?.arrived_since(&wires[0]);
        let crossed = self.physical.read(&arrives)?.sent_bytes.saturating_sub(wires[1].sent_bytes);
        self.current = to;
        std::mem::replace(&mut self.guest, other).quit()?;
        self.pass(around, interrupt)?;
        let replies = PingCounts::of(pings)?;
        let delivered = captures
            .map(|one| one.map(|(capture, file)| observation::delivery_times(capture, &file)));
        let [left, came] = delivered.map(Option::transpose);
        let after = self.stream.settle(interrupt)?;
        let mut values = qemu_figures(&status);
        values.extend(costs(&used, seconds, values.get("sent_bytes").copied()));
        let (left, came) = (left?.unwrap_or_default(), came?.unwrap_or_default());
        let gap = left.last().zip(came.first()).map(|(last, first)| (first - last) * 1e3);
        let stopped = (resume - stop) * 1e3;
        let downtime = values.get("downtime_ms").copied().unwrap_or_default().max(1.0);
        let figures = [
            ("stopped_ms", Some(stopped)),
            ("gap_ms", gap),
            ("switch_ms", gap.map(|gap| gap - stopped)),
            ("frame_bytes", Some(bytes as f64 / frames.max(1) as f64)),
            ("crossed_share", Some(crossed as f64 / bytes.max(1) as f64)),
            ("ping_outage_ms", Some(replies.outage_ms)),
            ("outage_ratio", Some(replies.outage_ms / downtime)),
            ("pings_answered", Some(replies.count as f64)),
            ("pings_twice", Some(replies.duplicates as f64)),
            ("received_bytes", Some((after.returned - before.returned) as f64)),
            ("wrong_bytes", Some((after.wrong - before.wrong) as f64)),
            ("missing_bytes", Some(after.missing as f64)),
        ];
        let known = figures.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        values.extend(known);
        Ok(values)
    }

    /// Starts a capture of the guest's port at a host's Millrace. Returns the capture and its file.
    fn capture(
        &self,
        context: &Context,
        host: usize,
    ) -> Result<(observation::RunningProgram, PathBuf), LabError> {
        let [socket, file] = ["api", "pcapng"].map(|what| self.hosts[host].file(what));
        let capture = observation::capture(&context.program, &socket, &file)?;
        let runs = context.interrupt.wait_for(READY_TIMEOUT, || Ok(file.exists().then_some(())))?;
        let failed = || LabError::Switch(format!("it captures nothing at port {}", super::PORT));
        runs.map(|()| (capture, file)).ok_or_else(failed)
    }

    /// Reads the processor time of the source's QEMU, both switches and the destination's QEMU.
    fn sides(&self, other: &VirtualMachine) -> Sides {
        let switches = self.hosts.each_ref().map(|host| used_s(host.switch.process()));
        let switches = switches.into_iter().sum::<Option<f64>>();
        Sides::new([used_s(self.guest.process), switches, used_s(other.process)])
    }
}

/// Returns the figures that QEMU reports about a migration.
fn qemu_figures(status: &Value) -> Values {
    let ram = &status["ram"];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let (seconds, bytes) = (number(&status["total-time"]) / 1e3, number(&ram["transferred"]));
    let figures = [
        ("total_s", seconds),
        ("sent_bytes", bytes),
        ("migration_bps", bytes * 8.0 / seconds.max(1e-3)),
        ("downtime_ms", number(&status["downtime"])),
        ("rounds", number(&ram["dirty-sync-count"])),
        ("multifd_bytes", number(&ram["multifd-bytes"])),
    ];
    figures.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns processor use, and processor time per GiB of memory: of the switches, and of all sides
/// with the shared kernel.
fn costs(used: &Values, seconds: f64, sent: Option<f64>) -> Values {
    let mut values = used.clone();
    let Some(sent) = sent.filter(|sent| *sent > 0.0) else { return values };
    let by_gib = |keys: &[&str]| {
        let used: f64 = keys.iter().filter_map(|key| used.get(*key)).sum();
        used * seconds / (sent / GIB)
    };
    let [sender, switch, receiver] = crate::usage::PROCESSES;
    values.insert("switch_cpu_s_per_gib".into(), by_gib(&[switch]));
    let all = [sender, switch, receiver, crate::usage::SOFTIRQ];
    values.insert("cpu_s_per_gib".into(), by_gib(&all));
    values
}

/// Connects the client to the guest's port for streams.
fn connect(physical: &Host, interrupt: &Interrupt) -> Result<TcpStream, LabError> {
    let to: SocketAddr = format!("{GUEST}:{STREAM}")
        .parse()
        .map_err(|_| LabError::Machine(format!("{GUEST} is no address")))?;
    let open = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
    let connected = interrupt.wait_for(READY_TIMEOUT, || Ok(physical.within(open).ok()))?;
    let (from, to) = ("the client".to_owned(), format!("the guest at {to}"));
    connected.ok_or(LabError::NoTraffic { from, to, waited: READY_TIMEOUT })
}
