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
  millrace sweep --resume millrace-report-2026-11-21T214000Z

Needs namespaces. Exit codes are those of `validate rsc`; after Ctrl-C --resume goes on.")]
pub(crate) struct Arguments {
    /// Connection counts [default: 1,2,4,8,16; with --quick 1,4,16].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Block sizes in bytes [default: 512 to 524288, doubling; with --quick 512,4096,32768,524288].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    blocks: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let mut options = arguments.measuring.options(Options::sweep, &arguments.connections)?;
    if !arguments.blocks.is_empty() {
        options.blocks.clone_from(&arguments.blocks);
    }
    carry_out(&sweep::campaign, &options, global)
}
