//! `millrace vmmq`: what dynamic VMMQ moved, and why; and recordings of what it sees.

use super::vmmq_record;
use crate::cli::Global;
use crate::commands::names;
use crate::output::{self, Outcome, table};
use clap::{Args, Subcommand};
use control::body::VmmqMoveBody;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the last moves with the figures that caused them
    Explain(Port),
    /// Record loads and moves, for the simulator
    Record(vmmq_record::Arguments),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port set vm1 vmmq=dynamic
  millrace vmmq explain
  millrace vmmq explain vm1 --json

Moves of the port's queues, and of its entries at uplinks; of an uplink those of all entries there.
Oldest first; times are seconds since the daemon started. Some 512 to 1024 are kept: ports that have
most lose their oldest first. Entries of a vNIC that moved together for one reason are one move:
--json names them, and adds how long their new queue was held, and what waited or was lost there.
docs/vmmq.md explains the reasons.")]
struct Port {
    /// The port or uplink [default: all].
    #[arg(add = names::ports())]
    port: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.verb {
        Verb::Explain(Port { port }) => explain(port.as_deref(), global),
        Verb::Record(arguments) => vmmq_record::run(arguments, global),
    }
}

fn explain(port: Option<&str>, global: &Global) -> Outcome {
    let client = global.client()?;
    if let Some(name) = port {
        client.port(name)?;
    }
    let mut moves = client.vmmq_moves()?;
    let is_of =
        |moved: &VmmqMoveBody, port| moved.port == port || moved.vnic.as_deref() == Some(port);
    moves.retain(|moved| port.is_none_or(|port| is_of(moved, port)));
    output::show(global, &moves, |moves| text(moves))
}

fn text(moves: &[VmmqMoveBody]) -> String {
    if moves.is_empty() {
        return "Nothing has moved by load. `millrace port set PORT vmmq=dynamic` allows it."
            .into();
    }
    let row = |moved: &VmmqMoveBody| {
        vec![
            format!("{:.2}", moved.at_s),
            moved.port.clone(),
            moved.item.clone(),
            moved.from.to_string(),
            moved.to.to_string(),
            moved.text.clone(),
        ]
    };
    table(&["AT", "PORT", "WHAT", "FROM", "TO", "WHY"], moves.iter().map(row))
}
