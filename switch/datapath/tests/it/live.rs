//! What a guest changes while frames flow: offloads and queues.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, DEPTH, plain, rsc};
use datapath::{PortSettings, PortState, RscFailureReason, RscPolicy, Rss};
use ports::memory::{self, Peer};
use ports::{Capabilities, Offloads};
use proptest::prelude::*;
use std::sync::Arc;
use wire::toeplitz::Key;

/// Returns a switch of a plain port and one of so many queues that coalesces: its live part, and
/// the peer of each queue.
fn bench(queues: u16) -> (Bench, Arc<Capabilities>, Vec<Peer>) {
    let mut bench = Bench::new(&[(plain(), ALL)]);
    let (mut device, peer) = memory::open(DEPTH, ALL, 1500).unwrap();
    let (live, mut peers) = (device.live.clone(), vec![peer]);
    for _ in 1..queues {
        let (more, peer) = memory::open(DEPTH, ALL, 1500).unwrap();
        device.ingress.extend(more.ingress);
        device.egress.extend(more.egress);
        peers.push(peer);
    }
    live.set_queues(queues);
    // With a key at random neighbouring ports may leave a queue without a flow.
    let rss = Rss { key: Some(Key::MICROSOFT), ..Rss::default() };
    let settings = PortSettings { rsc: rsc(RscPolicy::Ndis), rss, ..plain() };
    bench.ids.push(bench.switch.add_port("guest", device, settings).unwrap());
    (bench, live, peers)
}

/// Returns the frames that a peer receives in one turn with these frames.
fn through(bench: &mut Bench, peer: &Peer, lines: &[&str]) -> Vec<String> {
    bench.send(0, &lines.iter().map(|line| Segment::parse(line).frame()).collect::<Vec<_>>());
    let out = std::iter::from_fn(|| peer.receive());
    out.map(|frame| Segment::read(&frame).to_string()).collect()
}

const PAIR: [&str; 2] = ["1+1000 .", "1001+1000 . id=1"];
const PAIR_V6: [&str; 2] = ["1+1000 . v6", "1001+1000 . v6"];

#[test]
fn coalescing_follows_the_offloads_of_each_family() {
    let (mut bench, live, peers) = bench(1);
    let (v4, v6) = (Offloads::TSO4 | Offloads::CSUM, Offloads::TSO6 | Offloads::CSUM);
    for (offloads, merges_v4, merges_v6) in [
        (ALL, true, true),
        (v4, true, false),
        (v6, false, true),
        (Offloads::TSO4 | Offloads::TSO6, false, false),
        (Offloads::empty(), false, false),
        (ALL, true, true),
    ] {
        live.set_offloads(offloads);
        let frames = |merges| if merges { 1 } else { 2 };
        assert_eq!(through(&mut bench, &peers[0], &PAIR).len(), frames(merges_v4), "{offloads:?}");
        assert_eq!(
            through(&mut bench, &peers[0], &PAIR_V6).len(),
            frames(merges_v6),
            "{offloads:?}"
        );
        let (info_v4, info_v6) = bench.switch.ports()[1].rsc();
        assert_eq!((info_v4.operational, info_v6.operational), (merges_v4, merges_v6));
        assert!(info_v4.enabled && info_v6.enabled, "what is configured stays");
        assert_eq!(bench.switch.ports()[1].offloads, offloads);
    }
}

/// `rsc show` said NoFailure of a port whose device was down.
#[test]
fn toward_a_port_that_is_down_nothing_is_operational() {
    let (mut bench, _live, _peers) = bench(1);
    bench.set_state(1, PortState::Down("no carrier".into()));
    let (v4, v6) = bench.switch.ports()[1].rsc();
    for status in [v4, v6] {
        assert_eq!((status.enabled, status.operational), (true, false));
        assert_eq!(status.failure_reason, RscFailureReason::Capability);
    }
    bench.set_state(1, PortState::Up);
    assert!(bench.switch.ports()[1].rsc().0.operational);
}

#[test]
fn a_train_is_cut_as_soon_as_it_is_not_taken_whole() {
    let (mut bench, live, peers) = bench(1);
    let train = ["1+2000 . gso=1000"];
    assert_eq!(through(&mut bench, &peers[0], &train), train);
    live.set_offloads(Offloads::empty());
    assert_eq!(through(&mut bench, &peers[0], &train), PAIR);
    live.set_offloads(ALL);
    assert_eq!(through(&mut bench, &peers[0], &train), train);
}

proptest! {
    #[test]
    fn every_frame_leaves_by_a_queue_in_use(in_use in prop::collection::vec(0..6u16, 1..8)) {
        let (mut bench, live, peers) = bench(4);
        let flows: Vec<String> = (1..64).map(|flow| format!("1+10 . flow={flow}")).collect();
        let flows: Vec<_> = flows.iter().map(|line| Segment::parse(line).frame()).collect();
        for queues in in_use {
            live.set_queues(queues);
            bench.send(0, &flows);
            let got: Vec<usize> =
                peers.iter().map(|peer| std::iter::from_fn(|| peer.receive()).count()).collect();
            let served = usize::from(queues.clamp(1, 4));
            prop_assert!(got[..served].iter().all(|frames| *frames > 0), "{queues}: {got:?}");
            prop_assert_eq!(got[..served].iter().sum::<usize>(), flows.len());
        }
    }
}
