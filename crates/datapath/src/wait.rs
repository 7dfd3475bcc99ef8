//! A worker after an empty round: it keeps polling, or arms its wake-ups and sleeps.
//!
//! Sleeping is an epoll wait over the queues' descriptors and one eventfd for the mailbox. Descriptors of the kernel
//! (TAP, AF_PACKET) are level-triggered and need no arming; rings in guest memory do (see [`ports::Ingress::arm`]).

use crate::options::Wait;
use crate::owned::OwnedQueue;
use ports::Nanos;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Empty rounds before an adaptive worker sleeps. Short, because what arrives in a cluster is still caught, and because
/// on small machines the guest needs the core that polling would take.
const EMPTY_ROUNDS: u32 = 16;

/// The waking side, held by the control plane.
#[derive(Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn wake(&self) {
        // A write fails only when the counter is full (2^64 - 2), and then it is readable.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A worker's clock and its way to sleep.
pub(crate) struct Waiter {
    mode: Wait,
    start: Instant,
    epoll: OwnedFd,
    wake: Waker,
    empty_rounds: u32,
}

/// The workers' time in a switch that was started then. Starts at a second, so that a stamp of 0 is always old.
pub(crate) fn time_since(start: Instant) -> Nanos {
    Nanos::SECOND + start.elapsed().into()
}

impl Waiter {
    /// All workers of a switch share `start`, so that their times compare.
    pub(crate) fn new(mode: Wait, start: Instant) -> io::Result<Waiter> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Waiter { mode, start, epoll, wake: Waker(Arc::new(wake)), empty_rounds: 0 })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// The time of a round.
    pub(crate) fn now(&self) -> Nanos {
        time_since(self.start)
    }

    /// Frames of this queue wake the worker from now on.
    pub(crate) fn watch(&self, queue: &mut OwnedQueue) {
        if !queue.watched
            && let Some(fd) = queue.ingress.ready_fd()
        {
            let (data, flags) = (epoll::EventData::new_u64(1), epoll::EventFlags::IN);
            queue.watched = epoll::add(&self.epoll, fd, data, flags).is_ok();
        }
    }

    /// Frames of this queue no longer wake the worker.
    pub(crate) fn forget(&self, queue: &mut OwnedQueue) {
        if std::mem::take(&mut queue.watched)
            && let Some(fd) = queue.ingress.ready_fd()
        {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// The round found frames.
    #[inline]
    pub(crate) fn busy(&mut self) {
        self.empty_rounds = 0;
    }

    /// The round found no frames: polls on or sleeps, as the mode says. `true`: it slept.
    pub(crate) fn idle(
        &mut self,
        queues: &mut [OwnedQueue],
        now: Nanos,
        mail: impl Fn() -> bool,
    ) -> bool {
        self.empty_rounds = self.empty_rounds.saturating_add(1);
        let patience = match self.mode {
            Wait::Always => u32::MAX,
            Wait::Adaptive => EMPTY_ROUNDS,
            Wait::Never => 0,
        };
        if self.empty_rounds <= patience {
            // A ring starts with notifications on, and each one costs its guest more than this call.
            queues.iter_mut().for_each(|queue| queue.ingress.disarm());
            std::hint::spin_loop();
            return false;
        }
        // A resting queue may have frames: they are no reason to stay awake.
        let awake = queues.iter_mut().filter(|queue| queue.resting_until.is_none());
        let pending = awake.fold(false, |pending, queue| queue.ingress.arm() | pending);
        let sleeps = !pending && !mail();
        if sleeps {
            self.sleep(queues, now);
        }
        queues.iter_mut().for_each(|queue| queue.ingress.disarm());
        sleeps
    }

    /// Sleeps until a frame or a letter arrives, or a queue's rest ends.
    fn sleep(&mut self, queues: &mut [OwnedQueue], now: Nanos) {
        let resting = queues
            .iter()
            .filter_map(|queue| queue.resting_until)
            .filter(|until| until.0 < u64::MAX);
        let timeout =
            resting.min().map(|until| Duration::from_nanos(until.since(now).0).try_into());
        let timeout = timeout.and_then(Result::ok);
        // The descriptor of a device that failed, or of a queue held back, is readable all the time.
        for queue in queues {
            if queue.resting_until.is_none() { self.watch(queue) } else { self.forget(queue) }
        }
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(1),
        }; 16];
        let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        if events.iter().take(count).any(|event| event.data.u64() == 0) {
            let _ = rustix::io::read(self.wake.0.as_fd(), &mut [0; 8]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PortId;
    use ports::memory;
    use wire::vnet::VnetHeader;

    /// A worker whose only queue was held back used to arm it, see its frames, and look again, for as long as it was held.
    #[test]
    fn a_queue_at_rest_lets_the_worker_sleep() {
        let (device, peer) = memory::open(4, ports::Offloads::empty(), 1500).unwrap();
        let queue = |ingress| OwnedQueue::new(PortId(0), 0, ingress, Arc::default());
        let mut queues: Vec<_> = device.ingress.into_iter().map(queue).collect();
        let mut waiter = Waiter::new(Wait::Never, Instant::now()).unwrap();
        waiter.watch(&mut queues[0]);
        assert!(peer.send(VnetHeader::default(), &[0; 60]));
        let now = waiter.now();
        assert!(!waiter.idle(&mut queues, now, || false), "a frame is pending");
        queues[0].resting_until = Some(now + Nanos(20_000));
        assert!(waiter.idle(&mut queues, now, || false), "it must wait for room at its receiver");
        queues[0].resting_until = None;
        assert!(!waiter.idle(&mut queues, now, || false), "a frame is pending");
        queues[0].resting_until = Some(now + Nanos(20_000));
        assert!(!waiter.idle(&mut queues, now, || true), "a letter is pending");
    }
}
