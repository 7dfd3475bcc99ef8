//! `millrace ladder`: measures what each offload adds to the one before it.

use super::measuring::{Measuring, carry_out};
use crate::global::Global;
use crate::output::Outcome;
use clap::Args;
use lab::experiments::ladder;
use lab::options::Options;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace ladder                                  # about six minutes
  millrace ladder --quick --connections 1,4

Steps: no offloads, + checksum offload, + LSO, + RSC, + RSC limits; first with a sending guest, then
with a receiving one. All steps take turns on the same connections. Needs namespaces. Exit codes are
those of `validate rsc`.")]
pub(crate) struct Arguments {
    /// Connection counts, measured in turn [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let options = arguments.measuring.options(Options::new, &arguments.connections)?;
    carry_out(&ladder::campaign, &options, global)
}
