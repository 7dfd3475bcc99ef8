//! What RSC costs a request and its response: one byte to and fro on one connection, RSC on against off.
//!
//! RSC in this switch never waits for a segment, so what is hoped for is no difference that matters.

use crate::experiment::{Experiment, Measure};
use crate::statistics::Better;

const MICROSECONDS: f64 = 1e-3;
/// Part of a round trip that is as good as nothing.
const EQUAL_WITHIN: Option<f64> = Some(0.1);

/// Median and 99th percentile of the round trips of an interval.
pub const MEASURES: &[Measure] = &[
    Measure {
        key: "latency_median_ns",
        improvement: "latency_median",
        label: "Median (µs)",
        scale: MICROSECONDS,
        decimals: 1,
        better: Better::Lower,
        equal_within: EQUAL_WITHIN,
    },
    Measure {
        key: "latency_p99_ns",
        improvement: "latency_p99",
        label: "99th percentile (µs)",
        scale: MICROSECONDS,
        decimals: 1,
        better: Better::Lower,
        equal_within: EQUAL_WITHIN,
    },
];

/// The experiment that goes with a bulk one: the same arms and times.
pub fn experiment(bulk: &Experiment) -> Experiment {
    Experiment { name: "latency", measures: MEASURES, ..bulk.clone() }
}
