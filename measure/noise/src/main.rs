//! Measures two victims beside each of 20 attackers, all on one worker: how much of their rate and
//! latency the victims keep.
//!
//! The worker polls on one core. On another core one thread is all guests: it asks and answers
//! requests (10,000 a second), sends and receives trains (at half the rate it reaches alone), and
//! between two polls takes a short step of the attack. Victims are memory ports, since a victim's
//! own driver is not what is measured. Attackers are guests behind vhost-user, since rings are
//! their weapon.
//!
//! Latency counts only while the kernel leaves both cores to the worker and the guests, so that
//! other processes are not mistaken for an attacker. A repetition in which a hypervisor changes the
//! distance of the cores is left out, because copies then cost another time. The steps of the
//! attack delay the victims' polls too, so latency beside an attacker is overstated rather than
//! understated.

mod attack;
mod bed;
mod scattered;

use anyhow::{Context, Result, ensure};
use attack::{ATTACKS, Attack};
use bed::{Bed, Slice};
use clap::Parser;
use comfy_table::Table;
use datapath::RateLimit;
use distance::Distance;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// The cores have moved if the round trip of a cache line between them takes this many times longer
/// than it did before in the repetition.
const MOVED: f64 = 1.5;
/// Most repetitions left out, as a multiple of those wanted; beyond it the attacker misses its aim.
const LEFT_OUT_LIMIT: usize = 4;

/// Measures what victims lose beside attackers, prints a table, and fails if they lose too much.
///
/// Example: noise --repetitions 5 --only flood
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of times each attacker is measured: undisturbed, disturbed, disturbed, undisturbed,
    /// after the bulk's rate alone.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Length of each of these slices, in milliseconds.
    #[arg(long, default_value_t = 250)]
    slice_ms: u64,
    /// Only attackers whose names contain this text.
    #[arg(long)]
    only: Option<String>,
    /// The core of the worker.
    #[arg(long, default_value_t = 0)]
    switch_core: usize,
    /// The core of all guests.
    #[arg(long, default_value_t = 1)]
    guest_core: usize,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// One repetition.
struct Sample {
    /// Percent of the requests' and the trains' rate that is kept, relative to the undisturbed
    /// slices.
    requests_kept: f64,
    trains_kept: f64,
    /// Percent of the due trains that the guests' core sent beside the attacker: it also runs the
    /// attack.
    trains_sent: f64,
    /// 99th percentile of the round trip in µs.
    calm_p99: f64,
    noisy_p99: f64,
    /// Percent of the time that `noisy_p99` covers, see [`Slice::latency`].
    undisturbed: f64,
    attacker_per_s: f64,
    attacker_drops_per_s: f64,
    /// The longest round trip of a cache line, see [`Distance::round_trip_ns`].
    round_trip_ns: f64,
}

/// Distances of the cores in one repetition.
struct Apart<'d> {
    distance: &'d Distance,
    least: f64,
    most: f64,
}

impl Apart<'_> {
    fn look(&mut self) {
        let now = self.distance.round_trip_ns();
        (self.least, self.most) = (self.least.min(now), self.most.max(now));
    }
}

/// A median and the smallest and largest of its samples.
#[derive(Clone, Copy, Serialize)]
struct Middle {
    median: f64,
    least: f64,
    most: f64,
}

