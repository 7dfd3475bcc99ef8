//! One sample: the switch learns the addresses, warms up, and is measured for an interval.

use crate::case::{Case, Load, Unit};
use crate::peer::Running;
use crate::stop::Stop;
use crate::stream::{Side, Stream};
use crate::vnic::Vnic;
use crate::way::{Tally, Way};
use anyhow::{Result, bail, ensure};
use distance::Distance;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Turns between two looks at the clock.
const TURNS: u32 = 16;
/// Turns in which nothing moves before the generator checks whether the switch sleeps.
const IDLE_TURNS: u32 = 1024;
/// Pause between two attempts to reach the other side, while the switch starts.
const ATTEMPT: Duration = Duration::from_millis(200);
/// A switch that has passed nothing after this time never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// A frame that has not crossed after this time is lost.
const LOST: Duration = Duration::from_millis(200);
/// Length of the slices of an interval.
const SLICE: Duration = Duration::from_millis(50);
/// This core's rest before each: a hypervisor never moves a core that does not rest, whether near
/// the other or far.
const NAP: Duration = Duration::from_millis(2);
/// After the rest, the queues fill again for this long.
const AWAKE_AGAIN: Duration = Duration::from_millis(2);
/// If nothing arrives for this long, nothing is in flight.
const QUIET: Duration = Duration::from_millis(50);

/// The result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// In the case's unit.
    pub(crate) value: f64,
    /// The interval in pieces, each with the distance of the cores at its beginning.
    pub(crate) slices: Vec<Slice>,
    /// The value that one crossing in a hundred exceeds, in the case's unit. Latency only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<f64>,
    /// Length of the interval.
    pub(crate) seconds: f64,
    /// The switch's processor time in it, per second.
    pub(crate) cores: f64,
    /// Counts of both ways together.
    pub(crate) tally: Tally,
    /// Whether all vNIC memory was in huge pages.
    pub(crate) huge_pages: bool,
    /// Virtio features in use.
    pub(crate) features: String,
}

/// A piece of an interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Slice {
    /// In the case's unit; for latency, the median.
    pub(crate) value: f64,
    /// See [`Distance::round_trip_ns`].
    pub(crate) round_trip_ns: f64,
}

/// How a sample is taken.
pub(crate) struct Terms<'t> {
    pub(crate) case: &'t Case,
    /// The duration.
    pub(crate) interval: Duration,
    /// The switch.
    pub(crate) switch: &'t Running,
    pub(crate) distance: &'t Distance,
    pub(crate) stop: &'t Stop,
}

/// Takes a sample between two vNICs that have just been started.
pub(crate) fn measure(vnics: &mut [Vnic; 2], terms: &Terms<'_>) -> Result<Sample> {
    let Terms { case, stop, .. } = *terms;
    let huge_pages = vnics.iter().all(Vnic::huge_pages);
    let features = format!("{:#x}", vnics[0].features);
    let [first, second] = vnics;
    let mut ways = [
        Way::new(&mut first.ingress, &mut second.egress, Stream::new(case, Side::First), case),
        Way::new(&mut second.ingress, &mut first.egress, Stream::new(case, Side::Second), case),
    ];
    teach(&mut ways, case, stop)?;
    let sample = Sample {
        value: 0.0,
        slices: Vec::new(),
        p99: None,
        seconds: 0.0,
        cores: 0.0,
        tally: Tally::default(),
        huge_pages,
        features,
    };
    if case.load == Load::PingPong {
        latency(&mut ways, terms, sample)
    } else {
        let loaded = if case.both_ways { 2 } else { 1 };
        throughput(&mut ways[..loaded], terms, sample)
    }
}

