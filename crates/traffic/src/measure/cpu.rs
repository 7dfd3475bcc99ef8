//! Processor time of the whole host, from /proc/stat (proc(5)), in ticks of 10 ms.
//!
//! `busy` is user, nice, system, irq and softirq. Idle and iowait are both idle: the processor had nothing to do. Steal is
//! neither: the hypervisor gave the time to someone else. It stays in the denominator and is shown by itself. Guest time
//! is already inside user and nice.

use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;

/// Ticks of one processor, or of all together, since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In user mode, guests included.
    pub user: u64,
    /// In user mode at low priority.
    pub nice: u64,
    /// In the kernel.
    pub system: u64,
    /// With nothing to do.
    pub idle: u64,
    /// With nothing to do while some task waited for a disk.
    pub iowait: u64,
    /// In hardware interrupts.
    pub irq: u64,
    /// In soft interrupts, where the network stack receives.
    pub softirq: u64,
    /// Given to someone else by the hypervisor.
    pub steal: u64,
}

impl Ticks {
    fn parse(fields: &str) -> Option<Ticks> {
        let mut numbers = fields.split_ascii_whitespace().map(|field| field.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Ticks {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        })
    }

    fn since(&self, earlier: &Ticks) -> Ticks {
        Ticks {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            // The kernel's iowait may run backwards.
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Ticks in which something was done.
    pub fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// All ticks.
    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait + self.steal
    }
}

/// The host's processor time at one moment.
#[derive(Clone, Debug)]
pub struct CpuSample {
    /// When it was taken.
    pub at: Instant,
    all: Ticks,
    each: Vec<Ticks>,
}

impl CpuSample {
    /// Takes a sample.
    ///
    /// # Errors
    /// /proc is not mounted, or has no processor line.
    pub fn read() -> io::Result<CpuSample> {
        let text = std::fs::read_to_string("/proc/stat")?;
        CpuSample::parse(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no cpu line"))
    }

    fn parse(text: &str) -> Option<CpuSample> {
        let mut all = None;
        let mut each = Vec::new();
        for line in text.lines() {
            let Some((name, fields)) = line.split_once(' ') else { continue };
            match name.strip_prefix("cpu") {
                Some("") => all = Ticks::parse(fields),
                Some(_) => each.extend(Ticks::parse(fields)),
                None => {}
            }
        }
        Some(CpuSample { at: Instant::now(), all: all?, each })
    }

    /// Ticks of all processors together.
    pub fn all(&self) -> &Ticks {
        &self.all
    }

    /// Processors online.
    pub fn processors(&self) -> usize {
        self.each.len().max(1)
    }

    /// What was used since an earlier sample.
    pub fn since(&self, earlier: &CpuSample) -> CpuUsage {
        let spent = self.all.since(&earlier.all);
        let busy_each = self.each.iter().zip(&earlier.each).map(|(now, then)| {
            let spent = now.since(then);
            percent(spent.busy(), spent.total())
        });
        let share = |ticks| percent(ticks, spent.total());
        CpuUsage {
            processors: self.processors(),
            busy_percent: share(spent.busy()),
            user_percent: share(spent.user + spent.nice),
            system_percent: share(spent.system),
            irq_percent: share(spent.irq),
            softirq_percent: share(spent.softirq),
            idle_percent: share(spent.idle),
            iowait_percent: share(spent.iowait),
            steal_percent: share(spent.steal),
            busy_percent_of_each: busy_each.collect(),
        }
    }
}

/// Shares of all processors' time between two samples; they add up to 100.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// Processors online.
    pub processors: usize,
    /// "Avg. CPU %": user, system, irq and softirq.
    pub busy_percent: f64,
    /// User mode, nice and guests included.
    pub user_percent: f64,
    /// Kernel.
    pub system_percent: f64,
    /// Hardware interrupts.
    pub irq_percent: f64,
    /// Soft interrupts.
    pub softirq_percent: f64,
    /// Nothing to do.
    pub idle_percent: f64,
    /// Nothing to do while a task waited for a disk.
    pub iowait_percent: f64,
    /// Given away by the hypervisor.
    pub steal_percent: f64,
    /// Busy share of each processor's own time, in their order.
    pub busy_percent_of_each: Vec<f64>,
}

#[allow(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^52")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEFORE: &str =
        "cpu  100 0 100 1000 50 5 20 10 0 0\ncpu0 100 0 100 1000 50 5 20 10 0 0\nintr 5 1\n";
    const AFTER: &str =
        "cpu  130 10 120 1020 60 10 25 20 7 7\ncpu0 130 10 120 1020 60 10 25 20 7 7\nintr 9 1\n";

    #[test]
    fn busy_has_interrupts_and_neither_iowait_nor_steal() {
        let usage = CpuSample::parse(AFTER).unwrap().since(&CpuSample::parse(BEFORE).unwrap());
        // 30 user, 10 nice, 20 system, 5 irq, 5 softirq of 110; 20 idle, 10 iowait, 10 steal.
        assert!((usage.busy_percent - 70.0 / 1.1).abs() < 1e-9);
        assert!((usage.steal_percent - 10.0 / 1.1).abs() < 1e-9);
        assert_eq!(usage.busy_percent_of_each.len(), 1);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_a_hundred(spent in prop::collection::vec(0u64..1_000_000, 8)) {
            let text = |numbers: &[u64]| {
                let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
                format!("cpu  {}\n", words.join(" "))
            };
            let usage = CpuSample::parse(&text(&spent)).unwrap().since(&CpuSample::parse(&text(&[0; 8])).unwrap());
            let sum = usage.busy_percent + usage.idle_percent + usage.iowait_percent + usage.steal_percent;
            prop_assert!(spent.iter().sum::<u64>() == 0 || (sum - 100.0).abs() < 1e-6);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = CpuSample::parse(&text);
        }
    }

    #[test]
    fn this_hosts_own_file_is_read() {
        assert!(CpuSample::read().unwrap().all.total() > 0);
    }
}
