//! The table of the uplink case: a line for each arm, with Millrace's ratios to each arm of Open
//! vSwitch.

use super::{Arm, Measurement, Sample};
use crate::peer::Peer;
use comfy_table::Table;
use serde::Serialize;
use statistics::{Better, Comparison, Interval, Summary, compare};

/// Figures of an arm. Absent values were not measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    arm: Arm,
    /// Number of samples.
    n: usize,
    /// Gigabits of payload that arrived per second.
    rate: Option<Summary>,
    /// Million frames that the guest received per second.
    frames: Option<Summary>,
    /// Fraction of segments that did not arrive.
    lost: Option<Summary>,
    /// Processor seconds of the switch per GiB that arrived.
    cost: Option<Summary>,
    /// Gigabits of payload per second while the switch works off a full ring.
    backlog: Option<Summary>,
    /// Millrace's rates divided by those of each other switch.
    against: Vec<Ratio>,
}

/// A ratio of rates, paired by round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    to: &'static str,
    rate: Comparison,
    backlog: Comparison,
}

/// Returns a row for each measured arm.
pub(crate) fn rows(measurements: &[Measurement]) -> Vec<Row> {
    let arms = super::ARMS.into_iter().filter(|arm| measurements.iter().any(|one| one.arm == *arm));
    arms.clone().map(|arm| row(arm, arms.clone(), measurements)).collect()
}

fn row(arm: Arm, arms: impl Iterator<Item = Arm>, measurements: &[Measurement]) -> Row {
    let others = arms.filter(|other| arm.peer != Peer::Ovs && other.peer == Peer::Ovs);
    let of = |value: fn(&Sample) -> f64| {
        let samples =
            measurements.iter().filter(|one| one.arm == arm).filter_map(|one| one.outcome.sample());
        Summary::of(&samples.map(value).collect::<Vec<_>>())
    };
    let rate = of(Sample::rate);
    Row {
        arm,
        n: rate.map_or(0, |rate| rate.n),
        rate,
        frames: of(|sample| sample.frames as f64 / 1e6 / sample.seconds),
        lost: of(Sample::lost),
        cost: of(Sample::cost),
        backlog: of(Sample::backlog_rate),
        against: others.filter_map(|other| ratio(arm, other, measurements)).collect(),
    }
}

fn ratio(arm: Arm, other: Arm, measurements: &[Measurement]) -> Option<Ratio> {
    let rate = compared(arm, other, measurements, Sample::rate)?;
    let backlog = compared(arm, other, measurements, Sample::backlog_rate)?;
    Some(Ratio { to: other.name, rate, backlog })
}

fn compared(
    arm: Arm,
    other: Arm,
    measurements: &[Measurement],
    of: fn(&Sample) -> f64,
) -> Option<Comparison> {
    let at = |arm: Arm, round: usize| {
        let mut here = measurements.iter().filter(|one| one.arm == arm && one.round == round);
        Some(of(here.next()?.outcome.sample()?))
    };
    let rounds = measurements.iter().map(|one| one.round).max()?;
    let (ours, theirs): (Vec<f64>, Vec<f64>) =
        (0..=rounds).filter_map(|round| Some((at(arm, round)?, at(other, round)?))).unzip();
    compare(&ours, &theirs, Better::Higher.into())
}

/// Returns the table as text: medians with minimum and maximum, ratios with their intervals.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let compared =
        |arm: &&Arm| rows.iter().flat_map(|row| &row.against).any(|ratio| ratio.to == arm.name);
    let others: Vec<&str> = super::ARMS.iter().filter(compared).map(|arm| arm.name).collect();
    let columns = [super::NAME, "n", "Gb/s", "Lost, %", "Mframes/s", "s/GiB"];
    let against = others.iter().map(|name| format!("to {name}"));
    let full = others.iter().map(|name| format!("backlog to {name}"));
    let header = columns.map(str::to_owned).into_iter().chain(against);
    table.set_header(header.chain(["Backlog, Gb/s".to_owned()]).chain(full));
    for row in rows {
        table.add_row(row.line(&others));
    }
    table.to_string()
}

impl Row {
    fn line(&self, others: &[&str]) -> Vec<String> {
        let against = |of: fn(&Ratio) -> Comparison| {
            others.iter().map(move |name| {
                let found = self.against.iter().find(|ratio| ratio.to == *name);
                found.map_or("–".to_owned(), |found| told(of(found)))
            })
        };
        let mut line = vec![self.arm.name.to_owned(), self.n.to_string()];
        line.extend([range(self.rate, 1.0), range(self.lost, 100.0)]);
        line.extend([range(self.frames, 1.0), range(self.cost, 1.0)]);
        line.extend(against(|ratio| ratio.rate));
        line.push(range(self.backlog, 1.0));
        line.extend(against(|ratio| ratio.backlog));
        line
    }
}

fn told(comparison: Comparison) -> String {
    let Interval { low, high } = comparison.interval;
    format!("{:.2} ({low:.2}–{high:.2})", comparison.ratio)
}

fn range(summary: Option<Summary>, scale: f64) -> String {
    summary.map_or("–".to_owned(), |Summary { median, min, max, .. }| {
        format!("{:.2} ({:.2}–{:.2})", median * scale, min * scale, max * scale)
    })
}
