//! Processor time of the whole host, from /proc/stat (proc(5)), in ticks of 10 ms.
//!
//! `busy` is user, nice, system, irq and softirq. Idle and iowait are both idle: the processor had
//! nothing to do. Steal is neither: the hypervisor gave the time to another guest. It stays in the
//! denominator and is shown by itself. Guest time is already inside user and nice.

use procfs::{CpuTime, CurrentSI, KernelStats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;

/// User, nice, system, idle, iowait, irq, softirq and steal ticks of one processor, or of all
/// together, since the host started.
type Ticks = [u64; 8];

/// The host's processor time at one moment.
#[derive(Clone, Debug)]
pub struct CpuSample {
    /// The moment of the sample.
    pub at: Instant,
    all: Ticks,
    each: Vec<Ticks>,
}

impl CpuSample {
    /// Takes a sample.
    ///
    /// # Errors
    /// Fails if /proc is not mounted, or has no processor line.
    pub fn read() -> io::Result<CpuSample> {
        let stats = KernelStats::current().map_err(io::Error::other)?;
        Ok(CpuSample::new(ticks(&stats.total), stats.cpu_time.iter().map(ticks).collect()))
    }

    fn new(all: Ticks, each: Vec<Ticks>) -> CpuSample {
        CpuSample { at: Instant::now(), all, each }
    }

    /// Returns the ticks in which any of the processors was busy.
    pub fn busy(&self) -> u64 {
        busy(&self.all)
    }

    /// Returns the number of processors online.
    pub fn processors(&self) -> usize {
        self.each.len().max(1)
    }

    /// Returns the time used since an earlier sample.
    pub fn since(&self, earlier: &CpuSample) -> CpuUsage {
        let spent = since(&self.all, &earlier.all);
        let of_all = |ticks| percent(ticks, &spent);
        let [user, nice, system, idle, iowait, irq, softirq, steal] = spent;
        let each = self.each.iter().zip(&earlier.each).map(|(now, then)| since(now, then));
        CpuUsage {
            processors: self.processors(),
            busy_percent: of_all(busy(&spent)),
            user_percent: of_all(user + nice),
            system_percent: of_all(system),
            irq_percent: of_all(irq),
            softirq_percent: of_all(softirq),
            idle_percent: of_all(idle),
            iowait_percent: of_all(iowait),
            steal_percent: of_all(steal),
            busy_percent_of_each: each.map(|spent| percent(busy(&spent), &spent)).collect(),
        }
    }

    /// Returns the busiest processor since an earlier sample; `None` if none was busy.
    pub fn busiest_since(&self, earlier: &CpuSample) -> Option<Busiest> {
        let each = self.each.iter().zip(&earlier.each).map(|(now, then)| since(now, then));
        let busiest = each.enumerate().max_by_key(|(_, spent)| busy(spent));
        let (place, spent) = busiest.filter(|(_, spent)| busy(spent) > 0)?;
        let [.., softirq, _] = spent;
        let softirq_percent = share(softirq, busy(&spent));
        Some(Busiest { place, busy_percent: percent(busy(&spent), &spent), softirq_percent })
    }
}

/// The busiest processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busiest {
    /// Index among [those online](online).
    pub place: usize,
    /// Busy share of its own time.
    pub busy_percent: f64,
    /// Share of soft interrupts in its busy time.
    pub softirq_percent: f64,
}

/// Returns the numbers of the processors online, in order; empty if the kernel does not tell.
pub fn online() -> Vec<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    numbers(list.trim())
}

/// Parses a list such as `0-3,6`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

fn ticks(time: &CpuTime) -> Ticks {
    let CpuTime { user, nice, system, idle, iowait, irq, softirq, steal, .. } = *time;
    let known = [iowait, irq, softirq, steal].map(Option::unwrap_or_default);
    let [iowait, irq, softirq, steal] = known;
    [user, nice, system, idle, iowait, irq, softirq, steal]
}

/// Returns the difference of two readings; the kernel's iowait may run backwards.
fn since(now: &Ticks, then: &Ticks) -> Ticks {
    let mut spent = *now;
    spent.iter_mut().zip(then).for_each(|(spent, then)| *spent = spent.saturating_sub(*then));
    spent
}

