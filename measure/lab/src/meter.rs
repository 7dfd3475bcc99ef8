//! What an interval cost the whole machine: the columns of the guide's table, and where the time
//! went.

use crate::plan::Values;
use std::time::Instant;
use traffic::measure::{Busiest, CpuSample, CycleCounter, CycleSample, online};

/// Keys of the busiest processor: its number, how busy it was, and how much of that was soft
/// interrupts.
pub(crate) const BUSIEST: [&str; 3] =
    ["busiest_processor", "busiest_processor_percent", "busiest_processor_softirq_percent"];

/// Reads the machine's clocks and counters.
pub(crate) struct Meter {
    cycles: CycleCounter,
}

/// The machine at one moment.
pub(crate) struct Moment {
    at: Instant,
    cpu: CpuSample,
    cycles: CycleSample,
}

impl Meter {
    /// Opens the cycle counters where the machine has them.
    pub(crate) fn new() -> Meter {
        Meter { cycles: CycleCounter::open() }
    }

    /// Reads everything now.
    pub(crate) fn read(&self) -> std::io::Result<Moment> {
        Ok(Moment { at: Instant::now(), cpu: CpuSample::read()?, cycles: self.cycles.sample() })
    }
}

impl Moment {
    /// Seconds since an earlier moment.
    pub(crate) fn seconds_since(&self, earlier: &Moment) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }

    /// Processors used since an earlier moment, of each processor: 0 to 1.
    pub(crate) fn processors_since(&self, earlier: &Moment) -> Vec<f64> {
        let used = self.cpu.since(&earlier.cpu).busy_percent_of_each;
        used.into_iter().map(|percent| percent / 100.0).collect()
    }

    /// The values of an interval in which an application received `bytes`, in so many seconds by
    /// its own clock, and what that cost the machine.
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
        // This very loop has kept one busy, at least as much as all of them on average.
        assert!((values["cpu_percent"] - 1e-9..=100.0).contains(&values[BUSIEST[1]]));
        assert_eq!(values.contains_key("cycles_per_byte"), cfg!(target_arch = "x86_64"));
        assert!(!end.since(&begin, 0, 1.0).contains_key("cycles_per_byte"));
    }
}
