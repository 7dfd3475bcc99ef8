//! Figures of round trips: one byte in each direction on one connection, idle and beside bulk
//! connections.
//!
//! RSC in this switch never waits for a segment, so no difference that matters is hoped for. Beside
//! bulk connections a round trip waits in their queues, and for a processor at both ends.

use crate::measure::Measure;
use crate::plan::{Plan, Values};
use hdrhistogram::Histogram;
use statistics::Better;

/// Largest difference, as a fraction, that counts as none.
const EQUAL_WITHIN: Option<f64> = Some(0.1);

pub(crate) const MEDIAN: Measure = Measure {
    key: "latency_median_ns",
    improvement: "latency_median",
    label: "Median (µs)",
    scale: 1e-3,
    decimals: 1,
    better: Better::Lower,
    equal_within: EQUAL_WITHIN,
};
const P99: Measure = Measure {
    key: "latency_p99_ns",
    improvement: "latency_p99",
    label: "99th percentile (µs)",
    ..MEDIAN
};

/// Median and 99th percentile of the round trips of an interval.
pub(crate) const MEASURES: &[Measure] = &[MEDIAN, P99];

/// Key of an interval's figure, and the part of its round trips that were faster.
pub(crate) const PARTS: [(&str, f64); 8] = [
    ("latency_p1_ns", 0.01),
    ("latency_p10_ns", 0.1),
    ("latency_p25_ns", 0.25),
    ("latency_median_ns", 0.5),
    ("latency_p75_ns", 0.75),
    ("latency_p90_ns", 0.9),
    ("latency_p95_ns", 0.95),
    ("latency_p99_ns", 0.99),
];

/// Key of the number of round trips.
const COUNT: &str = "round_trips";

/// Returns the figures of an interval's round trips, in nanoseconds. Without round trips there are
/// no times, rather than times of 0.
pub(crate) fn values(trips: &Histogram<u64>) -> Values {
    let times = PARTS.iter().filter(|_| !trips.is_empty());
    let times = times.map(|(key, part)| (*key, trips.value_at_quantile(*part) as f64));
    let all = times.chain([(COUNT, trips.len() as f64)]);
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Whether a key is that of a figure of round trips.
pub(crate) fn is_own(key: &str) -> bool {
    key == COUNT || PARTS.iter().any(|(part, _)| *part == key)
}

/// Returns the plan of round trips with the arms and times of a plan of bulk connections.
pub(crate) fn plan(bulk: &Plan) -> Plan {
    Plan { name: "latency", measures: MEASURES, ..bulk.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_round_trip_is_not_a_fast_one() {
        let mut trips = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        assert_eq!(values(&trips), Values::from([("round_trips".to_owned(), 0.0)]));
        trips.record(1000).unwrap();
        let one = values(&trips);
        assert_eq!(one.len(), 1 + PARTS.len());
        assert!(one.keys().all(|key| is_own(key)) && !is_own("cpu_percent"));
        assert!(MEASURES.iter().all(|measure| one[measure.key] == 1000.0), "{one:?}");
    }
}
