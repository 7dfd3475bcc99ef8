//! The slot of one ring of a vNIC, shared between the session that sets the ring up and the worker
//! that uses it.
//!
//! The session may change or remove the ring only while no worker has it. A worker gives a borrowed
//! ring back at the end of its turn, and ends the filling of buffers without the lock; the session
//! waits for both. While it waits, [`RingSlot::borrow`] lends nothing and [`RingSlot::begin`] only
//! [`LATE`] times, so workers that poll without pause cannot keep it waiting.

use crate::lock::{Locked, lock};
use crate::signal::Signal;
use crate::{Features, GuestHash, Hold};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use virtqueue::{Queue, QueueFault};

/// How often buffers are lent while the session waits. Several workers fill buffers at a time, each
/// for a short while: without these, every change of a ring would cost frames.
const LATE: u32 = 64;

/// A ring that has been started.
#[derive(Debug)]
pub struct Running {
    /// The ring.
    pub queue: Queue,
    /// The features that the guest acknowledged.
    pub features: Features,
    /// The hash that is reported in the header of received frames, if the guest has set one.
    pub hash: Option<Arc<GuestHash>>,
    /// Signals for received frames that are held back.
    pub hold: Hold,
    /// Frames that the port sends in the guest's name, before those in the ring.
    pub announcement: Vec<Vec<u8>>,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    pub(crate) call: Option<Arc<Signal>>,
    pub(crate) error: Option<Arc<Signal>>,
}

impl Running {
    /// Interrupts the guest's driver, if it gave a call descriptor.
    #[inline]
    pub fn notify(&self) {
        if let Some(call) = &self.call {
            call.raise();
        }
    }
}

/// Why [`RingSlot::begin`] lends no buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLent {
    /// No ring is started, or the caller wants none of its buffers.
    Idle,
    /// The session waits for the ring.
    Wanted,
}

#[derive(Debug, Default)]
struct Content {
    running: Option<Box<Running>>,
    /// Number of workers that have borrowed the ring or fill its buffers.
    loans: u32,
    /// Number of threads of the session that wait until the ring is given back.
    wanted: u32,
    /// Number of loans since the session last had the ring to itself that began while it waited.
    late: u32,
}

/// A ring's slot, as the head of this file explains.
#[derive(Debug)]
pub struct RingSlot {
    content: Mutex<Content>,
    given_back: Condvar,
    /// Whether a ring is started. Workers look at all slots of a port, and most guests use few, so
    /// they look here before they lock.
    is_started: AtomicBool,
    /// Whether [`RingSlot::look_again`] was called since [`RingSlot::forget_kicks`] last found no
    /// ring: only then is there something to forget.
    is_nudged: AtomicBool,
    /// The guest's error on this ring. It has a lock of its own because the lock of `content` is
    /// held while a burst is copied into a guest's buffers.
    fault: Mutex<Option<QueueFault>>,
    /// `None` for a receive queue: its kicks wake nobody.
    kicks: Option<Kicks>,
}

/// What tells of kicks.
#[derive(Debug)]
struct Kicks {
    /// An epoll instance with the guest's kick descriptor and `nudge`, edge-triggered: each kick is
    /// an event even if the ones before were not read.
    ready: OwnedFd,
    /// An eventfd of ours that is always readable, for [`RingSlot::look_again`]: a write to the
    /// guest's own could block. All rings of a session have the same.
    nudge: Arc<OwnedFd>,
}

impl Kicks {
    fn new(nudge: Arc<OwnedFd>) -> io::Result<Kicks> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&ready, &nudge)?;
        let kicks = Kicks { ready, nudge };
        kicks.forget();
        Ok(kicks)
    }

    /// Makes `ready` readable.
    fn nudge(&self) {
        // Watched anew, what is readable is an event again.
        let _ = epoll::modify(&self.ready, &self.nudge, epoll::EventData::new_u64(0), EDGES);
    }

    fn forget(&self) {
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 2];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.ready, &mut events[..], Some(&now));
    }
}

/// Returns what the rings of a session are nudged by.
pub(crate) fn nudge() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

