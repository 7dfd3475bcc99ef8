//! Properties of coalescing and segmentation over random streams of segments.
//!
//! The NDIS rules are held against a second implementation that follows Microsoft's flowchart step
//! by step, one connection at a time, without any regard for speed. The GRO rules are held against
//! their promise: what is coalesced and then segmented is what went in, byte for byte.

use crate::common::trace::{PLAIN, Segment};
use crate::common::{ALL, Bench, plain, rsc};
use datapath::{PortSettings, RscPolicy};
use ports::Offloads;
use ports::memory::MemoryFrame;
use proptest::prelude::*;

/// What may happen to a stream between one segment and the next.
#[derive(Clone, Debug)]
enum Step {
    Data { len: u32, push: bool },
    Gap(u32),
    Repeat,
    Ack,
    Window(u16),
    Flags(u8),
    Tos(u8),
    Hops(u8),
    Clock(i32),
    SkipId,
    Odd(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..1380u32, any::<bool>()).prop_map(|(len, push)| Step::Data { len, push }),
        12 => Just(Step::Data { len: 1000, push: false }),
        1 => (1..3000u32).prop_map(Step::Gap),
        1 => Just(Step::Repeat),
        2 => Just(Step::Ack),
        2 => (400..402u16).prop_map(Step::Window),
        1 => prop_oneof![Just(0x11u8), Just(0x18), Just(0x50), Just(0x90), Just(0x14), Just(0x30)].prop_map(Step::Flags),
        1 => (0..4u8).prop_map(Step::Tos),
        1 => (60..64u8).prop_map(Step::Hops),
        2 => (-1..3i32).prop_map(Step::Clock),
        1 => Just(Step::SkipId),
        2 => prop_oneof![Just("opt"), Just("ipopt"), Just("bad"), Just("ae"), Just("urg"), Just("layout"), Just("df")]
            .prop_map(Step::Odd),
    ]
}

/// Streams of a few flows, interleaved: each step names its flow.
fn arrivals() -> impl Strategy<Value = Vec<Segment>> {
    let flow = |flow: u8, start: u32, v6: bool, ts: bool| Segment {
        flow,
        v6,
        sequence: start,
        timestamps: ts.then_some((u32::MAX - 2, 7)),
        ..PLAIN
    };
    let flows = prop::collection::vec((any::<u32>(), any::<bool>(), any::<bool>()), 1..4);
    (flows, prop::collection::vec((0..4usize, step()), 1..120)).prop_map(move |(starts, steps)| {
        let mut flows: Vec<Segment> = starts
            .iter()
            .zip(1..)
            .map(|((start, v6, ts), number)| flow(number, *start, *v6, *ts))
            .collect();
        let count = flows.len();
        let each = |(who, step): (usize, Step)| advance(&mut flows[who % count], &step);
        steps.into_iter().map(each).collect()
    })
}

/// Returns the segment that a step sends; `at` is where its stream stands afterwards.
fn advance(at: &mut Segment, step: &Step) -> Segment {
    let mut segment = Segment { payload: 600, ..at.clone() };
    match step {
        Step::Data { len, push } => {
            segment.payload = *len;
            segment.flags |= if *push { 8 } else { 0 };
        }
        Step::Gap(bytes) => segment.sequence = at.sequence.wrapping_add(*bytes),
        Step::Repeat => segment.sequence = at.sequence.wrapping_sub(600),
        Step::Ack => (segment.ack, segment.payload) = (at.ack.wrapping_add(500), 0),
        Step::Window(window) => (segment.window, segment.payload) = (*window, 0),
        Step::Flags(flags) => segment.flags = *flags,
        Step::Tos(tos) => segment.tos = *tos,
        Step::Hops(ttl) => segment.ttl = *ttl,
        Step::Clock(ticks) => {
            segment.timestamps =
                at.timestamps.map(|(value, echo)| (value.wrapping_add_signed(*ticks), echo))
        }
        Step::SkipId => segment.id = at.id.wrapping_add(5),
        Step::Odd("opt") => segment.sack = true,
        Step::Odd("ipopt") => segment.ip_option = true,
        Step::Odd("bad") => segment.bad = Some("tcp"),
        Step::Odd("ae") => segment.reserved = 1,
        Step::Odd("urg") => segment.urgent = 3,
        Step::Odd("layout") => segment.stamp_first = true,
        Step::Odd(_) => segment.df = false,
    }
    let next = segment.sequence.wrapping_add(segment.payload);
    let id = if segment.v6 { 0 } else { segment.id & 0x8000 | segment.id.wrapping_add(1) & 0x7fff };
    *at = Segment {
        sequence: next,
        id,
        flags: 16,
        sack: false,
        ip_option: false,
        reserved: 0,
        urgent: 0,
        stamp_first: false,
        bad: None,
        df: true,
        ..segment.clone()
    };
    if segment.v6 {
        (segment.df, segment.id) = (true, 0);
    }
    segment
}

