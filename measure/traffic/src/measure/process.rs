//! Processor time of one process with all its threads, or of all processes, from /proc/PID/stat
//! (proc(5)), in ticks of 10 ms.
//!
//! Soft interrupts that ran while the process did are included unless the kernel has
//! CONFIG_IRQ_TIME_ACCOUNTING.

use procfs::FromRead;
use procfs::process::{Stat, StatFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;

/// A process's time at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSample {
    at: Instant,
    user_ticks: u64,
    system_ticks: u64,
}

/// Ticks per second in /proc: the kernel's user interface fixes it at 100 (USER_HZ) on every
/// architecture this project runs on.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessSample {
    /// Samples this process.
    ///
    /// # Errors
    /// Fails if /proc is not mounted.
    pub fn read_own() -> io::Result<ProcessSample> {
        ProcessSample::read_path("/proc/self/stat")
    }

    /// Samples the process with this id.
    ///
    /// # Errors
    /// Fails if there is none, or if it belongs to another user on a host that hides those.
    pub fn read(process: u32) -> io::Result<ProcessSample> {
        ProcessSample::read_path(&format!("/proc/{process}/stat"))
    }

    fn read_path(path: &str) -> io::Result<ProcessSample> {
        let stat = Stat::from_file(path).map_err(io::Error::other)?;
        Ok(ProcessSample { at: Instant::now(), user_ticks: stat.utime, system_ticks: stat.stime })
    }

    /// Returns the processor time so far, kernel time included, in seconds.
    pub fn used_s(&self) -> f64 {
        (self.user_ticks + self.system_ticks) as f64 / TICKS_PER_SECOND
    }

    /// Returns the time used since an earlier sample of one process.
    pub fn since(&self, earlier: &ProcessSample) -> ProcessUsage {
        let user_s = self.user_ticks.saturating_sub(earlier.user_ticks) as f64 / TICKS_PER_SECOND;
        let system_s =
            self.system_ticks.saturating_sub(earlier.system_ticks) as f64 / TICKS_PER_SECOND;
        let wall_s = self.at.duration_since(earlier.at).as_secs_f64();
        let percent = if wall_s > 0.0 { (user_s + system_s) * 100.0 / wall_s } else { 0.0 };
        ProcessUsage { user_s, system_s, percent_of_one_processor: percent }
    }
}

/// Time of all processes that /proc shows. The time of an ended child is its parent's.
#[derive(Clone, Copy, Debug)]
pub struct AllProcesses {
    at: Instant,
    programs_ticks: u64,
    kernel_threads_ticks: u64,
}

impl AllProcesses {
    /// Takes a sample: one small file for each process.
    ///
    /// # Errors
    /// Fails if /proc is not mounted.
    pub fn read() -> io::Result<AllProcesses> {
        let mut all =
            AllProcesses { at: Instant::now(), programs_ticks: 0, kernel_threads_ticks: 0 };
        for entry in std::fs::read_dir("/proc")? {
            // Entries that are no processes have no such file, and a process may end meanwhile.
            let Ok(stat) = Stat::from_file(entry?.path().join("stat")) else { continue };
            // Time of ended children that were waited for.
            let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
            let kernel = stat.flags & StatFlags::PF_KTHREAD.bits() != 0;
            *if kernel { &mut all.kernel_threads_ticks } else { &mut all.programs_ticks } +=
                stat.utime + stat.stime + children;
        }
        Ok(all)
    }

    /// Returns the processors that programs, and that kernel threads, used since an earlier sample.
    pub fn since(&self, earlier: &AllProcesses) -> [f64; 2] {
        let wall_s = self.at.duration_since(earlier.at).as_secs_f64().max(1e-9);
        let used = |now: u64, then| now.saturating_sub(then) as f64 / TICKS_PER_SECOND / wall_s;
        [
            used(self.programs_ticks, earlier.programs_ticks),
            used(self.kernel_threads_ticks, earlier.kernel_threads_ticks),
        ]
    }
}

/// Time that a process used between two samples.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessUsage {
    /// Seconds in user mode, of all threads.
    pub user_s: f64,
    /// Seconds in the kernel on its behalf, of all threads.
    pub system_s: f64,
    /// Percent of one processor's time; above 100 with several busy threads.
    pub percent_of_one_processor: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_never_runs_backwards() {
        let first = ProcessSample::read_own().unwrap();
        let usage = ProcessSample::read(std::process::id()).unwrap().since(&first);
        assert!(usage.user_s >= 0.0 && usage.system_s >= 0.0);
    }

    #[test]
    fn all_processes_have_used_what_this_one_has() {
        let own = ProcessSample::read_own().unwrap();
        let all = AllProcesses::read().unwrap();
        assert!(all.programs_ticks >= own.user_ticks + own.system_ticks);
    }
}
