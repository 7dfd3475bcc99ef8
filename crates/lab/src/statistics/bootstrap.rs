//! Whether two arms differ: the median of paired ratios, and a bootstrap interval for it.
//!
//! Samples of one round stand side by side in time, so the ratio of each pair is free of slow drift; the median of
//! the pairs is free of the odd interval that a neighbour spoilt. The interval comes from drawing the pairs again
//! with replacement. Where it includes 1 the answer is [`Verdict::NoDifferenceSeen`], never a number to be proud of.
//!
//! How many pairs it takes was found by simulation (the tests below repeat it): with 2 % noise a sample, 5 % drift and
//! one sample in ten up to a third too low, **24 pairs** see a 5 % difference in more than 19 of 20 runs, and
//! see none in more than 19 of 20 where there is none. 16 pairs see it in 17 of 20. `millrace validate self` does the same with
//! a real load in place of simulated noise.

use super::summary::{median, quantile};
use serde::{Deserialize, Serialize};

/// Draws of the bootstrap.
const DRAWS: usize = 2000;
/// The interval holds the true ratio in this part of all experiments.
const CONFIDENCE: f64 = 0.99;
/// Of comparisons that no experiment names a seed for.
const SEED: u64 = 0x6d72;
/// Fewer pairs than this never show a difference: even if all agree, chance does the same one time in sixteen.
pub const FEWEST_PAIRS: usize = 5;
/// Largest ratio, and by its inverse the smallest: a stalled interval has none, and what has none cannot be ordered.
const MOST: f64 = 1000.0;

/// Which way a figure should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// CPU time, latency.
    Lower,
}

/// What may be said about an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies on the good side of 1.
    Improved,
    /// The whole interval lies on the bad side of 1.
    Worse,
    /// The interval includes 1: a difference, if there is one, is smaller than the noise.
    NoDifferenceSeen,
    /// Fewer pairs, or samples of a side, than [`FEWEST_PAIRS`]: nothing can be said.
    TooFewSamples,
}

/// From where to where a ratio may lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Upper end less lower end.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// One figure of two arms, compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Median of the ratios of pairs.
    pub ratio: f64,
    /// Ratio of the two medians, which is what the table's columns give when divided.
    pub ratio_of_medians: f64,
    /// Where the ratio lies in 99 of 100 experiments.
    pub interval: Interval,
    /// Pairs that went into it.
    pub pairs: usize,
    /// What may be said.
    pub verdict: Verdict,
}

/// What one sample is of another. A stall is a finding and no gap: nothing is a thousandth of something, and the same as
/// nothing.
fn ratio(on: f64, off: f64) -> f64 {
    if on <= 0.0 && off <= 0.0 { 1.0 } else { (on / off).clamp(1.0 / MOST, MOST) }
}

/// Compares two arms whose samples at the same place belong to the same round. Longer arms are cut to the shorter
/// one; pairs that are no numbers are left out. `None` where no pair is left.
pub fn compare(
    treatment: &[f64],
    baseline: &[f64],
    better: Better,
    seed: u64,
) -> Option<Comparison> {
    let pairs: Vec<(f64, f64)> = treatment
        .iter()
        .copied()
        .zip(baseline.iter().copied())
        .filter(|(on, off)| on.is_finite() && off.is_finite())
        .collect();
    let ratios: Vec<f64> = pairs.iter().map(|(on, off)| ratio(*on, *off)).collect();
    let (on, off): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let interval = interval(&ratios, seed)?;
    Some(Comparison {
        ratio: median(&ratios)?,
        ratio_of_medians: ratio(median(&on)?, median(&off)?),
        interval,
        pairs: ratios.len(),
        verdict: verdict(interval, ratios.len(), better),
    })
}

