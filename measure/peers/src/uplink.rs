//! The uplink case: TCP segments of MTU size arrive at a switch's uplink, and go on to a vhost-user
//! guest.
//!
//! One thread on the generator's core is both sender and guest. It [sends](sender) a train, which
//! the kernel segments for the uplink, and then [receives](receiver) what the switch has delivered
//! meanwhile. All [arms](ARMS) are measured in turn, round by round. The second guest of every
//! switch is silent.
//!
//! The kernel's receive work runs on the sender's core, so the sender may offer less than a switch
//! can carry. So a sample also has the rate of the [backlog](Traffic::drain_rings): a full ring
//! that the switch works off while the sender is silent.

mod receiver;
mod sender;
mod table;
mod veth;

use crate::case::{Case, Load, PLAIN, Unit};
use crate::direction::Direction;
use crate::note;
use crate::peer::{Driver, Peer, Running, Uplink};
use crate::run::{Outcome, Plan, Started};
use crate::stop::Stop;
use crate::stream::{SEGMENT, Side, Stream, TCP_HEADERS, TRAIN};
use anyhow::{Context, Result, ensure};
use distance::Distance;
use receiver::Receiver;
use rustix::process::Signal;
use sender::Sender;
use serde::Serialize;
use statistics::{median, sequence};
use std::time::{Duration, Instant};
use table::Row;
pub(crate) use table::table;
use traffic::measure::ProcessSample;
use veth::{Veth, leave_network};

/// The name that `--only` matches.
pub(crate) const NAME: &str = "uplink, MTU 1500";
/// Case that gives the guest's queues.
const GUEST: Case = Case {
    name: NAME,
    unit: Unit::Gbps,
    frame: TCP_HEADERS + SEGMENT,
    both_ways: false,
    flows: 4,
    warm_up_s: 0.5,
    ..PLAIN
};
/// Case that gives the sender's frames.
const TRAINS: Case = Case { load: Load::Train, frame: TRAIN, ..GUEST };
/// Timeout of the first frame through the switch.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts to reach the guest while the switch starts.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Trains that fill the ring of any switch: it has 4096 frames at most.
const FILL: usize = 100;
/// Number of full rings in a sample.
const FILLS: usize = 40;
/// Time without an arrival after which nothing is in flight.
const QUIET: Duration = Duration::from_millis(5);

/// A switch with an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Arm {
    name: &'static str,
    #[serde(skip)]
    peer: Peer,
    #[serde(flatten)]
    uplink: Uplink,
}

/// An uplink over a packet socket, with coalescing by Millrace alone.
const PACKET: Uplink = Uplink { driver: Driver::Packet, rsc: true, gro: false };
/// An uplink over AF_XDP, with coalescing by Millrace alone.
const XDP: Uplink = Uplink { driver: Driver::Xdp, ..PACKET };

/// All arms, in the order of the table.
const ARMS: [Arm; 9] = [
    Arm { name: "packet", peer: Peer::Millrace, uplink: PACKET },
    Arm { name: "packet, RSC off", peer: Peer::Millrace, uplink: Uplink { rsc: false, ..PACKET } },
    Arm { name: "packet, GRO on", peer: Peer::Millrace, uplink: Uplink { gro: true, ..PACKET } },
    Arm { name: "packet, adaptive", peer: Peer::Adaptive, uplink: PACKET },
    Arm { name: "xdp", peer: Peer::Millrace, uplink: XDP },
    Arm { name: "xdp, RSC off", peer: Peer::Millrace, uplink: Uplink { rsc: false, ..XDP } },
    Arm { name: "xdp, adaptive", peer: Peer::Adaptive, uplink: XDP },
    Arm { name: "OVS af_packet", peer: Peer::Ovs, uplink: PACKET },
    Arm { name: "OVS afxdp", peer: Peer::Ovs, uplink: XDP },
];

/// A sample of one arm in one round, or the reason why there is none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    #[serde(flatten)]
    arm: Arm,
    round: usize,
    #[serde(flatten)]
    outcome: Outcome<Sample>,
}

/// Counts of an interval.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    seconds: f64,
    /// Segments that the sender's device accepted.
    sent: u64,
    /// Segments that arrived in the guest, and the number of frames that carried them.
    arrived: u64,
    frames: u64,
    /// The switch's processor time, its system calls included.
    switch_s: f64,
    backlog: Backlog,
    /// Round trip between the two cores: see [`Distance::round_trip_ns`].
    round_trip_ns: f64,
}

/// Throughput of a switch that resumes with a full ring while the sender is silent.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Backlog {
    /// Segments per second, from the resumption to the last arrival.
    per_second: f64,
    /// Segments that the ring held.
    segments: f64,
}

impl Sample {
    fn payload(&self) -> f64 {
        (self.arrived * SEGMENT as u64) as f64
    }

    /// Returns gigabits of payload per second.
    fn rate(&self) -> f64 {
        self.payload() * 8.0 / 1e9 / self.seconds
    }

    /// Returns gigabits of payload per second of the backlog.
    fn backlog_rate(&self) -> f64 {
        self.backlog.per_second * SEGMENT as f64 * 8.0 / 1e9
    }

    /// Returns the fraction of segments that did not arrive.
    fn lost(&self) -> f64 {
        (1.0 - self.arrived as f64 / self.sent as f64).max(0.0)
    }

    /// Returns the switch's processor seconds per GiB of payload.
    fn cost(&self) -> f64 {
        self.switch_s / (self.payload() / f64::from(1 << 30))
    }
}

/// The results of the case.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    samples: Vec<Measurement>,
}

