//! `millrace top`: the switch live, as a program of the terminal, or as text where there is none.
//!
//! [`screen`] owns the terminal and its loop. Three threads report to it: [`feed`] asks the daemon,
//! one reads keys, and each capture has its own. What they report and what keys mean changes one
//! [`view::View`], which [`draw`] puts on the screen; so tests need neither terminal nor daemon.

mod captures;
mod draw;
mod feed;
mod history;
mod keys;
mod list;
pub(super) mod plain;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use crate::global::Global;
use crate::output::Outcome;
use clap::Args;
use std::io::IsTerminal;

#[derive(Args)]
#[command(after_help = "\
Keys: arrows move, Enter shows the port's details, s and S choose the column to sort by, r reverses
the order, / filters by name, device, VLAN, address and state, t traces a frame that you type,
c captures the port to a file in this directory and ends the capture, q or Ctrl-C quits.

FROM PORT is traffic from the port into the switch, TO PORT from the switch to the port.

Without a terminal, with --count or with --json it prints one table after the other. NO_COLOR turns
colours off.

Examples:
  millrace top
  millrace top --interval 5 --count 3 > rates.txt")]
pub(crate) struct Arguments {
    /// Seconds between updates.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Print this many tables and stop; 0 for no end.
    #[arg(short = 'n', long, default_value_t = 0)]
    count: u32,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal || global.json || arguments.count > 0 {
        return plain::run(arguments, &client, global);
    }
    screen::run(client, global.socket(), arguments.interval)
}
