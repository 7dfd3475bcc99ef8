//! `millrace vmmq`: shows what dynamic VMMQ moved and why, and records the loads that it sees.

use super::vmmq_record;
use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Outcome, table};
use api::body::{PortBody, VmmqMoveBody};
use clap::{Args, Subcommand};
use config::{Device, VmmqMode};

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
    let ports = client.ports()?;
    let mut moves = client.vmmq_moves()?;
    let is_of =
        |moved: &VmmqMoveBody, port| moved.port == port || moved.vnic.as_deref() == Some(port);
    moves.retain(|moved| port.is_none_or(|port| is_of(moved, port)));
    let why = match moves.is_empty() {
        true => why_none(&ports, client.switch()?.workers.len(), port),
        false => String::new(),
    };
    let off = if port.is_none() { off(&ports) } else { Vec::new() };
    output::show(global, &moves, |moves| if moves.is_empty() { why } else { shown(moves, &off) })
}

/// Returns the names of the ports without a guest.
fn off(ports: &[PortBody]) -> Vec<&str> {
    ports.iter().filter(|port| is_off(port)).map(|port| port.name.as_str()).collect()
}

/// Returns the moves as text, without those of queues that no guest uses now: they carry nothing.
fn shown(moves: &[VmmqMoveBody], off: &[&str]) -> String {
    let is_off = |moved: &&VmmqMoveBody| off.contains(&moved.port.as_str());
    let (idle, used): (Vec<_>, Vec<_>) = moves.iter().partition(is_off);
    let note = match idle.len() {
        0 => String::new(),
        count => {
            let count = output::pluralized(count, "move", "moves");
            format!("{count} of ports without a guest: --json shows them too")
        }
    };
    let parts = [if used.is_empty() { String::new() } else { text(&used) }, note];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns why nothing has moved: what does not allow it, or what it takes.
fn why_none(ports: &[PortBody], workers: usize, port: Option<&str>) -> String {
    let nothing = "Nothing has been moved by load";
    let is_meant = |body: &&PortBody| port.is_none_or(|port| body.name == port);
    let is_dynamic = |body: &&PortBody| body.config.vmmq() == VmmqMode::Dynamic;
    let dynamic = ports.iter().filter(is_meant).filter(is_dynamic);
    let (off, dynamic): (Vec<&PortBody>, Vec<&PortBody>) = dynamic.partition(|it| is_off(it));
    let names = dynamic.iter().map(|body| body.name.as_str()).collect::<Vec<_>>().join(", ");
    let names = match off.len() {
        0 => names,
        count => format!("{names} ({count} more without a guest)"),
    };
    match dynamic.as_slice() {
        [] if !off.is_empty() => {
            let names = off.iter().map(|body| body.name.as_str()).collect::<Vec<_>>().join(", ");
            format!("{nothing}: no guest runs at {names}.")
        }
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
    }
}

/// Returns whether a port is a guest's that has no queue in use: there is nothing to move.
fn is_off(port: &PortBody) -> bool {
    let is_guest = matches!(port.config.device(), Device::VhostUser(_));
    is_guest && port.guest.as_ref().is_none_or(|guest| guest.queues == 0)
}

fn text(moves: &[&VmmqMoveBody]) -> String {
    let row = |moved: &&VmmqMoveBody| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn port(name: &str, device: &str, guest: &Value) -> PortBody {
        let rates: api::body::RatesBody = Default::default();
        let queue = |queue| {
            json!({
                "port": name, "queue": queue, "vlan": "untagged", "worker": 0, "cpu": null, "load_percent": 0.0,
                "entries": 64, "busy_ns": 0, "frames": 0, "bytes": 0, "movable": true,
            })
        };
        let config = if device == "tap" { name.to_owned() } else { format!("/run/{name}") };
        serde_json::from_value(json!({
            "name": name, "device": "", "role": "vnic", "state": "up", "reason": "", "mtu": 1500, "vlan": "untagged",
            "rsc": "off", "queues": [queue(0), queue(1)], "offloads": [], "degraded": [], "rates": rates,
            "guest": guest, "config": { "name": name, device: config },
        }))
        .unwrap()
    }

    /// Ports that wait for their guests were listed as if their queues could move.
    #[test]
    fn a_port_without_a_guest_is_counted_only() {
        let off = port("vm1", "vhost-user", &Value::Null);
        let said = why_none(std::slice::from_ref(&off), 2, None);
        assert_eq!(said, "Nothing has been moved by load: no guest runs at vm1.");
        let moved = |port: &str| -> VmmqMoveBody {
            serde_json::from_value(json!({
                "number": 1, "at_s": 1.0, "port": port, "item": "queue 0", "entries": [], "from": 0, "to": 1,
                "reason": "relieve", "threshold": 0.8, "load": 0.1, "from_load": [0.9, 0.6], "to_load": [0.0, 0.3],
                "text": "why",
            }))
            .unwrap()
        };
        let moves = ["vm1", "c1", "vm1"].map(moved);
        let text = shown(&moves, &super::off(std::slice::from_ref(&off)));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() == 3 && lines[1].contains("c1"), "{text}");
        assert_eq!(lines[2], "2 moves of ports without a guest: --json shows them too");
        let said = why_none(&[off, port("c1", "tap", &Value::Null)], 2, None);
        assert!(said.contains("yet: c1 (1 more without a guest) may move."), "{said}");
    }
}
