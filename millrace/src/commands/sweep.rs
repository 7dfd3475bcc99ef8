//! `millrace sweep`: measures throughput by block size and connections, in both directions.

use super::measuring::{Measuring, carry_out};
use crate::global::Global;
use crate::output::Outcome;
use clap::Args;
use lab::experiments::sweep;
use lab::options::Options;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace sweep                                   # 110 loads, about ten minutes
  millrace sweep --quick
  millrace sweep --connections 1,32 --blocks 4096,65536 --repetitions 10
  millrace sweep --quick --queues 1,2              # each load with one queue and with two, in turn
  millrace sweep --resume millrace-report-2026-11-21T214000Z

Each number given to --queues is an arm: both ports are reopened with it while the connections
continue, and the interval starts a second later. The switch has as many workers as the largest
number of queues, but no more than there are processors. Verdicts need five repetitions or more.
Needs namespaces. Exit codes are those of `validate rsc`; --resume continues after Ctrl-C.")]
pub(crate) struct Arguments {
    /// Connection counts [default: 1,2,4,8,16; with --quick 1,4,16].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Block sizes in bytes [default: 512 to 524288, doubling; with --quick 512,4096,32768,524288].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    blocks: Vec<u32>,
    /// Numbers of queues of the uplink and the vNIC, one arm each [default: one queue, no arms].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    queues: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let mut options = arguments.measuring.options(Options::sweep, &arguments.connections)?;
    if !arguments.blocks.is_empty() {
        options.sweep.blocks.clone_from(&arguments.blocks);
    }
    options.queues.clone_from(&arguments.queues);
    options.queues.sort_unstable();
    options.queues.dedup();
    carry_out(&sweep::campaign, &options, global)
}
