//! Decides whether two arms differ, by the median of paired ratios and the exact confidence
//! interval of a median.
//!
//! Samples of one round are close in time, so the ratio of each pair is free of slow drift. The
//! median of the ratios is robust against single intervals that other load disturbed. The interval
//! is that of the sign test: it runs from one of the sorted ratios to another, the same number of
//! places from either end. So the probability that it contains the true median is known exactly for
//! any noise, and is reported as its level. If the interval includes 1, the answer is
//! [`Verdict::NoDifferenceSeen`]. Several verdicts together are held to the confidence of one by
//! Holm's correction ([`holm`]).
//!
//! The number of pairs needed was found by simulation, which the tests below repeat. With 2 % noise
//! of each sample, 5 % drift and one sample in ten up to a third too low, **26 pairs** show a 5 %
//! difference in more than 19 of 20 runs, and show none in more than 19 of 20 runs without a
//! difference. `millrace validate self` measures this with a real load in place of simulated noise.

use super::summary::median;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Confidence level that an interval has at least, if there are enough samples for it: 8 pairs.
pub const CONFIDENCE: f64 = 0.99;
/// Fewer pairs than this never show a difference: even if all agree, that happens by chance one
/// time in eight.
pub const FEWEST_PAIRS: usize = 5;
/// Intervals per arm that show a 5 % difference, as the simulation in this file's tests proves.
pub const DEFAULT_REPETITIONS: usize = 26;
/// Largest ratio; its inverse is the smallest. A ratio with a stalled interval is cut to these, so
/// that it can be sorted.
const MOST: f64 = 1000.0;

/// Which way a figure should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// CPU time, latency.
    Lower,
}

/// The rule by which a figure is judged.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The direction of an improvement.
    pub better: Better,
    /// Confidence level that the interval has to have at least.
    pub confidence: f64,
    /// For a figure that should not change: the relative difference that counts as none.
    pub equal_within: Option<f64>,
}

impl From<Better> for Rule {
    /// Returns the rule for a single verdict about an improvement.
    fn from(better: Better) -> Rule {
        Rule { better, confidence: CONFIDENCE, equal_within: None }
    }
}

/// What may be said about an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies on the good side of 1.
    Improved,
    /// The whole interval lies on the bad side of 1.
    Worse,
    /// The interval includes 1: a difference, if there is one, is smaller than the noise.
    NoDifferenceSeen,
    /// The whole interval lies within the bound of [`Rule::equal_within`].
    Equivalent,
    /// Fewer pairs, or samples of a side, than [`FEWEST_PAIRS`]: nothing can be said.
    TooFewSamples,
}

/// From where to where a ratio may lie.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Returns the upper end minus the lower end.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// One figure of two arms, compared.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Comparison {
    /// Median of the ratios of pairs.
    pub ratio: f64,
    /// Ratio of the two medians, which is what the table's columns give when divided.
    pub ratio_of_medians: f64,
    /// Where the ratio lies.
    pub interval: Interval,
    /// How often such an interval holds the true ratio: with 5 pairs 0.9375 at most.
    #[serde(default)]
    pub level: f64,
    /// Pairs that went into it.
    pub pairs: usize,
    /// What may be said.
    pub verdict: Verdict,
    /// The bound by which it was judged, where no difference is hoped for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal_within: Option<f64>,
}

impl Comparison {
    /// Whether it claims something, at the wanted confidence.
    pub fn claims(&self, confidence: f64) -> bool {
        let claim =
            matches!(self.verdict, Verdict::Improved | Verdict::Worse | Verdict::Equivalent);
        claim && self.level >= confidence
    }
}

/// Returns the ratio of two samples, between 1/[`MOST`] and [`MOST`]. A stall (0) counts as a
/// result, not as missing: its ratio to another stall is 1.
fn ratio(on: f64, off: f64) -> f64 {
    if on <= 0.0 && off <= 0.0 { 1.0 } else { (on / off).clamp(1.0 / MOST, MOST) }
}

