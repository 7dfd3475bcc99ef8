//! Generated loads. Each begins with 10 s and ends with 20 s of rest, in which vNICs send only
//! single frames.

use crate::cost;
use crate::load::{Load, Unit};
use crate::machine::Machine;
use balance::{ItemId, Part};
use fastrand::Rng;
use std::time::Duration;

/// Time for which the demand is constant.
const EPOCH: Duration = Duration::from_millis(20);

/// Epochs in a second.
const EPOCHS_PER_SECOND: usize = 50;

/// Epochs of rest at the beginning of a load.
const REST_BEFORE: usize = 10 * EPOCHS_PER_SECOND;
/// Epochs of rest at the end of a load.
const REST_AFTER: usize = 20 * EPOCHS_PER_SECOND;

/// Frames a second of a vNIC at rest.
const RESTING: f64 = 20.0;

/// A kind of generated load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// 1,000 guests whose demands all rise and fall at the same time.
    Steps,
    /// 1,000 guests, 400 of which send in bursts.
    Bursts,
    /// 1,000 guests over two days.
    Diurnal,
    /// 40 guests that want most of a worker each, 200 that want a tenth, and 760 that want little.
    /// The roles change every 30 s.
    Elephants,
    /// 10,000 connections through 8 vNICs at an uplink.
    Connections,
    /// One vNIC at an uplink that needs most of the machine.
    One,
}

/// The duration of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadLength {
    /// 300 s, in which Open vSwitch may rebalance four times.
    Whole,
    /// 90 s, in which Open vSwitch may rebalance once.
    Quick,
}

impl Generated {
    /// All kinds of generated loads.
    pub const ALL: [Generated; 6] = [
        Generated::Steps,
        Generated::Bursts,
        Generated::Diurnal,
        Generated::Elephants,
        Generated::Connections,
        Generated::One,
    ];

    /// Returns the name of the load.
    pub fn name(self) -> &'static str {
        match self {
            Generated::Steps => "steps",
            Generated::Bursts => "bursts",
            Generated::Diurnal => "diurnal",
            Generated::Elephants => "elephants",
            Generated::Connections => "connections",
            Generated::One => "one",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Generated::Steps => "1,000 guests; 20 %, 80 % and 40 % of the machine in turn",
            Generated::Bursts => {
                "1,000 guests, 400 of which send for 0.2 to 1 s and pause for 0.5 to 3 s"
            }
            Generated::Diurnal => "1,000 guests through two days of 15 to 75 % of the machine",
            Generated::Elephants => {
                "40 guests of 0.8 worker each, 200 of 0.1 and 760 mice; every 30 s others"
            }
            Generated::Connections => {
                "10,000 connections of unequal rates through 8 vNICs at an uplink"
            }
            Generated::One => "one vNIC at an uplink, 5,000 connections that want 44 workers",
        }
    }

    /// Generates the load; a seed always gives the same load.
    pub fn load(self, machine: &Machine, length: LoadLength, seed: u64) -> Load {
        let mut random = Rng::with_seed(seed);
        let seconds = match length {
            LoadLength::Whole => 300,
            LoadLength::Quick => 90,
        };
        let busy = seconds * EPOCHS_PER_SECOND - REST_BEFORE - REST_AFTER;
        let (units, rows) = match self {
            Generated::Steps => (guests(machine), steps(&mut random, busy)),
            Generated::Bursts => (guests(machine), bursts(&mut random, busy)),
            Generated::Diurnal => (guests(machine), diurnal(&mut random, busy)),
            Generated::Elephants => (guests(machine), elephants(&mut random, busy)),
            Generated::Connections => {
                (entries(machine, 8, 16), connections(&mut random, busy, 8, 10_000, 40.0))
            }
            Generated::One => {
                (entries(machine, 1, 64), connections(&mut random, busy, 1, 5_000, 44.0))
            }
        };
        let rest = vec![cost::lone(RESTING) / per_vnic(&units); units.len()];
        let mut load = Load {
            name: self.name().to_owned(),
            description: self.description().to_owned(),
            epoch: EPOCH,
            units,
            rows: vec![rest],
            timeline: vec![0; REST_BEFORE],
            rises: Vec::new(),
            at_rest: Vec::new(),
        };
        for Row { epochs, wanted } in rows {
            load.timeline.extend(vec![load.rows.len(); epochs]);
            load.rows.push(wanted);
        }
        load.timeline.truncate(REST_BEFORE + busy);
        load.timeline.extend([0; REST_AFTER]);
        load.find_phases();
        load
    }
}

