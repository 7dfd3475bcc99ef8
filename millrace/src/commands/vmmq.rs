//! `millrace vmmq`: shows what dynamic VMMQ moved and why, and records the loads that it sees.

use super::vmmq_record;
use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Failure, Outcome, table};
use api::body::{PortBody, VmmqMoveBody};
use api::client::Client;
use clap::{Args, Subcommand};
use config::VmmqMode;

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
    let why = if moves.is_empty() { why_none(&client, port)? } else { String::new() };
    output::show(global, &moves, |moves| if moves.is_empty() { why } else { text(moves) })
}

/// Returns why nothing has moved: what does not allow it, or what it takes.
fn why_none(client: &Client, port: Option<&str>) -> Result<String, Failure> {
    let nothing = "Nothing has been moved by load";
    let ports = client.ports()?;
    let is_meant = |body: &&PortBody| port.is_none_or(|port| body.name == port);
    let is_dynamic = |body: &&PortBody| body.config.vmmq() == VmmqMode::Dynamic;
    let dynamic: Vec<&PortBody> = ports.iter().filter(is_meant).filter(is_dynamic).collect();
    let workers = client.switch()?.workers.len();
    let names = dynamic.iter().map(|body| body.name.as_str()).collect::<Vec<_>>().join(", ");
    Ok(match dynamic.as_slice() {
        [] => {
            let port = port.unwrap_or("PORT");
            format!("{nothing}: `millrace port set {port} vmmq=dynamic` allows it.")
        }
        _ if workers < 2 => format!(
            "{nothing}: {names} may move, but the switch has one worker. Set `workers` in [switch], and restart."
        ),
        _ if dynamic.iter().all(|body| body.queues.len() < 2) => format!(
            "{nothing}: {names} may move, with one queue at most. `millrace port set PORT queues=N` adds queues."
        ),
        _ => format!(
            "{nothing} yet: {names} may move. Queues move when their worker is busy for more than 80 % of its time."
        ),
    })
}

fn text(moves: &[VmmqMoveBody]) -> String {
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
