//! Processor use during an interval: sender, switch, receiver, the kernel's work shared by all of
//! them, and other programs. These columns add up to the machine. Both benches call this at the
//! ends of an interval, and a few times a second in between.
//!
//! A reading takes one small file of /proc per process; the time of all readings goes into the
//! report. The kernel counts in ticks of 10 ms, so a value is exact to a twentieth of a processor.

use crate::LabError;
use crate::plan::{Usage, Values};
use std::time::{Duration, Instant};
use traffic::measure::{AllProcesses, CpuSample, ProcessSample};

/// Time between two readings. An interval shorter than twice this has no readings in between.
const EVERY: Duration = Duration::from_millis(200);
/// Key of the time that readings took, in seconds per second.
pub(crate) const COST: &str = "usage_reading_s_per_s";
/// Key of soft interrupts and kernel threads that no process is charged for: the shared kernel.
pub(crate) const SOFTIRQ: &str = "softirq_cpu_s_per_s";
/// Key of all other programs.
pub(crate) const OTHERS: &str = "others_cpu_s_per_s";
/// Keys of the processes, in the order of [`Sides`].
pub(crate) const PROCESSES: [&str; 3] =
    ["sender_cpu_s_per_s", "switch_cpu_s_per_s", "receiver_cpu_s_per_s"];
/// Keys of the processor time per GiB: the switch, the receiver, and both with their kernel.
pub(crate) const RECEIVING: [&str; 3] =
    ["switch_cpu_s_per_gib", "receiver_cpu_s_per_gib", "receiving_cpu_s_per_gib"];

/// Key of the processor time of the whole machine per GiB.
const OF_ALL: &str = "machine_cpu_s_per_gib";

/// A reading of processor time.
pub(crate) trait Reading: Sized {
    /// Returns the processors used since an earlier reading, by key.
    fn since(&self, earlier: &Self) -> Values;
}

/// Sender, switch and receiver, and the machine.
pub(crate) struct Sides {
    at: Instant,
    /// Processor time that each side has used so far, in seconds.
    used_s: [Option<f64>; 3],
    machine: Option<MachineUsage>,
}

impl Sides {
    /// Reads the processes with these ids.
    pub(crate) fn read(processes: [u32; 3]) -> Sides {
        Sides::new(processes.map(used_s))
    }

    /// Returns a reading of sides whose processor times so far, in seconds, are known.
    pub(crate) fn new(used_s: [Option<f64>; 3]) -> Sides {
        Sides { at: Instant::now(), used_s, machine: MachineUsage::read() }
    }
}

/// Returns the processor time that a process has used so far, in seconds; `None` if it cannot be
/// read.
pub(crate) fn used_s(process: u32) -> Option<f64> {
    ProcessSample::read(process).ok().map(|sample| sample.used_s())
}

impl Reading for Sides {
    fn since(&self, earlier: &Sides) -> Values {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64().max(1e-9);
        let used = self.used_s.into_iter().zip(earlier.used_s);
        let used = used.map(|(now, then)| Some((now? - then?).max(0.0) / seconds));
        let known = PROCESSES.into_iter().zip(used);
        let mut values: Values =
            known.filter_map(|(key, used)| Some((key.into(), used?))).collect();
        add_machine(&mut values, self.machine.as_ref(), earlier.machine.as_ref());
        values
    }
}

/// A reading of the whole machine.
pub(crate) struct MachineUsage {
    cpu: CpuSample,
    processes: AllProcesses,
}

impl MachineUsage {
    /// Reads the machine; `None` if /proc cannot be read.
    pub(crate) fn read() -> Option<MachineUsage> {
        Some(MachineUsage { cpu: CpuSample::read().ok()?, processes: AllProcesses::read().ok()? })
    }
}

/// Adds the shared kernel's and other programs' use to `values`, which hold the processes'.
pub(crate) fn add_machine(
    values: &mut Values,
    now: Option<&MachineUsage>,
    then: Option<&MachineUsage>,
) {
    let Some((now, then)) = now.zip(then) else { return };
    let ours = values.values().sum();
    let usage = now.cpu.since(&then.cpu);
    let processors = |percent| percent / 100.0 * usage.processors as f64;
    let [programs, kernel_threads] = now.processes.since(&then.processes);
    let interrupts = processors(usage.irq_percent + usage.softirq_percent);
    let beside =
        split(processors(usage.busy_percent), ours, programs - ours, interrupts + kernel_threads);
    values.extend([SOFTIRQ, OTHERS].map(str::to_owned).into_iter().zip(beside));
}

