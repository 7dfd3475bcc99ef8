//! `millrace rsc`: shows receive segment coalescing and toggles it live.

use crate::commands::names::{self, PortAllOrSwitch};
use crate::global::Global;
use crate::output::{self, Outcome, count, table, word};
use api::body::{RscBody, RscSetting, SwitchRscBody};
use clap::{Args, Subcommand};
use config::RscMode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show settings, state and statistics of host, switch and ports, named as in Windows
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
  millrace rsc show vm1 --json
  millrace rsc show --switch --json

Host: Get-NetOffloadGlobalSetting, `rsc` in [switch]. Switch: Get-VMSwitch, `software-rsc` in
[switch]. Ports: Get-NetAdapterRsc. --json prints the ports, or with --switch host and switch.")]
struct Port {
    /// The port [default: host, switch and all ports].
    #[arg(add = names::ports())]
    port: Option<String>,
    /// Host and switch only.
    #[arg(long, conflicts_with = "port")]
    switch: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace rsc off vm1
  millrace rsc on --all
  millrace rsc off --switch    # Set-VMSwitch -EnableSoftwareRsc $false

No connection is disturbed. On a port added through the API the change persists; on a port from the
file, and on the switch, it lasts until the daemon stops or rereads its file.")]
struct Toggle {
    #[command(flatten)]
    which: PortAllOrSwitch,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    match &arguments.verb {
        Verb::Show(Port { switch: true, .. }) => {
            output::show(global, &client.switch_rsc()?, levels)
        }
        Verb::Show(Port { port: Some(port), .. }) => {
            output::show(global, &client.rsc(Some(port))?, |bodies| text(bodies))
        }
        Verb::Show(Port { port: None, .. }) => {
            let switch = client.switch_rsc()?;
            output::show(global, &client.rsc(None)?, |bodies| {
                format!("{}\n{}", levels(&switch), text(bodies))
            })
        }
        Verb::On(Toggle { which }) if which.switch => {
            output::show(global, &client.set_switch_rsc(true)?, levels)
        }
        Verb::Off(Toggle { which }) if which.switch => {
            output::show(global, &client.set_switch_rsc(false)?, levels)
        }
        Verb::On(Toggle { which }) => {
            let bodies = client.set_rsc(which.port(), RscSetting::On)?;
            output::show(global, &bodies, |bodies| format!("{}{}", text(bodies), left_off(bodies)))
        }
        Verb::Off(Toggle { which }) => {
            let bodies = client.set_rsc(which.port(), RscSetting::Off)?;
            output::show(global, &bodies, |bodies| text(bodies))
        }
    }
}

/// Returns the rows of host and switch.
fn levels(switch: &SwitchRscBody) -> String {
    let header = ["Level", "Setting", "Value", "Operational"];
    let rows = [
        vec![
            "host".to_owned(),
            "ReceiveSegmentCoalescing".to_owned(),
            format!("{} ({})", switch.receive_segment_coalescing, word(&switch.policy)),
            String::new(),
        ],
        vec![
            "switch".to_owned(),
            "SoftwareRscEnabled".to_owned(),
            switch.software_rsc_enabled.to_string(),
            format!("{} of {} ports", switch.operational_ports, switch.ports),
        ],
    ];
    format!("{}\n", table(&header, rows.into_iter()))
}

/// Names the ports that are off after `on --all`: uplinks, which must be named to be turned on.
fn left_off(bodies: &[RscBody]) -> String {
    let off = bodies.iter().filter(|body| body.policy == RscMode::Off);
    let names: Vec<_> = off.map(|body| body.name.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("\nleft off: {}; an uplink is turned on by its name\n", names.join(", "))
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
        if body.statistics.arrived_coalesced_trains > 0 {
            text.push_str(&format!(
                "\n{}: arrived already coalesced: {} frames of {} segments, which RSC does not change\n",
                body.name,
                count(body.statistics.arrived_coalesced_trains),
                count(body.statistics.arrived_coalesced_segments),
            ));
        }
        if (body.length_limit, body.ack_limit) != (0, 0) {
            text.push_str(&format!(
                "\n{}: limits: {} x MTU, {} segments before an ACK (0: none)\n",
                body.name, body.length_limit, body.ack_limit
            ));
        }
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
