//! Two hosts between which a guest moves, and the bench that has it move.
//!
//! ```text
//! QEMU, vnic0 ── switch (millrace run) uplink0 ── host-a ┐
//!                                                         physical: bridge0, the client
//! QEMU, vnic0 ── switch (millrace run) uplink0 ── host-b ┘
//! ```
//!
//! The guest's port is a vhost-user port of the same switch through which its memory goes: from the host's own vNIC over the
//! uplink. Called by the campaign as a [`Site`] of its own; an interval is a migration, and the next one goes back.

mod frames;
mod place;
mod stream;

use crate::LabError;
use crate::campaign::Point;
use crate::experiment::{Arm, Bench, Measured, Values};
use crate::experiments::migration::{TRANSPORTS, Transport};
use crate::guest::Files;
use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::options::Options;
use crate::report::{BenchFacts, Command};
use crate::site::{self, Tell};
use crate::usage::{Reading as _, Sides, used_s};
use frames::Answers;
use place::Place;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stream::Stream;

/// The hosts, with the addresses of their own vNICs.
const PLACES: [(&str, &str); 2] = [("host-a", "10.78.0.1"), ("host-b", "10.78.0.2")];
/// Of the guest and of the client.
const GUEST: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";
/// The guest's port at both switches.
const PORT: &str = "vm";
/// Where the guest sends a stream back.
const STREAM: u16 = 7000;
/// Where QEMU listens for memory.
const MEMORY: u16 = 4444;
/// A guest that does not answer by then never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// See the module. Fields end in this order: first what uses the hosts, and the directory last.
pub(crate) struct Site {
    stream: Stream,
    /// Where the guest runs.
    guest: Machine,
    /// The place of that among the places.
    at: usize,
    places: [Place; 2],
    physical: Host,
    transport: Transport,
    files: Files,
    program: PathBuf,
    interrupt: Interrupt,
    begin: Instant,
    _directory: tempfile::TempDir,
}

