//! Facts about the machine a report was made on.

use procfs::{Current, Meminfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// Reads `/proc`. What is not there stays empty.
    pub fn read(time_stamp_hz: Option<f64>) -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let release = text("/proc/sys/kernel/osrelease");
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let online = counted(text("/sys/devices/system/cpu/online").trim());
        Machine {
            kernel: format!("{} {}", text("/proc/sys/kernel/ostype").trim(), release.trim()),
            processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: online.unwrap_or(usable),
            usable: Some(usable),
            time_stamp_hz,
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        }
    }
}

impl Machine {
    /// What people read: `Linux 6.18.44, 4 x Intel Xeon`.
    pub(crate) fn words(&self) -> String {
        format!("{}, {}", self.kernel, self.counts())
    }

    /// `4 x Intel Xeon`, and how many of them may be used where that is not all.
    pub(crate) fn counts(&self) -> String {
        let all = format!("{} x {}", self.processors, self.processor);
        match self.usable.filter(|usable| *usable != self.processors) {
            Some(usable) => format!("{all}, {usable} usable"),
            None => all,
        }
    }
}

/// How many numbers a list such as `0-3,6` has.
fn counted(list: &str) -> Option<usize> {
    let of = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((last.parse::<usize>().ok()? + 1).saturating_sub(first.parse().ok()?))
    };
    list.split(',').map(of).sum()
}

/// Now, as `2026-11-21T21:40:00Z`.
pub fn now_utc() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    utc(seconds)
}

/// Seconds since 1970 as a date in the Gregorian calendar.
fn utc(seconds: u64) -> String {
    let (mut year, mut day) = (1970, seconds / 86_400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days_of = |year: u64| if leap(year) { 366 } else { 365 };
    while day >= days_of(year) {
        day -= days_of(year);
        year += 1;
    }
    let mut month = 1;
    let february = if leap(year) { 29 } else { 28 };
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_leap_years_and_ends_of_years() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_704_067_199), "2023-12-31T23:59:59Z");
        assert_eq!(utc(1_795_297_200), "2026-11-21T21:40:00Z");
    }

    #[test]
    fn the_machine_and_what_may_be_used_of_it_are_told_apart() {
        assert_eq!((counted("0-3,6"), counted("0"), counted("")), (Some(5), Some(1), None));
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
