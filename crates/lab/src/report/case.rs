//! One connection count (or the latency run): its arms, side by side.

use crate::experiment::{Arm, Ended, Experiment, Measure, Run, Sample, Values};
use crate::statistics::{Comparison, Summary};
use serde::Serialize;
use std::collections::BTreeMap;

/// A figure of an arm: where its samples lie, and all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Median and spread.
    #[serde(flatten)]
    pub summary: Summary,
    /// One per interval, in the order of time.
    pub samples: Vec<f64>,
}

/// An arm's figures by key (`throughput_bps`, `cpu_percent`, `cycles_per_byte` and more).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmFigures {
    /// What people read.
    pub label: String,
    /// By key, with the unit in the key.
    #[serde(flatten)]
    pub figures: BTreeMap<String, Figures>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Connections at once.
    pub connections: u32,
    /// By name: `on`, `off`.
    pub arms: BTreeMap<String, ArmFigures>,
    /// Ratio of the first arm to the second by measure, median of the pairs; 1 is no difference.
    pub improvement: BTreeMap<String, f64>,
    /// The same with interval and verdict.
    pub comparisons: BTreeMap<String, Comparison>,
    /// Names of the arms, the baseline second.
    pub order: Vec<String>,
    /// Length of an interval, in seconds.
    pub interval_s: f64,
    /// Why there are no more samples.
    pub ended: Ended,
    /// Every interval in the order of time, with all its raw numbers.
    pub samples: Vec<Sample>,
}

impl ArmFigures {
    /// Sums up samples that all belong to one arm.
    pub fn of<'s>(label: &str, samples: impl Iterator<Item = &'s Values>) -> ArmFigures {
        let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (key, value) in samples.flatten() {
            columns.entry(key.clone()).or_default().push(*value);
        }
        let figures = columns.into_iter().filter_map(|(key, samples)| {
            let summary = Summary::of(&samples)?;
            Some((key, Figures { summary, samples }))
        });
        ArmFigures { label: label.to_owned(), figures: figures.collect() }
    }

    /// The median of a figure.
    pub fn median(&self, key: &str) -> Option<f64> {
        Some(self.figures.get(key)?.summary.median)
    }
}

impl Case {
    /// Sums up a run.
    pub fn new(experiment: &Experiment, connections: u32, run: Run) -> Case {
        let figures = |arm: &Arm| {
            let own = run.samples.iter().filter(|sample| sample.arm == arm.name);
            ArmFigures::of(&arm.label, own.map(|sample| &sample.values))
        };
        let compared = |measure: &Measure| {
            let found = experiment.compare(&run.samples, measure)?;
            Some((measure.improvement.to_owned(), found))
        };
        let arms = experiment.arms.iter().map(|arm| (arm.name.clone(), figures(arm))).collect();
        let comparisons: BTreeMap<String, Comparison> =
            experiment.measures.iter().filter_map(compared).collect();
        Case {
            connections,
            arms,
            improvement: comparisons
                .iter()
                .map(|(key, found)| (key.clone(), found.ratio))
                .collect(),
            comparisons,
            order: experiment.arms.iter().map(|arm| arm.name.clone()).collect(),
            interval_s: experiment.interval.as_secs_f64(),
            ended: run.ended,
            samples: run.samples,
        }
    }

    /// The median of an arm's figure.
    pub fn median(&self, arm: &str, key: &str) -> Option<f64> {
        self.arms.get(arm)?.median(key)
    }

    /// The arms, the one that should be better first.
    pub fn arms_in_order(&self) -> impl Iterator<Item = &ArmFigures> {
        self.order.iter().filter_map(|name| self.arms.get(name))
    }

    /// Intervals of the arm that has fewest.
    pub fn rounds(&self) -> usize {
        let count = |name: &String| self.samples.iter().filter(|s| s.arm == *name).count();
        self.order.iter().map(count).min().unwrap_or(0)
    }
}