impl Site {
    /// Call it while this process has one thread.
    pub(crate) fn make(
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn site::Site>, LabError> {
        let files = Files::find(options.guest(), "initramfs")?;
        let directory = site::prepare(interrupt)?;
        let own = (&*options.program, directory.path());
        let mut physical = Host::start("physical", own.0, own.1)?;
        physical.run("ip link add bridge0 type bridge forward_delay 0 stp_state 0")?;
        physical.run("ip link set bridge0 mtu 9000 up")?;
        physical.run(&format!("ip address add {CLIENT}/24 dev bridge0"))?;
        let mut place = |which| Place::start(which, &mut physical, own, interrupt);
        let mut places = [place(PLACES[0])?, place(PLACES[1])?];
        let line = format!(
            "ip address add {GUEST}/24 dev eth0; ip link set eth0 up; \
             while :; do nc -l -p {STREAM} -e cat; done >/dev/null 2>&1 &"
        );
        let guest = Machine::boot(&files, places[0].for_machine(), &line, interrupt)?;
        let stream = connect(&physical, interrupt)?;
        Ok(Box::new(Site {
            stream: Stream::start(stream).map_err(LabError::io("starting the stream"))?,
            guest,
            at: 0,
            places,
            physical,
            transport: TRANSPORTS[0],
            files,
            program: options.program.clone(),
            interrupt: interrupt.clone(),
            begin: Instant::now(),
            _directory: directory,
        }))
    }

    /// One migration under load, with so long of load before and after it.
    fn migrate(&mut self, around: Duration) -> Result<Values, LabError> {
        let interrupt = self.interrupt.clone();
        let [from, to] = [self.at, 1 - self.at];
        let mut other = Machine::wait(&self.files, self.places[to].for_machine(), &interrupt)?;
        let before = self.stream.settle(&interrupt)?;
        let files = [from, to].map(|place| self.places[place].file("pcapng"));
        let captures = [self.capture(from, &files[0])?, self.capture(to, &files[1])?];
        let pings = frames::ping(&self.physical, GUEST)?;
        self.pass(around)?;
        let link = PLACES[from].0;
        let (wire, sides, begin) = (self.physical.read(link)?, self.sides(&other), Instant::now());
        let address = format!("{}:{MEMORY}", self.places[to].address);
        let (said, [stop, resume]) =
            self.guest.migrate(&mut other, &address, self.transport, &interrupt)?;
        let used = self.sides(&other).since(&sides);
        let (seconds, wire) = (begin.elapsed().as_secs_f64(), (wire, self.physical.read(link)?));
        self.at = to;
        std::mem::replace(&mut self.guest, other).quit()?;
        self.pass(around)?;
        let answers = Answers::of(pings)?;
        let [left, came] = captures;
        let (left, came) = (frames::given(left, &files[0])?, frames::given(came, &files[1])?);
        let after = self.stream.settle(&interrupt)?;
        let mut values = own_words(&said);
        values.extend(costs(&used, seconds, values.get("sent_bytes").copied()));
        let (frames, bytes) = wire.1.arrived_since(&wire.0);
        let gap = left.last().zip(came.first()).map(|(last, first)| (first - last) * 1e3);
        let stopped = (resume - stop) * 1e3;
        let downtime = values.get("downtime_ms").copied().unwrap_or_default().max(1.0);
        let figures = [
            ("stopped_ms", Some(stopped)),
            ("gap_ms", gap),
            ("switch_ms", gap.map(|gap| gap - stopped)),
            ("frame_bytes", Some(bytes as f64 / frames.max(1) as f64)),
            ("ping_outage_ms", Some(answers.outage_ms)),
            ("outage_ratio", Some(answers.outage_ms / downtime)),
            ("pings_answered", Some(answers.count as f64)),
            ("pings_twice", Some(answers.twice as f64)),
            ("received_bytes", Some((after.back - before.back) as f64)),
            ("wrong_bytes", Some((after.wrong - before.wrong) as f64)),
            ("missing_bytes", Some(after.missing as f64)),
        ];
        let known = figures.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        values.extend(known);
        Ok(values)
    }

    fn capture(&self, place: usize, file: &Path) -> Result<frames::Running, LabError> {
        let socket = self.places[place].file("api");
        let capture = frames::capture(&self.program, &socket, file)?;
        let runs = self.interrupt.wait_for(PATIENCE, || Ok(file.exists().then_some(())))?;
        let failed = || LabError::Switch(format!("it captures nothing at port {PORT}"));
        runs.map(|()| capture).ok_or_else(failed)
    }

    /// What the source's QEMU, both switches and the destination's QEMU have used so far.
    fn sides(&self, other: &Machine) -> Sides {
        let switches = self.places.each_ref().map(|place| used_s(place.switch.process()));
        let switches = switches.into_iter().sum::<Option<f64>>();
        Sides::new([used_s(self.guest.process), switches, used_s(other.process)])
    }
}

/// What QEMU says of a migration.
fn own_words(said: &Value) -> Values {
    let ram = &said["ram"];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let (seconds, bytes) = (number(&said["total-time"]) / 1e3, number(&ram["transferred"]));
    let figures = [
        ("total_s", seconds),
        ("sent_bytes", bytes),
        ("migration_bps", bytes * 8.0 / seconds.max(1e-3)),
        ("downtime_ms", number(&said["downtime"])),
        ("rounds", number(&ram["dirty-sync-count"])),
        ("multifd_bytes", number(&ram["multifd-bytes"])),
    ];
    figures.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What was used, and what a GiB of memory cost: all sides with the kernel that is in no program's time, and the switches.
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

/// Connects the client to what sends a stream back.
fn connect(physical: &Host, interrupt: &Interrupt) -> Result<TcpStream, LabError> {
    let to: SocketAddr = format!("{GUEST}:{STREAM}")
        .parse()
        .map_err(|_| LabError::Machine(format!("{GUEST} is no address")))?;
    let open = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
    let connected = interrupt.wait_for(PATIENCE, || Ok(physical.within(open).ok()))?;
    let (from, to) = ("the client".to_owned(), format!("the guest at {to}"));
    connected.ok_or(LabError::NoTraffic { from, to, waited: PATIENCE })
}

impl Bench for Site {
    fn switch_to(&mut self, arm: &Arm) -> Result<(), LabError> {
        let known = TRANSPORTS.into_iter().find(|one| one.name == arm.name);
        self.transport = known.unwrap_or(TRANSPORTS[0]);
        self.places.iter().try_for_each(|place| place.set_mtu(self.transport.mtu))
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)?;
        self.places.iter_mut().try_for_each(|place| place.switch.check())
    }

    fn measure(&mut self, _arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        Ok(Measured { values: self.migrate(interval)?, usage: Vec::new() })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl site::Site for Site {
    fn facts(&self) -> BenchFacts {
        BenchFacts {
            description: format!(
                "A guest migrates between two hosts, each with its own switch. A Linux bridge joins their uplinks, as the physical \
                 switch would; the client is on the bridge. The guest is a virtual machine with one processor, emulated by QEMU, on a \
                 vhost-user port. Its memory goes from the host's own vNIC, a TAP on the same switch, over the uplink. Everything \
                 shares {} processors.",
                std::thread::available_parallelism().map_or(1, usize::from)
            ),
            vnic: Some("vhost-user".into()),
            ..BenchFacts::default()
        }
    }

    fn run(&mut self, point: &Point, _: &Interrupt, progress: Tell<'_>) -> site::Measured {
        Ok((point.experiment.run(self, progress), None))
    }

    fn commands(&self) -> Vec<Command> {
        let places = self.places.iter().flat_map(Place::commands);
        self.physical.commands().iter().cloned().chain(places).collect()
    }
}
