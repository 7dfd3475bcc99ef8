//! Median, quartiles and spread of one arm's samples.
//!
//! Medians are used instead of means, because one repeat in ten is far off on a shared machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where samples lie. Same unit as the samples.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Summary {
    /// How many samples.
    pub n: usize,
    /// Half lie below.
    pub median: f64,
    /// A quarter lies below.
    pub lower_quartile: f64,
    /// Three quarters lie below.
    pub upper_quartile: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Median absolute deviation from the median: half of the samples are nearer to the median than
    /// this.
    pub mad: f64,
}

impl Summary {
    /// Summarises samples. Those that are not finite are left out; `None` if none is left.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let sorted = sorted(samples);
        let median = quantile(&sorted, 0.5)?;
        let deviations: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        Some(Summary {
            n: sorted.len(),
            median,
            lower_quartile: quantile(&sorted, 0.25)?,
            upper_quartile: quantile(&sorted, 0.75)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            mad: self::median(&deviations)?,
        })
    }
}

/// Returns the median of the finite samples; `None` if there is none.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(&sorted(samples), 0.5)
}

/// Returns the value below which the `part` (0 to 1) of ascending samples lies, interpolated
/// linearly between two samples.
pub fn quantile(ascending: &[f64], part: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let place = part.clamp(0.0, 1.0) * last as f64;
    #[allow(clippy::cast_possible_truncation, reason = "between 0 and the last place")]
    let below = place.floor() as usize;
    let low = *ascending.get(below)?;
    let high = *ascending.get((below + 1).min(last))?;
    Some(low + (high - low) * (place - place.floor()))
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_five_figures_are_in_order(samples in prop::collection::vec(-1e6..1e6f64, 1..50)) {
            let s = Summary::of(&samples).unwrap();
            prop_assert!(s.min <= s.lower_quartile && s.lower_quartile <= s.median);
            prop_assert!(s.median <= s.upper_quartile && s.upper_quartile <= s.max);
            prop_assert!(s.mad >= 0.0 && s.mad <= s.max - s.min);
        }

        #[test]
        fn order_of_samples_and_unit_do_not_matter(
            mut samples in prop::collection::vec(0.0..1e6f64, 1..50), unit in 0.5..20.0f64
        ) {
            let forward = Summary::of(&samples).unwrap();
            samples.reverse();
            prop_assert_eq!(forward, Summary::of(&samples).unwrap());
            let scaled: Vec<f64> = samples.iter().map(|value| value * unit).collect();
            let scaled = Summary::of(&scaled).unwrap();
            prop_assert!((scaled.median - forward.median * unit).abs() <= 1e-6 * (1.0 + scaled.median));
        }
    }

    #[test]
    fn known_figures() {
        let s = Summary::of(&[5.0, 1.0, 2.0, f64::NAN, 4.0, 3.0]).unwrap();
        assert_eq!(
            (s.n, s.median, s.lower_quartile, s.upper_quartile, s.mad),
            (5, 3.0, 2.0, 4.0, 1.0)
        );
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }
}
