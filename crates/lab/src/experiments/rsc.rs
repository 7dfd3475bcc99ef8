//! RSC in the vSwitch, on against off: activities 2 and 3 of Microsoft's validation guide.

use crate::experiment::{Arm, Experiment, Measure, StopRule};
use crate::statistics::Better;
use std::time::Duration;

/// The guide's three columns. Megabytes are 2^20 bytes, as NTttcp counts.
pub const MEASURES: &[Measure] = &[
    Measure {
        key: "cpu_percent",
        improvement: "cpu_percent",
        label: "Avg. CPU %",
        scale: 1.0,
        decimals: 2,
        better: Better::Lower,
    },
    Measure {
        key: "cycles_per_byte",
        improvement: "cycles_per_byte",
        label: "Cycles/Byte",
        scale: 1.0,
        decimals: 3,
        better: Better::Lower,
    },
    Measure {
        key: "throughput_bps",
        improvement: "throughput",
        label: "Throughput (MB/s)",
        scale: 1.0 / 8.0 / 1_048_576.0,
        decimals: 1,
        better: Better::Higher,
    },
];

/// Name of the arm with RSC.
pub const ON: &str = "on";
/// Name of the arm without.
pub const OFF: &str = "off";

/// The two arms, as the guide's table words them.
pub fn arms() -> Vec<Arm> {
    let arm = |name: &str, label: &str| Arm { name: name.into(), label: label.into() };
    vec![arm(ON, "RSC in the vSwitch Enabled"), arm(OFF, "RSC in the vSwitch Disabled")]
}

/// The experiment; one run of it per connection count.
pub fn experiment(interval: Duration, stop: StopRule) -> Experiment {
    Experiment {
        name: "rsc",
        arms: arms(),
        measures: MEASURES,
        warm_up: interval.max(Duration::from_millis(500)),
        settle: (interval / 4).max(Duration::from_millis(50)),
        interval,
        stop,
    }
}