impl RingSlot {
    /// Returns the slot of a ring whose kicks wake a worker or the session; `nudge` is what [`nudge`]
    /// returned.
    pub(crate) fn with_kicks(nudge: Arc<OwnedFd>) -> io::Result<RingSlot> {
        Ok(RingSlot { kicks: Some(Kicks::new(nudge)?), ..RingSlot::without_kicks() })
    }

    /// Returns the slot of a receive queue: its kicks wake nobody.
    pub(crate) fn without_kicks() -> RingSlot {
        RingSlot {
            content: Mutex::default(),
            given_back: Condvar::new(),
            is_started: AtomicBool::new(false),
            is_nudged: AtomicBool::new(false),
            fault: Mutex::default(),
            kicks: None,
        }
    }

    /// Borrows the ring for a turn; `None` if no ring is started or the session waits for it. The
    /// caller must give it back.
    pub fn borrow(&self) -> Option<Box<Running>> {
        let mut content = self.started()?;
        if content.wanted > 0 || content.loans > 0 {
            return None;
        }
        let running = content.running.take();
        content.loans += u32::from(running.is_some());
        running
    }

    /// Gives back a ring that [`RingSlot::borrow`] returned, at the end of a turn.
    pub fn give_back(&self, running: Box<Running>) {
        self.note_fault(&running);
        let mut content = lock(&self.content);
        content.running = Some(running);
        self.end_loan(&mut content);
    }

    fn end_loan(&self, content: &mut Content) {
        content.loans -= 1;
        if content.wanted > 0 {
            self.given_back.notify_all();
        }
    }

    /// Locks the slot and calls `use_it`. If that returns an answer, the session leaves the ring as
    /// it is until [`RingSlot::end`], so that its buffers can be filled without the lock.
    ///
    /// # Errors
    /// Fails if no ring is started, if `use_it` returns `None`, and if the session waits for the
    /// ring.
    pub fn begin<Answer>(
        &self,
        use_it: impl FnOnce(&mut Running) -> Option<Answer>,
    ) -> Result<Answer, NotLent> {
        let content = &mut *self.started().ok_or(NotLent::Idle)?;
        if content.wanted > 0 {
            if content.late == LATE {
                return Err(NotLent::Wanted);
            }
            content.late += 1;
        }
        let running = content.running.as_mut().ok_or(NotLent::Idle)?;
        let answer = use_it(running);
        self.note_fault(running);
        content.loans += u32::from(answer.is_some());
        answer.ok_or(NotLent::Idle)
    }

    /// Locks the slot and ends what [`RingSlot::begin`] began.
    pub fn end(&self, use_it: impl FnOnce(&mut Running)) {
        let content = &mut *lock(&self.content);
        if let Some(running) = &mut content.running {
            use_it(running);
        }
        self.end_loan(content);
    }

    /// Locks the slot and calls `use_it`; `None` if no ring is started.
    pub fn with<Answer>(&self, use_it: impl FnOnce(&mut Running) -> Answer) -> Option<Answer> {
        let content = &mut *self.started()?;
        let running = content.running.as_mut()?;
        let answer = use_it(running);
        self.note_fault(running);
        Some(answer)
    }

