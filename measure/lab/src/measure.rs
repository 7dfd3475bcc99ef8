//! Columns of a report's tables: what a measure is, and the measures that several experiments share.

use statistics::{Better, Rule};

/// One figure of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Key of a sample in JSON, with its unit.
    pub key: &'static str,
    /// Key under `comparisons`.
    pub improvement: &'static str,
    /// What people read, with the unit after `scale`.
    pub label: &'static str,
    /// From the raw unit to the one people read.
    pub scale: f64,
    /// Decimals people read.
    pub decimals: usize,
    /// Which way is good.
    pub better: Better,
    /// Where no difference is hoped for: what is as good as none, as a part.
    pub equal_within: Option<f64>,
}

impl Measure {
    /// How it is judged at this confidence.
    pub(crate) fn rule(&self, confidence: f64) -> Rule {
        Rule { better: self.better, confidence, equal_within: self.equal_within }
    }
}

/// Of the whole machine.
pub(crate) const CPU: Measure = Measure {
    key: "cpu_percent",
    improvement: "cpu_percent",
    label: "Avg. CPU %",
    scale: 1.0,
    decimals: 2,
    better: Better::Lower,
    equal_within: None,
};

/// Of the whole machine, by a byte that the receiver's application got.
pub(crate) const CYCLES: Measure = Measure {
    key: "cycles_per_byte",
    improvement: "cycles_per_byte",
    label: "Cycles/Byte",
    decimals: 3,
    ..CPU
};

/// What the receiver's application got. Megabytes are 2^20 bytes, as NTttcp counts.
pub(crate) const THROUGHPUT: Measure = Measure {
    key: "throughput_bps",
    improvement: "throughput",
    label: "Throughput (MB/s)",
    scale: 1.0 / 8.0 / 1_048_576.0,
    decimals: 1,
    better: Better::Higher,
    equal_within: None,
};

/// Of the switch, the receiver and their kernel, whatever the sender used.
pub(crate) const RECEIVING: Measure = Measure {
    key: "receiving_cpu_s_per_gib",
    improvement: "receiving_cpu",
    label: "Receiving CPU s/GiB",
    ..CPU
};

/// The guide's three columns, and its question by itself: what receiving costs.
pub(crate) const GUIDE: &[Measure] = &[CPU, CYCLES, THROUGHPUT, RECEIVING];

/// Throughput in the unit that network people compare.
pub(crate) const THROUGHPUT_GBPS: Measure =
    Measure { label: "Throughput (Gb/s)", scale: 1e-9, decimals: 2, ..THROUGHPUT };

/// Part of a figure that is as good as nothing.
const EQUAL_WITHIN: Option<f64> = Some(0.05);
/// Those of RSC, where no difference is hoped for.
pub(crate) const NO_WORSE: &[Measure] = &[
    Measure { equal_within: EQUAL_WITHIN, ..CPU },
    Measure { equal_within: EQUAL_WITHIN, ..CYCLES },
    Measure { equal_within: EQUAL_WITHIN, ..THROUGHPUT },
];
