//! `millrace lab vmmq --sim`: dynamic VMMQ on virtual time, beside an oracle and other balancers.

use super::vmmq_replay;
use crate::global::Global;
use crate::output::{self, Outcome, table};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use problem::Problem;
use simulator::{Generated, Load, LoadLength, LoadReport, Machine, Recording, Report};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace lab vmmq --sim                          # six loads of 300 s
  millrace lab vmmq --sim --quick --load steps --json
  millrace lab vmmq --sim --recorded load.json     # from `millrace vmmq record`
  millrace lab vmmq --sim --recorded static.json --real dynamic.json

Simulates 64 workers on two NUMA nodes. Each load runs under this switch's balancer, Open vSwitch's
PMD auto load balance, an irqbalance-like balancer, round robin, and an oracle. A recorded load is
one JSON object; busy is a share of a worker:
  {\"interval_ms\": 20, \"items\": [{\"vnic\": \"vm1\", \"queue\": 0, \"node\": 0, \"busy\": [0.1, 0.7]}]}

With --real the balancer places the load on the workers of that recording, and the predicted busy
time of each worker is compared with the recorded one. Exits with 1 if they differ by more than
15 %.")]
pub(crate) struct Arguments {
    /// Simulate (required: nothing is measured on this host).
    #[arg(long, required = true)]
    sim: bool,
    /// Simulate 90 s instead of 300 s of each load.
    #[arg(long)]
    quick: bool,
    /// Generated loads to run [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = names(), conflicts_with = "recorded")]
    load: Vec<String>,
    /// Run a recorded load.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    recorded: Option<PathBuf>,
    /// Predict this recording from the recorded load, and compare.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "recorded", conflicts_with_all = ["quick", "seed"])]
    real: Option<PathBuf>,
    /// Seed of the generated loads: the same seed gives the same figures.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(Generated::ALL.map(Generated::name))
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let machine = Machine::default();
    let report = match (&arguments.recorded, &arguments.real) {
        (Some(load), Some(real)) => {
            return vmmq_replay::run(&read(load)?, &read(real)?, load, global);
        }
        (Some(path), None) => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let load = Load::recorded(&name, &read(path)?, &machine);
            let load = load.map_err(|error| refused(path, &error))?;
            vec![simulator::simulate(&machine, &load, arguments.seed)]
        }
        (None, _) => generated(arguments, &machine),
    };
    let Machine { workers, nodes } = machine;
    let report = Report { seed: arguments.seed, workers, nodes, loads: report };
    output::show(global, &report, text)
}

fn read(path: &Path) -> Result<Recording, Problem> {
    let json = std::fs::read_to_string(path).map_err(|error| refused(path, &error))?;
    Recording::read(&json).map_err(|error| refused(path, &error))
}

/// Returns the problem with a recording that cannot be replayed.
pub(super) fn refused(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(format!("replaying {}: {error}", path.display()))
}

fn generated(arguments: &Arguments, machine: &Machine) -> Vec<LoadReport> {
    let wanted = |kind: &Generated| {
        arguments.load.is_empty() || arguments.load.iter().any(|name| name == kind.name())
    };
    let kinds: Vec<Generated> = Generated::ALL.into_iter().filter(wanted).collect();
    let length = if arguments.quick { LoadLength::Quick } else { LoadLength::Whole };
    let simulate = |(place, kind): (usize, &Generated)| {
        // Progress that cannot be written is no reason to stop.
        let _ = writeln!(std::io::stderr(), "{}: {} of {}", kind.name(), place + 1, kinds.len());
        let load = kind.load(machine, length, arguments.seed);
        simulator::simulate(machine, &load, arguments.seed)
    };
    kinds.iter().enumerate().map(simulate).collect()
}

fn text(report: &Report) -> String {
    let mut out = format!(
        "Dynamic VMMQ, simulated: {} workers on {} nodes, seed {}\n",
        report.workers, report.nodes, report.seed
    );
    let none = || "–".to_owned();
    for load in &report.loads {
        let rows = load.algorithms.with_names().map(|(name, figures)| {
            vec![
                name.to_owned(),
                format!("{:.1} %", 100.0 * figures.throughput_of_oracle),
                figures.moves_per_minute.map_or_else(none, |moves| format!("{moves:.0}")),
                figures.converge_ms.map_or_else(|| "not".to_owned(), |ms| format!("{ms} ms")),
                figures.idle_cores.map_or_else(none, |cores| format!("{cores:.1}")),
            ]
        });
        let header = ["ALGORITHM", "OF ORACLE", "MOVES/MIN", "CONVERGED", "IDLE CORES"];
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\n{} ({:.0} s): {}\n{}\n{}\n",
            load.name,
            load.seconds,
            load.description,
            table(&header, rows),
            verdict(load)
        );
    }
    out
}

fn verdict(load: &LoadReport) -> String {
    let near = if load.is_near_oracle() { "✓ Within" } else { "✗ Not within" };
    let ahead = load.ahead();
    let others = if ahead.is_empty() {
        "no other serves more".to_owned()
    } else {
        format!("these serve more: {}", ahead.join(", "))
    };
    format!("{near} 10 % of the oracle; {others}")
}
