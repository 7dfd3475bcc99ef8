//! One sample: the switch learns the addresses, warms up, and is measured for an interval.

use crate::case::{Case, Load, Unit};
use crate::direction::{Direction, Tally};
use crate::peer::Running;
use crate::stop::Stop;
use crate::stream::{Side, Stream};
use crate::vnic::Vnic;
use anyhow::{Result, bail, ensure};
use distance::Distance;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Turns between two reads of the clock.
const TURNS: u32 = 16;
/// Idle turns before the generator checks whether the switch sleeps.
const IDLE_TURNS: u32 = 1024;
/// Time between two attempts to reach the other side while the switch starts.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout of the first frame through the switch.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a frame counts as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(200);
/// Length of the slices of an interval.
const SLICE: Duration = Duration::from_millis(50);
/// Sleep of the generator's core before each slice: a hypervisor moves a core nearer or farther
/// only while it is idle.
const REST: Duration = Duration::from_millis(2);
/// Time after the sleep in which the queues fill again.
const REFILL: Duration = Duration::from_millis(2);
/// Time without an arrival after which nothing is in flight.
const QUIET: Duration = Duration::from_millis(50);

/// A sample of one switch in one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Value in the case's unit.
    pub(crate) value: f64,
    /// Slices of the interval, each with the distance of the cores at its start.
    pub(crate) slices: Vec<Slice>,
    /// The 99th percentile in the case's unit; latency only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<f64>,
    /// Length of the interval in seconds.
    pub(crate) seconds: f64,
    /// Processors that the switch kept busy.
    pub(crate) cores: f64,
    /// Counts of both directions together.
    pub(crate) tally: Tally,
    /// Whether all vNIC memory was in huge pages.
    pub(crate) huge_pages: bool,
    /// Virtio features in use.
    pub(crate) features: String,
}

/// A piece of an interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Slice {
    /// Value in the case's unit; for latency, the median.
    pub(crate) value: f64,
    /// Round trip between the two cores: see [`Distance::round_trip_ns`].
    pub(crate) round_trip_ns: f64,
}

/// How a sample is taken.
pub(crate) struct Settings<'t> {
    pub(crate) case: &'t Case,
    /// Length of the interval.
    pub(crate) interval: Duration,
    /// The switch under test.
    pub(crate) switch: &'t Running,
    pub(crate) distance: &'t Distance,
    pub(crate) stop: &'t Stop,
}

/// Takes a sample between two vNICs that have just been started.
pub(crate) fn measure(vnics: &mut [Vnic; 2], settings: &Settings<'_>) -> Result<Sample> {
    let Settings { case, stop, .. } = *settings;
    let huge_pages = vnics.iter().all(Vnic::huge_pages);
    let features = format!("{:#x}", vnics[0].features);
    let [first, second] = vnics;
    let mut directions = [
        Direction::new(
            &mut first.ingress,
            &mut second.egress,
            Stream::new(case, Side::First),
            case,
        ),
        Direction::new(
            &mut second.ingress,
            &mut first.egress,
            Stream::new(case, Side::Second),
            case,
        ),
    ];
    announce(&mut directions, case, stop)?;
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
        latency(&mut directions, settings, sample)
    } else {
        let loaded = if case.both_ways { 2 } else { 1 };
        throughput(&mut directions[..loaded], settings, sample)
    }
}

