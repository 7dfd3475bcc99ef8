//! `millrace vmmq`: what dynamic VMMQ moved, and why; and recordings of what it sees.

use super::vmmq_record;
use crate::cli::Global;
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

The last 256 moves, oldest first; times are seconds since the daemon started. docs/vmmq.md explains
the reasons. --json adds how long the new queue of an entry was held, and what waited or was lost
there.")]
struct Port {
    /// The port [default: all ports].
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
    moves.retain(|moved| port.is_none_or(|port| port == moved.port));
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
