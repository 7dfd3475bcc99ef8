//! Facts about the machine a report was made on.

use chrono::{DateTime, Utc};
use procfs::{CpuInfo, Current, Meminfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use traffic::measure::online;

/// What the kernel says about the machine.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Machine {
    /// `Linux 6.18.44`.
    pub kernel: String,
    /// Model name of the first processor.
    pub processor: String,
    /// Processors that the kernel has online.
    pub processors: usize,
    /// Of these, the ones that this process may use; `None` in older reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable: Option<usize>,
    /// Frequency of the time stamp counter, by which cycles per byte are computed, in Hz.
    pub time_stamp_hz: Option<f64>,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// Reads the facts from `/proc`. Missing ones stay empty.
    pub fn read(time_stamp_hz: Option<f64>) -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let model = CpuInfo::current().ok().and_then(|info| Some(info.model_name(0)?.to_owned()));
        let release = text("/proc/sys/kernel/osrelease");
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let online = Some(online().len()).filter(|count| *count > 0);
        Machine {
            kernel: format!("{} {}", text("/proc/sys/kernel/ostype").trim(), release.trim()),
            processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: online.unwrap_or(usable),
            usable: Some(usable),
            time_stamp_hz,
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        }
    }

    /// Returns `Linux 6.18.44, 4 x Intel Xeon`.
    pub(crate) fn words(&self) -> String {
        format!("{}, {}", self.kernel, self.counts())
    }

    /// Returns `4 x Intel Xeon`, with the number that may be used if that is not all.
    pub(crate) fn counts(&self) -> String {
        let all = format!("{} x {}", self.processors, self.processor);
        match self.usable.filter(|usable| *usable != self.processors) {
            Some(usable) => format!("{all}, {usable} usable"),
            None => all,
        }
    }
}

/// Returns the current time as `2026-11-21T21:40:00Z`.
pub fn now_utc() -> String {
    DateTime::<Utc>::from(SystemTime::now()).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_as_it_is_read() {
        let now = DateTime::parse_from_rfc3339(&now_utc()).unwrap();
        let off = Utc::now() - now.to_utc();
        assert!((0..60).contains(&off.num_seconds()), "{off}");
    }

    #[test]
    fn the_machine_and_what_may_be_used_of_it_are_told_apart() {
        let part = Machine { processors: 4, usable: Some(1), ..Machine::default() };
        assert_eq!(part.counts(), "4 x , 1 usable");
        assert_eq!(Machine { usable: Some(4), ..part.clone() }.counts(), "4 x ");
        assert_eq!(Machine { usable: None, ..part }.counts(), "4 x ", "an older report");
    }

    #[test]
    fn this_machine_has_a_kernel() {
        let machine = Machine::read(None);
        assert!(
            machine.kernel.len() > 5 && machine.processors > 0 && machine.memory_bytes > 1 << 26
        );
    }
}