/// Splits the busy time beyond `ours` into the shared kernel's and other programs'. `kernel` is all
/// time of soft interrupts and kernel threads, of which only the part that no program is charged
/// for counts as the kernel's. `others` is what other programs were seen to use. The rest belongs
/// to programs that this container does not show.
fn split(busy: f64, ours: f64, others: f64, kernel: f64) -> [f64; 2] {
    let rest = (busy - ours).max(0.0);
    let kernel = (rest - others.max(0.0)).clamp(0.0, kernel);
    [kernel, rest - kernel]
}

/// Adds the processor time per GiB of the receiving side: the switch's process, the receiver's, and
/// both with the kernel's work for them. `placed` is the use of the processors that only these two
/// run on; without it the shared kernel's time is added to the processes'.
pub(crate) fn add_cost_of_receiving(values: &mut Values, placed: Option<f64>) {
    let [Some(seconds), Some(bytes)] = ["seconds", "received_bytes"].map(|key| values.get(key))
    else {
        return;
    };
    let by_gib = *seconds / (*bytes / f64::from(1 << 30));
    let [_, switch, receiver] = PROCESSES.map(|key| values.get(key).copied());
    let both = placed.or_else(|| Some(switch? + receiver? + values.get(SOFTIRQ)?));
    let costs = RECEIVING.into_iter().zip([switch, receiver, both]);
    let known = costs.filter_map(|(key, used)| Some((key.to_owned(), used? * by_gib)));
    let known: Vec<_> = known.filter(|(_, cost)| cost.is_finite()).collect();
    values.extend(known);
}

/// Adds the processor time per GiB of the whole machine, of whose processors `used` were in use.
pub(crate) fn add_cost_of_all(values: &mut Values, used: f64) {
    let figure = |key| values.get(key).copied().unwrap_or_default();
    let cost = used * figure("seconds") / (figure("received_bytes") / f64::from(1 << 30));
    if cost.is_finite() {
        values.insert(OF_ALL.into(), cost);
    }
}

/// Waits for an interval, and reads meanwhile. Returns the readings, and the share of the interval
/// that they took. Times count from `begin`.
///
/// # Errors
/// `pass` fails.
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
    use proptest::prelude::*;
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
        // Does not wait: the test is about the number of readings.
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
        assert_eq!(keys, [OTHERS, "sender_cpu_s_per_s", SOFTIRQ, "switch_cpu_s_per_s"]);
    }

    #[test]
    fn soft_interrupts_inside_our_processes_hide_no_strangers() {
        // On 2 processors, 1.5 are ours with all 0.7 of soft interrupts inside; 0.5 are other
        // programs.
        assert_eq!(split(2.0, 1.5, 0.5, 0.7), [0.0, 0.5]);
        // The same load on a kernel that counts soft interrupts apart.
        assert_eq!(split(2.0, 0.75, 0.5, 0.75), [0.75, 0.5]);
        // The other programs run in another container.
        assert_eq!(split(2.0, 1.0, 0.0, 0.25), [0.25, 0.75]);
    }

    #[test]
    fn a_gib_costs_the_receiving_side_what_its_processors_did() {
        let cost = |bytes: f64, placed| {
            let mut values = Values::from([
                ("seconds".into(), 2.0),
                ("received_bytes".into(), bytes),
                (PROCESSES[1].into(), 0.5),
                (PROCESSES[2].into(), 0.25),
                (SOFTIRQ.into(), 0.25),
            ]);
            add_cost_of_receiving(&mut values, placed);
            add_cost_of_all(&mut values, 1.5);
            assert_eq!(values.get(OF_ALL).copied(), (bytes > 0.0).then_some(0.75));
            RECEIVING.map(|key| values.get(key).copied())
        };
        let gib = f64::from(1 << 30);
        assert_eq!(cost(4.0 * gib, Some(0.875)), [0.25, 0.125, 0.4375].map(Some));
        assert_eq!(cost(4.0 * gib, None), [0.25, 0.125, 0.5].map(Some));
        assert_eq!(cost(0.0, None), [None; 3], "nothing received has no cost by the GiB");
    }

    proptest! {
        #[test]
        fn columns_add_up_to_the_machine(
            ours in 0.0..64.0, beside in 0.0..64.0, others in -1.0..64.0, kernel in 0.0..64.0,
        ) {
            let split = split(ours + beside, ours, others, kernel);
            prop_assert!(split.iter().all(|used| *used >= 0.0) && split[0] <= kernel);
            prop_assert!(f64::abs(split[0] + split[1] - beside) < 1e-9);
        }
    }
}
