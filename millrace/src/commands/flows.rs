//! `millrace flows`: who talks to whom, and what was dropped.

use super::top::plain::HOME;
use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Failure, Outcome, bits, bytes, count, fitted_table, word};
use api::body::{FlowBody, FlowsBody};
use api::client::Client;
use clap::Args;
use problem::Problem;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time from one table of `--follow` to the next; the daemon has new figures once a second.
const EVERY: Duration = Duration::from_secs(1);

/// Columns that a narrow terminal does without, the first one first.
const LEFT_OUT: [&str; 6] = ["FRAMES", "VLAN", "CARRIED BY", "SEEN", "SEGMENTS", "RESENT"];

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace flows                         # the largest flows of the last five minutes
  millrace flows --drops                 # what was dropped, and why
  millrace flows --port vm1 --ip 10.0.0.0/8
  millrace flows --follow --drops

Bytes are those of frames with their headers. FRAMES has trains as one frame, and SEGMENTS is the
mean number of segments of a frame. RESENT are frames of TCP with bytes that the switch had seen
before: sent again, or overtaken. SEEN is how long ago. A flow to a group has no port in TO, nor
has one that was dropped before its port was known.

A worker looks at the first 16 frames of each millisecond and at one in 256 of the others, and the
same of those that it drops. So slow flows are exact; figures of fast ones are estimates, with a
`~`. An estimate from N frames that were looked at (`sampled` with --json) is right to 200 % divided
by the root of N, in 95 of 100 cases: 2 % from 10,000 frames.")]
pub(crate) struct Arguments {
    /// Print each second the flows that had frames in it, until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// Only flows of which frames were dropped, those with the most drops first.
    #[arg(short, long)]
    drops: bool,
    /// Only flows from or to this port.
    #[arg(short, long, add = names::ports())]
    port: Option<String>,
    /// Only flows from or to this IP address, or one of a prefix.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    ip: Option<String>,
    /// How many flows to print.
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=4096))]
    limit: u16,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    if arguments.follow {
        return follow(arguments, &client, global);
    }
    let body = ask(arguments, &client)?;
    output::show(global, &body, |body| text(body, output::width()))
}

fn ask(arguments: &Arguments, client: &Client) -> Result<FlowsBody, Failure> {
    let mut query = format!("limit={}", arguments.limit);
    if arguments.drops {
        query.push_str("&drops=true");
    }
    if let Some(ip) = &arguments.ip {
        query.push_str("&ip=");
        query.push_str(&ip.replace(':', "%3A").replace('/', "%2F"));
    }
    let body = client.flows(arguments.port.as_deref(), &query)?;
    if body.enabled { Ok(body) } else { Err(Failure::Failed(off())) }
}

fn off() -> Problem {
    Problem::new("the switch does not look at flows")
        .seen("flows = false")
        .wanted("flows = true in [switch]")
        .remedy("write it into the configuration, then `millrace config reload`")
}

fn follow(arguments: &Arguments, client: &Client, global: &Global) -> Outcome {
    let clear = if std::io::stdout().is_terminal() { HOME } else { "" };
    loop {
        let mut body = ask(arguments, client)?;
        body.flows.retain(|flow| flow.bits_per_s > 0 || flow.drops_per_s > 0);
        if global.json {
            let json = serde_json::to_string(&body);
            output::print(&json.map_err(|error| Problem::new("writing JSON").seen(error))?)?;
        } else {
            output::print(&format!("{clear}{}\n", text(&body, output::width())))?;
        }
        std::thread::sleep(EVERY);
    }
}

fn text(body: &FlowsBody, width: Option<usize>) -> String {
    const HEADER: [&str; 14] = [
        "FROM",
        "TO",
        "VLAN",
        "PROTO",
        "SOURCE",
        "DESTINATION",
        "RATE",
        "BYTES",
        "FRAMES",
        "SEGMENTS",
        "RESENT",
        "SEEN",
        "CARRIED BY",
        "DROPS",
    ];
    let rows: Vec<_> = body.flows.iter().map(row).collect();
    let mut text = fitted_table(&HEADER, rows, &LEFT_OUT, width);
    if body.matching > body.flows.len() {
        let limit =
            format!("\n{} of {} flows; --limit prints more", body.flows.len(), body.matching);
        text.push_str(&limit);
    }
    if body.flows.iter().any(is_estimate) {
        text.push_str(&format!("\n~ estimated from one frame in {}", body.then_one_in));
    }
    text
}

