//! A flag that Ctrl-C sets, and waits that end with it.

use crate::LabError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often a wait checks the flag.
const GLANCE: Duration = Duration::from_millis(20);

/// The flag; the signal thread sets it, and every wait checks it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(pub Arc<AtomicBool>);

impl Interrupt {
    /// Sets the flag, which ends all waits.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    /// Returns whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Starts a thread that sets the flag at SIGINT, at SIGTERM, and at SIGHUP unless that is
    /// ignored (`nohup`).
    ///
    /// # Errors
    /// The kernel refuses a resource of the signal handlers.
    pub fn watch_signals(&self) -> Result<(), LabError> {
        signals::set_at_termination(self.0.clone()).map_err(LabError::io("watching signals"))
    }

    /// Waits for `time`.
    ///
    /// # Errors
    /// The flag is set: [`LabError::Interrupted`].
    pub fn pass(&self, time: Duration) -> Result<(), LabError> {
        let begin = Instant::now();
        loop {
            if self.is_set() {
                return Err(LabError::Interrupted);
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(GLANCE));
        }
    }

    /// Polls until `ready` returns a value; returns `None` if it did not within `patience`.
    ///
    /// # Errors
    /// `ready` fails, or the flag is set.
    pub(crate) fn wait_for<T>(
        &self,
        patience: Duration,
        mut ready: impl FnMut() -> Result<Option<T>, LabError>,
    ) -> Result<Option<T>, LabError> {
        let begin = Instant::now();
        loop {
            if let Some(found) = ready()? {
                return Ok(Some(found));
            }
            if begin.elapsed() > patience {
                return Ok(None);
            }
            self.pass(GLANCE)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_flag_ends_any_wait() {
        let interrupt = Interrupt::default();
        interrupt.pass(Duration::ZERO).unwrap();
        interrupt.set();
        assert!(matches!(interrupt.pass(Duration::MAX), Err(LabError::Interrupted)));
    }

    #[test]
    fn waiting_gives_what_was_found_or_nothing() {
        let interrupt = Interrupt::default();
        let found = interrupt.wait_for(Duration::MAX, || Ok(Some(7))).unwrap();
        assert_eq!(found, Some(7));
        let nothing = interrupt.wait_for(Duration::ZERO, || Ok(None::<u8>)).unwrap();
        assert_eq!(nothing, None);
    }
}
