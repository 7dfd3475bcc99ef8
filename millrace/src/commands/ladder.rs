//! `millrace ladder`: measures what each offload adds to the one before it.

use super::existing_hosts::RefusedHosts;
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
  millrace ladder --quick --queues 4               # and channels, and vRSS

Steps: no offloads, + checksum offload, + LSO, + RSC, + RSC limits; first with a sending guest, then
with a receiving one. All steps take turns on the same connections. With --queues two steps follow:
+ channels, a vNIC with so many queues whose frames all come on the first, and + vRSS, whose
indirection table spreads them. The vNIC's port is then reopened for each step, and the check fails
if a further queue carries frames without vRSS, or one carries none with it. Needs namespaces. Exit
codes are those of `validate rsc`.")]
pub(crate) struct Arguments {
    /// Connection counts, measured in turn [default: 1; with --queues 16 per queue].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Queues of the steps for channels and vRSS [default: no such steps].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64))]
    queues: Option<u32>,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    hosts: RefusedHosts,
}

/// What the ladder does that existing hosts do not allow.
const REFUSAL: &str =
    "steps that are toggled at the guest's own device, which an agent has no right to change";

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    arguments.hosts.refuse("ladder", REFUSAL)?;
    let base = |program| Options::ladder(arguments.queues, program);
    let options = arguments.measuring.options(base, &arguments.connections)?;
    carry_out(&ladder::campaign, &options, global)
}
