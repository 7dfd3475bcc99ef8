//! Process metrics under the names that all Prometheus exporters use.

use super::family::{Families, number};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The process at one moment. Values of /proc files that cannot be read are omitted.
#[derive(Debug)]
pub(super) struct Process {
    started: SystemTime,
    cpu_s: f64,
    resident: Option<i64>,
    virtual_size: Option<i64>,
    threads: Option<i64>,
    open_files: Option<i64>,
    most_files: Option<u64>,
}

impl Process {
    pub(super) fn now(started: SystemTime) -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        #[allow(clippy::cast_precision_loss, reason = "seconds of processor time are few")]
        let cpu_s = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        let kilobytes = |name| Some(field(&status, name)?.saturating_mul(1024));
        Process {
            started,
            cpu_s,
            resident: kilobytes("VmRSS:"),
            virtual_size: kilobytes("VmSize:"),
            threads: field(&status, "Threads:"),
            // One of them is the directory being read.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| number(files.count()) - 1),
            most_files: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Returns a number from /proc/self/status.
fn field(status: &str, name: &str) -> Option<i64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

impl Collector for Process {
    fn encode(&self, out: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Families(out);
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        out.gauge(
            ("process_start_time_seconds", "When the process started, in seconds since 1970"),
            since.as_secs_f64(),
        )?;
        out.counters(
            ("process_cpu_seconds", "Processor time of all threads"),
            [(Vec::new(), self.cpu_s)],
        )?;
        let limit = self.most_files.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        for (named, value) in [
            (
                (
                    "process_resident_memory_bytes",
                    "Resident memory, including guests' mapped pages",
                ),
                self.resident,
            ),
            (
                (
                    "process_virtual_memory_bytes",
                    "Address space in use, including guests' mapped memory",
                ),
                self.virtual_size,
            ),
            (("process_threads", "Threads"), self.threads),
            (("process_open_fds", "Open files"), self.open_files),
            (("process_max_fds", "Most files that may be open"), limit),
        ] {
            out.gauges(named, value.map(|value| (Vec::new(), value)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_status_are_read() {
        let status = "Name:\tmillrace\nVmRSS:\t    1234 kB\nThreads:\t3\n";
        assert_eq!((field(status, "VmRSS:"), field(status, "Threads:")), (Some(1234), Some(3)));
        assert_eq!(field(status, "VmSize:"), None);
    }

    #[test]
    fn this_process_has_memory_threads_and_files() {
        let process = Process::now(SystemTime::now());
        assert!(process.cpu_s > 0.0);
        assert!(process.resident > Some(4096) && process.virtual_size > process.resident);
        assert!(process.threads > Some(0) && process.open_files > Some(0));
    }
}