/// Sends a frame from every host on both sides until frames arrive in both directions, so that the
/// switch learns all addresses.
fn announce(directions: &mut [Direction<'_>; 2], case: &Case, stop: &Stop) -> Result<()> {
    let begin = Instant::now();
    while directions.iter().any(|direction| direction.tally.frames == 0) {
        ensure!(
            begin.elapsed() < FIRST_FRAME_TIMEOUT,
            "no frame gets through within {FIRST_FRAME_TIMEOUT:?}"
        );
        let mut left = [case.hosts; 2];
        let attempt = Instant::now();
        while attempt.elapsed() < RETRY_INTERVAL {
            stop.check()?;
            for (direction, left) in directions.iter_mut().zip(&mut left) {
                direction.recycle()?;
                *left -= direction.send_at_most(*left);
                direction.receive()?;
                direction.kick_if_wanted()?;
            }
        }
    }
    Ok(())
}

/// Receives the frames in flight, so that the next frame to arrive is the next one sent.
fn drain(directions: &mut [Direction<'_>; 2], stop: &Stop) -> Result<()> {
    let mut quiet = Instant::now();
    while quiet.elapsed() < QUIET {
        stop.check()?;
        for direction in directions.iter_mut() {
            direction.recycle()?;
            direction.kick_if_wanted()?;
            if direction.receive()? > 0 {
                quiet = Instant::now();
            }
        }
    }
    Ok(())
}

fn throughput(
    directions: &mut [Direction<'_>],
    settings: &Settings<'_>,
    sample: Sample,
) -> Result<Sample> {
    let Settings { case, interval, switch, distance, stop } = *settings;
    run(directions, Duration::from_secs_f64(case.warm_up_s), stop)?;
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
        std::thread::sleep(REST);
        let round_trip_ns = distance.round_trip_ns();
        run(directions, REFILL, stop)?;
        let (arrived, length) = run(directions, SLICE, stop)?;
        (tally, time) = (tally.plus(&arrived), time + length);
        slices.push(Slice { value: value(&arrived, length), round_trip_ns });
    }
    let cores = switch.cores_since(&processor)?;
    ensure!(tally.frames > 0, "no frame arrived within {time:?}");
    let (value, seconds) = (value(&tally, time), time.as_secs_f64());
    Ok(Sample { value, slices, seconds, cores, tally, ..sample })
}

fn total(directions: &[Direction<'_>]) -> Tally {
    directions.iter().fold(Tally::default(), |sum, direction| sum.plus(&direction.tally))
}

/// Runs all directions for `length`. Returns the counts, and the actual time.
fn run(
    directions: &mut [Direction<'_>],
    length: Duration,
    stop: &Stop,
) -> Result<(Tally, Duration)> {
    let (begin, before) = (Instant::now(), total(directions));
    let mut idle = 0;
    loop {
        for _ in 0..TURNS {
            let mut moved = false;
            for direction in directions.iter_mut() {
                moved |= direction.turn()?;
            }
            idle = if moved { 0 } else { idle + 1 };
        }
        if idle > IDLE_TURNS {
            idle = 0;
            directions.iter().try_for_each(Direction::kick_if_wanted)?;
        }
        stop.check()?;
        let elapsed = begin.elapsed();
        if elapsed >= length {
            return Ok((total(directions).since(&before), elapsed));
        }
    }
}

/// Measures the crossing time of one frame at a time, in both directions in turn.
fn latency(
    directions: &mut [Direction<'_>; 2],
    settings: &Settings<'_>,
    sample: Sample,
) -> Result<Sample> {
    let Settings { case, interval, switch, distance, stop } = *settings;
    let warm_up = Duration::from_secs_f64(case.warm_up_s);
    drain(directions, stop)?;
    cross(directions, case.rest, warm_up, stop, &mut crossings()?)?;
    let (before, processor) = (total(directions), switch.processor()?);
    let (mut slices, mut all, begin) = (Vec::new(), crossings()?, Instant::now());
    while begin.elapsed() < interval {
        std::thread::sleep(REST);
        let round_trip_ns = distance.round_trip_ns();
        let mut here = crossings()?;
        cross(directions, case.rest, SLICE, stop, &mut here)?;
        slices.push(Slice { value: microseconds(&here, 0.5), round_trip_ns });
        all.add(&here)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cores = switch.cores_since(&processor)?;
    let tally = total(directions).since(&before);
    let (value, p99) = (microseconds(&all, 0.5), Some(microseconds(&all, 0.99)));
    Ok(Sample { value, slices, p99, seconds, cores, tally, ..sample })
}

fn microseconds(crossings: &Histogram<u64>, quantile: f64) -> f64 {
    crossings.value_at_quantile(quantile) as f64 / 1e3
}

/// Returns an empty histogram of nanoseconds, up to [`LOSS_TIMEOUT`].
fn crossings() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(u64::try_from(LOSS_TIMEOUT.as_nanos())?, 3)?)
}

fn cross(
    directions: &mut [Direction<'_>; 2],
    rest: Duration,
    length: Duration,
    stop: &Stop,
    crossings: &mut Histogram<u64>,
) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < length {
        stop.check()?;
        for direction in directions.iter_mut() {
            // Spins, so that the generator's own wake-up is not measured.
            let rested = Instant::now();
            while rested.elapsed() < rest {
                std::hint::spin_loop();
            }
            crossings.saturating_record(u64::try_from(one_crossing(direction)?.as_nanos())?);
            direction.recycle()?;
        }
    }
    Ok(())
}

/// Returns the time from sending a frame to finding it on the other side. Notifies the switch if it
/// asks for that.
fn one_crossing(direction: &mut Direction<'_>) -> Result<Duration> {
    let sent = Instant::now();
    direction.send_at_most(1);
    direction.kick_if_wanted()?;
    let mut turns = 0u32;
    while direction.receive()? == 0 {
        turns += 1;
        if turns.is_multiple_of(IDLE_TURNS) {
            direction.kick_if_wanted()?;
            if sent.elapsed() > LOSS_TIMEOUT {
                bail!("a frame was lost: nothing got through within {LOSS_TIMEOUT:?}");
            }
        }
    }
    Ok(sent.elapsed())
}