/// Compares two arms that were measured apart, whose samples are no pairs: the ratio of their medians. `None` where one of
/// them has no samples.
pub fn compare_independent(
    treatment: &[f64],
    baseline: &[f64],
    better: Better,
) -> Option<Comparison> {
    let found = ratio(median(treatment)?, median(baseline)?);
    let mut random = SplitMix(SEED);
    let mut ratios: Vec<f64> = (0..DRAWS)
        .filter_map(|_| Some(ratio(random.median_of(treatment)?, random.median_of(baseline)?)))
        .collect();
    let interval = middle(&mut ratios)?;
    let samples = treatment.len().min(baseline.len());
    Some(Comparison {
        ratio: found,
        ratio_of_medians: found,
        interval,
        pairs: samples,
        verdict: verdict(interval, samples, better),
    })
}

fn verdict(interval: Interval, pairs: usize, better: Better) -> Verdict {
    if pairs < FEWEST_PAIRS {
        Verdict::TooFewSamples
    } else if interval.low <= 1.0 && interval.high >= 1.0 {
        Verdict::NoDifferenceSeen
    } else if (interval.low > 1.0) == (better == Better::Higher) {
        Verdict::Improved
    } else {
        Verdict::Worse
    }
}

fn interval(ratios: &[f64], seed: u64) -> Option<Interval> {
    let mut random = SplitMix(seed);
    let mut medians: Vec<f64> = (0..DRAWS).filter_map(|_| random.median_of(ratios)).collect();
    middle(&mut medians)
}

/// From where to where all but the outermost values lie.
fn middle(values: &mut [f64]) -> Option<Interval> {
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Some(Interval { low: quantile(values, tail)?, high: quantile(values, 1.0 - tail)? })
}

