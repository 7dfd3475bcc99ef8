//! Limits what anyone may request to so many a second, however many clients request it: each takes
//! time of the thread for which all other clients wait. A trace copies the switch, so there are two a
//! second.

use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Time from the beginning of one trace to that of the next.
const APART: Duration = Duration::from_millis(500);

/// Tells when the next trace may begin.
pub(super) struct Pace {
    next: Mutex<Option<Instant>>,
    apart: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new(APART)
    }
}

impl Pace {
    /// Creates a limit with this time from one turn to the next.
    pub(super) fn new(apart: Duration) -> Pace {
        Pace { next: Mutex::default(), apart }
    }

    /// Waits for a turn, behind clients that came before. A client that goes away meanwhile takes
    /// no turn.
    pub(super) async fn turn(&self) {
        let mut next = self.next.lock().await;
        if let Some(next) = *next {
            sleep_until(next).await;
        }
        *next = Some(Instant::now() + self.apart);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn one_takes_its_turn_and_the_others_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let pace = Pace::new(Duration::from_hours(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(pace.turn()).poll(&mut context).is_ready());
        for _ in 0..2 {
            assert!(pin!(pace.turn()).poll(&mut context).is_pending());
            assert!(pace.next.try_lock().is_ok(), "one that has gone away is in nobody's way");
        }
        let quick = Pace::new(Duration::ZERO);
        runtime.block_on(async { (quick.turn().await, quick.turn().await) });
    }
}
