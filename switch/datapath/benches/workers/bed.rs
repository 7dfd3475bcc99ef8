//! The switch, and the generators on its workers' processors.

use crate::common::trace::Segment;
use crate::common::{ALL, plain};
use crate::{Case, pin};
use datapath::{PortId, PortSettings, Switch, SwitchOptions, Wait, WorkerOptions};
use ports::memory::{self, MemoryFrame, Peer};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, yield_now};
use wire::Mac;

/// Frames of a slice, from each source.
const SLICE: u64 = 32 * 1024;

/// Both queues are one worker's, or each of two has one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    One,
    Two,
}

/// The slices of a round.
pub(crate) const ABBA: [Arm; 4] = [Arm::One, Arm::Two, Arm::Two, Arm::One];

fn sink_mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, number as u8]
}

impl Case {
    /// Calls `use_it` on the first processor, with a generator on each.
    pub(crate) fn on_bed<Answer>(
        &self,
        cpus: [usize; 2],
        use_it: impl FnOnce(&mut Bed<'_>) -> Answer,
    ) -> Answer {
        pin(cpus[0]);
        let (switch, second, lanes) = self.start(cpus);
        let (gate, (calls, called)) = (Gate(AtomicU8::new(OPEN)), channel());
        let batches = SLICE / self.batch;
        thread::scope(|scope| {
            let (gate, lanes) = (&gate, &lanes);
            scope.spawn(move || {
                pin(cpus[1]);
                called.iter().for_each(|()| gate.help(&lanes[1], batches));
            });
            use_it(&mut Bed { switch, second, lanes, gate, calls, batches, sent: 0 })
        })
    }

    /// Returns the switch, the second source's port, and both lanes.
    fn start(&self, cpus: [usize; 2]) -> (Switch, PortId, [Lane; 2]) {
        let workers = cpus.map(|cpu| WorkerOptions { cpu: Some(cpu) }).to_vec();
        let options = SwitchOptions { workers, wait: Wait::Never, ..SwitchOptions::default() };
        let mut switch = Switch::start(options).unwrap();
        let mut add = |name: &str, mac| {
            let (device, peer) = memory::open(2 * self.batch as usize, ALL, 1500).unwrap();
            (switch.add_port(name, device, PortSettings { mac, ..plain() }).unwrap(), peer)
        };
        let [(_, first), (second, other)] = ["first", "second"].map(|name| add(name, None));
        let mut sink = |number| add(&format!("sink{number}"), Some(Mac(sink_mac(number)))).1;
        let sinks: Vec<Peer> = (0..self.sinks).map(&mut sink).collect();
        let lane = |source, number: usize| Lane {
            source,
            sink: sinks[number % self.sinks].clone(),
            frame: self.frame(number),
            batch: self.batch,
        };
        let lanes = [lane(first, 0), lane(other, 1)];
        (switch, second, lanes)
    }

    /// Returns a frame from a source to its sink.
    pub(crate) fn frame(&self, number: usize) -> MemoryFrame {
        let flow = number as u8;
        let mut frame = Segment { payload: self.payload, flow, ..Segment::parse(".") }.frame();
        frame.bytes[..6].copy_from_slice(&sink_mac(number % self.sinks));
        frame.bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, flow]);
        frame
    }
}

/// What a generator serves: a source, and the sink of its frames.
struct Lane {
    source: Peer,
    sink: Peer,
    frame: MemoryFrame,
    batch: u64,
}

impl Lane {
    /// Takes what has come out, and sends a batch.
    fn refill(&self) {
        while let Some(frame) = self.sink.receive() {
            self.sink.recycle(frame);
        }
        for _ in 0..self.batch {
            assert!(self.source.send(self.frame.vnet, &self.frame.bytes));
        }
    }
}

/// Lets both generators yield at once, when both have sent their batches.
struct Gate(AtomicU8);

/// The second generator is to refill.
const CALLED: u8 = 0;
/// It has.
const FILLED: u8 = 1;
/// Both yield.
const OPEN: u8 = 2;

impl Gate {
    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Release);
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Acquire) == state
    }

    /// The second generator's part of a slice.
    fn help(&self, lane: &Lane, batches: u64) {
        for _ in 0..batches {
            while !self.is(CALLED) {
                yield_now();
            }
            lane.refill();
            self.set(FILLED);
            // Awake: on this processor, the worker would begin.
            while self.is(FILLED) {
                spin_loop();
            }
        }
    }
}

/// The switch and the first generator.
pub(crate) struct Bed<'l> {
    switch: Switch,
    /// The second source's port.
    second: PortId,
    lanes: &'l [Lane; 2],
    gate: &'l Gate,
    /// Tells the second generator that a slice of two workers begins.
    calls: Sender<()>,
    /// Number of batches in a slice.
    batches: u64,
    /// Frames so far.
    sent: u64,
}

impl Bed<'_> {
    /// Returns the rates of one worker and of two, in million frames per second.
    pub(crate) fn round(&mut self) -> [f64; 2] {
        let mut times = [0; 2];
        for arm in ABBA {
            self.switch.move_queue(self.second, 0, arm as usize).unwrap();
            times[arm as usize] += self.slice(arm);
        }
        times.map(|time| (4 * SLICE) as f64 * 1e3 / time as f64)
    }

    /// Passes the batches of a slice. Returns its time in nanoseconds.
    fn slice(&mut self, arm: Arm) -> u64 {
        if arm == Arm::Two {
            self.calls.send(()).unwrap();
        }
        (0..self.batches).map(|_| self.batch(arm)).sum()
    }

    /// Passes a batch from each source. Returns its time in nanoseconds; see the head of this file.
    fn batch(&mut self, arm: Arm) -> u64 {
        let before = self.busy();
        let [first, second] = self.lanes;
        if arm == Arm::Two {
            self.gate.set(CALLED);
            first.refill();
            while !self.gate.is(FILLED) {
                spin_loop();
            }
            self.gate.set(OPEN);
        } else {
            first.refill();
            second.refill();
        }
        self.sent += first.batch + second.batch;
        while self.taken() < self.sent {
            yield_now();
        }
        let after = self.busy();
        (after[0] - before[0]).max(after[1] - before[1])
    }

    fn busy(&self) -> [u64; 2] {
        let workers = self.switch.workers();
        [workers[0].busy.0, workers[1].busy.0]
    }

    /// Returns the number of frames of turns that have ended.
    fn taken(&self) -> u64 {
        self.switch.workers().iter().map(|worker| worker.frames).sum()
    }

    /// Every frame has arrived.
    pub(crate) fn check(&self) {
        let ports = self.switch.ports();
        let counters = ports.iter().map(|port| self.switch.counters(port.id).unwrap());
        let delivered: u64 = counters.map(|counters| counters.egress_frames).sum();
        assert_eq!(delivered, self.sent);
    }
}