/// The result for one attacker.
#[derive(Serialize)]
struct Row {
    attacker: &'static str,
    samples: usize,
    /// Repetitions left out because the cores moved.
    left_out: usize,
    round_trip_ns: Middle,
    requests_kept_percent: Middle,
    trains_kept_percent: Middle,
    trains_sent_percent: Middle,
    calm_p99_us: Middle,
    noisy_p99_us: Middle,
    cores_ours_percent: Middle,
    attacker_frames_per_s: Middle,
    attacker_drops_per_s: Middle,
    missed: Vec<String>,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every victim kept what it should.
fn measure(arguments: &Arguments) -> Result<bool> {
    let wanted =
        |attack: &&Attack| arguments.only.as_ref().is_none_or(|only| attack.name.contains(only));
    let attacks: Vec<&Attack> = ATTACKS.iter().filter(wanted).collect();
    ensure!(!attacks.is_empty(), "no attacker is called {:?}", arguments.only);
    ensure!(arguments.repetitions > 0, "--repetitions is 0: the minimum is 1");
    let mut core = CpuSet::new();
    core.set(arguments.guest_core);
    sched_setaffinity(None, &core).with_context(|| format!("core {}", arguments.guest_core))?;
    let distance = Distance::from(arguments.switch_core)?;
    let mut rows = Vec::new();
    for attack in attacks {
        let row = against(attack, arguments, &distance)
            .with_context(|| format!("attacker {:?}", attack.name))?;
        let _ = writeln!(std::io::stderr(), "{}: {}", row.attacker, verdict(&row));
        rows.push(row);
    }
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        writeln!(out, "{}", table(&rows))?;
    }
    Ok(rows.iter().all(|row| row.missed.is_empty()))
}

fn against(attack: &Attack, arguments: &Arguments, distance: &Distance) -> Result<Row> {
    let limit = RateLimit { bits_per_second: 100_000_000, burst_bytes: 16_384 };
    let mut bed = Bed::new(arguments.switch_core, attack.limited.then_some(limit))?;
    let time = Duration::from_millis(arguments.slice_ms);
    // Caches and the processor's clock are cold at first, and half of too low a rate would be kept
    // easily.
    bed.most_trains(time);
    let (mut samples, mut left_out) = (Vec::new(), 0);
    while samples.len() < arguments.repetitions
        && left_out <= LEFT_OUT_LIMIT * arguments.repetitions
    {
        match sample(&mut bed, attack, time, distance)? {
            Some(sample) => samples.push(sample),
            None => left_out += 1,
        }
    }
    let mut row = row(attack, &samples, left_out);
    if samples.len() < arguments.repetitions {
        let stayed = samples.len();
        row.missed.push(format!("the cores stayed in place in {stayed} repetitions only"));
    }
    Ok(row)
}

/// Measures one repetition; `None` if the cores moved.
fn sample(
    bed: &mut Bed,
    attack: &Attack,
    time: Duration,
    distance: &Distance,
) -> Result<Option<Sample>> {
    let mut apart = Apart { distance, least: f64::MAX, most: 0.0 };
    apart.look();
    let trains = bed.most_trains(time) / 2.0;
    ensure!(trains > 0.0, "no train arrives even without an attack");
    apart.look();
    let first = bed.slice(time, trains, None)?;
    apart.look();
    let mut step = (attack.start)(bed)?;
    bed.settle();
    let mut beside = || {
        let slice = bed.slice(time, trains, Some(&mut *step));
        apart.look();
        slice
    };
    let noisy = [beside()?, beside()?];
    drop(step);
    bed.settle();
    let calm = [first, bed.slice(time, trains, None)?];
    apart.look();
    if apart.most > MOVED * apart.least {
        return Ok(None);
    }
    let sum = |slices: &[Slice], of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>() as f64;
    let rate = |slices: &[Slice], of| {
        sum(slices, of) / slices.iter().map(|slice| slice.seconds).sum::<f64>()
    };
    let kept = |of, due| {
        let share = |slices: &[Slice]| sum(slices, of) / sum(slices, due).max(1.0);
        100.0 * share(&noisy) / share(&calm).max(f64::MIN_POSITIVE)
    };
    Ok(Some(Sample {
        requests_kept: kept(|slice| slice.answers, |slice| slice.requests).min(
            100.0 * rate(&noisy, |slice| slice.answers)
                / rate(&calm, |slice| slice.answers).max(1.0),
        ),
        trains_kept: kept(|slice| slice.trains, |slice| slice.trains_sent),
        trains_sent: 100.0 * sum(&noisy, |slice| slice.trains_sent)
            / sum(&noisy, |slice| slice.trains_due).max(1.0),
        calm_p99: p99(&calm)?,
        noisy_p99: p99(&noisy)?,
        undisturbed: 100.0 * sum(&noisy, |slice| slice.undisturbed_windows)
            / sum(&noisy, |slice| slice.windows).max(1.0),
        attacker_per_s: rate(&noisy, |slice| slice.attacker_frames),
        attacker_drops_per_s: rate(&noisy, |slice| slice.attacker_drops),
        round_trip_ns: apart.most,
    }))
}

