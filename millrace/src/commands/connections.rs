//! `millrace connections`: from one connection to ten thousand.

use super::measuring::{Measuring, carry_out};
use crate::global::Global;
use crate::output::Outcome;
use clap::Args;
use lab::experiments::connections;
use lab::options::Options;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace connections
  millrace connections --connections 1,64,4096 --seconds 5

The limit on open files is raised up to the hard limit (`ulimit -Hn`); 10,000 connections need
10,100. Needs namespaces. Exit codes are those of `validate rsc`.")]
pub(crate) struct Arguments {
    /// Connection counts [default: 1,10,100,1000,10000].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let options = arguments.measuring.options(Options::connections, &arguments.connections)?;
    carry_out(&connections::campaign, &options, global)
}
