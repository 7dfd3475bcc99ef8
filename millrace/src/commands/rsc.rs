//! `millrace rsc`: shows receive segment coalescing and toggles it live.

use crate::commands::names::{self, PortOrAll};
use crate::global::Global;
use crate::output::{self, Outcome, count, table, word};
use api::body::{RscBody, RscSetting};
use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show settings, state and statistics, named as in Get-NetAdapterRsc
    Show(Port),
    /// Turn coalescing on: by NDIS rules toward vNICs, by GRO rules toward a named uplink
    On(Toggle),
    /// Turn coalescing off, after delivering open trains
    Off(Toggle),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace rsc show
  millrace rsc show vm1 --json")]
struct Port {
    /// The port [default: all ports].
    #[arg(add = names::ports())]
    port: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace rsc off vm1
  millrace rsc on --all

No connection is disturbed. On a port added through the API the change persists; on a port from the
file it lasts until the daemon stops or rereads its file.")]
struct Toggle {
    #[command(flatten)]
    which: PortOrAll,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let bodies = match &arguments.verb {
        Verb::Show(Port { port }) => client.rsc(port.as_deref())?,
        Verb::On(Toggle { which }) => client.set_rsc(which.port(), RscSetting::On)?,
        Verb::Off(Toggle { which }) => client.set_rsc(which.port(), RscSetting::Off)?,
    };
    output::show(global, &bodies, |bodies| text(bodies))
}

fn text(bodies: &[RscBody]) -> String {
    let header = [
        "Name",
        "Policy",
        "IPv4Enabled",
        "IPv6Enabled",
        "IPv4OperationalState",
        "IPv6OperationalState",
        "IPv4FailureReason",
        "IPv6FailureReason",
    ];
    let settings = bodies.iter().map(|body| {
        vec![
            body.name.clone(),
            word(&body.policy),
            body.ipv4_enabled.to_string(),
            body.ipv6_enabled.to_string(),
            body.ipv4_operational.to_string(),
            body.ipv6_operational.to_string(),
            body.ipv4_failure_reason.clone(),
            body.ipv6_failure_reason.clone(),
        ]
    });
    format!("{}\n\n{}\n{}", table(&header, settings), statistics(bodies), details(bodies))
}

fn statistics(bodies: &[RscBody]) -> String {
    let header =
        ["Name", "CoalescedBytes", "CoalescedPackets", "CoalescingEvents", "CoalescingExceptions"];
    let rows = bodies.iter().map(|body| {
        let statistics = &body.statistics;
        vec![
            body.name.clone(),
            statistics.coalesced_bytes.to_string(),
            statistics.coalesced_packets.to_string(),
            statistics.coalescing_events.to_string(),
            statistics.coalescing_exceptions.to_string(),
        ]
    });
    table(&header, rows)
}

/// Returns train depths and exceptions, if there are any.
fn details(bodies: &[RscBody]) -> String {
    let mut text = String::new();
    for body in bodies {
        let depths = body.statistics.train_depth.iter().filter(|depth| depth.trains > 0);
        let depths = list(depths.map(|depth| (depth.segments.as_str(), depth.trains)));
        let reasons = body.statistics.exceptions_by_reason.iter().filter(|(_, count)| **count > 0);
        let reasons = list(reasons.map(|(reason, count)| (reason.as_str(), *count)));
        if !depths.is_empty() {
            text.push_str(&format!("\n{}: trains by segments: {depths}\n", body.name));
        }
        if !reasons.is_empty() {
            text.push_str(&format!("{}: ends by reason: {reasons}\n", body.name));
        }
    }
    text
}

fn list<'a>(pairs: impl Iterator<Item = (&'a str, u64)>) -> String {
    pairs
        .map(|(label, number)| format!("{label}: {}", count(number)))
        .collect::<Vec<_>>()
        .join(", ")
}
