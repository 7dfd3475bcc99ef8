//! Processor time of one process with all its threads, from /proc/PID/stat (proc(5)), in ticks of 10 ms.

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

/// Ticks per second that /proc speaks in: fixed at 100 by the kernel's user interface (USER_HZ) on every architecture
/// this project runs on.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessSample {
    /// This process.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn read_own() -> io::Result<ProcessSample> {
        ProcessSample::read_path("/proc/self/stat")
    }

    /// The process with this id.
    ///
    /// # Errors
    /// There is none, or it belongs to someone else on a host that hides those.
    pub fn read(process: u32) -> io::Result<ProcessSample> {
        ProcessSample::read_path(&format!("/proc/{process}/stat"))
    }

    fn read_path(path: &str) -> io::Result<ProcessSample> {
        let text = std::fs::read_to_string(path)?;
        let (user_ticks, system_ticks) = parse(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "a stat file without utime and stime")
        })?;
        Ok(ProcessSample { at: Instant::now(), user_ticks, system_ticks })
    }

    /// What was used since an earlier sample of the same process.
    #[allow(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^52")]
    pub fn since(&self, earlier: &ProcessSample) -> ProcessUsage {
        let user_s = self.user_ticks.saturating_sub(earlier.user_ticks) as f64 / TICKS_PER_SECOND;
        let system_s =
            self.system_ticks.saturating_sub(earlier.system_ticks) as f64 / TICKS_PER_SECOND;
        let wall_s = self.at.duration_since(earlier.at).as_secs_f64();
        let percent = if wall_s > 0.0 { (user_s + system_s) * 100.0 / wall_s } else { 0.0 };
        ProcessUsage { user_s, system_s, percent_of_one_processor: percent }
    }
}

/// The two fields after the command name, which may itself hold blanks and brackets.
fn parse(text: &str) -> Option<(u64, u64)> {
    let (_, after_name) = text.rsplit_once(')')?;
    // State is field 3 of the file; utime and stime are 14 and 15.
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Time that a process used between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Seconds in user mode, of all threads.
    pub user_s: f64,
    /// Seconds in the kernel on its behalf, of all threads.
    pub system_s: f64,
    /// Of one processor's time; above 100 with several busy threads.
    pub percent_of_one_processor: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) b (c)) S 1 1 1 0 -1 4 10 0 0 0 31 41 0 0 20 0 1 0 5 6 7";
        assert_eq!(parse(text), Some((31, 41)));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn own_time_never_runs_backwards() {
        let first = ProcessSample::read_own().unwrap();
        let usage = ProcessSample::read(std::process::id()).unwrap().since(&first);
        assert!(usage.user_s >= 0.0 && usage.system_s >= 0.0);
    }
}
