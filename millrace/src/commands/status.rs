//! `millrace status`: ports, rates, workers and health at a glance.

use super::check::{alike, others, summary};
use crate::fold;
use crate::global::Global;
use crate::output::{self, Outcome, bits, count, pluralized};
use api::body::{HealthBody, PortBody, QueueBody, RatesBody, RestrictionBody, SwitchBody};
use clap::Args;
use config::RscMode;
use serde::Serialize;

/// Up to this many ports are listed each: as many as a usual terminal has lines.
const LISTED: usize = 24;
/// Columns of ports that a narrow terminal leaves out, in this order.
const LESS: [&str; 5] = ["WAIT", "MTU", "RSC", "DEVICE", "VLAN"];

#[derive(Args)]
#[command(after_help = "\
FROM PORT is traffic from the port into the switch, TO PORT from the switch to the port. RSC is
coalescing toward the port: on, gro (the kernel's rules) or off. WAIT is the mean time that frames
waited in the port's queue in the last second, where it is known; of several queues the longest.

With more than 24 ports, ports in the same state are one line with their number and their sums. On
a narrow terminal columns are left out.

Examples:
  millrace status
  millrace status --all
  millrace status --json | jq '.ports[] | select(.state != \"up\") | .name'")]
pub(crate) struct Arguments {
    /// Show each port and each finding on a line of its own, however many there are.
    #[arg(short, long)]
    all: bool,
}

/// Switch, ports and health as one body.
#[derive(Serialize)]
struct Status {
    switch: SwitchBody,
    ports: Vec<PortBody>,
    health: HealthBody,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let status =
        Status { switch: client.switch()?, ports: client.ports()?, health: client.health()? };
    output::show(global, &status, |status| text(status, arguments.all, output::width()))
}

fn text(status: &Status, all: bool, width: Option<usize>) -> String {
    let switch = &status.switch;
    let mut head = format!(
        "millrace {}, up for {}, {} of {} ports up, {}, {} learned\n",
        switch.version,
        duration(switch.uptime_s),
        switch.ports_up,
        switch.ports,
        pluralized(switch.workers.len(), "worker", "workers"),
        pluralized(switch.macs, "address", "addresses"),
    );
    head.push_str(&format!(
        "restricted: files {}, system calls {}, namespaces {}\n",
        restriction(&switch.sandbox.files),
        restriction(&switch.sandbox.system_calls),
        restriction(&switch.sandbox.namespaces),
    ));
    let mut text = format!("{}\n", output::fitted(head.trim_end(), width));
    if !status.ports.is_empty() {
        let folds = !all && status.ports.len() > LISTED;
        let table = if folds { folded(&status.ports, width) } else { listed(&status.ports, width) };
        text.push_str(&format!("\n{table}\n"));
        if folds {
            text.push_str("`--all` lists each port, `millrace top` the busiest first.\n");
        }
    }
    text.push_str(&findings(&status.health, all, width));
    text.push_str(&events(switch, width));
    text
}

/// Returns the findings, each on a line, and those that say the same of many ports on one.
fn findings(health: &HealthBody, all: bool, width: Option<usize>) -> String {
    if health.findings.is_empty() {
        return String::new();
    }
    let summary = summary(health);
    let mut text = format!("\nFindings, {summary} (`millrace check` has the remedies):\n");
    for group in alike(&health.findings, all) {
        let Some(first) = group.first() else { continue };
        let (severity, error) = (first.severity.name(), &first.problem.error);
        let more = if group.len() > 1 { format!(" ({})", others(&group)) } else { String::new() };
        let line = output::fitted(&format!("  {severity:<9}{error}{more}"), width);
        text.push_str(&format!("{line}\n"));
    }
    text
}

fn events(switch: &SwitchBody, width: Option<usize>) -> String {
    let mut text = String::new();
    let recent = switch.events.iter().rev().take(5).collect::<Vec<_>>();
    if !recent.is_empty() {
        text.push_str("\nLast events:\n");
    }
    for event in recent.into_iter().rev() {
        let ago = duration(switch.uptime_s.saturating_sub(event.at_s));
        let times =
            if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
        let line = output::fitted(&format!("  {ago} ago: {}{times}", event.text), width);
        text.push_str(&format!("{line}\n"));
    }
    text
}

/// Returns a text such as `yes (seccomp)` or `no (why)`.
fn restriction(restriction: &RestrictionBody) -> String {
    format!("{} ({})", if restriction.in_force { "yes" } else { "no" }, restriction.detail)
}

/// Returns the table of ports, also that of `millrace port list`.
pub(crate) fn ports(ports: &[PortBody]) -> String {
    listed(ports, output::width())
}

fn listed(ports: &[PortBody], width: Option<usize>) -> String {
    let rows = ports.iter().map(|port| row(&[port])).collect();
    output::fitted_table(&HEADER, rows, &LESS, width)
}

/// Returns the table with ports in the same state folded.
fn folded(ports: &[PortBody], width: Option<usize>) -> String {
    let kind = |port: &PortBody| port.device.split(' ').next().map(str::to_owned);
    let state = |port: &PortBody| {
        let facts = (port.state as u8, kind(port), port.mtu, port.vlan.clone(), rsc(port.rsc));
        (facts, fold::template(&port.reason).0, port.rates.drops_per_s > 0)
    };
    let rows = fold::groups(ports, state).iter().map(|group| row(group)).collect();
    output::fitted_table(&HEADER, rows, &LESS, width)
}

const HEADER: [&str; 11] = [
    "PORT",
    "STATE",
    "DEVICE",
    "MTU",
    "VLAN",
    "RSC",
    "FROM PORT",
    "TO PORT",
    "WAIT",
    "DROPS/S",
    "REASON",
];

/// Returns the row of some ports in the same state, with the sums of their rates.
fn row(ports: &[&PortBody]) -> Vec<String> {
    let Some(first) = ports.first() else { return Vec::new() };
    let sum =
        |rate: fn(&RatesBody) -> u64| -> u64 { ports.iter().map(|port| rate(&port.rates)).sum() };
    let queues = ports.iter().flat_map(|port| &port.queues);
    let device = match ports.len() {
        1 => first.device.clone(),
        many => format!("{many} x {}", first.device.split(' ').next().unwrap_or_default()),
    };
    vec![
        fold::names(ports.iter().map(|port| port.name.as_str())),
        first.state.name().to_owned(),
        device,
        first.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
        first.vlan.clone(),
        rsc(first.rsc).to_owned(),
        bits(sum(|rates| rates.ingress_bits_per_s)),
        bits(sum(|rates| rates.egress_bits_per_s)),
        wait(queues.filter_map(mean_wait).max()),
        count(sum(|rates| rates.drops_per_s)),
        first.reason.clone(),
    ]
}

/// Returns the word of the column `RSC`.
const fn rsc(mode: RscMode) -> &'static str {
    match mode {
        RscMode::Ndis => "on",
        RscMode::Gro => "gro",
        RscMode::Off => "off",
    }
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