    /// Returns a descriptor that is readable after a kick, until [`RingSlot::forget_kicks`]; `None`
    /// for a receive queue.
    pub fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.kicks.as_ref()?.ready.as_fd())
    }

    /// Locks the slot, unless no ring is started.
    #[inline]
    fn started(&self) -> Option<Locked<'_, Content>> {
        self.is_started.load(Ordering::Acquire).then(|| lock(&self.content))
    }

    /// Clears the kicks so far. Makes no system call for a slot without a ring.
    pub fn forget_kicks(&self) {
        if !self.is_started.load(Ordering::Acquire) && !self.is_nudged.swap(false, Ordering::AcqRel)
        {
            return;
        }
        if let Some(kicks) = &self.kicks {
            kicks.forget();
        }
    }

    /// Returns the guest's first fault since the ring was started.
    pub(crate) fn fault(&self) -> Option<QueueFault> {
        *lock(&self.fault)
    }

    /// Stores the ring's first fault and signals it to the front end.
    fn note_fault(&self, running: &Running) {
        let Some(found) = running.queue.fault() else { return };
        // Signalled without the lock, which the status takes: a signal has as many waiters as the
        // front end likes.
        let is_first = {
            let mut fault = lock(&self.fault);
            let is_first = fault.is_none();
            fault.get_or_insert(found);
            is_first
        };
        if is_first && let Some(error) = &running.error {
            error.raise();
        }
    }

    /// Calls `change` while no worker has the ring.
    pub(crate) fn change<Answer>(
        &self,
        change: impl FnOnce(Option<&mut Running>) -> Answer,
    ) -> Answer {
        change(self.own().running.as_deref_mut())
    }

    /// Gives a running ring another call descriptor. Returns the old one, to be dropped without the
    /// lock, because the front end can make the close of its file block. The outer `None` means
    /// that no ring runs.
    #[must_use]
    pub(crate) fn replace_call(&self, call: Option<Arc<Signal>>) -> Option<Option<Arc<Signal>>> {
        self.change(|running| Some(std::mem::replace(&mut running?.call, call)))
    }

    /// Gives a running ring another error descriptor. Returns the old one, to be dropped without
    /// the lock. The outer `None` means that no ring runs.
    #[must_use]
    pub(crate) fn replace_error(&self, error: Option<Arc<Signal>>) -> Option<Option<Arc<Signal>>> {
        self.change(|running| Some(std::mem::replace(&mut running?.error, error)))
    }

    /// Leaves frames at a running ring, which the worker takes before those in the ring. They
    /// replace earlier ones that were not taken yet.
    pub(crate) fn announce(&self, frames: Vec<Vec<u8>>) {
        self.change(|running| {
            if let Some(running) = running {
                running.announcement = frames;
            }
        });
        self.look_again();
    }

    /// Starts a ring and makes [`RingSlot::ready_fd`] readable: the guest may have made buffers
    /// available before.
    pub(crate) fn start(&self, running: Running) -> io::Result<()> {
        self.watch(&running)?;
        let mut content = self.own();
        *lock(&self.fault) = None;
        content.running = Some(Box::new(running));
        self.is_started.store(true, Ordering::Release);
        drop(content);
        self.look_again();
        Ok(())
    }

    /// Puts a ring in the place of the one that runs and calls `use_it` before a worker can use it.
    /// The new ring is lent as by [`RingSlot::begin`].
    pub(crate) fn replace<Answer>(
        &self,
        running: Running,
        use_it: impl FnOnce(&mut Running) -> Answer,
    ) -> io::Result<Answer> {
        self.watch(&running)?;
        let mut running = Box::new(running);
        let (answer, old) = {
            let content = &mut *self.own();
            let answer = use_it(&mut running);
            *lock(&self.fault) = running.queue.fault();
            let old = content.running.replace(running);
            content.loans += 1;
            self.is_started.store(true, Ordering::Release);
            (answer, old)
        };
        old.iter().for_each(|old| self.unwatch(old));
        self.look_again();
        Ok(answer)
    }

    /// Makes [`RingSlot::ready_fd`] readable, as a kick does.
    pub(crate) fn look_again(&self) {
        if let Some(kicks) = &self.kicks {
            kicks.nudge();
        }
        // In this order: a worker that forgets in between has to come back.
        self.is_nudged.store(true, Ordering::Release);
    }

    /// Waits until no worker has the ring, and removes it. Returns it; `None` if no ring was
    /// started.
    pub(crate) fn stop(&self) -> Option<Box<Running>> {
        let running = {
            let mut content = self.own();
            self.is_started.store(false, Ordering::Release);
            content.running.take()?
        };
        self.unwatch(&running);
        Some(running)
    }

    /// Has the kicks of a ring make [`RingSlot::ready_fd`] readable.
    fn watch(&self, running: &Running) -> io::Result<()> {
        match (&self.kicks, &running.kick) {
            (Some(kicks), Some(kick)) => watch(&kicks.ready, kick),
            _ => Ok(()),
        }
    }

    /// Undoes [`RingSlot::watch`].
    fn unwatch(&self, running: &Running) {
        if let (Some(kicks), Some(kick)) = (&self.kicks, &running.kick) {
            let _ = epoll::delete(&kicks.ready, kick);
        }
    }

    /// Waits until no worker has the ring, and locks the slot.
    fn own(&self) -> Locked<'_, Content> {
        let mut content = lock(&self.content);
        content.wanted += 1;
        let mut content = content.wait_while(&self.given_back, |content| content.loans > 0);
        content.wanted -= 1;
        content.late = 0;
        content
    }
}

