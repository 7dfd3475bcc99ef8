//! `millrace rss`: shows how frames toward a port are spread over its queues, and changes it live.

use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Outcome, table, word};
use api::body::{RssBody, RssChange, RssEntry};
use clap::{Args, Subcommand};
use config::{RssKey, RssTypes};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show steering, key, types and indirection table
    Show(Show),
    /// Change entries of the indirection table, the key or the types
    Set(Set),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace rss show
  millrace rss show vm1 --json | jq '.[].in_force'

Applies to frames toward the port; `millrace queue show` has the tables for frames from an uplink.
A guest whose monitor passes the control queue on may set key, types and table itself. They are in
force where `steer` is `guest`, the default, and last until the guest resets its device.
KEY is `random` if none is configured; --json has the key in use. A flow's entry is its hash modulo
128. If an entry names an unused queue, the entry's number modulo the queues in use is taken.")]
struct Show {
    /// The port [default: all ports].
    #[arg(add = names::ports())]
    port: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace rss set vm1 --entry 5=2,6=2      # changes only these two entries
  millrace rss set vm1 --equal 4            # entries name queues 0 to 3 in turn
  millrace rss set vm1 --key random
  millrace rss set vm1 --types ipv4,tcpv4,ipv6,tcpv6
  millrace port set vm1 steer=rss           # steers by this table alone

The change applies from the next frame toward the port, whether or not a guest is connected. Frames
from an uplink are spread by a separate key, which is always random.
Entries last until the port is reopened; the key and the types last until the daemon stops or
rereads its file.")]
struct Set {
    /// The port.
    #[arg(add = names::ports())]
    port: String,
    #[command(flatten)]
    what: What,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Entries (0 to 127), each with its queue.
    #[arg(long, value_name = "N=Q,...", value_delimiter = ',', value_parser = entry)]
    entry: Vec<RssEntry>,
    /// Spread all entries over the first N queues in turn.
    #[arg(long, value_name = "N")]
    equal: Option<usize>,
    /// 40 bytes in hex, `random` for the key drawn when the port was opened, or `microsoft` for the
    /// key of Microsoft's test vectors.
    #[arg(long, value_name = "HEX")]
    key: Option<RssKey>,
    /// Hash these types: any of ipv4, tcpv4, udpv4, ipv6, tcpv6, udpv6, ipv6-ex, tcpv6-ex,
    /// udpv6-ex.
    #[arg(long, value_name = "LIST")]
    types: Option<RssTypes>,
}

/// Parses `5=2`.
fn entry(word: &str) -> Result<RssEntry, String> {
    let parts = word.split_once('=');
    let parts = parts.and_then(|(entry, queue)| Some((entry.parse().ok()?, queue.parse().ok()?)));
    let wanted = "write an entry and its queue, such as 5=2";
    parts.map(|(entry, queue)| RssEntry { entry, queue }).ok_or_else(|| wanted.to_owned())
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let bodies = match &arguments.verb {
        Verb::Show(Show { port }) => client.rss(port.as_deref())?,
        Verb::Set(Set { port, what }) => {
            let change = RssChange {
                entries: (!what.entry.is_empty()).then(|| what.entry.clone()),
                equal: what.equal,
                key: what.key,
                types: what.types,
            };
            vec![client.change_rss(port, &change)?]
        }
    };
    output::show(global, &bodies, |bodies| text(bodies))
}

fn text(bodies: &[RssBody]) -> String {
    let is_by_guest = |body: &RssBody| body.guest.as_ref().is_some_and(|guest| guest.in_force);
    let row = |body: &RssBody| {
        vec![
            body.port.clone(),
            word(&body.steer),
            body.queues.to_string(),
            body.queues_in_use.to_string(),
            match body.guest.as_ref().filter(|guest| guest.in_force) {
                Some(guest) if guest.types.is_empty() => "none".to_owned(),
                Some(guest) => guest.types.clone(),
                None => word(&body.types),
            },
            if is_by_guest(body) { "the guest's".to_owned() } else { word(&body.key) },
        ]
    };
    let header = ["PORT", "STEER", "QUEUES", "IN USE", "TYPES", "KEY"];
    let mut text = table(&header, bodies.iter().map(row));
    bodies.iter().filter(|body| body.queues > 1).for_each(|body| text.push_str(&entries(body)));
    text
}

/// Returns the table of a port, 16 entries a line.
fn entries(body: &RssBody) -> String {
    let guest = body.guest.as_ref();
    let by = match guest {
        Some(guest) if guest.in_force => ", by the guest's table",
        _ => "",
    };
    let mut text = format!("\n\n{}: the queue that each entry leads to{by}\n", body.port);
    let rows = body.in_force.chunks(16).enumerate().map(|(row, queues)| {
        let number = format!("{}-{}", 16 * row, 16 * row + queues.len().saturating_sub(1));
        std::iter::once(number).chain(queues.iter().map(ToString::to_string)).collect()
    });
    let columns: Vec<String> = (0..16).map(|column| format!("+{column}")).collect();
    let header: Vec<&str> =
        std::iter::once("ENTRIES").chain(columns.iter().map(|it| &**it)).collect();
    text.push_str(&table(&header, rows));
    if let Some(guest) = guest {
        let what = match guest.in_force {
            true => format!("Frames without a hash lead to queue {}.", guest.unclassified),
            false => "The guest has set a table too; steer=guest puts it in force.".to_owned(),
        };
        return format!("{text}\n{what}");
    }
    let pairs = body.configured.iter().zip(&body.in_force);
    let elsewhere = pairs.filter(|(named, queue)| named != queue).count();
    if elsewhere > 0 {
        text.push_str(&format!(
            "\nEntries that name an unused queue: {elsewhere}. They lead to queue (entry modulo {}); --json has both.",
            body.queues_in_use.max(1),
        ));
    }
    text
}
