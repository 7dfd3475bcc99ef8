//! What a worker does with nothing to take: poll on, or arm wake-ups and sleep.
//!
//! Sleeping is an epoll wait over the queues' descriptors and one eventfd for the mailbox. Descriptors of the kernel
//! (TAP, AF_PACKET) are level-triggered and need no arming; rings in guest memory do (see [`ports::Ingress::arm`]).

use crate::options::Wait;
use crate::worker::OwnedQueue;
use ports::Nanos;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Empty turns before an adaptive worker sleeps. Short, because what arrives in a cluster is still caught, and because
/// on small machines the guest needs the core that polling would take.
const EMPTY_TURNS: u32 = 16;

/// The waking side: held by whoever posts letters.
#[derive(Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn wake(&self) {
        // A full counter (2^64 - 2) is the only way to fail, and it is readable then.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A worker's clock and its way to sleep.
pub(crate) struct Waiter {
    mode: Wait,
    start: Instant,
    epoll: OwnedFd,
    wake: Waker,
    empty_turns: u32,
    armed: bool,
}

impl Waiter {
    /// All workers of a switch share `start`, so that their times compare.
    pub(crate) fn new(mode: Wait, start: Instant) -> io::Result<Waiter> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Waiter { mode, start, epoll, wake: Waker(Arc::new(wake)), empty_turns: 0, armed: false })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// The turn's clock. Starts at a second, so that a stamp of 0 is always old.
    #[allow(clippy::cast_possible_truncation, reason = "2^64 ns are 584 years")]
    pub(crate) fn now(&self) -> Nanos {
        Nanos::SECOND + Nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Wakes for this queue too.
    pub(crate) fn watch(&self, queue: &OwnedQueue) {
        if let Some(fd) = queue.ingress.ready_fd() {
            let _ =
                epoll::add(&self.epoll, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        }
    }

    /// Wakes for it no more.
    pub(crate) fn forget(&self, queue: &OwnedQueue) {
        if let Some(fd) = queue.ingress.ready_fd() {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// The turn found frames.
    #[inline]
    pub(crate) fn busy(&mut self) {
        self.empty_turns = 0;
    }

    /// The turn found none. `true`: slept.
    pub(crate) fn idle(
        &mut self,
        queues: &mut [OwnedQueue],
        now: Nanos,
        mail: impl Fn() -> bool,
    ) -> bool {
        self.empty_turns = self.empty_turns.saturating_add(1);
        let patience = match self.mode {
            Wait::Always => u32::MAX,
            Wait::Adaptive => EMPTY_TURNS,
            Wait::Never => 0,
        };
        if self.empty_turns <= patience {
            // Rings that have started meanwhile: a guest's notification costs it more than this.
            queues.iter_mut().for_each(|queue| queue.ingress.disarm());
            std::hint::spin_loop();
            return false;
        }
        let arrived = queues.iter_mut().fold(false, |arrived, queue| queue.ingress.arm() | arrived);
        if !arrived && !mail() {
            self.sleep(queues, now);
        }
        queues.iter_mut().for_each(|queue| queue.ingress.disarm());
        true
    }

    /// Until something is there, or a resting queue may be tried again.
    fn sleep(&mut self, queues: &[OwnedQueue], now: Nanos) {
        let resting = queues
            .iter()
            .filter_map(|queue| queue.resting_until)
            .filter(|until| until.0 < u64::MAX);
        let timeout =
            resting.min().map(|until| Duration::from_nanos(until.since(now).0).try_into());
        let timeout = timeout.and_then(Result::ok);
        self.leave_resting(queues);
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(1),
        }; 16];
        let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        if events.iter().take(count).any(|event| event.data.u64() == 0) {
            let _ = rustix::io::read(self.wake.0.as_fd(), &mut [0; 8]);
        }
    }

    /// A device that failed is readable for ever: resting queues are not watched.
    fn leave_resting(&mut self, queues: &[OwnedQueue]) {
        let resting = queues.iter().any(|queue| queue.resting_until.is_some());
        if resting || self.armed {
            for queue in queues {
                self.forget(queue);
                if queue.resting_until.is_none() {
                    self.watch(queue);
                }
            }
        }
        self.armed = resting;
    }
}