/// Takes all samples, or those until an interruption.
pub(crate) fn run(plan: &Plan, distance: &Distance, stop: &Stop) -> Results {
    if let Err(error) = leave_network() {
        note(&format!("{NAME} is left out: {error:#}"));
        return Results::default();
    }
    let arms: Vec<Arm> = ARMS.into_iter().filter(|arm| plan.peers.contains(&arm.peer)).collect();
    let mut all: Vec<Measurement> = Vec::new();
    for (round, place) in sequence(arms.len(), plan.rounds) {
        let arm = arms[place];
        let sample = sample(plan, arm, distance, stop);
        if stop.is_set() {
            break;
        }
        let outcome = Outcome::of(sample);
        note(&format!("{NAME}: round {}, {}: {outcome:?}", round + 1, arm.name));
        all.push(Measurement { arm, round, outcome });
    }
    Results { rows: table::rows(&all), samples: all }
}

fn sample(plan: &Plan, arm: Arm, distance: &Distance, stop: &Stop) -> Result<Sample> {
    // Declared before the switch, so that it is dropped after it.
    let _veth = Veth::new(arm.uplink.gro)?;
    let Started { vnics: [guest, silent], switch, .. } =
        &mut plan.start(&GUEST, arm.peer, Some(arm.uplink), stop)?;
    let first = Stream::new(&GUEST, Side::First);
    let mut direction = Direction::new(&mut guest.ingress, &mut silent.egress, first, &GUEST);
    let sender = Sender::new(&TRAINS)?;
    let receiver = Receiver::new(&mut guest.egress, &sender.frame(0));
    let mut traffic = Traffic { sender, receiver, stop };
    traffic.announce(&mut direction)?;
    traffic.run(Duration::from_secs_f64(GUEST.warm_up_s))?;
    let round_trip_ns = distance.round_trip_ns();
    let used = || anyhow::Ok(switch.processor()?.iter().map(ProcessSample::used_s).sum::<f64>());
    let before = used()?;
    let sample = traffic.run(plan.interval)?;
    ensure!(sample.arrived > 0, "no frame arrived within {:?}", plan.interval);
    let switch_s = used()? - before;
    let backlog = traffic.drain_rings(switch)?;
    Ok(Sample { switch_s, backlog, round_trip_ns, ..sample })
}

/// Both ends of the path.
struct Traffic<'t> {
    sender: Sender,
    receiver: Receiver<'t>,
    stop: &'t Stop,
}

impl Traffic<'_> {
    /// Sends from the guest, so that the switch learns its address, until the sender's frames
    /// arrive.
    fn announce(&mut self, guest: &mut Direction<'_>) -> Result<()> {
        let begin = Instant::now();
        while self.receiver.frames == 0 {
            ensure!(
                begin.elapsed() < FIRST_FRAME_TIMEOUT,
                "no frame gets through within {FIRST_FRAME_TIMEOUT:?}"
            );
            guest.recycle()?;
            guest.send_at_most(1);
            guest.kick_if_wanted()?;
            self.run(RETRY_INTERVAL)?;
        }
        Ok(())
    }

    /// Sends and receives for `length`, and returns the counts.
    fn run(&mut self, length: Duration) -> Result<Sample> {
        let begin = Instant::now();
        let (sent, arrived, frames) =
            (self.sender.segments, self.receiver.segments, self.receiver.frames);
        while begin.elapsed() < length {
            self.stop.check()?;
            self.sender.send()?;
            self.receiver.receive()?;
        }
        Ok(Sample {
            seconds: begin.elapsed().as_secs_f64(),
            sent: self.sender.segments - sent,
            arrived: self.receiver.segments - arrived,
            frames: self.receiver.frames - frames,
            switch_s: 0.0,
            backlog: Backlog::default(),
            round_trip_ns: 0.0,
        })
    }

    /// Returns the rate at which the switch works off a full ring, and the segments in it: medians
    /// over [`FILLS`] rings.
    fn drain_rings(&mut self, switch: &Running) -> Result<Backlog> {
        let (mut rates, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..FILLS {
            switch.signal(Signal::STOP)?;
            for _ in 0..FILL {
                self.sender.send()?;
            }
            // Receives the frames that the switch delivered before it stopped.
            self.receive_all()?;
            let (begin, before) = (Instant::now(), self.receiver.segments);
            switch.signal(Signal::CONT)?;
            let end = self.receive_all()?;
            let segments = (self.receiver.segments - before) as f64;
            rates.push(segments / (end - begin).as_secs_f64());
            counts.push(segments);
        }
        let medians = median(&rates).zip(median(&counts));
        let (per_second, segments) = medians.context("no ring was filled")?;
        Ok(Backlog { per_second, segments })
    }

    /// Receives until nothing arrives any more. Returns the time of the last arrival, or of the
    /// call if there was none.
    fn receive_all(&mut self) -> Result<Instant> {
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            self.stop.check()?;
            let before = self.receiver.segments;
            self.receiver.receive()?;
            if self.receiver.segments > before {
                last = Instant::now();
            }
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_payload_that_arrived() {
        let backlog = Backlog { per_second: 1e6, segments: 4096.0 };
        let (sent, arrived, frames) = (2_000_000, 1_500_000, 40_000);
        let sample = Sample {
            seconds: 2.0,
            sent,
            arrived,
            frames,
            switch_s: 1.0,
            backlog,
            round_trip_ns: 50.0,
        };
        assert!((sample.rate() - 8.688).abs() < 1e-9, "{}", sample.rate());
        assert!((sample.lost() - 0.25).abs() < 1e-9, "{}", sample.lost());
        assert!((sample.cost() - 0.494_354).abs() < 1e-5, "{}", sample.cost());
        assert!((sample.backlog_rate() - 11.584).abs() < 1e-9, "{}", sample.backlog_rate());
    }
}
