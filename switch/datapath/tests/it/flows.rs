//! The look at flows: who talks to whom, what is dropped and why.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, plain, rsc};
use datapath::{
    AclAction, AclEnd, AclProtocol, AclRule, DropReason, FLOWS_ONE_IN, Flow, FlowCounts,
    PortSettings, PortState, RscPolicy, SeenFlow,
};
use ports::Nanos;
use ports::capture::Direction;
use ports::memory::MemoryFrame;

/// Returns a segment of a flow, `sequence` bytes behind its first.
fn segment(flow: u32, sequence: u32) -> MemoryFrame {
    let text = format!("1+1000 . flow={flow}");
    Segment { sequence: 1 + sequence, ..Segment::parse(&text) }.frame()
}

/// Takes what was seen, most bytes first.
fn taken(bench: &mut Bench) -> Vec<SeenFlow> {
    let mut seen = Vec::new();
    bench.switch.take_flows(true, |flow| seen.push(flow)).unwrap();
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.counts.bytes));
    seen
}

/// Returns a bench that looks at flows and knows where its stations are.
fn bench(ports: &[PortSettings]) -> Bench {
    let ports: Vec<_> = ports.iter().map(|settings| (settings.clone(), ALL)).collect();
    let mut bench = Bench::new(&ports);
    let mut back = segment(0, 0);
    back.bytes[..12].rotate_left(6);
    bench.send(1, &[back]);
    assert_eq!(taken(&mut bench), []);
    bench
}

fn source_port(flow: &Flow) -> u16 {
    flow.ports.unwrap().0
}

#[test]
fn a_flow_has_its_bytes_frames_and_segments() {
    let coalescing = PortSettings { rsc: rsc(RscPolicy::Ndis), ..plain() };
    let mut bench = bench(&[plain(), coalescing]);
    bench.send(0, &[segment(1, 0), segment(1, 1000), segment(1, 2000), segment(2, 0)]);
    let [large, small] = taken(&mut bench)[..] else { panic!("not two flows") };
    let header = segment(1, 0).bytes.len() as u64 - 1000;
    let counts = FlowCounts { frames: 1, bytes: header + 3000, segments: 3, resent: 0, sampled: 1 };
    assert_eq!((large.counts, large.dropped), (counts, None));
    assert_eq!((large.flow.from, large.flow.to), (Some(bench.ids[0]), Some(bench.ids[1])));
    assert_ne!(source_port(&large.flow), source_port(&small.flow));
    assert_eq!(
        small.counts,
        FlowCounts { frames: 1, bytes: header + 1000, segments: 1, resent: 0, sampled: 1 }
    );
    assert_eq!(taken(&mut bench), [], "each is told once");
}

/// What is sent again is told, also if it comes a second later, and in a train.
#[test]
fn bytes_that_came_before_are_told() {
    let coalescing = PortSettings { rsc: rsc(RscPolicy::Ndis), ..plain() };
    for to in [plain(), coalescing] {
        let mut bench = bench(&[plain(), to]);
        let resent = |bench: &mut Bench, sent: &[u32]| {
            let frames: Vec<_> = sent.iter().map(|at| segment(1, 1000 * at)).collect();
            bench.send(0, &frames);
            let [seen] = taken(bench)[..] else { panic!("not one flow") };
            (seen.counts.segments, seen.counts.resent)
        };
        assert_eq!(resent(&mut bench, &[0, 1, 2]), (3, 0));
        assert_eq!(resent(&mut bench, &[2]), (1, 1));
        assert_eq!(resent(&mut bench, &[3]), (1, 0));
        assert_eq!(resent(&mut bench, &[5]), (1, 0));
        assert_eq!(resent(&mut bench, &[4]), (1, 1));
    }
}

/// A million frames, of which 16 a millisecond are looked at anyway.
#[test]
fn a_flow_of_many_frames_is_told_within_its_error() {
    let mut bench = bench(&[plain(), plain()]);
    let mut told = FlowCounts::default();
    let burst: Vec<_> = (0..250).map(|number| segment(1, number)).collect();
    let turns = 4000;
    for turn in 0..turns {
        for frame in &burst {
            assert!(bench.peers[0].send(frame.vnet, &frame.bytes));
        }
        bench.now = bench.now + Nanos(20_000);
        bench.switch.step(bench.now);
        while let Some(frame) = bench.peers[1].receive() {
            bench.peers[1].recycle(frame);
        }
        if turn % 1000 == 999 {
            taken(&mut bench).iter().for_each(|seen| told.add(&seen.counts));
        }
    }
    let frames = turns * burst.len() as u64;
    assert!(told.frames.abs_diff(frames) * 100 < 6 * frames, "{told:?}");
    let looked = frames / u64::from(FLOWS_ONE_IN);
    assert!(told.sampled > looked && told.sampled < 4 * looked, "{told:?}");
}