/// Runs one turn of a switch that coalesces by a policy. With `cut`, another switch then segments
/// each frame, for an egress queue that takes no trains.
fn through(policy: RscPolicy, arrivals: &[Segment], cut: bool) -> Vec<Segment> {
    let mut out = Vec::new();
    for turn in arrivals.chunks(100) {
        let mut bench = Bench::coalescing(rsc(policy));
        bench.send(0, &turn.iter().map(Segment::frame).collect::<Vec<_>>());
        let trains = bench.received(1);
        out.extend(if cut { segmented(&trains) } else { trains }.iter().map(Segment::read));
    }
    out
}

/// Returns the frame with its checksum vouched for by the device, where it is good.
fn vouched_for(segment: &Segment, frame: &MemoryFrame) -> MemoryFrame {
    let mut frame = frame.clone();
    if segment.bad.is_none() {
        frame.vnet.set_flags(wire::vnet::Flags::DATA_VALID);
    }
    frame
}

/// Returns what comes of one turn under the NDIS rules: bytes and segment size of each train, and
/// all that was counted.
fn coalesced(turn: &[MemoryFrame]) -> (Vec<(Vec<u8>, u16)>, datapath::PortCounters) {
    let mut bench = Bench::coalescing(rsc(RscPolicy::Ndis));
    bench.send(0, turn);
    let trains = bench.received(1).into_iter();
    let trains = trains.map(|train| (train.bytes, train.vnet.gso_size.get())).collect();
    (trains, bench.switch.counters(bench.ids[1]).expect("the port is there"))
}

/// Returns the frames after a switch to a port without any offload.
fn segmented(frames: &[MemoryFrame]) -> Vec<MemoryFrame> {
    let mut bench =
        Bench::new(&[(plain(), ALL), (PortSettings { mtu: 1500, ..plain() }, Offloads::empty())]);
    let mut out = Vec::new();
    for frame in frames {
        bench.send(0, std::slice::from_ref(frame));
        out.extend(bench.received(1));
    }
    out
}

/// Returns the segments of one flow, as lines.
fn of_flow(segments: &[Segment], flow: u8) -> Vec<String> {
    segments.iter().filter(|segment| segment.flow == flow).map(ToString::to_string).collect()
}

/// Microsoft's flowchart for one connection, step by step.
fn flowchart(arrivals: &[Segment]) -> Vec<Segment> {
    let (mut out, mut held): (Vec<Segment>, Option<(Segment, u32)>) = (Vec::new(), None);
    let finalize = |held: &mut Option<(Segment, u32)>, out: &mut Vec<Segment>| {
        if let Some((mut unit, largest)) = held.take() {
            unit.gso = if unit.payload > largest { largest as u16 } else { 0 };
            out.push(unit);
        }
    };
    for segment in arrivals {
        let plain_flags = segment.flags & 16 != 0 && segment.flags & !(16 | 8 | 64 | 128) == 0;
        if !plain_flags || segment.sack || segment.ip_option || segment.bad.is_some() {
            finalize(&mut held, &mut out);
            out.push(segment.clone());
            continue;
        }
        let joined =
            held.as_mut().is_some_and(|(unit, largest)| flowchart_join(unit, largest, segment));
        if !joined {
            finalize(&mut held, &mut out);
            held = Some((segment.clone(), segment.payload));
        }
    }
    finalize(&mut held, &mut out);
    out
}

