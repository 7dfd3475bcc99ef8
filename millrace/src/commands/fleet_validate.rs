//! `millrace fleet validate`: two hosts of a fleet run an experiment of the lab.

use super::fleet_etcd::At;
use super::fleet_options::{Author, name};
use crate::global::Global;
use crate::output::{self, Failure, INTERRUPTED, Outcome};
use clap::{Args, ValueEnum};
use config::PortName;
use fleet::store::{Experiment, Extent};
use fleet::{Name, Validate};
use lab::Interrupt;
use problem::Problem;
use std::process::ExitCode;

/// What can be measured between two hosts.
#[derive(Clone, Copy, ValueEnum)]
enum Feature {
    /// Receive segment coalescing, on against off
    Rsc,
    /// Unlimited coalescing against trains of at most four segments
    Limits,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  a$ millrace fleet agent --host a --lab-address 10.0.0.1      # on both hosts: its own address behind its switch
  $  millrace fleet validate rsc --from a --to b --port host
  $  millrace fleet validate rsc --from a --to b --quick --json >rsc.json

Host --from sends to host --to, whose agent toggles the feature at its own switch in ABBA order, puts it back at the end, and passes the
report on through etcd. Needs only etcd, not the network that is measured. One experiment runs at a time; the load uses TCP ports 5001 to
5016 and 4999 of --to. Exit codes are those of `millrace validate`; 130 after Ctrl-C, 3 if etcd does not answer.")]
pub(crate) struct Arguments {
    /// The feature to measure.
    #[arg(value_name = "FEATURE")]
    feature: Feature,
    /// The host that sends.
    #[arg(long, value_name = "HOST", value_parser = name)]
    from: Name,
    /// The host that receives, and whose switch is measured.
    #[arg(long, value_name = "HOST", value_parser = name)]
    to: Name,
    /// The port to toggle, toward the receiver [default: the switch's only vNIC].
    #[arg(long, value_name = "PORT")]
    port: Option<PortName>,
    /// Connection counts, measured in turn [default: 1].
    #[arg(long, value_delimiter = ',')]
    connections: Vec<u16>,
    /// Intervals per arm.
    #[arg(long)]
    repetitions: Option<u32>,
    /// Measure fewer intervals of half a second each.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    at: At,
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Outcome {
        let interrupt = Interrupt::default();
        let failed = |error: lab::LabError| Failure::Failed(Problem::new(error.to_string()));
        interrupt.watch_signals().map_err(failed)?;
        let validate = Validate {
            experiment: match self.feature {
                Feature::Rsc => Experiment::Rsc,
                Feature::Limits => Experiment::Limits,
            },
            extent: Extent {
                port: self.port.clone(),
                connections: self.connections.clone(),
                repetitions: self.repetitions,
                quick: self.quick,
            },
            from: self.from.clone(),
            to: self.to.clone(),
            author: self.author.author.clone(),
        };
        self.at.work(|store| {
            let ended = validate.run(store, &mut output::tell, &|| interrupt.is_set())?;
            let Some(outcome) = ended else { return Ok(ExitCode::from(INTERRUPTED)) };
            output::show(global, &outcome.report, |_| outcome.text.join("\n") + "\n")?;
            Ok(ExitCode::from(outcome.code))
        })
    }
}
