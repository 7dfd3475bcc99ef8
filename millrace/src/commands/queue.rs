//! `millrace queue`: shows which worker serves which queue and at what load, and moves queues.

use crate::commands::names;
use crate::commands::status::{mean_wait, wait};
use crate::global::Global;
use crate::output::{self, Outcome, pluralized, table};
use api::body::{QueueBody, QueueVnicBody};
use clap::{Args, Subcommand};
use std::fmt::Write;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the worker, core and load of each queue
    Show(Show),
    /// Move a queue to another worker
    Move(Move),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace queue show
  millrace queue show vm1 --json | jq '.[].load_percent'

LOAD is the share of the worker's time that frames from the queue took in the last second, at most
100 %: the time for which another program held the worker up counts too.
WAIT is how long frames waited in the queue before they were taken, the mean of the last second;
- if no frame came, or the port does not know (it is known at packet ports).
ENTRIES is how many entries of the port's indirection table lead to the queue, for flows toward the
port. An uplink with several queues has a further line per vNIC, with the entries of the vNIC's own
table, for flows from the uplink toward the vNIC.")]
struct Show {
    /// The port [default: all ports].
    #[arg(add = names::ports())]
    port: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace queue move vm1 0 --worker 1

No frame is lost or reordered. The move lasts until the port is reopened. The queues of a port with
`vmmq=dynamic`, the default, are also moved by load: set `vmmq=static` first.")]
struct Move {
    /// The port.
    #[arg(add = names::ports())]
    port: String,
    /// The queue's number.
    queue: usize,
    /// The worker to move the queue to.
    #[arg(long, value_name = "N", add = names::workers())]
    worker: usize,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let queues = match &arguments.verb {
        Verb::Show(Show { port: Some(name) }) => client.port(name)?.queues,
        Verb::Show(Show { port: None }) => client.queues()?,
        Verb::Move(Move { port, queue, worker }) => {
            vec![client.move_queue(port, *queue, *worker)?]
        }
    };
    let is_move = matches!(&arguments.verb, Verb::Move(_));
    output::show(global, &queues, |queues| if is_move { text(queues) } else { shown(queues) })
}

/// Returns the queues as text, without those that their guest does not use.
fn shown(queues: &[QueueBody]) -> String {
    let is_used = |queue: &&QueueBody| queue.entries > 0 || queue.frames > 0;
    let used: Vec<_> = queues.iter().filter(is_used).collect();
    let unused = queues.len() - used.len();
    let mut text = text(used);
    if unused > 0 {
        let count = pluralized(unused, "queue", "queues");
        let _ = write!(text, "\n{count} without entries and frames: --json shows them too");
    }
    text
}

fn text<'q>(queues: impl IntoIterator<Item = &'q QueueBody>) -> String {
    let row = |queue: &QueueBody| {
        vec![
            queue.port.clone(),
            queue.queue.to_string(),
            queue.mac.clone().unwrap_or_else(|| "-".to_owned()),
            queue.vlan.clone(),
            queue.worker.to_string(),
            queue.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            format!("{:.1} %", queue.load_percent),
            wait(mean_wait(queue)),
            queue.entries.to_string(),
        ]
    };
    let of_vnic = |queue: &QueueBody, vnic: &QueueVnicBody| {
        let or = |text: Option<String>, none: &str| text.unwrap_or_else(|| none.to_owned());
        let mut row = row(queue);
        row[0] = format!("{} > {}", queue.port, vnic.port.as_deref().unwrap_or("others"));
        row[2] = or(vnic.mac.clone(), "-");
        row[3] = or(vnic.vlan.map(|vlan| vlan.to_string()), "-");
        row[6] = "-".to_owned();
        row[7] = "-".to_owned();
        row[8] = vnic.entries.to_string();
        row
    };
    let rows = |queue: &QueueBody| {
        let vnics = queue.vnics.iter().map(|vnic| of_vnic(queue, vnic));
        std::iter::once(row(queue)).chain(vnics).collect::<Vec<_>>()
    };
    let header = ["PORT", "QUEUE", "MAC", "VLAN", "WORKER", "CORE", "LOAD", "WAIT", "ENTRIES"];
    table(&header, queues.into_iter().flat_map(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest of two processors has eight queues by default.
    #[test]
    fn queues_that_a_guest_does_not_use_are_counted() {
        let queue = |queue, entries, frames| QueueBody {
            port: "vm".into(),
            queue,
            mac: None,
            vlan: "untagged".into(),
            worker: 0,
            cpu: None,
            load_percent: 0.0,
            entries,
            busy_ns: 0,
            frames,
            bytes: 0,
            movable: false,
            wait: None,
            vnics: Vec::new(),
        };
        let text = shown(&[queue(0, 128, 0), queue(1, 0, 7), queue(2, 0, 0), queue(3, 0, 0)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[3], "2 queues without entries and frames: --json shows them too");
        assert_eq!(shown(&[queue(0, 128, 0)]).lines().count(), 2);
    }
}
