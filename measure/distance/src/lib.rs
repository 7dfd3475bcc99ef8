//! Distance of two cores: the round trip of a cache line that both write.
//!
//! A hypervisor moves virtual processors. Between siblings of one physical core a line goes back
//! and forth in a third of the time that it takes between two cores, and frames cross at up to
//! three times the rate, with any switch. So a bench records the distance with each slice of a
//! sample, and compares slices of equal distance.

// One call of libc sets a priority.
#![allow(unsafe_code)]

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

/// Round trips timed together, so that the clock's own cost is negligible.
const BATCH: u32 = 20;
/// Batches of one measurement. Their median excludes those in which a thread was interrupted.
const BATCHES: u32 = 25;

/// An atomic alone in two cache lines: processors fetch them in pairs.
#[repr(align(128))]
struct Line(AtomicU32);

/// A thread on the switch's core that answers measurements. It ends with the process.
pub struct Distance {
    line: Arc<Line>,
    echo: Thread,
}

impl Distance {
    /// Starts the thread that answers on a core. It has priority over the switch there if the
    /// process may set that. Otherwise a measurement waits until the switch's time slice ends.
    ///
    /// # Errors
    /// Fails if there is no such core, or no thread can be started.
    pub fn from(core: usize) -> Result<Distance> {
        let line = Arc::new(Line(AtomicU32::new(0)));
        let answered = line.clone();
        let (ready, pinned) = std::sync::mpsc::channel();
        let echo = thread::Builder::new().name("distance".to_owned()).spawn(move || {
            let mut cores = CpuSet::new();
            cores.set(core);
            // The receiver cannot be gone: it waits for this one message.
            let _ = ready.send(sched_setaffinity(None, &cores));
            go_first();
            loop {
                echo(&answered.0);
            }
        })?;
        pinned.recv()?.with_context(|| format!("this machine has no core {core}"))?;
        Ok(Distance { line, echo: echo.thread().clone() })
    }

    /// Returns the round trip between the calling thread's core and the other, in nanoseconds.
    pub fn round_trip_ns(&self) -> f64 {
        let line = &self.line.0;
        let mut batches = [0.0; BATCHES as usize];
        let mut said = 0;
        for batch in &mut batches {
            let begin = Instant::now();
            for _ in 0..BATCH {
                line.store(said + 1, Ordering::Release);
                self.wake_first(said);
                while line.load(Ordering::Acquire) != said + 2 {
                    spin_loop();
                }
                said += 2;
            }
            *batch = begin.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH);
        }
        line.store(0, Ordering::Release);
        batches.sort_by(f64::total_cmp);
        batches[batches.len() / 2]
    }

    fn wake_first(&self, said: u32) {
        if said == 0 {
            self.echo.unpark();
        }
    }
}

/// Answers one measurement, and sleeps until it begins.
fn echo(line: &AtomicU32) {
    while line.load(Ordering::Acquire) != 1 {
        thread::park();
    }
    for round in 0..BATCH * BATCHES {
        while line.load(Ordering::Acquire) != 2 * round + 1 {
            spin_loop();
        }
        line.store(2 * round + 2, Ordering::Release);
    }
}

/// Gives the calling thread a real-time priority, if it has the right to.
fn go_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure lives until the call returns; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
}

#[cfg(test)]
mod tests {
    use super::Distance;

    #[test]
    fn each_measurement_is_answered() {
        let distance = Distance::from(0).unwrap();
        for _ in 0..100 {
            let nanoseconds = distance.round_trip_ns();
            assert!(nanoseconds > 0.0 && nanoseconds.is_finite());
        }
    }

    #[test]
    fn a_core_that_is_not_there_is_named() {
        let error = Distance::from(1023).err().unwrap();
        assert_eq!(format!("{error:#}").split(':').next(), Some("this machine has no core 1023"));
    }
}
