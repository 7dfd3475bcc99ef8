//! A worker with a turn that does not end, and a control plane that asks it.

use crate::common::trace::Segment;
use crate::common::{ALL, DEPTH, plain};
use datapath::{HealthEvent, PortId, PortSettings, Switch, SwitchError, SwitchOptions};
use ports::memory::{self, Peer};
use std::time::{Duration, Instant};

fn add(switch: &mut Switch, name: &str) -> Result<(PortId, Peer), SwitchError> {
    let (device, peer) = memory::open(DEPTH, ALL, 1500).unwrap();
    switch.add_port(name, device, plain()).map(|id| (id, peer))
}

/// Asks until there is an answer.
fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that a broadcast from one peer arrives at the other.
fn arrives(from: &Peer, to: &Peer) {
    let mut frame = Segment::parse("1+10 .").frame();
    frame.bytes[..6].fill(0xff);
    eventually(|| from.send(frame.vnet, &frame.bytes).then_some(()));
    eventually(|| to.receive());
}

#[test]
fn a_worker_that_hangs_holds_nothing_up_and_catches_up() {
    let workers = vec![Default::default(); 2];
    let mut switch = Switch::start(SwitchOptions { workers, ..Default::default() }).unwrap();
    let (stuck, stuck_peer) = add(&mut switch, "stuck").unwrap();
    let (other, other_peer) = add(&mut switch, "other").unwrap();
    let (third, third_peer) = add(&mut switch, "third").unwrap();
    let hang = stuck_peer.hang();

    let change = |switch: &mut Switch, mtu| {
        switch
            .change_port(other, PortSettings { mtu, ..plain() })
            .map_err(|error| error.to_string())
    };
    let told = "worker 0 does not answer; its last turn was of port stuck";
    // The letter is read before the turn that hangs.
    let refused = eventually(|| change(&mut switch, 9000).err());
    assert_eq!(refused, told);
    let events = switch.take_events();
    assert_eq!(events, [HealthEvent::WorkerHangs { worker: 0, port: Some(stuck) }]);
    assert_eq!(
        switch.workers().iter().map(|worker| worker.hangs).collect::<Vec<_>>(),
        [true, false]
    );
    arrives(&other_peer, &third_peer);
    assert_eq!(change(&mut switch, 9001).unwrap_err(), told);
    assert_eq!(add(&mut switch, "fourth").err().unwrap().to_string(), told);
    assert_eq!(switch.move_queue(third, 0, 1).unwrap_err().to_string(), told);
    assert_eq!(switch.remove_port(third).unwrap_err().to_string(), told);
    assert_eq!(switch.take_events(), [], "the other worker answers");
    assert!(!switch.workers()[1].hangs);
    let ports: Vec<_> =
        switch.ports().into_iter().map(|port| (port.id, port.settings.mtu)).collect();
    assert_eq!(ports, [(stuck, 1500), (other, 9000)], "only what takes away is done");

    drop(hang);
    let answers = HealthEvent::WorkerAnswers { worker: 0 };
    eventually(|| switch.take_events().contains(&answers).then_some(()));
    let (_, fourth_peer) = add(&mut switch, "fourth").unwrap();
    arrives(&fourth_peer, &stuck_peer);
    arrives(&stuck_peer, &fourth_peer);
    switch.move_queue(stuck, 0, 1).unwrap();
    arrives(&stuck_peer, &fourth_peer);
}

#[test]
fn a_switch_whose_workers_end_says_so() {
    let workers = vec![Default::default(); 2];
    let mut switch = Switch::start(SwitchOptions { workers, ..Default::default() }).unwrap();
    assert!(switch.stop());
}

/// A worker sleeps no longer than until frames that wait may leave, and leaves none behind.
#[test]
fn what_waits_for_a_ports_rate_leaves_while_its_worker_sleeps_and_when_it_ends() {
    for ends in [false, true] {
        let mut switch = Switch::start(SwitchOptions::default()).unwrap();
        let mut add = |name, rate_to| {
            let (device, peer) = memory::open(DEPTH, ALL, 1500).unwrap();
            let settings = PortSettings { rate_to, ..plain() };
            (switch.add_port(name, device, settings).unwrap(), peer)
        };
        let ((from, sender), (_, receiver)) = (add("from", None), add("to", Some(8_000_000)));
        let long = Segment::parse("1+1446 .").frame();
        (0..60).for_each(|_| assert!(sender.send(long.vnet, &long.bytes)));
        let taken = || switch.counters(from).unwrap().ingress_frames == 60;
        eventually(|| taken().then_some(()));
        if ends {
            assert!(switch.stop());
            assert_eq!(std::iter::from_fn(|| receiver.receive()).count(), 60);
            continue;
        }
        let mut left = 60;
        eventually(|| {
            left -= std::iter::from_fn(|| receiver.receive()).count();
            (left == 0).then_some(())
        });
    }
}

/// Nothing was asked of it.
#[test]
fn a_worker_that_hangs_is_found_and_does_not_keep_the_switch() {
    let mut switch = Switch::start(SwitchOptions::default()).unwrap();
    let (stuck, peer) = add(&mut switch, "stuck").unwrap();
    let hang = peer.hang();
    let hangs = HealthEvent::WorkerHangs { worker: 0, port: Some(stuck) };
    eventually(|| switch.take_events().contains(&hangs).then_some(()));
    assert!(!switch.stop(), "it may still take frames");
    drop(switch);
    drop(hang);
}