/// Compares two arms with paired samples: those at the same place are of the same round. The longer
/// arm is cut to the length of the shorter one, and pairs that are not numbers are left out.
/// Returns `None` if no pair is left.
pub fn compare(treatment: &[f64], baseline: &[f64], rule: Rule) -> Option<Comparison> {
    let pairs = treatment.iter().copied().zip(baseline.iter().copied());
    let (on, off): (Vec<f64>, Vec<f64>) =
        pairs.filter(|(on, off)| on.is_finite() && off.is_finite()).unzip();
    let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| ratio(*on, *off)).collect();
    let (interval, level) = interval(&ratios, rule.confidence)?;
    Some(Comparison {
        ratio: median(&ratios)?,
        ratio_of_medians: ratio(median(&on)?, median(&off)?),
        interval,
        level,
        pairs: ratios.len(),
        verdict: verdict(interval, ratios.len(), rule),
        equal_within: rule.equal_within,
    })
}

/// Compares two arms that were measured separately, so that their samples are not paired. The ratio
/// is that of their medians. Its interval runs from our lower end divided by their upper end, to
/// our upper end divided by their lower end. Its level is at least the product of both levels.
/// Returns `None` if one of them has no samples.
pub fn compare_independent(treatment: &[f64], baseline: &[f64], rule: Rule) -> Option<Comparison> {
    let each = rule.confidence.sqrt();
    let ((on, level), (off, other)) = (interval(treatment, each)?, interval(baseline, each)?);
    let interval = Interval { low: ratio(on.low, off.high), high: ratio(on.high, off.low) };
    let found = ratio(median(treatment)?, median(baseline)?);
    let samples = treatment.len().min(baseline.len());
    Some(Comparison {
        ratio: found,
        ratio_of_medians: found,
        interval,
        level: level * other,
        pairs: samples,
        verdict: verdict(interval, samples, rule),
        equal_within: rule.equal_within,
    })
}

fn verdict(interval: Interval, samples: usize, rule: Rule) -> Verdict {
    let within = |bound: f64| interval.high <= 1.0 + bound && interval.low >= 1.0 / (1.0 + bound);
    if samples < FEWEST_PAIRS {
        Verdict::TooFewSamples
    } else if rule.equal_within.is_some_and(within) {
        Verdict::Equivalent
    } else if interval.low <= 1.0 && interval.high >= 1.0 {
        Verdict::NoDifferenceSeen
    } else if (interval.low > 1.0) == (rule.better == Better::Higher) {
        Verdict::Improved
    } else {
        Verdict::Worse
    }
}

/// Returns the narrowest interval, from one sample to another the same number of places from either
/// end, that contains the median at this confidence; and its level. If there are too few samples,
/// returns the widest interval, which has a lower level.
fn interval(samples: &[f64], confidence: f64) -> Option<(Interval, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // Probability that none, one, two … of the samples are below the median. As a logarithm,
    // because it is tiny for many samples.
    let mut ln_chance = -(count as f64) * std::f64::consts::LN_2;
    let (mut left_out, mut level) = (0, 1.0 - 2.0 * ln_chance.exp());
    for below in 1..count.div_ceil(2) {
        ln_chance += ((count - below + 1) as f64 / below as f64).ln();
        let narrower = level - 2.0 * ln_chance.exp();
        if narrower < confidence {
            break;
        }
        (left_out, level) = (below, narrower);
    }
    let low = *sorted.get(left_out)?;
    Some((Interval { low, high: *sorted.get(count - 1 - left_out)? }, level))
}

