//! A flag that SIGINT, SIGTERM and SIGHUP set, for measuring programs whose threads poll it.

use procfs::process::Process;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Starts a thread that sets the flag at SIGINT, at SIGTERM, and at SIGHUP unless that is ignored
/// (`nohup`). All handlers are installed before this returns, so a signal after it is neither lost
/// nor fatal.
///
/// # Errors
/// The kernel refuses a resource of the signal handlers.
pub fn set_at_termination(flag: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let watch = |kind| {
        let _inside = runtime.enter();
        signal(kind)
    };
    let [mut interrupt, mut terminate] =
        [watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?];
    let other = if hangup_is_ignored() { SignalKind::terminate() } else { SignalKind::hangup() };
    let mut other = watch(other)?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = other.recv() => {}
            }
        });
        flag.store(true, Relaxed);
    });
    Ok(())
}

/// Returns whether SIGHUP is ignored: the lowest bit of the mask in `/proc/self/status`.
fn hangup_is_ignored() -> bool {
    let status = Process::myself().and_then(|own| own.status());
    status.is_ok_and(|status| status.sigign & 1 == 1)
}
