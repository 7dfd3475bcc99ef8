//! Compares Millrace with other vhost-user switches: one generator, one core for it and one for the
//! switch.
//!
//! The generator is the guest behind both vNICs of the switch under test ([`vnic`], [`direction`]).
//! A [`run`] takes all [cases](case) in turn and measures the [switches](peer) round by round, one
//! sample each ([`measure`]). It ends with a table of ratios and a file ([`report`]). The case with
//! an [uplink] has arms and a table of its own.

mod area;
mod case;
mod direction;
mod hugepages;
mod measure;
mod memory;
mod packed;
mod peer;
mod process;
mod queue;
mod report;
mod ring;
mod run;
mod slots;
mod split;
mod stop;
mod stream;
mod uplink;
mod vnic;

use anyhow::{Context, Result, ensure};
use case::{CASES, Case};
use clap::Parser;
use distance::Distance;
use hugepages::HugePages;
use peer::{PEERS, Peer};
use run::Plan;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use stop::Stop;
use traffic::measure::Machine;

/// Bytes of huge pages for the memory of both vNICs.
const VNICS: usize = 64 << 20;

/// Measures Millrace and other vhost-user switches with the same generator, in turn, and prints the
/// ratios.
///
/// Example: peers --rounds 5 --only 64 --peers testpmd
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of samples of each switch in each case.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a measurement, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only the case of this name, or those whose names contain it; can be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Besides Millrace only these switches: testpmd, ovs-dpdk.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Leave Millrace out.
    #[arg(long)]
    without_millrace: bool,
    /// The switch's core.
    #[arg(long, default_value_t = 0)]
    switch_core: usize,
    /// The generator's core.
    #[arg(long, default_value_t = 1)]
    generator_core: usize,
    /// The Millrace binary; by default the one beside this program.
    #[arg(long)]
    millrace: Option<PathBuf>,
    /// The file for the samples.
    #[arg(long, default_value = "target/peers.json")]
    output: PathBuf,
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let millrace = match &arguments.millrace {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("millrace"),
    };
    let cases: Vec<Case> = CASES.iter().copied().filter(|case| arguments.wants(case)).collect();
    let with_uplink = arguments.wants_uplink();
    ensure!(
        !cases.is_empty() || with_uplink,
        "no case is called {:?}: {}; {}",
        arguments.only,
        names(),
        uplink::NAME
    );
    let stop = Stop::at_signals()?;
    // Read before this process is pinned, and sees only one processor.
    let machine = Machine::read(None);
    pin(arguments.generator_core)?;
    let distance = Distance::from(arguments.switch_core)?;
    let (peers, versions) = arguments.installed(&millrace);
    let huge = peers.iter().map(|peer| peer.huge_bytes()).max().unwrap_or(0);
    // Held until the end. The vNICs work without huge pages; a peer that does not reports it
    // itself.
    let reserved = HugePages::reserve(huge + VNICS);
    if let Err(error) = &reserved {
        note(&format!("without huge pages: {error:#}"));
    }
    let plan = Plan {
        cases,
        peers,
        rounds: arguments.rounds,
        interval: Duration::from_secs_f64(arguments.seconds),
        switch_core: arguments.switch_core,
        generator_core: arguments.generator_core,
        millrace,
    };
    let samples = plan.run(&distance, &stop);
    let rows = report::rows(&plan, &samples);
    if !rows.is_empty() {
        writeln!(std::io::stdout(), "{}", report::table(&rows))?;
    }
    let uplink = match with_uplink {
        true => uplink::run(&plan, &distance, &stop),
        false => uplink::Results::default(),
    };
    if !uplink.rows.is_empty() {
        writeln!(std::io::stdout(), "{}", uplink::table(&uplink.rows))?;
    }
    report::write(&arguments.output, machine, &plan, versions, &rows, &samples, &uplink)?;
    note(&format!("all samples are in {}", arguments.output.display()));
    stop.check()
}

impl Arguments {
    fn wants(&self, case: &Case) -> bool {
        let is_name = |part: &str| CASES.iter().any(|case| case.name == part);
        let meant = |part: &String| {
            case.name == part || (!is_name(part) && case.name.contains(part.as_str()))
        };
        self.only.is_empty() || self.only.iter().any(meant)
    }

    fn wants_uplink(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| uplink::NAME.contains(part.as_str()))
    }

    /// Returns the switches that can be measured, and the versions that all requested ones report.
    fn installed(&self, millrace: &std::path::Path) -> (Vec<Peer>, BTreeMap<&'static str, String>) {
        let mut peers = Vec::new();
        let mut versions = BTreeMap::new();
        for peer in PEERS {
            let asked = match peer {
                Peer::Millrace | Peer::Adaptive | Peer::Never => !self.without_millrace,
                _ => self.peers.is_empty() || self.peers.iter().any(|name| name == peer.name()),
            };
            if !asked {
                continue;
            }
            let version = peer.version(millrace);
            match &version {
                Ok(_) => peers.push(peer),
                Err(error) => note(&format!("{} is left out: {error:#}", peer.name())),
            }
            let told = version.unwrap_or_else(|error| format!("left out: {error:#}"));
            versions.insert(peer.name(), told);
        }
        (peers, versions)
    }
}

fn names() -> String {
    CASES.iter().map(|case| case.name).collect::<Vec<_>>().join("; ")
}

/// Pins this program and its children to a core; a switch pins itself to another one.
fn pin(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("this machine has no core {core}"))
}

fn note(text: &str) {
    // A message that cannot be written does not stop the measurement.
    let _ = writeln!(std::io::stderr(), "peers: {text}");
}
