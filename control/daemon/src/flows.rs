//! Who talks to whom, as far as the switch has seen it in the last minutes.
//!
//! Once a second the poll adds what the workers have seen ([`Flows::add`]), and what the kernel has
//! carried past them ([`Flows::add_total`]). Memory is bounded: [`MOST`] flows, the largest, with 370
//! bytes each, are kept, each until it was silent for [`SILENT`]. Nothing is kept over a restart.

mod body;

use api::body::CarriedBy;
pub(crate) use body::Wanted;
use datapath::{DropReason, Flow, FlowCounts, PortId, PortInfo, SeenFlow, Vlan};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Most flows that are kept.
pub(crate) const MOST: usize = 4096;
/// How long a flow that is not seen is kept.
const SILENT: Duration = Duration::from_mins(5);

/// The flows of the last minutes.
#[derive(Default)]
pub(crate) struct Flows {
    known: HashMap<(Flow, CarriedBy), Known>,
    /// What was seen of flows that are not kept.
    others: FlowCounts,
    /// When the last poll was, and how long it was after the one before.
    polled: Option<(Instant, Duration)>,
}

/// What is known of a flow.
struct Known {
    from: Option<PortName>,
    to: Option<PortName>,
    counts: FlowCounts,
    /// Frames looked at, dropped ones among them.
    sampled: u64,
    drops: Vec<(DropReason, u64)>,
    /// What its source had counted at the last poll, if it counts on and on.
    total: FlowCounts,
    /// Bytes and drops since the poll before.
    news: (u64, u64),
    first: Instant,
    last: Instant,
}

/// A port by name, and the VLAN of frames that enter it without a tag.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PortName {
    name: String,
    untagged: u16,
}

impl PortName {
    fn of(info: &PortInfo) -> PortName {
        let untagged = match &info.settings.vlan {
            Vlan::Access(vlan) | Vlan::Trunk { native: vlan, .. } => *vlan,
        };
        PortName { name: info.name.clone(), untagged }
    }
}

impl Flows {
    /// Begins a poll. `now` never runs backwards.
    pub(crate) fn begin(&mut self, now: Instant) {
        let before = self.polled.map_or(now, |(at, _)| at);
        self.polled = Some((now, now.saturating_duration_since(before)));
        self.known.values_mut().for_each(|known| known.news = (0, 0));
        self.known.retain(|_, known| now.saturating_duration_since(known.last) < SILENT);
    }

    /// Adds what was seen of a flow since the poll before. `ports` are those of now, by number.
    pub(crate) fn add(&mut self, seen: &SeenFlow, by: CarriedBy, ports: &[PortInfo]) {
        let Some((now, _)) = self.polled else { return };
        self.entry(&seen.flow, by, ports, now).add(seen, now);
    }

    /// Adds what was counted of a flow since counting began.
    pub(crate) fn add_total(
        &mut self,
        flow: &Flow,
        total: FlowCounts,
        by: CarriedBy,
        ports: &[PortInfo],
    ) {
        let Some((now, _)) = self.polled else { return };
        let known = self.entry(flow, by, ports, now);
        let counts = total.since(&known.total);
        known.total = total;
        if counts.frames > 0 {
            known.add(&SeenFlow { flow: *flow, dropped: None, counts }, now);
        }
    }

    /// Returns what is known of a flow of these ports.
    fn entry(
        &mut self,
        flow: &Flow,
        by: CarriedBy,
        ports: &[PortInfo],
        now: Instant,
    ) -> &mut Known {
        let name = |id: Option<PortId>| {
            let place = ports.binary_search_by_key(&id?, |info| info.id).ok()?;
            ports.get(place).map(PortName::of)
        };
        let (from, to) = (name(flow.from), name(flow.to));
        let new = || Known {
            from: from.clone(),
            to: to.clone(),
            counts: FlowCounts::default(),
            sampled: 0,
            drops: Vec::new(),
            total: FlowCounts::default(),
            news: (0, 0),
            first: now,
            last: now,
        };
        let known = self.known.entry((*flow, by)).or_insert_with(new);
        if (&known.from, &known.to) != (&from, &to) {
            // The number of a removed port was given to another one.
            *known = new();
        }
        known
    }

