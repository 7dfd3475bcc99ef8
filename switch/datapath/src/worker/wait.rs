//! The end of an empty round: the worker keeps polling, or arms its wake-ups and sleeps.
//!
//! Sleeping is an epoll wait over the queues' descriptors and one eventfd for the mailbox.
//! Descriptors of the kernel (TAP, AF_PACKET) are level-triggered and need no arming; rings in
//! guest memory do (see [`ports::Ingress::arm`]).

use crate::options::Wait;
use crate::turn::queue::{OwnedQueue, Watch};
use ports::Nanos;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Empty rounds before an adaptive worker sleeps. Few suffice for frames that arrive in a cluster,
/// and on small machines the guest needs the core that polling would take.
const EMPTY_ROUNDS: u32 = 16;

/// Consecutive short gaps, each after few frames, that count as an exchange. In an exchange one
/// side waits for the other's answer, and each sleep of the worker delays an answer by a wake-up.
const EXCHANGE_GAPS: u32 = 8;
/// Largest number of frames between two gaps of an exchange. More frames are a stream, which sleeps
/// of the worker do not slow down.
const EXCHANGE_FRAMES: usize = 8;
/// Longest gap that counts as short, and the time for which an adaptive worker polls in an
/// exchange: twice the time of sleeping and waking up.
const SHORT_GAP: Nanos = Nanos(100_000);

/// The rhythm in which frames reach a worker. A gap is a time with more than [`EMPTY_ROUNDS`]
/// empty rounds.
#[derive(Default)]
struct Pace {
    empty_rounds: u32,
    /// When the first of the empty rounds began.
    idle_since: Nanos,
    /// Frames taken since the last gap.
    frames: usize,
    /// Consecutive short gaps, see [`EXCHANGE_GAPS`].
    short_gaps: u32,
}

impl Pace {
    /// Records a round that began at `now` and took `frames` frames.
    fn busy(&mut self, now: Nanos, frames: usize) {
        if self.empty_rounds > EMPTY_ROUNDS {
            let is_short = now.since(self.idle_since) < SHORT_GAP && self.frames <= EXCHANGE_FRAMES;
            self.short_gaps = if is_short { self.short_gaps.saturating_add(1) } else { 0 };
            self.frames = 0;
        }
        self.frames += frames;
        self.empty_rounds = 0;
    }

    /// Records a round that began at `now` and took no frames.
    fn empty(&mut self, now: Nanos) {
        if self.empty_rounds == 0 {
            self.idle_since = now;
        }
        self.empty_rounds = self.empty_rounds.saturating_add(1);
    }

    /// Returns whether the next frame may arrive so soon that polling beats a wake-up.
    fn is_quick(&self, now: Nanos) -> bool {
        self.empty_rounds <= EMPTY_ROUNDS
            || self.short_gaps >= EXCHANGE_GAPS && now.since(self.idle_since) < SHORT_GAP
    }
}

/// Wakes a worker; for the control plane and other workers.
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
    pace: Pace,
}

/// Returns the workers' time in a switch that was started then. It starts at one second, so that a
/// stamp of 0 is always old.
pub(crate) fn time_since(start: Instant) -> Nanos {
    Nanos::SECOND + start.elapsed().into()
}