#[test]
fn what_is_denied_is_told_with_its_reason() {
    let deny = |direction| AclRule {
        action: AclAction::Deny,
        direction,
        protocol: AclProtocol::Any,
        from: AclEnd::default(),
        to: AclEnd::default(),
    };
    for (direction, knows_port) in [(Direction::Ingress, false), (Direction::Egress, true)] {
        let denies = PortSettings { acl: vec![deny(direction)], ..plain() };
        let ports = if knows_port { [plain(), denies] } else { [denies, plain()] };
        let mut bench = bench(&ports);
        bench.send(0, &[segment(1, 0), segment(1, 1000)]);
        let [seen] = taken(&mut bench)[..] else { panic!("not one flow") };
        assert_eq!((seen.dropped, seen.counts.frames), (Some(DropReason::AclDenied), 2));
        assert_eq!(seen.flow.from, Some(bench.ids[0]));
        assert_eq!(seen.flow.to.is_some(), knows_port);
    }
}

/// What is decided, what a port has no room for, and what comes while it is down.
#[test]
fn every_stage_tells_its_drops() {
    let mut bench = bench(&[plain(), plain()]);
    let mut own = segment(1, 0);
    own.bytes.copy_within(6..12, 0);
    bench.send(0, &[segment(0, 0), own]);
    assert!(taken(&mut bench).iter().any(|seen| seen.dropped == Some(DropReason::SamePort)));
    for turn in 0..40 {
        bench.now = bench.now + Nanos::MILLISECOND;
        let frames: Vec<_> = (0..100).map(|number| segment(1, 100 * turn + number)).collect();
        bench.send(0, &frames);
    }
    let full = taken(&mut bench);
    let full = full.iter().find(|seen| seen.dropped == Some(DropReason::EgressFull)).unwrap();
    assert_eq!((full.flow.from, full.flow.to), (Some(bench.ids[0]), Some(bench.ids[1])));
    bench.set_state(1, PortState::Broken("pulled".into()));
    let too_big = Segment { payload: 3000, ..Segment::parse("1+1 .") }.frame();
    bench.send(0, &[too_big]);
    assert!(taken(&mut bench).iter().all(|seen| seen.dropped.is_some()));
}

/// One that sprays flows pushed out those of others.
#[test]
fn what_is_large_stays_among_many_small_ones() {
    let mut bench = bench(&[plain(), plain()]);
    let mut told = Vec::new();
    for turn in 0..2000 {
        bench.now = bench.now + Nanos::MILLISECOND;
        let small = (0..4).map(|number| {
            let mut frame = segment(7, 0);
            let port = (4 * turn + number) as u16;
            frame.bytes[34..36].copy_from_slice(&port.to_be_bytes());
            frame
        });
        let large = (0..8).map(|_| segment(1, 0));
        bench.send(0, &large.chain(small).collect::<Vec<_>>());
        while bench.peers[1].receive().is_some() {}
    }
    let others = bench.switch.take_flows(true, |seen| told.push(seen)).unwrap();
    assert!(told.len() <= 1024 && told.len() > 900, "{}", told.len());
    let most = told.iter().map(|seen| seen.counts.frames).max();
    assert_eq!(most, Some(16_000));
    let all: u64 = told.iter().map(|seen| seen.counts.frames).sum();
    assert_eq!(all + others.frames, 24_000, "what had to make room is told together");
}

#[test]
fn a_switch_that_is_not_asked_looks_at_nothing() {
    let mut bench = bench(&[plain(), plain()]);
    bench.send(0, &[segment(1, 0)]);
    let mut seen = 0;
    bench.switch.take_flows(false, |_| seen += 1).unwrap();
    assert_eq!(seen, 1, "what was seen until then");
    bench.send(0, &[segment(1, 0)]);
    bench.switch.take_flows(false, |_| seen += 1).unwrap();
    bench.switch.take_flows(true, |_| seen += 1).unwrap();
    assert_eq!(seen, 1);
}
