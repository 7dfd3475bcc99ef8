//! Experiments on the lab itself: how often the answer was right.

use super::Table;
use crate::experiments::itself::{Kind, Tally, found};
use crate::report::Report;
use crate::statistics::{Comparison, Summary};

/// A row for each kind of try.
pub(super) fn table(report: &Report) -> Table {
    let head = [
        "",
        "Right",
        "Tries",
        "Wanted",
        "Median difference (%)",
        "Widest interval (%)",
        "Pairs a try",
    ];
    Table {
        title: "Right answers, whole experiments of two arms each".to_owned(),
        head: head.map(str::to_owned).into(),
        rows: report.tries.iter().map(|tally| row(report, tally)).collect(),
    }
}

fn row(report: &Report, tally: &Tally) -> Vec<String> {
    let tries = of_kind(report, tally.kind);
    let widest = tries.iter().map(|found| found.interval.width()).fold(0.0, f64::max);
    let pairs: Vec<f64> = tries.iter().map(|found| found.pairs as f64).collect();
    let pairs = Summary::of(&pairs).map_or(String::new(), |pairs| {
        format!("{:.0} ({:.0}–{:.0})", pairs.median, pairs.min, pairs.max)
    });
    vec![
        tally.kind.words().to_owned(),
        tally.right.to_string(),
        tally.tries.to_string(),
        tally.wanted.to_string(),
        format!("{:+.2}", (tally.ratio - 1.0) * 100.0),
        format!("{:.1}", widest * 100.0),
        pairs,
    ]
}

/// What the tries of a kind found, in the order of time.
pub(in crate::report) fn of_kind(report: &Report, kind: Kind) -> Vec<Comparison> {
    let own = |case| found(case).filter(|(own, _)| *own == kind).map(|(_, found)| found);
    report.all_cases().iter().filter_map(own).collect()
}