/// Steele, Lea and Flood's SplitMix64: a few lines, and good enough to draw indices.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The median of as many samples, drawn with replacement.
    fn median_of(&mut self, samples: &[f64]) -> Option<f64> {
        let drawn: Vec<f64> = samples
            .iter()
            .filter_map(|_| samples.get(self.below(samples.len())))
            .copied()
            .collect();
        median(&drawn)
    }

    /// A number below `end`; 0 for an `end` of 0.
    #[allow(clippy::cast_possible_truncation, reason = "the high half of a product is below `end`")]
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Repetitions `validate` ships with.
    const SHIPPED: usize = crate::experiment::DEFAULT_REPETITIONS;

    impl SplitMix {
        fn unit(&mut self) -> f64 {
            (self.next() >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Nearly normal, mean 0, deviation 1: twelve uniform numbers.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
        }
    }

    /// A run of two arms in A B B A order: 2 % noise, up to 5 % drift, one sample in ten 10 to 35 % too low.
    fn simulate(treatment_factor: f64, rounds: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut random = SplitMix(seed);
        let drift = 0.1 * random.unit() - 0.05;
        let mut arms = (Vec::new(), Vec::new());
        for (time, (_, arm)) in crate::statistics::sequence(2, rounds).enumerate() {
            let mut value = 1000.0 * (1.0 + 0.02 * random.normal());
            value *= 1.0 + drift * time as f64 / (2 * rounds) as f64;
            if random.unit() < 0.1 {
                value *= 0.9 - 0.25 * random.unit();
            }
            if arm == 0 { arms.0.push(value * treatment_factor) } else { arms.1.push(value) }
        }
        arms
    }

    /// How many of 20 runs come to the wanted verdict, on average over 400.
    fn of_twenty(factor: f64, wanted: Verdict) -> f64 {
        let come_to_it = |seed: &u64| {
            let (on, off) = simulate(factor, SHIPPED, 77 + seed);
            compare(&on, &off, Better::Higher, 1).is_some_and(|found| found.verdict == wanted)
        };
        (0..400).filter(come_to_it).count() as f64 / 20.0
    }

    #[test]
    fn the_same_thing_twice_shows_no_difference() {
        let quiet = of_twenty(1.0, Verdict::NoDifferenceSeen);
        assert!(quiet >= 19.0, "{quiet} of 20");
    }

    #[test]
    fn five_percent_slower_is_seen() {
        let seen = of_twenty(0.95, Verdict::Worse);
        assert!(seen >= 19.0, "{seen} of 20");
    }

    proptest! {
        #[test]
        fn interval_holds_the_ratio_and_swapping_arms_inverts_it(
            pairs in prop::collection::vec((1.0..1e3f64, 1.0..1e3f64), 5..30)
        ) {
            let (on, off): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let forward = compare(&on, &off, Better::Higher, 3).unwrap();
            prop_assert!(forward.interval.low <= forward.ratio && forward.ratio <= forward.interval.high);
            // An odd number of pairs has a middle one, whose ratio simply turns over.
            if on.len() % 2 == 1 {
                let backward = compare(&off, &on, Better::Higher, 3).unwrap();
                prop_assert!((forward.ratio * backward.ratio - 1.0).abs() < 1e-9);
            }
        }

        #[test]
        fn a_constant_factor_is_found_exactly(
            off in prop::collection::vec(1.0..1e3f64, 5..20), factor in 1.01..3.0f64
        ) {
            let on: Vec<f64> = off.iter().map(|value| value * factor).collect();
            let found = compare(&on, &off, Better::Higher, 9).unwrap();
            prop_assert!((found.ratio - factor).abs() < 1e-9 && found.interval.width() < 1e-9);
            prop_assert_eq!(found.verdict, Verdict::Improved);
            prop_assert_eq!(compare(&on, &off, Better::Lower, 9).unwrap().verdict, Verdict::Worse);
        }
    }

    #[test]
    fn runs_apart_differ_beyond_the_usual_tolerance_only_where_something_changed() {
        // Machines drift between runs, which no interval of either knows: hence the tolerance.
        let regression = |factor: f64, seed: u64| {
            let (now, before) =
                (simulate(factor, SHIPPED, seed).0, simulate(1.0, SHIPPED, seed + 1).0);
            let found = compare_independent(&now, &before, Better::Higher).unwrap();
            found.verdict == Verdict::Worse && found.ratio < 0.95
        };
        let seeds = || (0..200).map(|seed| 2 * seed);
        let alarms = seeds().filter(|seed| regression(1.0, *seed)).count();
        let found = seeds().filter(|seed| regression(0.88, *seed)).count();
        assert!(alarms <= 10 && found >= 190, "{alarms} and {found} of 200");
        assert_eq!(compare_independent(&[], &[1.0], Better::Higher), None);
    }

    #[test]
    fn few_pairs_claim_nothing() {
        let found = compare(&[2.0; 4], &[1.0; 4], Better::Higher, 1).unwrap();
        assert_eq!(found.verdict, Verdict::TooFewSamples);
        assert_eq!(compare(&[], &[], Better::Higher, 1), None);
    }

    #[test]
    fn a_stalled_arm_is_worse_and_none_of_its_pairs_is_left_out() {
        for stalls in [6, 12] {
            let stalled: Vec<f64> = (0..12).map(|i| if i < stalls { 0.0 } else { 1.0 }).collect();
            let found = compare(&stalled, &[2.0; 12], Better::Higher, 1).unwrap();
            assert_eq!((found.pairs, found.verdict), (12, Verdict::Worse));
            let apart = compare_independent(&stalled, &[2.0; 12], Better::Higher).unwrap();
            assert_eq!(apart.verdict, Verdict::Worse);
        }
        let found = compare(&[1.0; 12], &[0.0; 12], Better::Higher, 1).unwrap();
        assert_eq!((found.ratio, found.verdict), (MOST, Verdict::Improved));
        let both = compare(&[0.0; 12], &[0.0; 12], Better::Higher, 1).unwrap();
        assert_eq!((both.ratio, both.verdict), (1.0, Verdict::NoDifferenceSeen));
    }
}
