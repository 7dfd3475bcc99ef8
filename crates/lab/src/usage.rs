//! Who uses the processor while an interval lasts: sender, switch, receiver and the kernel's soft interrupts, a few times a
//! second. Called by both benches while their load runs.
//!
//! A reading is three small files of /proc, or two and some atomics in process. What all of them take is counted and goes
//! into the report. The kernel counts in ticks of 10 ms, so a value is exact to a twentieth of a processor.

use crate::LabError;
use crate::experiment::{Usage, Values};
use std::time::{Duration, Instant};
use traffic::measure::{CpuSample, ProcessSample};

/// From one reading to the next. A shorter interval than two of these has no readings within.
const EVERY: Duration = Duration::from_millis(200);
/// Key of the time that readings took, in seconds a second.
pub(crate) const COST: &str = "usage_reading_s_per_s";
/// Key of soft interrupts.
const SOFTIRQ: &str = "softirq_cpu_s_per_s";
/// Keys of the processes, in the order of [`Sides`].
pub(crate) const PROCESSES: [&str; 3] =
    ["sender_cpu_s_per_s", "switch_cpu_s_per_s", "receiver_cpu_s_per_s"];

/// What is read.
pub(crate) trait Reading: Sized {
    /// Processors used since an earlier reading, by key.
    fn since(&self, earlier: &Self) -> Values;
}

/// Sender, switch and receiver as processes, and the machine.
pub(crate) struct Sides {
    processes: [Option<ProcessSample>; 3],
    machine: Option<CpuSample>,
}

impl Sides {
    /// Of the processes with these ids.
    pub(crate) fn read(processes: [u32; 3]) -> Sides {
        let processes = processes.map(|process| ProcessSample::read(process).ok());
        Sides { processes, machine: CpuSample::read().ok() }
    }
}

impl Reading for Sides {
    fn since(&self, earlier: &Sides) -> Values {
        let pairs = PROCESSES.iter().zip(self.processes.iter().zip(&earlier.processes));
        let mut values: Values = pairs
            .filter_map(|(key, (now, then))| {
                let used = now.as_ref()?.since(then.as_ref()?).percent_of_one_processor / 100.0;
                Some(((*key).to_owned(), used))
            })
            .collect();
        values.extend(softirq(self.machine.as_ref(), earlier.machine.as_ref()));
        values
    }
}

/// Processors in soft interrupts between two samples of the machine.
pub(crate) fn softirq(now: Option<&CpuSample>, then: Option<&CpuSample>) -> Option<(String, f64)> {
    let usage = now?.since(then?);
    Some((SOFTIRQ.to_owned(), usage.softirq_percent / 100.0 * usage.processors as f64))
}

/// Lets an interval pass and reads meanwhile; with what share of the interval reading took. Times are on the clock that
/// began at `begin`.
pub(crate) fn watch<R: Reading>(
    interval: Duration,
    begin: Instant,
    mut pass: impl FnMut(Duration) -> Result<(), LabError>,
    read: impl Fn() -> R,
) -> Result<(Vec<Usage>, f64), LabError> {
    let slices = u32::try_from(interval.as_nanos() / EVERY.as_nanos()).unwrap_or(u32::MAX);
    if slices < 2 {
        pass(interval)?;
        return Ok((Vec::new(), 0.0));
    }
    let (start, mut cost) = (Instant::now(), Duration::ZERO);
    let mut timed = || {
        let before = Instant::now();
        let reading = read();
        cost += before.elapsed();
        (before, reading)
    };
    let (mut usage, mut last) = (Vec::new(), timed());
    for slice in 1..=slices {
        pass((interval * slice / slices).saturating_sub(start.elapsed()))?;
        let next = timed();
        let middle = last.0 + (next.0 - last.0) / 2;
        usage.push(Usage { at_s: (middle - begin).as_secs_f64(), sides: next.1.since(&last.1) });
        last = next;
    }
    Ok((usage, cost.as_secs_f64() / interval.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Count(u32);

    impl Reading for Count {
        fn since(&self, earlier: &Count) -> Values {
            Values::from([("turns".to_owned(), f64::from(self.0 - earlier.0))])
        }
    }

    fn watched(milliseconds: u64) -> Vec<Usage> {
        let count = Cell::new(0);
        let read = || Count(count.replace(count.get() + 1));
        // Nobody waits: the clock is not what is tested.
        watch(Duration::from_millis(milliseconds), Instant::now(), |_| Ok(()), read).unwrap().0
    }

    #[test]
    fn five_readings_a_second_and_none_within_a_short_interval() {
        assert_eq!(watched(1000).len(), 5);
        assert_eq!(watched(500).len(), 2);
        assert_eq!(watched(399).len(), 0);
        assert!(watched(1000).iter().all(|usage| usage.sides["turns"] == 1.0));
    }

    #[test]
    fn this_process_and_the_machine_are_read() {
        let own = std::process::id();
        let earlier = Sides::read([own, own, 0]);
        let values = Sides::read([own, own, 0]).since(&earlier);
        let keys: Vec<&str> = values.keys().map(String::as_str).collect();
        assert_eq!(keys, ["sender_cpu_s_per_s", "softirq_cpu_s_per_s", "switch_cpu_s_per_s"]);
    }
}
