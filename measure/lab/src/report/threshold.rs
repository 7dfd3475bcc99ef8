//! Conditions under which a report fails, for CI: `throughput < 2.0x`.

use super::verdict::level;
use super::{Case, Report};
use crate::LabError;
use crate::measure::Measure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statistics::{Comparison, Verdict};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A bound on the ratio of the first arm to the one it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// Key of the comparison, such as `throughput`.
    pub measure: String,
    /// Whether the report fails below the ratio, rather than above it.
    pub below: bool,
    /// Ratio of the first arm to the baseline; 1 is no difference.
    pub ratio: f64,
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Threshold { measure, below, ratio } = self;
        write!(f, "{measure} {} {ratio}x", if *below { '<' } else { '>' })
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let form = "write a figure, < or >, and a ratio, such as 'throughput < 2.0x'";
        let place = text.find(['<', '>']).ok_or_else(|| format!("no < or > in it: {form}"))?;
        let (measure, rest) = text.split_at(place);
        let value = rest.get(1..).unwrap_or_default().trim();
        let ratio = value.strip_suffix('x').and_then(|number| number.trim_end().parse().ok());
        let ratio = ratio
            .filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0)
            .ok_or_else(|| format!("{value:?} is not a ratio: {form}"))?;
        let measure = measure.trim().to_owned();
        if measure.is_empty() {
            return Err(format!("no figure before {value:?}: {form}"));
        }
        Ok(Threshold { measure, below: rest.starts_with('<'), ratio })
    }
}

/// Result of a threshold for one load.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Held {
    /// The condition, such as `throughput < 2x`.
    pub condition: String,
    /// The load in words.
    pub load: String,
    /// Whether the report fails: the condition holds, or cannot be evaluated.
    pub met: bool,
    /// The ratio with its interval, or why there is none.
    pub seen: String,
}

/// Refuses thresholds of figures that are not compared. `known` are the compared measures.
///
/// # Errors
/// [`LabError::Threshold`] for the first unknown figure.
pub(crate) fn check(thresholds: &[Threshold], known: &[&Measure]) -> Result<(), LabError> {
    let keys: BTreeSet<&str> = known.iter().map(|measure| measure.improvement).collect();
    match thresholds.iter().find(|one| !keys.contains(one.measure.as_str())) {
        None => Ok(()),
        Some(one) if keys.is_empty() => {
            Err(LabError::Threshold(format!("{one}: this experiment compares nothing")))
        }
        Some(one) => Err(LabError::Threshold(format!(
            "{one}: this experiment has no figure `{}`; it has {}",
            one.measure,
            keys.into_iter().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// Evaluates each threshold for each load that has its figure. A threshold without such a load
/// yields one result, which fails.
pub(crate) fn evaluate(thresholds: &[Threshold], report: &Report) -> Vec<Held> {
    let mut all = Vec::new();
    for one in thresholds {
        let has_figure = |measures: &[Measure]| {
            measures.iter().any(|measure| measure.improvement == one.measure)
        };
        let bulk = report.cases.iter().filter(|_| has_figure(report.measures));
        let trips = report.latency.iter().filter(|_| has_figure(report.latency_measures));
        let before = all.len();
        all.extend(bulk.chain(trips).map(|case| one.evaluate(case)));
        if all.len() == before {
            all.push(one.unmeasured("no load".to_owned()));
        }
    }
    all
}

impl Threshold {
    /// Evaluates the condition for a load.
    fn evaluate(&self, case: &Case) -> Held {
        let load = case.setting.words();
        match case.comparisons.get(&self.measure) {
            Some(found) if found.verdict != Verdict::TooFewSamples => self.judge(load, found),
            Some(_) => Held { seen: "too few rounds to tell".into(), ..self.unmeasured(load) },
            None => self.unmeasured(load),
        }
    }

    /// Returns the result for a load without the figure.
    fn unmeasured(&self, load: String) -> Held {
        Held { condition: self.to_string(), load, met: true, seen: "not measured".into() }
    }

    fn judge(&self, load: String, found: &Comparison) -> Held {
        let Comparison { ratio, interval, .. } = found;
        let met = if self.below { *ratio < self.ratio } else { *ratio > self.ratio };
        let (low, high, level) = (interval.low, interval.high, level(found.level));
        let seen = format!("{ratio:.3}x ({low:.3}x to {high:.3}x at {level} %)");
        Held { condition: self.to_string(), load, met, seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_read_and_written() {
        for (text, measure, below, ratio) in [
            ("throughput < 2.0x", "throughput", true, 2.0),
            ("cycles_per_byte>0.5x", "cycles_per_byte", false, 0.5),
            (" latency_p99 >  1.1 x ", "latency_p99", false, 1.1),
        ] {
            let wanted = Threshold { measure: measure.into(), below, ratio };
            assert_eq!(text.parse::<Threshold>().unwrap(), wanted);
            assert_eq!(wanted.to_string().parse::<Threshold>().unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_no_threshold_is_refused_with_a_form_to_follow() {
        for text in [
            "",
            "throughput",
            "throughput < 2",
            "< 2x",
            "throughput < x",
            "a < -1x",
            "a < NaNx",
            "a < infx",
        ] {
            let why = text.parse::<Threshold>().unwrap_err();
            assert!(why.contains("throughput < 2.0x"), "{text}: {why}");
        }
    }
}