/// Returns the 99th percentile in µs; not a number if nothing was answered in an undisturbed
/// window.
fn p99(slices: &[Slice]) -> Result<f64> {
    let mut all = Histogram::<u64>::new(3)?;
    for slice in slices {
        all.add(&slice.latency)?;
    }
    Ok(if all.is_empty() { f64::NAN } else { all.value_at_quantile(0.99) as f64 / 1000.0 })
}

fn row(attack: &Attack, samples: &[Sample], left_out: usize) -> Row {
    let middle = |of: fn(&Sample) -> f64| {
        // Not a number means that this repetition has none.
        let mut values: Vec<f64> = samples.iter().map(of).filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        Middle {
            median: at(values.len() / 2),
            least: at(0),
            most: at(values.len().saturating_sub(1)),
        }
    };
    let mut row = Row {
        attacker: attack.name,
        samples: samples.len(),
        left_out,
        round_trip_ns: middle(|sample| sample.round_trip_ns),
        requests_kept_percent: middle(|sample| sample.requests_kept),
        trains_kept_percent: middle(|sample| sample.trains_kept),
        trains_sent_percent: middle(|sample| sample.trains_sent),
        calm_p99_us: middle(|sample| sample.calm_p99),
        noisy_p99_us: middle(|sample| sample.noisy_p99),
        cores_ours_percent: middle(|sample| sample.undisturbed),
        attacker_frames_per_s: middle(|sample| sample.attacker_per_s),
        attacker_drops_per_s: middle(|sample| sample.attacker_drops_per_s),
        missed: Vec::new(),
    };
    for (victim, kept) in
        [("requests", row.requests_kept_percent), ("bulk", row.trains_kept_percent)]
    {
        if kept.least == 0.0 {
            row.missed.push(format!("{victim} stopped"));
        } else if kept.median < 90.0 {
            row.missed.push(format!("{victim} kept {:.1} %, wanted 90", kept.median));
        }
    }
    let sent = row.trains_sent_percent.median;
    if sent < 90.0 {
        row.missed
            .push(format!("only {sent:.1} % of the bulk was sent: the guests' core had no time"));
    }
    if row.calm_p99_us.median.is_nan() || row.noisy_p99_us.median.is_nan() {
        row.missed.push("no latency: the cores were never ours for 5 ms".into());
    }
    let allowed = 2.0 * row.calm_p99_us.median + 100.0;
    if row.noisy_p99_us.median > allowed {
        row.missed.push(format!("p99 {:.0} µs, wanted {allowed:.0}", row.noisy_p99_us.median));
    }
    row
}

fn verdict(row: &Row) -> String {
    if row.missed.is_empty() { "held".into() } else { row.missed.join("; ") }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN).set_header([
        "Attacker",
        "requests kept %",
        "bulk kept %",
        "bulk sent %",
        "p99 alone µs",
        "p99 beside it µs",
        "cores ours %",
        "cores apart ns",
        "left out",
        "attacker frames/s",
        "of them dropped/s",
        "verdict",
    ]);
    let spread = |middle: Middle, digits: usize| {
        if middle.median.is_nan() {
            return "–".to_owned();
        }
        format!("{:.digits$} ({:.digits$}–{:.digits$})", middle.median, middle.least, middle.most)
    };
    for row in rows {
        table.add_row([
            row.attacker.to_owned(),
            spread(row.requests_kept_percent, 1),
            spread(row.trains_kept_percent, 1),
            spread(row.trains_sent_percent, 0),
            spread(row.calm_p99_us, 0),
            spread(row.noisy_p99_us, 0),
            spread(row.cores_ours_percent, 0),
            spread(row.round_trip_ns, 0),
            row.left_out.to_string(),
            spread(row.attacker_frames_per_s, 0),
            spread(row.attacker_drops_per_s, 0),
            verdict(row),
        ]);
    }
    table
}
