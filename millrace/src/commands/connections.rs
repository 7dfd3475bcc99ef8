//! `millrace connections`: from one connection to ten thousand.

use super::existing_hosts::Hosts;
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
  millrace connections --sender TOKEN@192.0.2.1:5900 --receiver TOKEN@10.0.0.7:5900

The limit on open files is raised up to the hard limit (`ulimit -Hn`); 10,000 connections need
10,100. With --sender the hosts are existing ones, and nothing is changed at the running switch.
Needs namespaces or existing hosts. Exit codes are those of `validate rsc`.")]
pub(crate) struct Arguments {
    /// Connection counts [default: 1,10,100,1000,10000].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    measuring: Measuring,
    // Last, because its heading applies to everything after it.
    #[command(flatten)]
    hosts: Hosts,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    arguments.hosts.one_receiver("connections")?;
    let existing_hosts = arguments.hosts.existing_hosts(global)?;
    let options = arguments.measuring.options(Options::connections, &arguments.connections)?;
    let options = Options { existing_hosts, ..options };
    carry_out(&connections::campaign, &options, global)
}