/// Holm's correction: returns the confidence at which each of `count` verdicts is judged, so that
/// all claims of a report hold together at [`CONFIDENCE`]. `claims` says whether the verdict at a
/// place claims something at a confidence.
pub fn holm(count: usize, claims: impl Fn(usize, f64) -> bool) -> Vec<f64> {
    let mut open: Vec<usize> = (0..count).collect();
    let mut confidences = vec![CONFIDENCE; count];
    loop {
        let confidence = 1.0 - (1.0 - CONFIDENCE) / open.len().max(1) as f64;
        for place in &open {
            confidences.splice(place..=place, [confidence]);
        }
        let before = open.len();
        open.retain(|place| !claims(*place, confidence));
        if open.len() == before || open.is_empty() {
            return confidences;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Repetitions `validate` ships with.
    const SHIPPED: usize = DEFAULT_REPETITIONS;

    /// Steele, Lea and Flood's SplitMix64.
    struct SplitMix(u64);

    impl SplitMix {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn unit(&mut self) -> f64 {
            (self.next() >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Nearly normal, mean 0, deviation 1: twelve uniform numbers.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
        }
    }

    /// Returns a run of two arms in A B B A order: 2 % noise, up to 5 % drift, one sample in ten 10
    /// to 35 % too low.
    fn simulate(treatment_factor: f64, rounds: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut random = SplitMix(seed);
        let drift = 0.1 * random.unit() - 0.05;
        let mut arms = (Vec::new(), Vec::new());
        for (time, (_, arm)) in crate::sequence(2, rounds).enumerate() {
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
            compare(&on, &off, Better::Higher.into()).is_some_and(|found| found.verdict == wanted)
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
            let forward = compare(&on, &off, Better::Higher.into()).unwrap();
            prop_assert!(forward.interval.low <= forward.ratio && forward.ratio <= forward.interval.high);
            // With an odd number of pairs, the ratio of the middle one is simply inverted.
            if on.len() % 2 == 1 {
                let backward = compare(&off, &on, Better::Higher.into()).unwrap();
                prop_assert!((forward.ratio * backward.ratio - 1.0).abs() < 1e-9);
            }
        }

        #[test]
        fn a_constant_factor_is_found_exactly(
            off in prop::collection::vec(1.0..1e3f64, 5..20), factor in 1.01..3.0f64
        ) {
            let on: Vec<f64> = off.iter().map(|value| value * factor).collect();
            let found = compare(&on, &off, Better::Higher.into()).unwrap();
            prop_assert!((found.ratio - factor).abs() < 1e-9 && found.interval.width() < 1e-9);
            prop_assert_eq!(found.verdict, Verdict::Improved);
            prop_assert_eq!(compare(&on, &off, Better::Lower.into()).unwrap().verdict, Verdict::Worse);
        }
    }

    #[test]
    fn runs_apart_differ_beyond_the_usual_tolerance_only_where_something_changed() {
        // Machines drift between runs, which no interval of either knows: hence the tolerance.
        let regression = |factor: f64, seed: u64| {
            let (now, before) =
                (simulate(factor, SHIPPED, seed).0, simulate(1.0, SHIPPED, seed + 1).0);
            let found = compare_independent(&now, &before, Better::Higher.into()).unwrap();
            found.verdict == Verdict::Worse && found.ratio < 0.95
        };
        let seeds = || (0..200).map(|seed| 2 * seed);
        let alarms = seeds().filter(|seed| regression(1.0, *seed)).count();
        let found = seeds().filter(|seed| regression(0.88, *seed)).count();
        assert!(alarms <= 10 && found >= 190, "{alarms} and {found} of 200");
        assert_eq!(compare_independent(&[], &[1.0], Better::Higher.into()), None);
    }

    #[test]
    fn few_pairs_claim_nothing() {
        let found = compare(&[2.0; 4], &[1.0; 4], Better::Higher.into()).unwrap();
        assert_eq!(found.verdict, Verdict::TooFewSamples);
        assert_eq!(compare(&[], &[], Better::Higher.into()), None);
    }

    #[test]
    fn a_stalled_arm_is_worse_and_none_of_its_pairs_is_left_out() {
        for stalls in [6, 12] {
            let stalled: Vec<f64> = (0..12).map(|i| if i < stalls { 0.0 } else { 1.0 }).collect();
            let found = compare(&stalled, &[2.0; 12], Better::Higher.into()).unwrap();
            assert_eq!((found.pairs, found.verdict), (12, Verdict::Worse));
            let apart = compare_independent(&stalled, &[2.0; 12], Better::Higher.into()).unwrap();
            assert_eq!(apart.verdict, Verdict::Worse);
        }
        let found = compare(&[1.0; 12], &[0.0; 12], Better::Higher.into()).unwrap();
        assert_eq!((found.ratio, found.verdict), (MOST, Verdict::Improved));
        let both = compare(&[0.0; 12], &[0.0; 12], Better::Higher.into()).unwrap();
        assert_eq!((both.ratio, both.verdict), (1.0, Verdict::NoDifferenceSeen));
    }

    #[test]
    fn the_level_is_the_one_that_so_many_pairs_have() {
        let level = |pairs: usize| interval(&vec![1.0; pairs], CONFIDENCE).unwrap().1;
        for (pairs, known) in
            [(1, 0.0), (5, 0.9375), (7, 1.0 - 2.0 / 128.0), (8, 1.0 - 2.0 / 256.0)]
        {
            assert!((level(pairs) - known).abs() < 1e-12, "{pairs}: {}", level(pairs));
        }
        for pairs in [8, 24, 400, 65_535] {
            assert!((CONFIDENCE..1.0).contains(&level(pairs)), "{pairs}: {}", level(pairs));
        }
        let few = compare_independent(&[1.0; 5], &[1.0; 5], Better::Higher.into()).unwrap();
        assert!((few.level - 0.9375 * 0.9375).abs() < 1e-12);
    }

    #[test]
    fn an_interval_holds_the_median_as_often_as_its_level_says() {
        for pairs in [5, 8, 24] {
            let mut random = SplitMix(pairs as u64);
            let mut level = 0.0;
            let mut hold = |_: &u32| {
                let samples: Vec<f64> = (0..pairs).map(|_| random.unit().powi(3)).collect();
                let (interval, known) = interval(&samples, CONFIDENCE).unwrap();
                level = known;
                (interval.low..=interval.high).contains(&0.125)
            };
            let held = (0..20_000).filter(&mut hold).count() as f64 / 20_000.0;
            assert!((held - level).abs() < 0.006, "{pairs} pairs: {held}, told {level}");
        }
    }

    #[test]
    fn eleven_verdicts_together_are_wrong_once_in_a_hundred_and_alone_ten_times() {
        let mut families = [0; 2];
        for family in 0..2000u64 {
            let arms: Vec<_> =
                (0..11).map(|arm| simulate(1.0, SHIPPED, 99 + 11 * family + arm)).collect();
            let found = |place: usize, confidence: f64| {
                let (on, off) = &arms[place];
                compare(on, off, Rule { confidence, ..Better::Higher.into() }).unwrap()
            };
            let wrong = |confidences: &[f64]| {
                (0..11).any(|place| found(place, confidences[place]).claims(0.0))
            };
            let together =
                holm(11, |place, confidence| found(place, confidence).claims(confidence));
            families[0] += u32::from(wrong(&[CONFIDENCE; 11]));
            families[1] += u32::from(wrong(&together));
        }
        assert!(families[0] > 60 && families[1] <= 25, "{families:?} of 2000");
    }

    #[test]
    fn holm_asks_less_of_the_next_once_one_is_sure() {
        // The first claims at any confidence, the second up to 0.996, the third never.
        let upto = [1.0, 0.996, 0.0];
        let confidences = holm(3, |place, confidence| confidence <= upto[place]);
        let close = |place: usize, wanted: f64| (confidences[place] - wanted).abs() < 1e-9;
        assert!(close(0, 1.0 - 0.01 / 3.0) && close(1, 0.995) && close(2, 0.99), "{confidences:?}");
        assert_eq!(holm(0, |_, _| true), Vec::<f64>::new());
    }

    #[test]
    fn where_no_difference_is_hoped_for_a_bound_decides() {
        let rule = Rule { equal_within: Some(0.05), ..Better::Lower.into() };
        let judged = |factor: f64, noise: f64| {
            let on: Vec<f64> = (0..24).map(|i| factor + noise * f64::from(i % 3 - 1)).collect();
            compare(&on, &[1.0; 24], rule).unwrap().verdict
        };
        assert_eq!(judged(1.0, 0.01), Verdict::Equivalent);
        assert_eq!(judged(1.02, 0.001), Verdict::Equivalent, "a difference that does not matter");
        assert_eq!(judged(1.0, 0.2), Verdict::NoDifferenceSeen, "too much noise to tell");
        assert_eq!(judged(1.2, 0.01), Verdict::Worse);
        assert_eq!(judged(0.8, 0.01), Verdict::Improved);
    }
}
