//! Processor cycles between two moments.
//!
//! The best source is the hardware's own counter of unhalted cycles on every processor that the
//! caller may use (perf_event_open(2)). The processors of a cpuset need not begin at 0 and may have
//! gaps. The counter needs `kernel.perf_event_paranoid` of 0 or CAP_PERFMON, and virtual machines
//! often have none.
//!
//! The other source is NTttcp's formula: the busy share of all processors times their frequency.
//! The frequency is that of the time stamp counter, measured against CLOCK_MONOTONIC over the same
//! interval, not a number from a registry or of one processor afterwards.
// UNSAFETY: perf_event_open and the time stamp counter have no safe wrapper in the crates this
// project uses.
#![allow(unsafe_code)]

use super::{CpuUsage, Figure};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::thread::{CpuSet, sched_getaffinity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The hardware's counters, one per processor, if the host allows them.
#[derive(Debug)]
pub struct CycleCounter {
    counters: Result<Vec<OwnedFd>, String>,
}

/// Readings of both sources at one moment.
#[derive(Clone, Debug)]
pub struct CycleSample {
    at: Instant,
    hardware: Result<u64, String>,
    time_stamp: Option<u64>,
}

/// Cycles of all processes and the kernel between two samples.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycles {
    /// Unhalted cycles of the processors that the caller may use, counted by hardware.
    pub hardware: Figure<u64>,
    /// Frequency of the time stamp counter over the interval.
    pub time_stamp_hz: Figure<f64>,
}

impl CycleCounter {
    /// Opens a counter on each processor that the calling thread may use. If that is refused,
    /// samples have the reason.
    pub fn open() -> CycleCounter {
        let open = |processor| {
            open_on(processor)
                .map_err(|error| format!("perf_event_open on processor {processor}: {error}"))
        };
        CycleCounter { counters: usable().into_iter().map(open).collect() }
    }

    /// Reads both sources.
    pub fn sample(&self) -> CycleSample {
        let hardware = match &self.counters {
            Ok(counters) => counters.iter().map(read_counter).sum(),
            Err(reason) => Err(reason.clone()),
        };
        CycleSample { at: Instant::now(), hardware, time_stamp: time_stamp() }
    }
}

impl CycleSample {
    /// Returns the cycles spent since an earlier sample.
    pub fn since(&self, earlier: &CycleSample) -> Cycles {
        let hardware = match (&self.hardware, &earlier.hardware) {
            (Ok(now), Ok(then)) => Figure::measured(
                now.saturating_sub(*then),
                "perf_event_open, PERF_COUNT_HW_CPU_CYCLES of the processors this process may use",
            ),
            (Err(reason), _) | (_, Err(reason)) => Figure::absent(reason),
        };
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        let time_stamp_hz = match (self.time_stamp, earlier.time_stamp) {
            (Some(now), Some(then)) if seconds > 0.0 => Figure::measured(
                now.saturating_sub(then) as f64 / seconds,
                "time stamp counter against CLOCK_MONOTONIC",
            ),
            _ => Figure::absent("this architecture has no time stamp counter"),
        };
        Cycles { hardware, time_stamp_hz }
    }
}

impl Cycles {
    /// Returns NTttcp's cycles per byte: busy share x processors x frequency x seconds / bytes.
    pub fn per_byte_by_formula(&self, usage: &CpuUsage, seconds: f64, bytes: u64) -> Figure<f64> {
        self.time_stamp_hz.then(|hz| {
            let cycles = usage.busy_percent / 100.0 * usage.processors as f64 * hz * seconds;
            (bytes > 0).then(|| cycles / bytes as f64)
        })
    }

    /// Returns cycles per byte by the hardware's count.
    pub fn per_byte_by_hardware(&self, bytes: u64) -> Figure<f64> {
        self.hardware.then(|cycles| (bytes > 0).then(|| *cycles as f64 / bytes as f64))
    }
}

/// `struct perf_event_attr` of linux/perf_event.h in its first version; the kernel takes the rest
/// as zero.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Returns the processors that the calling thread may use.
fn usable() -> Vec<usize> {
    // Fails only if there are more processors than a set holds; then only the first is counted.
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

fn open_on(processor: usize) -> std::io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind: PERF_TYPE_HARDWARE,
        size: 64,
        config: PERF_COUNT_HW_CPU_CYCLES,
        rest: [0; 6],
    };
    let processor = libc::c_int::try_from(processor).unwrap_or(libc::c_int::MAX);
    // SAFETY: `attr` is 64 bytes, says so in `size`, and outlives the call, which only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1,
            processor,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(std::io::Error::last_os_error)?;
    // SAFETY: the call above has just made this descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn read_counter(counter: &OwnedFd) -> Result<u64, String> {
    let mut bytes = [0; 8];
    match rustix::io::read(counter, &mut bytes) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err("the hardware counter has stopped".into()),
        Err(error) => Err(format!("reading the hardware counter: {error}")),
    }
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> Option<u64> {
    // SAFETY: RDTSC is part of every x86-64 processor; it reads a register and nothing else.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_is_ntttcps() {
        let cycles = Cycles {
            hardware: Figure::absent("none"),
            time_stamp_hz: Figure::measured(2e9, "test"),
        };
        let before = super::super::CpuSample::read().unwrap();
        let usage = CpuUsage { processors: 4, busy_percent: 25.0, ..before.since(&before) };
        // A quarter of 4 x 2 GHz for 3 s are 6e9 cycles.
        assert_eq!(cycles.per_byte_by_formula(&usage, 3.0, 1_000_000_000).value, Some(6.0));
        assert_eq!(cycles.per_byte_by_formula(&usage, 3.0, 0).value, None);
        assert_eq!(cycles.per_byte_by_hardware(5).reason.as_deref(), Some("none"));
    }

    #[test]
    fn a_caller_on_one_processor_counts_that_one_and_not_the_first() {
        let Some(last) = usable().pop() else { panic!("no processor may be used") };
        let pinned = std::thread::spawn(move || {
            crate::host::pin(Some(last)).unwrap();
            (usable(), CycleCounter::open().counters.map(|counters| counters.len()))
        });
        let (processors, counters) = pinned.join().unwrap();
        assert_eq!(processors, [last]);
        match counters {
            Ok(counters) => assert_eq!(counters, 1),
            Err(reason) => assert!(reason.contains(&format!("processor {last}:")), "{reason}"),
        }
    }

    #[test]
    fn a_host_without_counters_says_why() {
        let counter = CycleCounter::open();
        let first = counter.sample();
        let cycles = counter.sample().since(&first);
        assert!(cycles.hardware.value.is_some() != cycles.hardware.reason.is_some());
        assert_eq!(cycles.time_stamp_hz.value.is_some(), cfg!(target_arch = "x86_64"));
    }
}