fn busy(&[user, nice, system, _, _, irq, softirq, _]: &Ticks) -> u64 {
    user + nice + system + irq + softirq
}

/// Shares of all processors' time between two samples; they add up to 100.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuUsage {
    /// Processors online.
    pub processors: usize,
    /// "Avg. CPU %": user, system, irq and softirq.
    pub busy_percent: f64,
    /// User mode, nice and guests included.
    pub user_percent: f64,
    /// System mode.
    pub system_percent: f64,
    /// Hardware interrupts.
    pub irq_percent: f64,
    /// Soft interrupts.
    pub softirq_percent: f64,
    /// Idle time.
    pub idle_percent: f64,
    /// Idle time while a task waited for a disk.
    pub iowait_percent: f64,
    /// Time that the hypervisor gave to other guests.
    pub steal_percent: f64,
    /// Busy share of each processor's own time, in the order of [`online`].
    pub busy_percent_of_each: Vec<f64>,
}

fn percent(part: u64, spent: &Ticks) -> f64 {
    share(part, spent.iter().sum())
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(ticks: Ticks) -> CpuSample {
        CpuSample::new(ticks, vec![ticks])
    }

    #[test]
    fn busy_has_interrupts_and_neither_iowait_nor_steal() {
        let before = sample([100, 0, 100, 1000, 50, 5, 20, 10]);
        let usage = sample([130, 10, 120, 1020, 60, 10, 25, 20]).since(&before);
        // 30 user, 10 nice, 20 system, 5 irq, 5 softirq of 110; 20 idle, 10 iowait, 10 steal.
        assert!((usage.busy_percent - 70.0 / 1.1).abs() < 1e-9);
        assert!((usage.steal_percent - 10.0 / 1.1).abs() < 1e-9);
        assert_eq!(usage.busy_percent_of_each.len(), 1);
    }

    #[test]
    fn the_busiest_processor_says_how_much_of_it_is_soft_interrupts() {
        let idle = [0, 0, 10, 90, 0, 0, 0, 0];
        let busy = [20, 0, 10, 10, 0, 0, 60, 0];
        let sample = |each| CpuSample::new([0; 8], each);
        let found = sample(vec![idle, busy]).busiest_since(&sample(vec![[0; 8]; 2])).unwrap();
        assert_eq!((found.place, found.busy_percent), (1, 90.0));
        assert!((found.softirq_percent - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(sample(vec![idle]).busiest_since(&sample(vec![idle])), None);
    }

    #[test]
    fn a_list_of_processors_with_gaps_has_their_numbers() {
        assert_eq!((numbers("0-2,5"), numbers("7")), (vec![0, 1, 2, 5], vec![7]));
        assert_eq!((numbers(""), numbers("0-")), (vec![], vec![]));
        assert_eq!(online().len(), CpuSample::read().unwrap().processors());
    }

    proptest! {
        #[test]
        fn shares_add_up_to_a_hundred(spent in prop::array::uniform8(0u64..1_000_000)) {
            let usage = sample(spent).since(&sample([0; 8]));
            let sum = usage.busy_percent + usage.idle_percent + usage.iowait_percent + usage.steal_percent;
            prop_assert!(spent.iter().sum::<u64>() == 0 || (sum - 100.0).abs() < 1e-6);
        }
    }

    #[test]
    fn columns_are_those_of_the_kernels_own_file() {
        let read = || {
            let text = std::fs::read_to_string("/proc/stat").unwrap();
            let numbers = text.lines().next().unwrap().split_ascii_whitespace().skip(1).take(8);
            numbers.map(|number| number.parse().unwrap()).collect::<Vec<u64>>()
        };
        let (earlier, now, later) = (read(), CpuSample::read().unwrap().all, read());
        for (column, ticks) in now.iter().enumerate() {
            // iowait may run backwards.
            let between = (earlier[column]..=later[column]).contains(ticks);
            assert!(between || column == 4, "{earlier:?} {now:?} {later:?}");
        }
    }
}
