//! Ctrl-C: everything that waits or runs checks here, and what was started is cleaned up on exit.

use anyhow::{Result, bail};
use lab::Interrupt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often a wait checks again.
const GLANCE: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Interrupt);

impl Stop {
    /// Set by Ctrl-C and SIGTERM from now on.
    pub(crate) fn at_signals() -> Result<Stop> {
        let interrupt = Interrupt::default();
        interrupt.watch_signals()?;
        Ok(Stop(interrupt))
    }

    /// Whether to stop.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.0.load(Relaxed)
    }

    /// An error if it is time to stop.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Polls until there is an answer; `None` after `patience`.
    pub(crate) fn wait_for<T>(
        &self,
        patience: Duration,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let begin = Instant::now();
        loop {
            if let Some(found) = ready()? {
                return Ok(Some(found));
            }
            self.check()?;
            if begin.elapsed() > patience {
                return Ok(None);
            }
            std::thread::sleep(GLANCE);
        }
    }
}
