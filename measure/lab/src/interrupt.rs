//! Waiting that Ctrl-C ends.

use crate::LabError;
use procfs::process::Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// How often a wait looks at the flag.
const GLANCE: Duration = Duration::from_millis(20);

/// Set by whoever handles signals; seen by everything that waits.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(pub Arc<AtomicBool>);

impl Interrupt {
    /// Ends all waiting.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether someone has.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Sets the flag at Ctrl-C, at SIGTERM, and when the terminal goes away, unless that is ignored
    /// (`nohup`). Starts a thread.
    ///
    /// # Errors
    /// The kernel refuses what a signal handler needs.
    pub fn watch_signals(&self) -> Result<(), LabError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(LabError::io("watching signals"))?;
        let watch = |kind| {
            let _inside = runtime.enter();
            signal(kind).map_err(LabError::io("watching signals"))
        };
        // All are watched when this returns: none that comes then is lost, or ends the process.
        let [mut interrupt, mut terminate] =
            [watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?];
        let other =
            if hangup_is_ignored() { SignalKind::terminate() } else { SignalKind::hangup() };
        let mut other = watch(other)?;
        let flag = self.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = other.recv() => {}
                }
            });
            flag.set();
        });
        Ok(())
    }

    /// Lets time pass, or [`LabError::Interrupted`].
    pub(crate) fn pass(&self, time: Duration) -> Result<(), LabError> {
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

    /// Waits until something is so. `None`: it was not within `patience`.
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

/// By the mask of ignored signals, whose lowest bit is SIGHUP.
fn hangup_is_ignored() -> bool {
    let status = Process::myself().and_then(|own| own.status());
    status.is_ok_and(|status| status.sigign & 1 == 1)
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