/// `true`: the segment is part of the held unit now.
fn flowchart_join(unit: &mut Segment, largest: &mut u32, segment: &Segment) -> bool {
    let next = unit.sequence.wrapping_add(unit.payload);
    let same_header = (unit.tos, unit.df, unit.flags & 0xc0, unit.reserved)
        == (segment.tos, segment.df, segment.flags & 0xc0, segment.reserved)
        && unit.timestamps.is_some() == segment.timestamps.is_some();
    let clock_back = matches!((unit.timestamps, segment.timestamps),
        (Some((earlier, _)), Some((later, _))) if (later.wrapping_sub(earlier) as i32) < 0);
    let headers =
        if segment.v6 { 40 } else { 20 } + 20 + if segment.timestamps.is_some() { 12 } else { 0 };
    if !same_header || clock_back || unit.payload + segment.payload + headers > 65535 {
        return false;
    }
    let in_order = segment.sequence == next;
    let joins = if segment.payload == 0 {
        in_order && segment.ack == unit.ack && segment.window != unit.window
    } else {
        in_order && unit.payload > 0
    };
    if joins {
        *largest = (*largest).max(segment.payload);
        unit.payload += segment.payload;
        unit.flags |= segment.flags & 8;
        unit.ttl = unit.ttl.min(segment.ttl);
        (unit.ack, unit.window, unit.timestamps) =
            (segment.ack, segment.window, segment.timestamps);
    }
    joins
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ndis_does_what_the_flowchart_says(arrivals in arrivals()) {
        for turn in arrivals.chunks(100) {
            let out = through(RscPolicy::Ndis, turn, false);
            for flow in 1..4 {
                let own: Vec<Segment> = turn.iter().filter(|segment| segment.flow == flow).cloned().collect();
                let expected = of_flow(&flowchart(&own), flow);
                prop_assert_eq!(of_flow(&out, flow), expected);
            }
        }
    }

    #[test]
    fn the_short_cut_of_vouched_segments_does_what_the_long_way_does(arrivals in arrivals()) {
        for turn in arrivals.chunks(100) {
            let checked: Vec<MemoryFrame> = turn.iter().map(Segment::frame).collect();
            let vouched: Vec<MemoryFrame> =
                turn.iter().zip(&checked).map(|(segment, frame)| vouched_for(segment, frame)).collect();
            prop_assert_eq!(coalesced(&vouched), coalesced(&checked));
        }
    }

    #[test]
    fn gro_then_segmentation_gives_back_what_arrived(arrivals in arrivals()) {
        for turn in arrivals.chunks(100) {
            let mut bench = Bench::coalescing(rsc(RscPolicy::Gro));
            bench.send(0, &turn.iter().map(Segment::frame).collect::<Vec<_>>());
            let out = segmented(&bench.received(1));
            for flow in 1..4 {
                let own = turn.iter().filter(|segment| segment.flow == flow);
                let arrived: Vec<Vec<u8>> = own.map(|segment| segment.frame().bytes).collect();
                let left = out.iter().filter(|frame| Segment::read(frame).flow == flow);
                let left: Vec<Vec<u8>> = left.map(|frame| frame.bytes.clone()).collect();
                prop_assert_eq!(left, arrived);
            }
        }
    }

    #[test]
    fn gro_does_merge_streams_whose_headers_stay(
        count in 2..40u32, v6: bool, timestamps: bool, sack: bool, ip_option: bool, stamp_first: bool,
        reserved in 0..2u8, urgent in 0..2u16,
    ) {
        let segment = |n: u32| Segment {
            v6,
            sequence: n * 1000,
            payload: 1000,
            id: if v6 { 0 } else { n as u16 },
            timestamps: timestamps.then_some((5, 6)),
            sack,
            ip_option,
            stamp_first,
            reserved,
            urgent,
            ..PLAIN
        };
        let out = through(RscPolicy::Gro, &(0..count).map(segment).collect::<Vec<_>>(), false);
        prop_assert_eq!(out.len(), 1);
        prop_assert_eq!(out[0].payload, count * 1000);
    }

    #[test]
    fn segmentation_follows_lso(
        payload in 1..60_000u32, size in 48..1400u16, flags in prop_oneof![Just(0x10u8), Just(0x18), Just(0x19), Just(0x98), Just(0xd9)],
        v6: bool, id: u16, option: bool,
    ) {
        let train = Segment {
            payload, gso: size, flags, v6, id: if v6 { 0 } else { id }, ip_option: option && v6,
            timestamps: Some((1, 2)), sequence: u32::MAX - 10, ..PLAIN
        };
        let train = Segment { gso: if payload > size.into() { size } else { 0 }, ..train };
        let out: Vec<Segment> = segmented(&[train.frame()]).iter().map(Segment::read).collect();
        let count = payload.div_ceil(size.into());
        prop_assert_eq!(out.len() as u32, count);
        for (n, segment) in (0..count).zip(&out) {
            let (first, last) = (n == 0, n + 1 == count);
            let kept = flags & if first { 0xff } else { !0x80 } & if last { 0xff } else { !0x09 };
            let expected = Segment {
                sequence: train.sequence.wrapping_add(n * u32::from(size)),
                payload: if last { payload - n * u32::from(size) } else { size.into() },
                flags: kept,
                id: if v6 { 0 } else { id & 0x8000 | id.wrapping_add(n as u16) & 0x7fff },
                gso: 0,
                ..train.clone()
            };
            prop_assert_eq!(segment.to_string(), expected.to_string());
        }
    }
}