/// Demand of all units over a number of epochs.
struct Row {
    epochs: usize,
    wanted: Vec<f64>,
}

/// Number of guests in the loads of many guests.
const GUESTS: usize = 1000;

/// Returns the number of units of a vNIC.
#[allow(clippy::cast_precision_loss, reason = "few")]
fn per_vnic(units: &[Unit]) -> f64 {
    let first = units.first().map(|unit| unit.id.vnic);
    units.iter().filter(|unit| Some(unit.id.vnic) == first).count().max(1) as f64
}

/// Makes guests of one queue each, in turn on each node.
fn guests(machine: &Machine) -> Vec<Unit> {
    let unit = |(queue, vnic): (usize, u32)| Unit {
        id: ItemId { vnic, part: Part::Queue(0) },
        queue,
        home: Some(queue % machine.nodes),
    };
    (0..GUESTS).zip(0..).map(unit).collect()
}

/// Makes the 128 entries of each vNIC's table. They point to `queues` queues of the vNIC for the
/// algorithms that move whole queues.
fn entries(machine: &Machine, vnics: u32, queues: usize) -> Vec<Unit> {
    let unit = |vnic: u32, entry: u8| Unit {
        id: ItemId { vnic, part: Part::Entry(entry) },
        queue: vnic as usize * queues + usize::from(entry) % queues,
        home: Some(vnic as usize % machine.nodes),
    };
    (0..vnics).flat_map(|vnic| (0..128).map(move |entry| unit(vnic, entry))).collect()
}

/// Returns demands of guests that send frames of 512 bytes: at most 700,000 a second, times a
/// guest's factor of 0.5 to 1.5.
fn steps(random: &mut Rng, busy: usize) -> Vec<Row> {
    let weights: Vec<f64> = (0..GUESTS).map(|_| 0.5 + random.f64()).collect();
    let of = |(tenths, level): (usize, f64)| Row {
        epochs: busy * tenths / 10,
        wanted: weights
            .iter()
            .map(|weight| cost::share(700_000.0 * level * weight, 512.0))
            .collect(),
    };
    [(2, 0.25), (4, 1.0), (2, 0.5), (1, 0.25), (1, 1.0)].map(of).into()
}

/// Returns demands of guests that send frames of 64 bytes: 10 million a second in a burst, and
/// 2,000 a second always.
fn bursts(random: &mut Rng, busy: usize) -> Vec<Row> {
    const TENTH: usize = EPOCHS_PER_SECOND / 10;
    let mut sends = vec![(false, 0); 400];
    sends.iter_mut().for_each(|guest| guest.1 = random.usize(0..30));
    let mut row = || {
        let mut wanted = vec![cost::share(2_000.0, 64.0); GUESTS];
        for (guest, (is_sending, left)) in sends.iter_mut().enumerate() {
            if *left == 0 {
                *is_sending = !*is_sending;
                *left = if *is_sending { random.usize(2..=10) } else { random.usize(5..=30) };
            }
            *left -= 1;
            if *is_sending {
                wanted[guest] += cost::share(10e6, 64.0);
            }
        }
        Row { epochs: TENTH, wanted }
    };
    (0..busy.div_ceil(TENTH)).map(|_| row()).collect()
}

