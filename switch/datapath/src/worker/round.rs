//! A round of a worker: one turn for each of its queues that may have one.

use crate::turn::queue::OwnedQueue;
use crate::turn::{Turn, work};
use crate::worker::{Worker, share};
use ports::Nanos;
use std::sync::atomic::Ordering;

/// Work of looks at empty queues after which a stopwatch is started anew: their time is no queue's.
const STALE: u64 = 40 * work::OF_LOOK;

impl Worker {
    /// Runs one turn for each queue that is neither resting nor in debt, see [`share::round`], or for
    /// as many as there is time for before a command came: the next round goes on there. Returns the frames taken and the clock after the last turn that took any.
    ///
    /// `clock` is read after each turn that took frames, and is told the work since it was last
    /// read.
    pub(crate) fn round(&mut self, now: Nanos, clock: impl Fn(u64) -> Nanos) -> (usize, Nanos) {
        let version = self.macs.owners_version();
        if version != self.owners_version {
            self.owners_version = version;
            self.owners.read(&self.view);
        }
        let watch = self.kernel_time.watch(now, &self.shared.counters.waited);
        let Worker { index, shared, macs, view, owners, queues, accounts, place, scratch, .. } =
            self;
        let (mut end, mut looks, mut busy) = (now, 0, 0);
        if scratch.deliverer.held.are_due(now) {
            scratch.deliverer.held.send(view, now);
        }
        if scratch.deliverer.paces() {
            // The senders' turns have paid for it.
            (scratch.deliverer.stopwatch, scratch.deliverer.sender) = (watch.since(now), None);
            end = clock(scratch.deliverer.release(view, *index, now));
        }
        let (mut stopwatch, mut stale) = (watch.since(end), 0);
        let is_wanted = || shared.mailbox.is_waiting();
        let shares = (&mut accounts[..], &mut queues[..]);
        let turn = |queue: &mut OwnedQueue| match view.port(queue.port) {
            Some(from) if !queue.is_resting(now) => {
                let number = queue.number;
                shared.turn.store(queue.port.0, Ordering::Relaxed);
                if stale >= STALE {
                    (stopwatch, stale) = (stopwatch.restarted(), 0);
                }
                let turn = Turn {
                    worker: *index,
                    view,
                    macs,
                    owners,
                    from,
                    queue: number,
                    now,
                    stopwatch,
                };
                let carried = turn.carry_out(queue, scratch);
                if carried.taken == 0 {
                    (looks, stale) = (looks + work::OF_LOOK, stale + work::OF_LOOK);
                    return (0, work::OF_LOOK);
                }
                // The looks at empty queues since the last such turn are not charged to this queue.
                let looked = Nanos(std::mem::take(&mut looks));
                let start = std::mem::replace(&mut end, clock(looked.0 + carried.work));
                let took = end.since(start).since(looked);
                queue.load.busy.add(took.0);
                busy += took.0;
                let charge = turn.charge(&carried, took, &mut scratch.deliverer.slow);
                let excess = charge.saturating_sub(carried.work + carried.later);
                scratch.floods.end_turn(queue.port, excess);
                (stopwatch, stale) = (watch.since(end), 0);
                (carried.taken, charge)
            }
            _ => (0, 0),
        };
        let (taken, rounds) = share::round(shares, place, is_wanted, turn);
        scratch.deliverer.slow.pass(rounds, taken == 0, now);
        shared.counters.busy.add(busy);
        (taken, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{SwitchOptions, WorkerOptions};
    use crate::settings::{PortId, PortSettings};
    use crate::switch::Switch;
    use crate::worker::command::Command;
    use crate::worker::kernel_time::KernelTime;
    use ports::memory::{self, Peer};
    use ports::vhost::{self, Opened, VhostOptions};
    use ports::{Clock, Offloads};
    use std::cell::Cell;
    use tempfile::TempDir;
    use test_guest::Guest;
    use wire::Mac;
    use wire::vnet::VnetHeader;

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    fn frame(to: u8, from: u8) -> Vec<u8> {
        let mut frame = [&mac(to).0[..], &mac(from).0, &[0x88, 0xb5]].concat();
        frame.resize(60, 0);
        frame
    }

    fn settings(last: u8) -> PortSettings {
        PortSettings { mtu: 1500, mac: Some(mac(last)), ..PortSettings::default() }
    }

    fn switch() -> Switch {
        let workers = vec![WorkerOptions::default()];
        Switch::stepped(SwitchOptions { workers, ..SwitchOptions::default() })
    }

    fn add_memory(switch: &mut Switch, last: u8) -> Peer {
        let (device, peer) = memory::open(256, Offloads::empty(), 1500).expect("a port");
        switch.add_port(&format!("port{last}"), device, settings(last)).expect("added");
        peer
    }

    /// It waited for a turn of each port, which may take 2 ms: with a thousand ports two seconds.
    #[test]
    fn a_command_waits_for_one_turn_and_then_the_round_goes_on() {
        let mut switch = switch();
        let peers: Vec<_> = (1..=20).map(|last| add_memory(&mut switch, last)).collect();
        for (last, peer) in (1..).zip(&peers) {
            assert!(peer.send(VnetHeader::default(), &frame(last % 20 + 1, last)));
        }
        let shared = switch.workers[0].shared.clone();
        for _ in 0..10 {
            shared.mailbox.post(Command::Answer);
            assert_eq!(switch.step(Nanos::SECOND), 1, "only one port had a turn");
            switch.workers[0].read_commands();
        }
        assert_eq!(switch.step(Nanos::SECOND), 10, "the ports behind it have theirs");
        let got: Vec<_> = peers.iter().map(|peer| peer.receive().is_some()).collect();
        assert_eq!(got, vec![true; 20]);
    }

    thread_local! {
        static TIME: Cell<u64> = const { Cell::new(0) };
        static FAULTS: Cell<u64> = const { Cell::new(0) };
    }

    /// Clocks that show a slow part with very many page faults at each look.
    fn slow_clock() -> Clock {
        fn used() -> Nanos {
            Nanos(TIME.get())
        }
        fn now() -> Nanos {
            TIME.set(TIME.get() + 100_000);
            used()
        }
        fn faults() -> u64 {
            FAULTS.replace(FAULTS.get() + 1_000)
        }
        Clock::new(now, used, faults)
    }

    /// A switch with a guest at port 1 and a memory port, whose worker is alert.
    struct Stage {
        switch: Switch,
        vm: PortId,
        _vm: (TempDir, vhost::Session),
        guest: Guest,
        peer: Peer,
        now: Nanos,
    }

    impl Stage {
        fn new() -> Stage {
            let (mut switch, folder) = (switch(), TempDir::new().expect("a folder"));
            let path = folder.path().join("vm");
            let Opened { device, session, .. } =
                vhost::open(&VhostOptions::new(&path)).expect("a port");
            let vm = switch.add_port("vm", device, settings(1)).expect("added");
            let peer = add_memory(&mut switch, 2);
            let features = vhost::Features::VERSION_1.bits();
            let guest = Guest::connect(&path, features, 1).expect("a guest");
            let now = Nanos::SECOND;
            let mut stage = Stage { switch, vm, _vm: (folder, session), guest, peer, now };
            stage.step_until_taken(|stage| {
                stage.guest.send(0, &[0; 12], &frame(2, 1));
            });
            while stage.egress_frames() == 0 {
                stage.peer.send(VnetHeader::default(), &frame(1, 2));
                stage.step();
            }
            let worker = stage.switch.workers[0].worker();
            worker.kernel_time = KernelTime::new(slow_clock(), stage.now);
            worker.scratch.deliverer.slow.alert(stage.now);
            stage
        }

        /// Has a frame sent, and steps until it is taken.
        fn step_until_taken(&mut self, send: impl Fn(&mut Stage)) {
            send(self);
            while self.step() == 0 {
                std::thread::yield_now();
            }
        }

        fn step(&mut self) -> usize {
            self.now = self.now + Nanos(1_000);
            self.switch.step(self.now)
        }

        /// Frames that the guest got.
        fn egress_frames(&self) -> u64 {
            self.switch.counters(self.vm).expect("a port").egress_frames
        }
    }

    /// Between its turns nobody else had frames, and its debt was forgiven each time.
    #[test]
    fn a_sender_whose_pages_are_absent_rests_while_the_worker_is_idle() {
        let mut stage = Stage::new();
        let send = |stage: &mut Stage| assert!(stage.guest.send(0, &[0; 12], &frame(2, 1)));
        stage.step_until_taken(send);
        send(&mut stage);
        assert!((0..100).all(|_| stage.step() == 0), "it rests");
        stage.now = stage.now + Nanos::SECOND;
        assert_eq!(stage.step(), 1);
    }

    #[test]
    fn a_receiver_whose_pages_are_absent_gets_no_frames_while_it_rests() {
        let mut stage = Stage::new();
        let send =
            |stage: &mut Stage| assert!(stage.peer.send(VnetHeader::default(), &frame(1, 2)));
        let before = stage.egress_frames();
        (0..10).for_each(|_| stage.step_until_taken(send));
        assert_eq!(stage.egress_frames(), before + 1, "then it rests");
        stage.now = stage.now + Nanos::SECOND;
        stage.step_until_taken(send);
        assert_eq!(stage.egress_frames(), before + 2);
    }
}
