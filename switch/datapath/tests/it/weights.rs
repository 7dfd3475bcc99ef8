//! Weights: vNICs share an uplink that is short of room by their weights, and none of their frames
//! waits in the switch.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, plain};
use datapath::{DropReason, PortRole, PortSettings};
use ports::Nanos;
use ports::memory::MemoryFrame;
use proptest::prelude::*;

/// A vNIC that sends to the uplink.
#[derive(Clone, Debug)]
struct Sender {
    weight: Option<u8>,
    payload: u32,
    /// Number of frames that go to another vNIC between two that go to the uplink.
    elsewhere: usize,
    busy: bool,
}

/// A switch with an uplink that sends so many bytes a step, its senders, and another vNIC.
struct Link {
    bench: Bench,
    senders: Vec<Sender>,
    frames: Vec<Vec<MemoryFrame>>,
    next: Vec<usize>,
    /// Bytes a step, and those left over of the last one.
    rate: usize,
    left: usize,
    /// Bytes sent, by sender.
    sent: Vec<usize>,
}

/// Half of the uplink's room is to outlast the pauses of queues that are held, which are 20 µs.
const STEP: Nanos = Nanos(5_000);

fn frame(source: usize, destination: u8, payload: u32) -> MemoryFrame {
    let mut frame = Segment { payload, ..Segment::parse("1+100 .") }.frame();
    frame.bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, destination]);
    frame.bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 1, source as u8]);
    frame
}

impl Link {
    fn new(rate: usize, senders: &[Sender]) -> Link {
        Link::beside(PortRole::Vnic, rate, senders)
    }

    /// Returns a link at which the stations of the uplink and of the other port are already
    /// learned.
    fn beside(other: PortRole, rate: usize, senders: &[Sender]) -> Link {
        let of = |role| (PortSettings { role, ..plain() }, ALL);
        let mut bench = Bench::new(&[of(PortRole::Uplink), of(other)]);
        for sender in senders {
            bench.add(PortSettings { weight: sender.weight, ..plain() }, ALL);
        }
        bench.send(0, &[hello(1)]);
        bench.send(1, &[hello(2)]);
        for port in 0..senders.len() + 2 {
            bench.received(port);
        }
        let frames = senders.iter().enumerate().map(|(number, sender)| {
            let other = std::iter::repeat_n(frame(number, 2, 60), sender.elsewhere);
            other.chain([frame(number, 1, sender.payload)]).collect()
        });
        Link {
            frames: frames.collect(),
            next: vec![0; senders.len()],
            sent: vec![0; senders.len()],
            senders: senders.to_vec(),
            bench,
            rate,
            left: 0,
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.fill();
            self.bench.now = self.bench.now + STEP;
            self.bench.switch.step(self.bench.now);
            self.drain();
        }
    }

    fn fill(&mut self) {
        for (number, _) in self.senders.iter().enumerate().filter(|(_, it)| it.busy) {
            let (frames, next) = (&self.frames[number], &mut self.next[number]);
            while {
                let frame = &frames[*next % frames.len()];
                self.bench.peers[number + 2].send(frame.vnet, &frame.bytes)
            } {
                *next += 1;
            }
        }
    }

    fn drain(&mut self) {
        self.left += self.rate;
        while self.left >= 1500 {
            let Some(frame) = self.bench.peers[0].receive() else {
                self.left = 0;
                break;
            };
            self.left -= frame.bytes.len();
            self.sent[usize::from(frame.bytes[11])] += frame.bytes.len();
            self.bench.peers[0].recycle(frame);
        }
        while let Some(frame) = self.bench.peers[1].receive() {
            self.bench.peers[1].recycle(frame);
        }
    }

    /// Each busy sender's part of what was sent in so many steps, beside that by weight.
    fn shares(&mut self, steps: usize) -> Vec<(f64, f64)> {
        let before = self.sent.clone();
        self.run(steps);
        let sent: Vec<_> = self.sent.iter().zip(before).map(|(now, then)| now - then).collect();
        let all: usize = sent.iter().sum();
        assert!(all * 100 >= self.rate * steps * 95, "{all} of {} a step", self.rate);
        let weight = |sender: &Sender| f64::from(sender.weight.unwrap_or(1));
        let weights: f64 = self.senders.iter().filter(|it| it.busy).map(weight).sum();
        let shares = self.senders.iter().zip(sent).filter(|(it, _)| it.busy);
        shares.map(|(it, sent)| (sent as f64 / all as f64, weight(it) / weights)).collect()
    }

    /// Returns the number of frames that found no room at the uplink.
    fn dropped(&self) -> u64 {
        let counters = self.bench.switch.counters(self.bench.ids[0]).unwrap();
        counters.drops[DropReason::EgressFull as usize]
    }
}

fn hello(station: u8) -> MemoryFrame {
    let mut frame = frame(0, 255, 60);
    frame.bytes[..6].fill(255);
    frame.bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, station]);
    frame
}

fn sender(weight: u8, payload: u32) -> Sender {
    Sender { weight: Some(weight), payload, elsewhere: 0, busy: true }
}

