//! The flows as a body of the API.

use super::{Flows, Known, PortName};
use api::body::{CarriedBy, FlowBody, FlowsBody};
use datapath::{FLOWS_EXACT, FLOWS_ONE_IN, Flow};
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use wire::Prefix;

/// The EtherType of ARP, and the protocols that have names.
const ARP: u16 = 0x0806;
const TCP: u8 = 6;
const PROTOCOLS: [(u8, &str); 4] = [(1, "icmp"), (TCP, "tcp"), (17, "udp"), (58, "icmpv6")];

/// The flows to list.
pub(crate) struct Wanted {
    /// Only those from or to this port.
    pub(crate) port: Option<String>,
    /// Only those with an address of these as source or destination.
    pub(crate) ip: Option<Prefix>,
    /// Only those with drops, most drops first.
    pub(crate) drops: bool,
    /// How many at most.
    pub(crate) limit: usize,
}

impl Wanted {
    fn includes(&self, flow: &Flow, known: &Known) -> bool {
        let has_port = |name: &String| {
            [&known.from, &known.to].into_iter().flatten().any(|port| port.name == *name)
        };
        let has_address = |prefix: &Prefix| {
            let holds = |ip: IpAddr| {
                ip.is_ipv4() == prefix.first.is_ipv4() && prefix.first <= ip && ip <= prefix.last
            };
            flow.addresses.is_some_and(|(one, other)| holds(one) || holds(other))
        };
        self.port.as_ref().is_none_or(has_port)
            && self.ip.as_ref().is_none_or(has_address)
            && (!self.drops || !known.drops.is_empty())
    }
}

impl Flows {
    /// Returns the flows that are wanted, the largest first.
    pub(crate) fn body(&self, wanted: &Wanted, enabled: bool, now: Instant) -> FlowsBody {
        let all = self.known.iter();
        let mut all: Vec<_> =
            all.filter(|((flow, _), known)| wanted.includes(flow, known)).collect();
        all.sort_by_cached_key(|(_, known)| {
            Reverse((if wanted.drops { known.dropped() } else { 0 }, known.size()))
        });
        let matching = all.len();
        all.truncate(wanted.limit);
        let flow =
            |((flow, by), known): (&(Flow, CarriedBy), &Known)| self.flow(flow, *by, known, now);
        FlowsBody {
            enabled,
            first_per_ms: FLOWS_EXACT,
            then_one_in: FLOWS_ONE_IN,
            matching,
            flows: all.into_iter().map(flow).collect(),
            other_bytes: self.others.bytes,
        }
    }

    fn flow(&self, flow: &Flow, by: CarriedBy, known: &Known, now: Instant) -> FlowBody {
        let since = self.polled.map_or(1, |(_, elapsed)| elapsed.as_millis().max(1));
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        let per_s = |count: u64| count.saturating_mul(1000) / since;
        let ago = |at| now.saturating_duration_since(at).as_secs();
        let name = |port: &Option<PortName>| port.as_ref().map(|port| port.name.clone());
        FlowBody {
            from: name(&known.from),
            to: name(&known.to),
            vlan: flow.vlan,
            source_mac: flow.source_mac.to_string(),
            destination_mac: flow.destination_mac.to_string(),
            protocol: protocol(flow),
            source: flow.addresses.map(|(source, _)| source),
            destination: flow.addresses.map(|(_, destination)| destination),
            source_port: flow.ports.map(|(source, _)| source),
            destination_port: flow.ports.map(|(_, destination)| destination),
            bytes: known.counts.bytes,
            frames: known.counts.frames,
            segments: known.counts.segments,
            resent: (flow.protocol == Some(TCP) && by == CarriedBy::Switch)
                .then_some(known.counts.resent),
            sampled: known.sampled,
            bits_per_s: per_s(known.news.0).saturating_mul(8),
            drops: known.drops.iter().map(|(why, count)| (why.name().to_owned(), *count)).collect(),
            drops_per_s: per_s(known.news.1),
            first_seen_s: ago(known.first),
            last_seen_s: ago(known.last),
            carried_by: by,
            trace: known.from.as_ref().map(|from| frame(flow, from)),
        }
    }
}

fn protocol(flow: &Flow) -> String {
    match flow.protocol {
        Some(number) => PROTOCOLS
            .iter()
            .find(|(known, _)| *known == number)
            .map_or_else(|| format!("ip {number}"), |(_, name)| (*name).to_owned()),
        None if flow.ethertype == ARP && flow.addresses.is_some() => "arp".to_owned(),
        None => format!("{:#06x}", flow.ethertype),
    }
}

/// Returns a frame of the flow, as `millrace trace` takes it.
fn frame(flow: &Flow, from: &PortName) -> String {
    let what = match (flow.addresses, flow.protocol, flow.ports) {
        (Some((one, other)), Some(protocol), Some((source, destination))) => {
            let (one, other) = (SocketAddr::new(one, source), SocketAddr::new(other, destination));
            format!("{} {one} > {other}", if protocol == TCP { "tcp" } else { "udp" })
        }
        (Some((one, other)), Some(1 | 58), _) => format!("icmp {one} > {other}"),
        (Some((one, other)), Some(protocol), _) => format!("ip {one} > {other} proto {protocol}"),
        (Some((one, other)), None, _) => format!("arp {one} > {other}"),
        (None, ..) => format!("type {:#06x}", flow.ethertype),
    };
    let tag = match flow.vlan {
        vlan if vlan == from.untagged => String::new(),
        vlan => format!(" vlan {vlan}"),
    };
    format!("{what} eth {} > {}{tag}", flow.source_mac, flow.destination_mac)
}