/// Returns demands over two days, of which a second stands for about six minutes. Mean demands of
/// guests differ by up to 20 times, and each guest's varies independently.
#[allow(clippy::cast_precision_loss, reason = "few")]
fn diurnal(random: &mut Rng, busy: usize) -> Vec<Row> {
    let weights: Vec<f64> = (0..GUESTS).map(|_| 0.1 * 20.0f64.powf(random.f64())).collect();
    let mean = weights.iter().sum::<f64>() / GUESTS as f64;
    let seconds = busy.div_ceil(EPOCHS_PER_SECOND);
    let row = |second: usize| {
        let hour = second as f64 / seconds as f64 * 2.0 * std::f64::consts::TAU;
        let level = 0.45 - 0.3 * hour.cos();
        let of = |weight: &f64| {
            cost::share(880_000.0 * level * weight / mean * (0.7 + 0.6 * random.f64()), 512.0)
        };
        Row { epochs: EPOCHS_PER_SECOND, wanted: weights.iter().map(of).collect() }
    };
    (0..seconds).map(row).collect()
}

/// Returns demands of guests with large flows, which send trains of 64 KiB, and of others, which
/// send frames of 1500 or 256 bytes.
fn elephants(random: &mut Rng, busy: usize) -> Vec<Row> {
    let mut row = || {
        let mut guests: Vec<usize> = (0..GUESTS).collect();
        random.shuffle(&mut guests);
        let mut wanted = vec![cost::share(20_000.0, 256.0); GUESTS];
        guests[..40].iter().for_each(|guest| wanted[*guest] = cost::share(438_000.0, 65536.0));
        guests[40..240].iter().for_each(|guest| wanted[*guest] = cost::share(1_050_000.0, 1500.0));
        Row { epochs: 30 * EPOCHS_PER_SECOND, wanted }
    };
    (0..busy.div_ceil(30 * EPOCHS_PER_SECOND)).map(|_| row()).collect()
}

/// Returns demands of connections whose rates are Pareto-distributed with exponent 1.2, as in
/// reality. Each takes at most half a worker, all together `workers`. Every 20 s a tenth of the
/// connections is replaced.
fn connections(
    random: &mut Rng,
    busy: usize,
    vnics: usize,
    count: usize,
    workers: f64,
) -> Vec<Row> {
    let frames: Vec<f64> = (0..count).map(|_| random.f64().max(1e-6).powf(-1.0 / 1.2)).collect();
    let cost: Vec<f64> =
        frames.iter().map(|rate| cost::share_of_many(1000.0 * rate, 1500.0)).collect();
    let scale = scale(&cost, workers);
    let mut entry: Vec<usize> = (0..count).map(|_| random.usize(0..vnics * 128)).collect();
    let mut row = || {
        let mut wanted = vec![0.0; vnics * 128];
        for (place, share) in entry.iter_mut().zip(&cost) {
            if random.u8(0..10) == 0 {
                *place = random.usize(0..vnics * 128);
            }
            wanted[*place] += (share * scale).min(0.5);
        }
        Row { epochs: 20 * EPOCHS_PER_SECOND, wanted }
    };
    (0..busy.div_ceil(20 * EPOCHS_PER_SECOND)).map(|_| row()).collect()
}

/// Returns the factor that scales the shares to `sum`, with each at most a half.
fn scale(shares: &[f64], sum: f64) -> f64 {
    let total = |scale: f64| shares.iter().map(|share| (share * scale).min(0.5)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if total(middle) < sum { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_fit_the_machine_and_have_rests_and_rises() {
        let machine = Machine::default();
        for kind in Generated::ALL {
            let load = kind.load(&machine, LoadLength::Quick, 1);
            let most = load.rows.iter().map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max);
            let at_rest: f64 = load.rows[0].iter().sum();
            // Bursts that may coincide need more than the machine has.
            let limit = if kind == Generated::Bursts { 80.0 } else { 60.0 };
            assert!((20.0..limit).contains(&most), "{kind:?}: {most}");
            assert!(
                at_rest < 0.1 && load.at_rest.iter().any(|rests| *rests),
                "{kind:?}: {at_rest}"
            );
            assert!(!load.rises.is_empty(), "{kind:?}");
            assert_eq!(load.duration(), Duration::from_secs(90), "{kind:?}");
        }
    }

    #[test]
    fn the_seed_makes_the_load() {
        let make = |seed| Generated::One.load(&Machine::default(), LoadLength::Quick, seed).rows;
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }
}