impl Waiter {
    /// Makes the waiter of a worker. All workers of a switch share `start`, so that their times
    /// compare.
    ///
    /// # Errors
    ///
    /// Fails if the kernel has no descriptor left.
    pub(crate) fn new(mode: Wait, start: Instant) -> io::Result<Waiter> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Waiter { mode, start, epoll, wake: Waker(Arc::new(wake)), pace: Pace::default() })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Returns the time of a round.
    pub(crate) fn now(&self) -> Nanos {
        time_since(self.start)
    }

    /// Makes frames of this queue wake the worker.
    pub(crate) fn watch(&self, queue: &mut OwnedQueue) {
        let Some(fd) = queue.ingress.ready_fd() else { return };
        let (data, flags) = (epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        let done = match queue.watch {
            Watch::On => return,
            Watch::None => epoll::add(&self.epoll, fd, data, flags),
            Watch::Muted => epoll::modify(&self.epoll, fd, data, flags),
        };
        if done.is_ok() {
            queue.watch = Watch::On;
        }
    }

    /// Stops frames of this queue from waking the worker, for a rest. Its descriptor stays among the
    /// others: a front end chooses the file behind it, and can make the kernel take long to add
    /// that.
    fn mute(&self, queue: &mut OwnedQueue) {
        if queue.watch == Watch::On
            && let Some(fd) = queue.ingress.ready_fd()
        {
            // A fault of the device wakes the worker once.
            let (data, flags) = (epoll::EventData::new_u64(1), epoll::EventFlags::ONESHOT);
            if epoll::modify(&self.epoll, fd, data, flags).is_ok() {
                queue.watch = Watch::Muted;
            }
        }
    }

    /// Removes this queue from those that the worker sleeps over.
    pub(crate) fn forget(&self, queue: &mut OwnedQueue) {
        if std::mem::replace(&mut queue.watch, Watch::None) != Watch::None
            && let Some(fd) = queue.ingress.ready_fd()
        {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// Records a round that began at `now` and took `frames` frames.
    #[inline]
    pub(crate) fn busy(&mut self, now: Nanos, frames: usize) {
        self.pace.busy(now, frames);
    }

    /// Polls on or sleeps after a round without frames, as the mode says. Returns whether it slept.
    pub(crate) fn idle(
        &mut self,
        queues: &mut [OwnedQueue],
        (now, next_look): (Nanos, Option<Nanos>),
        mail: impl Fn() -> bool,
    ) -> bool {
        self.pace.empty(now);
        let polls_on = match self.mode {
            Wait::Always => true,
            Wait::Adaptive => self.pace.is_quick(now),
            Wait::Never => false,
        };
        if polls_on {
            // A ring starts with notifications on, and each one costs its guest more than this
            // call.
            queues.iter_mut().for_each(|queue| queue.ingress.disarm());
            std::hint::spin_loop();
            return false;
        }
        // A resting queue may have frames: they are no reason to stay awake.
        let awake = queues.iter_mut().filter(|queue| queue.resting_until.is_none());
        let pending = awake.fold(false, |pending, queue| queue.ingress.arm() | pending);
        let sleeps = !pending && !mail();
        if sleeps {
            self.sleep(queues, (now, next_look));
        }
        queues.iter_mut().for_each(|queue| queue.ingress.disarm());
        sleeps
    }

    /// Sleeps until a frame arrives at a queue that is not resting, a command arrives, or the first
    /// `resting_until` or the next look at frames that wait is reached.
    fn sleep(&mut self, queues: &mut [OwnedQueue], (now, next_look): (Nanos, Option<Nanos>)) {
        let resting = queues
            .iter()
            .filter_map(|queue| queue.resting_until)
            .chain(next_look)
            .filter(|until| until.0 < u64::MAX);
        let timeout =
            resting.min().map(|until| Duration::from_nanos(until.since(now).0).try_into());
        let timeout = timeout.and_then(Result::ok);
        // The descriptor of a device that failed, or of a queue that waits for room, is readable
        // all the time.
        for queue in queues {
            if queue.resting_until.is_none() { self.watch(queue) } else { self.mute(queue) }
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
    use std::os::fd::AsRawFd;
    use wire::vnet::VnetHeader;

    /// `times` bursts of `frames` frames, each followed by a gap.
    fn come(pace: &mut Pace, now: &mut Nanos, times: u32, frames: usize, gap: Nanos) {
        for _ in 0..times {
            pace.busy(*now, frames);
            (0..=EMPTY_ROUNDS).for_each(|_| pace.empty(*now));
            *now = *now + gap;
        }
    }

    #[test]
    fn a_worker_polls_for_a_short_time_in_an_exchange_only() {
        let soon = Nanos(SHORT_GAP.0 / 2);
        let polls = |times, frames, gap| {
            let (mut pace, mut now) = (Pace::default(), Nanos::SECOND);
            come(&mut pace, &mut now, times, frames, gap);
            come(&mut pace, &mut now, 1, frames, Nanos(0));
            [now, now + soon, now + SHORT_GAP].map(|now| pace.is_quick(now))
        };
        assert_eq!(
            polls(EXCHANGE_GAPS, EXCHANGE_FRAMES, soon),
            [true, true, false],
            "an exchange, and its end"
        );
        assert_eq!(
            polls(EXCHANGE_GAPS - 1, EXCHANGE_FRAMES, soon),
            [false; 3],
            "not yet an exchange"
        );
        assert_eq!(polls(EXCHANGE_GAPS, EXCHANGE_FRAMES + 1, soon), [false; 3], "a stream");
        assert_eq!(polls(EXCHANGE_GAPS, 1, SHORT_GAP), [false; 3], "answers that take long");
    }

    #[test]
    fn one_long_gap_ends_an_exchange() {
        let (mut pace, mut now) = (Pace::default(), Nanos::SECOND);
        come(&mut pace, &mut now, 2 * EXCHANGE_GAPS, 1, Nanos(1000));
        assert!(pace.is_quick(now));
        come(&mut pace, &mut now, 1, 1, SHORT_GAP);
        come(&mut pace, &mut now, 1, 1, Nanos(0));
        assert!(!pace.is_quick(now));
    }

    /// If its only queue waited for room, a worker used to arm it, see its frames, and look again,
    /// for as long as the queue waited.
    #[test]
    fn a_queue_at_rest_lets_the_worker_sleep() {
        let (device, peer) = memory::open(4, ports::Offloads::empty(), 1500).unwrap();
        let queue = |ingress| OwnedQueue::new(PortId(0), 0, ingress, Arc::default());
        let mut queues: Vec<_> = device.ingress.into_iter().map(queue).collect();
        let mut waiter = Waiter::new(Wait::Never, Instant::now()).unwrap();
        waiter.watch(&mut queues[0]);
        assert!(peer.send(VnetHeader::default(), &[0; 60]));
        let now = waiter.now();
        assert!(!waiter.idle(&mut queues, (now, None), || false), "a frame is pending");
        queues[0].resting_until = Some(now + Nanos(20_000));
        assert!(
            waiter.idle(&mut queues, (now, None), || false),
            "it must wait for room at its receiver"
        );
        queues[0].resting_until = None;
        assert!(!waiter.idle(&mut queues, (now, None), || false), "a frame is pending");
        queues[0].resting_until = Some(now + Nanos(20_000));
        assert!(!waiter.idle(&mut queues, (now, None), || true), "a command is pending");
    }

    /// Each sleep was rounded up to a millisecond, twenty times what a guest asks of a signal that is
    /// held back.
    #[test]
    fn a_sleep_ends_in_less_than_a_millisecond() {
        let mut waiter = Waiter::new(Wait::Never, Instant::now()).unwrap();
        let fastest = (0..200).map(|_| {
            let now = waiter.now();
            assert!(waiter.idle(&mut [], (now, Some(now + Nanos(50_000))), || false));
            waiter.now().since(now)
        });
        let fastest = fastest.min().unwrap();
        assert!((Nanos(50_000)..Nanos::MILLISECOND).contains(&fastest), "{fastest:?}");
    }

    /// Each rest removed and added the descriptor, which took as long as the file's other watchers
    /// made it.
    #[test]
    fn a_rest_leaves_the_descriptor_where_it_is() {
        let (device, peer) = memory::open(8, ports::Offloads::empty(), 1500).unwrap();
        let queue = |ingress| OwnedQueue::new(PortId(0), 0, ingress, Arc::default());
        let mut queues: Vec<_> = device.ingress.into_iter().map(queue).collect();
        let mut waiter = Waiter::new(Wait::Never, Instant::now()).unwrap();
        let info = format!("/proc/self/fdinfo/{}", waiter.epoll.as_fd().as_raw_fd());
        let watched = || std::fs::read_to_string(&info).unwrap().matches("tfd:").count();
        let is_woken = |waiter: &Waiter| {
            let mut events = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&waiter.epoll, &mut events[..], Some(&now)).unwrap() > 0
        };
        waiter.watch(&mut queues[0]);
        assert!(peer.send(VnetHeader::default(), &[0; 60]));
        for _ in 0..3 {
            assert!(is_woken(&waiter));
            let now = waiter.now();
            queues[0].resting_until = Some(now + Nanos(20_000));
            assert!(waiter.idle(&mut queues, (now, None), || false));
            assert_eq!((queues[0].watch, watched()), (Watch::Muted, 2));
            assert!(!is_woken(&waiter), "a queue at rest wakes nobody");
            waiter.watch(&mut queues[0]);
            assert_eq!((queues[0].watch, watched()), (Watch::On, 2));
        }
        waiter.forget(&mut queues[0]);
        assert_eq!(watched(), 1);
    }
}
