//! Processor use of the whole machine in an interval: the columns of the guide's table.

use crate::plan::Values;
use std::time::Instant;
use traffic::measure::{Busiest, CpuSample, CycleCounter, CycleSample, online};

/// Keys of the busiest processor: its number, its load, and the part of that in soft interrupts.
pub(crate) const BUSIEST: [&str; 3] =
    ["busiest_processor", "busiest_processor_percent", "busiest_processor_softirq_percent"];

/// Reads the machine's clocks and counters.
pub(crate) struct Meter {
    cycles: CycleCounter,
}

/// A reading of the machine at one moment.
pub(crate) struct Moment {
    at: Instant,
    cpu: CpuSample,
    cycles: CycleSample,
}

impl Meter {
    /// Opens the cycle counters if the machine has them.
    pub(crate) fn new() -> Meter {
        Meter { cycles: CycleCounter::open() }
    }

    /// Reads the clock and all counters.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub(crate) fn read(&self) -> std::io::Result<Moment> {
        Ok(Moment { at: Instant::now(), cpu: CpuSample::read()?, cycles: self.cycles.sample() })
    }
}

impl Moment {
    /// Returns the seconds since an earlier moment.
    pub(crate) fn seconds_since(&self, earlier: &Moment) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }

    /// Returns the use of each processor since an earlier moment: 0 to 1.
    pub(crate) fn processors_since(&self, earlier: &Moment) -> Vec<f64> {
        let used = self.cpu.since(&earlier.cpu).busy_percent_of_each;
        used.into_iter().map(|percent| percent / 100.0).collect()
    }

    /// Returns the values of an interval. An application received `bytes` in `by_receiver_s`
    /// seconds of its own clock.
    pub(crate) fn since(&self, earlier: &Moment, bytes: u64, by_receiver_s: f64) -> Values {
        let usage = self.cpu.since(&earlier.cpu);
        let cycles = self.cycles.since(&earlier.cycles);
        let busiest = self.cpu.busiest_since(&earlier.cpu);
        let seconds = self.seconds_since(earlier);
        let number = |Busiest { place, .. }| online().get(place).copied().unwrap_or(place) as f64;
        let figures = [
            ("seconds", Some(by_receiver_s)),
            ("received_bytes", Some(bytes as f64)),
            ("throughput_bps", Some(bytes as f64 * 8.0 / by_receiver_s.max(1e-9))),
            ("cpu_percent", Some(usage.busy_percent)),
            ("steal_percent", Some(usage.steal_percent)),
            (BUSIEST[0], busiest.map(number)),
            (BUSIEST[1], busiest.map(|busiest| busiest.busy_percent)),
            (BUSIEST[2], busiest.map(|busiest| busiest.softirq_percent)),
            ("cycles_per_byte", cycles.per_byte_by_formula(&usage, seconds, bytes).value),
            ("hardware_cycles_per_byte", cycles.per_byte_by_hardware(bytes).value),
            ("time_stamp_hz", cycles.time_stamp_hz.value),
        ];
        figures.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_guides_columns_and_no_bytes_give_no_cycles_per_byte() {
        let meter = Meter::new();
        let begin = meter.read().unwrap();
        let end = loop {
            let now = meter.read().unwrap();
            if now.seconds_since(&begin) > 0.05 {
                break now;
            }
        };
        let values = end.since(&begin, 1 << 30, 1.0);
        assert!((0.0..=100.0).contains(&values["cpu_percent"]));
        // The loop above kept one processor busy, at least as much as all of them on average.
        assert!((values["cpu_percent"] - 1e-9..=100.0).contains(&values[BUSIEST[1]]));
        assert_eq!(values.contains_key("cycles_per_byte"), cfg!(target_arch = "x86_64"));
        assert!(!end.since(&begin, 0, 1.0).contains_key("cycles_per_byte"));
    }
}