fn row(flow: &FlowBody) -> Vec<String> {
    let port = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let about = if is_estimate(flow) { "~" } else { "" };
    vec![
        port(&flow.from),
        port(&flow.to),
        if flow.vlan == 0 { "-".to_owned() } else { flow.vlan.to_string() },
        flow.protocol.clone(),
        end(flow.source, flow.source_port, &flow.source_mac),
        end(flow.destination, flow.destination_port, &flow.destination_mac),
        bits(flow.bits_per_s),
        format!("{about}{}", bytes(flow.bytes)),
        format!("{about}{}", count(flow.frames)),
        segments(flow),
        flow.resent.map_or_else(|| "-".to_owned(), |frames| format!("{about}{}", count(frames))),
        format!("{} s", flow.last_seen_s),
        word(&flow.carried_by),
        drops(flow),
    ]
}

/// Returns whether some of the flow's frames were not looked at.
fn is_estimate(flow: &FlowBody) -> bool {
    flow.sampled < flow.frames + flow.drops.values().sum::<u64>()
}

/// Returns one end of a flow: its address and port, or its MAC address.
fn end(ip: Option<IpAddr>, port: Option<u16>, mac: &str) -> String {
    match (ip, port) {
        (Some(ip), Some(port)) => SocketAddr::new(ip, port).to_string(),
        (Some(ip), None) => ip.to_string(),
        (None, _) => mac.to_owned(),
    }
}

/// Returns the mean number of segments of a frame.
fn segments(flow: &FlowBody) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mean = flow.segments as f64 / flow.frames as f64;
    if flow.frames == 0 { "-".to_owned() } else { format!("{mean:.1}") }
}

/// Returns the drops, the most frequent reason first.
fn drops(flow: &FlowBody) -> String {
    let mut drops: Vec<_> = flow.drops.iter().collect();
    drops.sort_by_key(|(_, frames)| std::cmp::Reverse(**frames));
    let told = drops.iter().map(|(reason, frames)| format!("{} {reason}", count(**frames)));
    let told: Vec<_> = told.collect();
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::body::CarriedBy;

    fn flow(frames: u64, sampled: u64) -> FlowBody {
        FlowBody {
            from: Some("web".into()),
            to: Some("db".into()),
            vlan: 10,
            source_mac: "02:00:00:00:00:01".into(),
            destination_mac: "02:00:00:00:00:02".into(),
            protocol: "tcp".into(),
            source: Some([10, 0, 0, 1].into()),
            destination: Some([10, 0, 0, 2].into()),
            source_port: Some(40000),
            destination_port: Some(80),
            bytes: 4_200_000_000,
            frames,
            segments: 43 * frames,
            resent: Some(3),
            sampled,
            bits_per_s: 2_100_000_000,
            drops: [("acl_denied".to_owned(), 2), ("egress_full".to_owned(), 12)].into(),
            drops_per_s: 0,
            first_seen_s: 100,
            last_seen_s: 1,
            carried_by: CarriedBy::Switch,
            trace: None,
        }
    }

    #[test]
    fn a_flow_is_a_line_and_an_estimate_says_so() {
        let body = |flows| FlowsBody {
            enabled: true,
            first_per_ms: 16,
            then_one_in: 256,
            matching: 2,
            flows,
            other_bytes: 0,
        };
        let exact = body(vec![flow(100, 114)]);
        assert_eq!(
            text(&exact, None),
            "FROM  TO  VLAN  PROTO  SOURCE          DESTINATION  RATE       BYTES    FRAMES  SEGMENTS  RESENT  SEEN  CARRIED BY  DROPS\n\
             web   db  10    tcp    10.0.0.1:40000  10.0.0.2:80  2.10 Gb/s  4.20 GB  100     43.0      3       1 s   switch      12 egress_full, 2 acl_denied\n\
             1 of 2 flows; --limit prints more"
        );
        let estimated = text(&body(vec![flow(128_000, 1000), flow(100, 114)]), Some(80));
        assert!(estimated.contains("~4.20 GB"), "{estimated}");
        assert!(estimated.ends_with("~ estimated from one frame in 256"), "{estimated}");
        let table = estimated.lines().filter(|line| !line.starts_with('~'));
        assert!(table.into_iter().all(|line| line.chars().count() <= 80), "{estimated}");
    }

    #[test]
    fn an_end_without_address_is_its_mac() {
        assert_eq!(end(None, None, "02::01"), "02::01");
        assert_eq!(
            end(Some([0xfd; 16].into()), None, ""),
            "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"
        );
        let ip = std::net::Ipv6Addr::LOCALHOST.into();
        assert_eq!(end(Some(ip), Some(80), ""), "[::1]:80");
    }
}
