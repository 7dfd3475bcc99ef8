//! What RSC costs a request and its response: one byte to and fro on one connection, RSC on against off.
//!
//! RSC in this switch never waits for a segment, so the honest answer to expect is "no difference seen".

use super::rsc;
use crate::experiment::{Experiment, Measure, StopRule};
use crate::statistics::Better;
use std::time::Duration;

const MICROSECONDS: f64 = 1e-3;

/// Median and 99th percentile of the round trips of an interval.
pub const MEASURES: &[Measure] = &[
    Measure {
        key: "latency_median_ns",
        improvement: "latency_median",
        label: "Median (us)",
        scale: MICROSECONDS,
        decimals: 1,
        better: Better::Lower,
    },
    Measure {
        key: "latency_p99_ns",
        improvement: "latency_p99",
        label: "99th percentile (us)",
        scale: MICROSECONDS,
        decimals: 1,
        better: Better::Lower,
    },
];

/// The experiment.
pub fn experiment(interval: Duration, stop: StopRule) -> Experiment {
    Experiment { name: "latency", measures: MEASURES, ..rsc::experiment(interval, stop) }
}
