//! `millrace vmmq`: shows what dynamic VMMQ moved and why, and records the loads that it sees.

use super::vmmq_record;
use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Outcome, table};
use api::body::VmmqMoveBody;
use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show recent moves with the figures that caused them
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

Shows moves of the port's queues and of its entries at uplinks; for an uplink, moves of all entries
there. Oldest first; times are seconds since the daemon started. The daemon keeps 512 to 1024 moves
and drops the oldest of the port with most. Entries of a vNIC that moved together for one reason are
one move: --json lists the entries, how long their new queue was held, and how many frames waited or
were lost there. docs/vmmq.md explains the reasons.")]
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
        return "Nothing has been moved by load. `millrace port set PORT vmmq=dynamic` allows it."
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