fn senders() -> impl Strategy<Value = Vec<Sender>> {
    let one = (proptest::option::of(1u8..=10), 200u32..=1400, proptest::bool::weighted(0.75));
    let one =
        one.prop_map(|(weight, payload, busy)| Sender { weight, payload, elsewhere: 0, busy });
    // The first has a weight and frames, so that there is something to share.
    (1u8..=10, proptest::collection::vec(one, 1..6))
        .prop_map(|(weight, others)| [vec![sender(weight, 1000)], others].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// What an idle one leaves goes to the others by their weights; and all that was taken has
    /// left, or stands in the uplink.
    #[test]
    fn busy_senders_get_their_weights_of_the_uplink(senders in senders(), rate in 4_000usize..14_000) {
        let mut link = Link::new(rate, &senders);
        link.run(1_000);
        for (share, wanted) in link.shares(5_000) {
            prop_assert!((share - wanted).abs() <= wanted / 10.0, "{share} instead of {wanted}: {senders:?}");
        }
        prop_assert_eq!(link.dropped(), 0, "they wait where they are");
        let all = link.bench.ids.iter().map(|id| link.bench.switch.counters(*id).unwrap());
        let (taken, left) = all.fold((0, 0), |(taken, left), it| (taken + it.ingress_frames, left + it.egress_frames));
        // The two that said where they are were flooded.
        let floods = 2 * (senders.len() as u64 + 1) - 2;
        prop_assert_eq!(taken + floods, left, "none is kept in the switch");
    }
}

#[test]
fn a_change_of_the_weight_is_in_force_at_once() {
    let mut link = Link::new(10_000, &[sender(3, 1400), sender(1, 1400)]);
    link.run(1_000);
    let first = link.shares(4_000)[0].0;
    let id = link.bench.ids[2];
    link.bench.switch.change_port(id, PortSettings { weight: Some(1), ..plain() }).unwrap();
    link.senders[0].weight = Some(1);
    let second = link.shares(4_000)[0].0;
    assert!((first - 0.75).abs() < 0.05 && (second - 0.5).abs() < 0.05, "{first} and {second}");
}

#[test]
fn a_sender_with_frames_for_others_holds_no_bandwidth_that_it_does_not_use() {
    let guest = Sender { elsewhere: 255, ..sender(100, 100) };
    let mut link = Link::new(10_000, &[guest, sender(1, 1400)]);
    link.run(1_000);
    // `shares` asserts that the uplink is busy.
    let shares = link.shares(4_000);
    assert!(shares[1].0 > 0.5, "{shares:?}");
}

/// Its tag never rose, so it was first in line for ever.
#[test]
fn a_sender_whose_frames_are_all_dropped_voids_no_weights() {
    let mut link = Link::new(10_000, &[sender(3, 1400), sender(1, 1400), sender(1, 4000)]);
    link.run(1_000);
    link.shares(4_000);
    let counters = link.bench.switch.counters(link.bench.ids[0]).unwrap();
    assert!(counters.drops[DropReason::TooBig as usize] > 0, "nothing was too big");
    let [first, second, third] = link.sent[..] else { panic!() };
    let share = first as f64 / (first + second) as f64;
    assert!((share - 0.75).abs() < 0.05 && third == 0, "{share}");
}

/// Only the last of the two was asked for, so the first one's room was the flood's.
#[test]
fn a_sender_waits_for_the_uplink_that_it_floods_not_for_another_that_it_uses() {
    let mut link = Link::beside(PortRole::Uplink, 10_000, &[sender(3, 1400), sender(1, 1400)]);
    link.frames[1] = vec![frame(1, 1, 1400); 255];
    link.frames[1].push(frame(1, 2, 60));
    link.run(1_000);
    let share = link.shares(4_000)[0].0;
    assert!((share - 0.75).abs() < 0.05, "{share} instead of 0.75");
    assert_eq!(link.dropped(), 0);
}

#[test]
fn a_sender_that_comes_back_has_saved_nothing() {
    let mut link = Link::new(10_000, &[sender(1, 1400), sender(1, 1400)]);
    link.senders[1].busy = false;
    link.run(10_000);
    link.senders[1].busy = true;
    link.run(500);
    let share = link.shares(1_000)[0].0;
    assert!((share - 0.5).abs() < 0.05, "{share} for the one that was there");
}

/// Without this limit an uplink with a stopped device would also hold up its senders' frames for
/// other ports.
#[test]
fn senders_are_held_for_ten_milliseconds_by_an_uplink_that_has_stopped() {
    let guest = Sender { elsewhere: 3, ..sender(1, 1400) };
    let mut link = Link::new(10_000, &[guest, sender(1, 1400)]);
    link.rate = 0;
    link.run(4_000);
    assert!(link.dropped() > 0);
    let counters = link.bench.switch.counters(link.bench.ids[1]).unwrap();
    assert!(counters.egress_frames > 20_000, "{} to the other vNIC", counters.egress_frames);
}