    /// Adds what was seen of flows for which a worker had no room.
    pub(crate) fn add_others(&mut self, counts: &FlowCounts) {
        self.others.add(counts);
    }

    /// Ends a poll: keeps the largest flows.
    pub(crate) fn end(&mut self) {
        if self.known.len() <= MOST {
            return;
        }
        let mut sizes: Vec<_> = self.known.values().map(Known::size).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let (kept, _) = sizes.split_at(MOST);
        let Some(least) = kept.last() else { return };
        // Of those that are as small as the smallest one kept, as many as fit.
        let mut ties = MOST - kept.partition_point(|size| size > least);
        let others = &mut self.others;
        self.known.retain(|_, known| {
            let is_tie = known.size() == *least && ties > 0;
            ties -= usize::from(is_tie);
            let stays = is_tie || known.size() > *least;
            if !stays {
                others.add(&known.counts);
            }
            stays
        });
    }
}

impl Known {
    fn add(&mut self, seen: &SeenFlow, now: Instant) {
        self.last = now;
        self.sampled += seen.counts.sampled;
        let Some(reason) = seen.dropped else {
            self.counts.add(&seen.counts);
            self.news.0 += seen.counts.bytes;
            return;
        };
        self.news.1 += seen.counts.frames;
        match self.drops.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, frames)) => *frames += seen.counts.frames,
            None => self.drops.push((reason, seen.counts.frames)),
        }
    }

    /// Returns what decides about a flow's place: its bytes, then its drops, then when it was seen.
    fn size(&self) -> (u64, u64, Instant) {
        (self.counts.bytes, self.dropped(), self.last)
    }

    fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, frames)| frames).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortSettings;
    use datapath::PortState;
    use ports::Offloads;
    use wire::Mac;

    fn port(number: u16, name: &str, vlan: u16) -> PortInfo {
        PortInfo {
            id: PortId(number),
            name: name.into(),
            settings: PortSettings { vlan: Vlan::Access(vlan), ..PortSettings::default() },
            state: PortState::Up,
            state_changes: 0,
            offloads: Offloads::empty(),
            mac: None,
            held_mac: None,
            queue_workers: vec![0],
        }
    }

    /// Returns a flow from port 1 to port 2 of so many bytes.
    fn seen(source: u16, bytes: u64, dropped: Option<DropReason>) -> SeenFlow {
        let flow = Flow {
            from: Some(PortId(1)),
            to: Some(PortId(2)),
            vlan: 10,
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            ethertype: 0x0800,
            addresses: Some(([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
            protocol: Some(6),
            ports: Some((source, 80)),
        };
        SeenFlow {
            flow,
            dropped,
            counts: FlowCounts { frames: 1, bytes, segments: 3, resent: 1, sampled: 1 },
        }
    }

    fn poll(flows: &mut Flows, now: Instant, seen: &[SeenFlow], ports: &[PortInfo]) {
        flows.begin(now);
        seen.iter().for_each(|seen| flows.add(seen, CarriedBy::Switch, ports));
        flows.end();
    }

    fn wanted(drops: bool) -> Wanted {
        Wanted { port: None, ip: None, drops, limit: MOST }
    }

    #[test]
    fn drops_are_told_with_the_flow_and_a_trace_enters_as_the_frame_did() {
        let (mut flows, start) = (Flows::default(), Instant::now());
        let ports = [port(1, "web", 10), port(2, "db", 10)];
        let denied = Some(DropReason::AclDenied);
        poll(&mut flows, start, &[], &ports);
        let news = [seen(1, 100, None), seen(2, 500, None), seen(1, 100, denied)];
        poll(&mut flows, start + Duration::from_secs(2), &news, &ports);
        let now = start + Duration::from_secs(5);
        let body = flows.body(&wanted(false), true, now);
        let [large, small] = &body.flows[..] else { panic!("{body:?}") };
        assert_eq!((large.bytes, large.bits_per_s, large.last_seen_s), (500, 2000, 3));
        assert_eq!((small.bytes, small.segments, small.sampled), (100, 3, 2));
        assert_eq!(small.resent, Some(1));
        assert_eq!(small.drops.get("acl_denied"), Some(&1));
        let frame = "tcp 10.0.0.1:1 > 10.0.0.2:80 eth 02:00:00:00:00:01 > 02:00:00:00:00:02";
        assert_eq!(small.trace.as_deref(), Some(frame));
        assert!(crate::trace::Expression::parse(frame).is_ok());
        assert_eq!(&*flows.body(&wanted(true), true, now).flows, std::slice::from_ref(small));
        let ports = [port(1, "web", 7), port(2, "db", 10)];
        poll(&mut flows, now, &news, &ports);
        let body = flows.body(&wanted(true), true, now);
        assert_eq!(body.flows[0].trace, Some(format!("{frame} vlan 10")));
    }

    #[test]
    fn a_number_that_was_given_to_another_port_is_another_flow() {
        let (mut flows, start) = (Flows::default(), Instant::now());
        poll(&mut flows, start, &[seen(1, 100, None)], &[port(1, "web", 10), port(2, "db", 10)]);
        poll(&mut flows, start, &[seen(1, 7, None)], &[port(1, "new", 10), port(2, "db", 10)]);
        let body = flows.body(&wanted(false), true, start);
        assert_eq!((body.flows[0].from.as_deref(), body.flows[0].bytes), (Some("new"), 7));
    }

    #[test]
    fn the_largest_are_kept_until_they_are_silent() {
        let (mut flows, start) = (Flows::default(), Instant::now());
        let mut news: Vec<_> = (0..5000).map(|source| seen(source, 60, None)).collect();
        news.push(seen(6000, 1000, None));
        poll(&mut flows, start, &news, &[]);
        let body = flows.body(&wanted(false), true, start);
        assert_eq!((body.matching, body.flows.len(), body.flows[0].bytes), (MOST, MOST, 1000));
        assert_eq!(body.other_bytes, 60 * (5001 - MOST as u64));
        poll(&mut flows, start + SILENT, &news[..1], &[]);
        assert_eq!(flows.body(&wanted(false), true, start).matching, 1);
    }

    /// A flow that the kernel takes over from the switch is told of both.
    #[test]
    fn what_counts_on_and_on_is_told_by_its_growth() {
        let (mut flows, start) = (Flows::default(), Instant::now());
        let ports = [port(1, "web", 10), port(2, "db", 10)];
        let SeenFlow { flow, counts, .. } = seen(1, 100, None);
        poll(&mut flows, start, &[seen(1, 100, None)], &ports);
        let twice = FlowCounts { frames: 2, bytes: 200, ..counts };
        for (second, total) in [(1, counts), (2, twice), (3, twice), (4, counts)] {
            flows.begin(start + Duration::from_secs(second));
            flows.add_total(&flow, total, CarriedBy::Kernel, &ports);
        }
        let body = flows.body(&wanted(false), true, start + Duration::from_secs(4));
        let told: Vec<_> = body.flows.iter().map(|flow| (flow.carried_by, flow.bytes)).collect();
        assert_eq!(told, [(CarriedBy::Kernel, 300), (CarriedBy::Switch, 100)]);
        assert_eq!(body.flows[0].bits_per_s, 800);
        let resent: Vec<_> = body.flows.iter().map(|flow| flow.resent).collect();
        assert_eq!(resent, [None, Some(1)], "the kernel does not tell");
    }

    #[test]
    fn flows_are_found_by_port_and_by_address() {
        let (mut flows, start) = (Flows::default(), Instant::now());
        let ports = [port(1, "web", 10), port(2, "db", 10)];
        poll(&mut flows, start, &[seen(1, 100, None)], &ports);
        let found = |port: Option<&str>, ip: Option<wire::Prefix>| {
            let wanted = Wanted { port: port.map(str::to_owned), ip, ..wanted(false) };
            flows.body(&wanted, true, start).matching
        };
        assert_eq!(["web", "db", "other"].map(|port| found(Some(port), None)), [1, 1, 0]);
        let net = |last, length| wire::Prefix::new([10, 0, 0, last].into(), length);
        assert_eq!([(2, 32), (3, 32), (0, 8)].map(|(a, b)| found(None, net(a, b))), [1, 0, 1]);
    }

    /// The bytes that the module's documentation states.
    #[test]
    fn a_flow_takes_no_more_than_is_said() {
        let bytes = size_of::<(Flow, CarriedBy)>() + size_of::<Known>();
        assert!(bytes <= 370, "{bytes}");
    }
}
