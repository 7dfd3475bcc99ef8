//! Columns of a report's tables: the type of a measure, and the measures that several experiments
//! share.

use statistics::{Better, Rule};

/// One figure of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Key of a sample in JSON, with its unit.
    pub key: &'static str,
    /// Key under `comparisons`.
    pub improvement: &'static str,
    /// Head of the column, with the unit after `scale`.
    pub label: &'static str,
    /// Factor from the raw unit to that of the label.
    pub scale: f64,
    /// Decimals shown.
    pub decimals: usize,
    /// Whether a higher or a lower figure is better.
    pub better: Better,
    /// Largest difference, as a fraction, that counts as none, if no difference is hoped for.
    pub equal_within: Option<f64>,
}

impl Measure {
    /// Returns the rule of a verdict on this measure at a confidence.
    pub(crate) fn rule(&self, confidence: f64) -> Rule {
        Rule { better: self.better, confidence, equal_within: self.equal_within }
    }
}

/// Processor use of the whole machine.
pub(crate) const CPU: Measure = Measure {
    key: "cpu_percent",
    improvement: "cpu_percent",
    label: "Avg. CPU %",
    scale: 1.0,
    decimals: 2,
    better: Better::Lower,
    equal_within: None,
};

/// Cycles of the whole machine for each byte that the receiver's application read.
pub(crate) const CYCLES: Measure = Measure {
    key: "cycles_per_byte",
    improvement: "cycles_per_byte",
    label: "Cycles/Byte",
    decimals: 3,
    ..CPU
};

/// Throughput at the receiver's application. Megabytes are 2^20 bytes, as NTttcp counts.
pub(crate) const THROUGHPUT: Measure = Measure {
    key: "throughput_bps",
    improvement: "throughput",
    label: "Throughput (MB/s)",
    scale: 1.0 / 8.0 / 1_048_576.0,
    decimals: 1,
    better: Better::Higher,
    equal_within: None,
};

/// Processor time of the switch, the receiver and their kernel, without the sender's.
pub(crate) const RECEIVING: Measure = Measure {
    key: "receiving_cpu_s_per_gib",
    improvement: "receiving_cpu",
    label: "Receiving CPU s/GiB",
    ..CPU
};

/// Processor time of the whole machine.
pub(crate) const MACHINE: Measure =
    Measure { key: "machine_cpu_s_per_gib", improvement: "machine_cpu", label: "CPU s/GiB", ..CPU };

/// The three columns of Microsoft's guide, and the cost of receiving by itself.
pub(crate) const GUIDE: &[Measure] = &[CPU, CYCLES, THROUGHPUT, RECEIVING];

/// Throughput in gigabits per second.
pub(crate) const THROUGHPUT_GBPS: Measure =
    Measure { label: "Throughput (Gb/s)", scale: 1e-9, decimals: 2, ..THROUGHPUT };

/// Largest difference, as a fraction, that counts as none.
const EQUAL_WITHIN: Option<f64> = Some(0.05);
/// Columns of experiments that should make no difference.
pub(crate) const NO_WORSE: &[Measure] = &[
    Measure { equal_within: EQUAL_WITHIN, ..CPU },
    Measure { equal_within: EQUAL_WITHIN, ..CYCLES },
    Measure { equal_within: EQUAL_WITHIN, ..THROUGHPUT },
];
