//! Verdicts in words, for tables, sentences and the comparison of two reports.

use crate::measure::Measure;
use statistics::{CONFIDENCE, Comparison, Verdict};

/// Returns the name of a figure in a sentence, and the words for more and for less of it.
pub(super) fn nouns(measure: &Measure) -> (&'static str, &'static str, &'static str) {
    match measure.improvement {
        "throughput" => ("throughput", "higher", "lower"),
        "cpu_percent" => ("CPU", "more", "less"),
        "cycles_per_byte" => ("cycles per byte", "more", "fewer"),
        "receiving_cpu" => ("receiving CPU", "more", "less"),
        "low_switch_cpu" => ("CPU of the switch at 100 Mb/s", "more", "less"),
        "latency_median" => ("median round trip", "longer", "shorter"),
        "latency_p99" => ("99th percentile of round trips", "longer", "shorter"),
        "total" => ("time of a migration", "longer", "shorter"),
        "rate" => ("rate", "higher", "lower"),
        "cpu" => ("CPU per GiB", "more", "less"),
        "downtime" => ("downtime", "longer", "shorter"),
        "ping_outage" => ("ping outage", "longer", "shorter"),
        "outage_ratio" => ("outage against downtime", "more", "less"),
        "gap" => ("gap of frames", "longer", "shorter"),
        _ => (measure.label, "higher", "lower"),
    }
}

/// Returns `54.8 % fewer`, `2.20x`, or that no difference was seen.
pub(super) fn change(measure: &Measure, found: &Comparison) -> String {
    let (_, more, less) = nouns(measure);
    let percent = (found.ratio - 1.0) * 100.0;
    match found.verdict {
        Verdict::TooFewSamples => "too few rounds to tell".to_owned(),
        Verdict::Equivalent => {
            format!("no difference above {:.0} %", found.equal_within.unwrap_or_default() * 100.0)
        }
        Verdict::NoDifferenceSeen if found.equal_within.is_some() => {
            format!("not known to within {:.0} %", found.equal_within.unwrap_or_default() * 100.0)
        }
        Verdict::NoDifferenceSeen => "no difference seen".to_owned(),
        _ if found.ratio >= 2.0 => format!("{:.2}x", found.ratio),
        _ if percent > 0.0 => format!("{percent:.1} % {more}"),
        _ => format!("{:.1} % {less}", -percent),
    }
}

/// Returns the CSS class of a verdict.
pub(super) fn class(found: &Comparison) -> &'static str {
    match found.verdict {
        Verdict::Improved => "better",
        Verdict::Worse => "worse",
        _ => "open",
    }
}

/// Returns ` (at 93.75 %)` for a verdict with too few pairs for the usual level.
fn doubt(found: &Comparison) -> String {
    let weak = found.level < CONFIDENCE && found.verdict != Verdict::TooFewSamples;
    if weak { format!(" (at {} %)", level(found.level)) } else { String::new() }
}

/// Returns `29.6 % higher`, with its level if that is below the usual one.
pub(super) fn brief(measure: &Measure, found: &Comparison) -> String {
    verdict(measure, found) + &doubt(found)
}

/// Returns `29.6 % higher`, `100.0 % longer, worse`, or that there is no verdict.
fn verdict(measure: &Measure, found: &Comparison) -> String {
    let worse = if found.verdict == Verdict::Worse { ", worse" } else { "" };
    format!("{}{worse}", change(measure, found))
}

/// Returns a verdict with its interval: `29.6 % higher (+27.0 to +31.2 at 99.33 %)`.
pub(super) fn with_interval(measure: &Measure, found: &Comparison) -> String {
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    let (low, high) = (percent(found.interval.low), percent(found.interval.high));
    format!("{} ({low} to {high} at {} %)", verdict(measure, found), level(found.level))
}

/// Returns a level in per cent, never rounded up.
pub(crate) fn level(level: f64) -> String {
    format!("{}", ((level * 1e4).floor() / 100.0).min(99.99))
}