/// Has every host send a frame, from both sides, until frames get through both ways.
fn teach(ways: &mut [Way<'_>; 2], case: &Case, stop: &Stop) -> Result<()> {
    let begin = Instant::now();
    while ways.iter().any(|way| way.tally.frames == 0) {
        ensure!(begin.elapsed() < PATIENCE, "no frame gets through within {PATIENCE:?}");
        let mut left = [case.hosts; 2];
        let attempt = Instant::now();
        while attempt.elapsed() < ATTEMPT {
            stop.check()?;
            for (way, left) in ways.iter_mut().zip(&mut left) {
                way.recycle()?;
                *left -= way.send_at_most(*left);
                way.receive()?;
                way.kick_if_wanted()?;
            }
        }
    }
    Ok(())
}

/// Takes what is still in flight, so that the next frame to arrive is the next one sent.
fn drain(ways: &mut [Way<'_>; 2], stop: &Stop) -> Result<()> {
    let mut quiet = Instant::now();
    while quiet.elapsed() < QUIET {
        stop.check()?;
        for way in ways.iter_mut() {
            way.recycle()?;
            way.kick_if_wanted()?;
            if way.receive()? > 0 {
                quiet = Instant::now();
            }
        }
    }
    Ok(())
}

fn throughput(ways: &mut [Way<'_>], terms: &Terms<'_>, sample: Sample) -> Result<Sample> {
    let Terms { case, interval, switch, distance, stop } = *terms;
    run(ways, Duration::from_secs_f64(case.warm_up_s), stop)?;
    let processor = switch.processor()?;
    let (mut slices, mut tally, mut time) = (Vec::new(), Tally::default(), Duration::ZERO);
    let value = |tally: &Tally, time: Duration| {
        let count = match case.unit {
            Unit::Gbps => tally.bytes as f64 * 8.0 / 1e9,
            _ => tally.frames as f64 / 1e6,
        };
        count / time.as_secs_f64()
    };
    while time < interval {
        std::thread::sleep(NAP);
        let round_trip_ns = distance.round_trip_ns();
        run(ways, AWAKE_AGAIN, stop)?;
        let (arrived, length) = run(ways, SLICE, stop)?;
        (tally, time) = (tally.plus(&arrived), time + length);
        slices.push(Slice { value: value(&arrived, length), round_trip_ns });
    }
    let cores = switch.cores_since(&processor)?;
    ensure!(tally.frames > 0, "no frame arrived within {time:?}");
    let (value, seconds) = (value(&tally, time), time.as_secs_f64());
    Ok(Sample { value, slices, seconds, cores, tally, ..sample })
}

fn total(ways: &[Way<'_>]) -> Tally {
    ways.iter().fold(Tally::default(), |sum, way| sum.plus(&way.tally))
}

/// Runs all ways for this long; returns what happened meanwhile, and the actual time.
fn run(ways: &mut [Way<'_>], length: Duration, stop: &Stop) -> Result<(Tally, Duration)> {
    let (begin, before) = (Instant::now(), total(ways));
    let mut idle = 0;
    loop {
        for _ in 0..TURNS {
            let mut moved = false;
            for way in ways.iter_mut() {
                moved |= way.turn()?;
            }
            idle = if moved { 0 } else { idle + 1 };
        }
        if idle > IDLE_TURNS {
            idle = 0;
            ways.iter().try_for_each(Way::kick_if_wanted)?;
        }
        stop.check()?;
        let elapsed = begin.elapsed();
        if elapsed >= length {
            return Ok((total(ways).since(&before), elapsed));
        }
    }
}

/// One frame at a time, there and back; measures each crossing.
fn latency(ways: &mut [Way<'_>; 2], terms: &Terms<'_>, sample: Sample) -> Result<Sample> {
    let Terms { case, interval, switch, distance, stop } = *terms;
    let warm_up = Duration::from_secs_f64(case.warm_up_s);
    drain(ways, stop)?;
    cross(ways, case.rest, warm_up, stop, &mut crossings()?)?;
    let (before, processor) = (total(ways), switch.processor()?);
    let (mut slices, mut all, begin) = (Vec::new(), crossings()?, Instant::now());
    while begin.elapsed() < interval {
        std::thread::sleep(NAP);
        let round_trip_ns = distance.round_trip_ns();
        let mut here = crossings()?;
        cross(ways, case.rest, SLICE, stop, &mut here)?;
        slices.push(Slice { value: microseconds(&here, 0.5), round_trip_ns });
        all.add(&here)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cores = switch.cores_since(&processor)?;
    let tally = total(ways).since(&before);
    let (value, p99) = (microseconds(&all, 0.5), Some(microseconds(&all, 0.99)));
    Ok(Sample { value, slices, p99, seconds, cores, tally, ..sample })
}

fn microseconds(crossings: &Histogram<u64>, quantile: f64) -> f64 {
    crossings.value_at_quantile(quantile) as f64 / 1e3
}

/// In nanoseconds, up to the time that counts as lost.
fn crossings() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(u64::try_from(LOST.as_nanos())?, 3)?)
}

fn cross(
    ways: &mut [Way<'_>; 2],
    rest: Duration,
    length: Duration,
    stop: &Stop,
    crossings: &mut Histogram<u64>,
) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < length {
        stop.check()?;
        for way in ways.iter_mut() {
            // Awake, so that our own wake-up is not measured.
            let rested = Instant::now();
            while rested.elapsed() < rest {
                std::hint::spin_loop();
            }
            crossings.saturating_record(u64::try_from(one_crossing(way)?.as_nanos())?);
            way.recycle()?;
        }
    }
    Ok(())
}

/// From the call that sends a frame to the look that finds it; kicks the switch if it asks for
/// that.
fn one_crossing(way: &mut Way<'_>) -> Result<Duration> {
    let sent = Instant::now();
    way.send_at_most(1);
    way.kick_if_wanted()?;
    let mut turns = 0u32;
    while way.receive()? == 0 {
        turns += 1;
        if turns.is_multiple_of(IDLE_TURNS) {
            way.kick_if_wanted()?;
            if sent.elapsed() > LOST {
                bail!("a frame was lost: nothing got through within {LOST:?}");
            }
        }
    }
    Ok(sent.elapsed())
}
