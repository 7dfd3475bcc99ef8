//! A flag that Ctrl-C sets. Every wait and every loop checks it and returns an error, so that all
//! processes and devices are cleaned up.

use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns a flag that SIGINT, SIGTERM and SIGHUP set from now on.
    pub(crate) fn at_signals() -> Result<Stop> {
        let stop = Stop::default();
        signals::set_at_termination(stop.0.clone()).context("watching signals")?;
        Ok(stop)
    }

    /// Returns whether the flag is set.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Returns an error if the flag is set.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Polls until `ready` returns a value; returns `None` after `timeout`.
    ///
    /// # Errors
    /// `ready` fails, or the flag is set.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Duration,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let begin = Instant::now();
        loop {
            if let Some(found) = ready()? {
                return Ok(Some(found));
            }
            self.check()?;
            if begin.elapsed() > timeout {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
