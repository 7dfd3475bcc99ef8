//! `millrace sweep`: throughput by block size and connections, both ways.

use super::measuring::{Measuring, carry_out};
use crate::cli::Global;
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

With several numbers of queues each is an arm, for which both ports are opened anew while the
connections go on; an interval follows a second later. The switch has as many workers as the most
queues, or as there are processors. Five repetitions and more give verdicts.
Needs namespaces. Exit codes are those of `validate rsc`; after Ctrl-C --resume goes on.")]
pub(crate) struct Arguments {
    /// Connection counts [default: 1,2,4,8,16; with --quick 1,4,16].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Block sizes in bytes [default: 512 to 524288, doubling; with --quick 512,4096,32768,524288].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    blocks: Vec<u32>,
    /// Queues of the uplink and the vNIC, an arm each [default: one queue, and no arms].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    queues: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let mut options = arguments.measuring.options(Options::sweep, &arguments.connections)?;
    if !arguments.blocks.is_empty() {
        options.blocks.clone_from(&arguments.blocks);
    }
    options.queues.clone_from(&arguments.queues);
    options.queues.sort_unstable();
    options.queues.dedup();
    carry_out(&sweep::campaign, &options, global)
}
