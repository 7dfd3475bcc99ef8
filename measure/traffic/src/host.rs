//! This host and this process: name, processors, open files, pinning.

use crate::TrafficError;
use procfs::{CpuInfo, Current};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Open files besides the connections: listeners, event descriptors, /proc, the output.
const FILES_BESIDE: u64 = 64;

/// Raises the soft limit of open files so that `sockets` fit.
///
/// # Errors
/// [`TrafficError::TooManyFiles`] if the hard limit is lower.
pub(crate) fn allow_files(sockets: u64) -> Result<(), TrafficError> {
    let wanted = sockets + FILES_BESIDE;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|hard| *hard < wanted) {
        return Err(TrafficError::TooManyFiles { wanted, limit: hard });
    }
    limit.current = Some(wanted);
    setrlimit(Resource::Nofile, limit)
        .map_err(TrafficError::system("raise the limit of open files"))
}

/// Raises the soft limit of open files to the hard limit: a receiver does not know how many
/// connections will come.
pub(crate) fn allow_all_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it is refused the old limit holds, and a shortage is reported when it occurs.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Pins the calling thread to a processor.
///
/// # Errors
/// Fails if this process may not use the processor.
pub(crate) fn pin(processor: Option<usize>) -> Result<(), TrafficError> {
    let Some(processor) = processor else { return Ok(()) };
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        set.set(processor);
    }
    sched_setaffinity(None, &set).map_err(|_| {
        TrafficError::Plan(format!(
            "processor {processor} of the mapping cannot be used: this process has {online}, counted from 0; * leaves the choice to the scheduler"
        ))
    })
}

/// Returns the host's name, for the report.
pub(crate) fn name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".into(), |name| name.trim().to_string())
}

/// Returns the lowest and the highest processor frequency in MHz, if /proc/cpuinfo has them.
pub(crate) fn frequency_mhz() -> Option<(f64, f64)> {
    let info = CpuInfo::current().ok()?;
    let speed = |number| info.get_field(number, "cpu MHz")?.parse::<f64>().ok();
    let speeds = (0..info.num_cores()).filter_map(speed);
    let range = (f64::INFINITY, 0.0_f64);
    let (low, high) = speeds.fold(range, |(low, high), mhz| (low.min(mhz), high.max(mhz)));
    (high > 0.0).then_some((low, high))
}
