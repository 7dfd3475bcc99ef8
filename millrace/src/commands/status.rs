//! `millrace status`: ports, rates, workers and health at a glance.

use super::check::summary;
use crate::global::Global;
use crate::output::{self, Outcome, bits, count, pluralized, table};
use api::body::{HealthBody, PortBody, QueueBody, RestrictionBody, SwitchBody};
use clap::Args;
use serde::Serialize;

#[derive(Args)]
#[command(
    after_help = "WAIT is the mean time that frames waited in the port's queue in the last second, where it is known; of several queues\nthe longest.\n\nExamples:\n  millrace status\n  millrace status --json | jq '.ports[] | select(.state != \"up\") | .name'"
)]
pub(crate) struct Arguments {}

/// Switch, ports and health as one body.
#[derive(Serialize)]
struct Status {
    switch: SwitchBody,
    ports: Vec<PortBody>,
    health: HealthBody,
}

pub(crate) fn run(_: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let status =
        Status { switch: client.switch()?, ports: client.ports()?, health: client.health()? };
    output::show(global, &status, text)
}

fn text(status: &Status) -> String {
    let switch = &status.switch;
    let mut text = format!(
        "millrace {}, up for {}, {} of {} ports up, {}, {} learned\n",
        switch.version,
        duration(switch.uptime_s),
        switch.ports_up,
        switch.ports,
        pluralized(switch.workers.len(), "worker", "workers"),
        pluralized(switch.macs, "address", "addresses"),
    );
    text.push_str(&format!(
        "restricted: files {}, system calls {}, namespaces {}\n",
        restriction(&switch.sandbox.files),
        restriction(&switch.sandbox.system_calls),
        restriction(&switch.sandbox.namespaces),
    ));
    if !status.ports.is_empty() {
        text.push_str(&format!("\n{}\n", ports(&status.ports)));
    }
    if !status.health.findings.is_empty() {
        let summary = summary(&status.health);
        text.push_str(&format!("\nFindings, {summary} (`millrace check` has the remedies):\n"));
        for finding in &status.health.findings {
            let severity = finding.severity.name();
            text.push_str(&format!("  {severity:<9}{}\n", finding.problem.error));
        }
    }
    let recent = switch.events.iter().rev().take(5).collect::<Vec<_>>();
    if !recent.is_empty() {
        text.push_str("\nLast events:\n");
    }
    for event in recent.into_iter().rev() {
        let ago = duration(switch.uptime_s.saturating_sub(event.at_s));
        let times =
            if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
        text.push_str(&format!("  {ago} ago: {}{times}\n", event.text));
    }
    text
}

/// Returns a text such as `yes (seccomp)` or `no (why)`.
fn restriction(restriction: &RestrictionBody) -> String {
    format!("{} ({})", if restriction.in_force { "yes" } else { "no" }, restriction.detail)
}

/// Returns the table of ports, also that of `millrace port list`.
pub(crate) fn ports(ports: &[PortBody]) -> String {
    let header =
        ["PORT", "STATE", "DEVICE", "MTU", "VLAN", "RSC", "IN", "OUT", "WAIT", "DROPS/S", "REASON"];
    let row = |port: &PortBody| {
        vec![
            port.name.clone(),
            port.state.name().to_owned(),
            port.device.clone(),
            port.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
            port.vlan.clone(),
            output::word(&port.rsc),
            bits(port.rates.ingress_bits_per_s),
            bits(port.rates.egress_bits_per_s),
            wait(port.queues.iter().filter_map(mean_wait).max()),
            count(port.rates.drops_per_s),
            port.reason.clone(),
        ]
    };
    table(&header, ports.iter().map(row))
}

/// Returns how long a queue's frames waited in the last second, the mean in microseconds.
pub(crate) fn mean_wait(queue: &QueueBody) -> Option<u64> {
    queue.wait.as_ref()?.mean_us
}

/// Returns a text such as `120 µs`, or `-`.
pub(crate) fn wait(us: Option<u64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| format!("{us} µs"))
}

/// Returns a text such as `3 h 12 min`, `12 min 5 s` or `5 s`.
pub(super) fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