const EDGES: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

fn watch(ready: &OwnedFd, kick: &OwnedFd) -> io::Result<()> {
    Ok(epoll::add(ready, kick, epoll::EventData::new_u64(0), EDGES)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Budget;
    use crate::vring::tests::ring;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn running(call: Arc<Signal>) -> Running {
        let (error, call) = (Some(call.clone()), Some(call));
        Running { call, error, ..ring().0 }
    }

    fn slot() -> RingSlot {
        RingSlot::with_kicks(nudge().unwrap()).unwrap()
    }

    fn is_ready(slot: &RingSlot) -> bool {
        let fd = slot.ready_fd().unwrap();
        let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&now)).unwrap() == 1
    }

    impl RingSlot {
        /// Whether a thread holds the slot's lock.
        pub(crate) fn is_locked(&self) -> bool {
            self.content.try_lock().is_err()
        }
    }

    /// A session that changed the ring while a worker fills its buffers would unmap them.
    #[test]
    fn a_ring_whose_buffers_are_filled_does_not_change() {
        let (slot, changed) = (slot(), AtomicBool::new(false));
        slot.start(ring().0).unwrap();
        slot.begin(|_| Some(())).unwrap();
        slot.begin(|_| Some(())).unwrap();
        assert_eq!(slot.begin(|_| None::<()>), Err(NotLent::Idle), "nothing was begun");
        std::thread::scope(|scope| {
            scope.spawn(|| slot.change(|_| changed.store(true, Ordering::Relaxed)));
            while lock(&slot.content).wanted == 0 {
                std::thread::yield_now();
            }
            for _ in 0..LATE {
                slot.begin(|_| Some(())).unwrap();
                slot.end(|_| ());
            }
            assert_eq!(slot.begin(|_| Some(())), Err(NotLent::Wanted), "the session waits");
            slot.end(|_| ());
            assert!(slot.with(|_| ()).is_some(), "the lock is free");
            assert!(!changed.load(Ordering::Relaxed));
            slot.end(|_| ());
        });
        assert!(changed.load(Ordering::Relaxed));
    }

    /// Eight slots of a guest that uses one must cost its worker no system calls, and none may miss
    /// the start of its ring.
    #[test]
    fn a_slot_is_ready_when_its_ring_starts_and_quiet_without_one() {
        let slot = slot();
        let is_ready = || is_ready(&slot);
        for _ in 0..2 {
            slot.forget_kicks();
            assert!(!is_ready() && slot.borrow().is_none() && slot.with(|_| ()).is_none());
            slot.start(ring().0).unwrap();
            assert!(is_ready(), "the worker is told of the ring");
            slot.give_back(slot.borrow().unwrap());
            assert!(slot.stop().is_some() && slot.borrow().is_none());
            assert!(is_ready(), "the nudge of the start");
            slot.forget_kicks();
            assert!(!is_ready());
            slot.look_again();
            assert!(is_ready());
        }
    }

    /// A worker that forgot between the two steps of a nudge was woken without end.
    #[test]
    fn a_slot_without_a_ring_is_quiet_after_nudges_beside_its_worker() {
        let slot = slot();
        for _ in 0..2_000 {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..4).for_each(|_| slot.look_again()));
                (0..4).for_each(|_| slot.forget_kicks());
            });
            slot.forget_kicks();
            assert!(!is_ready(&slot), "nothing is left to forget");
        }
    }

    /// A file that blocked at its close, dropped under the slot's lock, stopped every worker that
    /// wanted the ring.
    #[test]
    fn a_replaced_descriptor_outlives_the_lock() {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let budget = Arc::new(Budget::new().unwrap());
        let slot = slot();
        assert!(slot.replace_call(None).is_none());
        slot.start(running(Arc::new(Signal::new(fd, &budget).unwrap()))).unwrap();
        drop(slot.replace_error(None).flatten().unwrap());
        let old = slot.replace_call(None).flatten().unwrap();
        assert_eq!(Arc::strong_count(&old), 1);
    }
}
