//! Experiments on the lab itself: how often the answer was right.

use super::Table;
use crate::experiments::itself::{Tally, of_kind};
use crate::report::Report;
use crate::statistics::Summary;

/// A row for each kind of try.
pub(super) fn table(report: &Report) -> Table {
    let head = [
        "",
        "Right",
        "Undecided",
        "Tries",
        "Wanted",
        "Median difference (%)",
        "Widest interval (%)",
        "Pairs a try",
    ];
    Table {
        title: "Correct answers, whole experiments of two arms each".to_owned(),
        head: head.map(str::to_owned).into(),
        rows: report.tries.iter().map(|tally| row(report, tally)).collect(),
    }
}

fn row(report: &Report, tally: &Tally) -> Vec<String> {
    let tries = of_kind(report.all_cases(), tally.kind);
    let widest = tries.iter().map(|one| one.found.interval.width()).fold(0.0, f64::max);
    let pairs: Vec<f64> = tries.iter().map(|one| one.found.pairs as f64).collect();
    let pairs = Summary::of(&pairs).map_or(String::new(), |pairs| {
        format!("{:.0} ({:.0}–{:.0})", pairs.median, pairs.min, pairs.max)
    });
    vec![
        tally.kind.words().to_owned(),
        tally.right.to_string(),
        tally.undecided.to_string(),
        tally.tries.to_string(),
        tally.wanted.to_string(),
        format!("{:+.2}", (tally.ratio - 1.0) * 100.0),
        format!("{:.1}", widest * 100.0),
        pairs,
    ]
}
