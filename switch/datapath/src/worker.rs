//! A worker: one thread, the queues it owns, and [`Worker::turn`], which carries frames from
//! ingress to egress.

pub(crate) mod handle;
pub(crate) mod mailbox;
pub(crate) mod share;
pub(crate) mod wait;

use crate::counters::{Counter, PortCell, count_drop};
use crate::frame::Frame;
use crate::frame::headers::Span;
use crate::frame::parts::Parts;
use crate::port::capture::show;
use crate::port::macs::MacTable;
use crate::port::view::{Owners, Port, View};
use crate::settings::{PortId, PortRole};
use crate::stage::black_hole::{self, BlackHoles};
use crate::stage::decide::Decider;
use crate::stage::deliver::Deliverer;
use crate::stage::filter::Filtering;
use crate::stage::steer::Noter;
use crate::status::HealthEvent;
use crate::turn::outbox::{Outbox, Target};
use crate::turn::pressure::PAUSE;
use crate::turn::queue::OwnedQueue;
use crate::turn::work;
use crate::turn::{Delivery, Turn};
use crate::worker::mailbox::Mailbox;
use crate::worker::share::{Account, QUANTUM};
use crate::worker::wait::{Waiter, Waker};
use ports::capture::Direction;
use ports::{Burst, Nanos};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

/// A letter to a worker, read and answered between rounds.
pub(crate) enum Letter {
    /// Use this view from now on.
    View(Arc<View>, SyncSender<()>),
    /// Own this queue from now on; answered with how long no worker polled it.
    Own(Box<OwnedQueue>, SyncSender<Nanos>),
    /// Give back the queues of a port.
    GiveBack(PortId, SyncSender<Vec<OwnedQueue>>),
    /// Give a port's queue of this number to another worker, which answers.
    Pass(PortId, usize, Arc<WorkerShared>, SyncSender<Nanos>),
    /// Read this: then you do not hang.
    Answer,
    /// End the thread.
    Stop,
}

/// What a worker counts about itself.
#[derive(Default)]
pub(crate) struct WorkerCounters {
    pub(crate) busy_turns: Counter,
    pub(crate) idle_turns: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) frames: Counter,
    /// Nanoseconds, see [`QueueLoad::busy`](crate::turn::queue::QueueLoad::busy).
    pub(crate) busy: Counter,
}

/// No port has this number.
pub(crate) const NO_PORT: u16 = u16::MAX;

/// What a worker shares with the control plane and with the workers that give it queues.
pub(crate) struct WorkerShared {
    pub(crate) mailbox: Mailbox<Letter>,
    pub(crate) counters: WorkerCounters,
    /// The port of the last turn, or [`NO_PORT`]: what a worker that does not answer is busy with.
    pub(crate) turn: AtomicU16,
    /// Set once the worker has a thread.
    pub(crate) waker: OnceLock<Waker>,
}

impl WorkerShared {
    /// Posts a letter and wakes the worker's thread, if it has one.
    pub(crate) fn post(&self, letter: Letter) {
        self.mailbox.post(letter);
        self.waker.get().into_iter().for_each(Waker::wake);
    }
}

/// The frames of a turn and where they go; kept between turns for the allocations.
struct Scratch {
    burst: Burst<'static>,
    /// As many as the longest burst so far; a turn fills the first.
    frames: Vec<Frame>,
    parts: Parts<'static>,
    outbox: Outbox,
    deliverer: Deliverer,
    filtering: Filtering,
    black_holes: BlackHoles,
}

/// One thread of the switch, and the queues it polls.
pub(crate) struct Worker {
    pub(crate) index: usize,
    shared: Arc<WorkerShared>,
    macs: Arc<MacTable>,
    view: Arc<View>,
    owners: Owners,
    /// [`MacTable::held`] when `owners` were read.
    held: u64,
    queues: Vec<OwnedQueue>,
    accounts: Vec<Account>,
    scratch: Scratch,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<WorkerShared>, macs: Arc<MacTable>) -> Worker {
        let scratch = Scratch {
            burst: Burst::new(),
            frames: (0..Burst::FRAMES).map(Frame::at).collect(),
            parts: Parts::new(),
            outbox: Outbox::default(),
            deliverer: Deliverer::new(),
            filtering: Filtering::new(index),
            black_holes: BlackHoles::new(),
        };
        let (view, owners, queues, accounts) = Default::default();
        Worker { index, shared, macs, view, owners, held: 0, queues, accounts, scratch }
    }

    /// Polls until it reads [`Letter::Stop`].
    pub(crate) fn run(mut self, mut waiter: Waiter) {
        let mut now = waiter.now();
        loop {
            if self.shared.mailbox.is_waiting() {
                if !self.read_mail(Some(&waiter)) {
                    return;
                }
                now = waiter.now();
            }
            let (taken, end) = self.round(now, |_| waiter.now());
            let counters = &self.shared.counters;
            if taken > 0 {
                counters.busy_turns.add(1);
                counters.frames.add(taken as u64);
                waiter.busy(now, taken);
                now = end;
            } else {
                counters.idle_turns.add(1);
                let shared = &self.shared;
                if waiter.idle(&mut self.queues, now, || shared.mailbox.is_waiting()) {
                    counters.sleeps.add(1);
                }
                now = waiter.now();
            }
        }
    }

    /// A turn for each queue that is neither resting nor in debt, see [`share::round`]; the frames
    /// taken, and the time after the last turn that took any. `clock` is read after each such turn,
    /// and is told the turn's work.
    pub(crate) fn round(&mut self, now: Nanos, clock: impl Fn(u64) -> Nanos) -> (usize, Nanos) {
        let held = self.macs.held();
        if held != self.held {
            self.held = held;
            self.owners.read(&self.view);
        }
        let Worker { index, shared, macs, view, owners, queues, accounts, scratch, .. } = self;
        let (mut end, mut looks, mut busy) = (now, 0, 0);
        let taken = share::round(accounts, queues, |queue| match view.port(queue.port) {
            Some(from) if !queue.is_resting(now) => {
                let number = queue.number;
                shared.turn.store(queue.port.0, Ordering::Relaxed);
                let turn = Turn { worker: *index, view, macs, owners, from, queue: number, now };
                let (taken, work) = turn.carry_out(queue, scratch);
                if taken == 0 {
                    looks += work::OF_LOOK;
                    return (0, work::OF_LOOK);
                }
                // The looks since the last such turn are not this queue's.
                let looked = Nanos(std::mem::take(&mut looks));
                let start = std::mem::replace(&mut end, clock(looked.0 + work));
                let took = end.since(start).since(looked);
                queue.load.busy.add(took.0);
                busy += took.0;
                (taken, work::charged(work, took))
            }
            _ => (0, 0),
        });
        shared.counters.busy.add(busy);
        (taken, end)
    }

    /// Reads all letters. `false`: one of them was [`Letter::Stop`].
    pub(crate) fn read_mail(&mut self, waiter: Option<&Waiter>) -> bool {
        for letter in self.shared.mailbox.collect() {
            match letter {
                Letter::View(view, reply) => {
                    self.scratch.outbox.resize(view.slots);
                    self.view = view;
                    self.owners.read(&self.view);
                    self.share_out();
                    let _ = reply.send(());
                }
                // A worker that hung passed it on after its port was removed.
                Letter::Own(queue, _) if self.view.port(queue.port).is_none() => drop(queue),
                Letter::Own(mut queue, reply) => {
                    waiter.iter().for_each(|waiter| waiter.watch(&mut queue));
                    let held =
                        queue.given_at.zip(waiter).map(|(at, waiter)| waiter.now().since(at));
                    self.queues.push(*queue);
                    self.share_out();
                    let _ = reply.send(held.unwrap_or_default());
                }
                Letter::GiveBack(port, reply) => {
                    let _ = reply.send(self.give(waiter, |queue| queue.port == port));
                }
                Letter::Pass(port, number, to, reply) => {
                    let is_meant =
                        |queue: &OwnedQueue| queue.port == port && queue.number == number;
                    for queue in self.give(waiter, is_meant) {
                        to.post(Letter::Own(Box::new(queue), reply.clone()));
                    }
                }
                Letter::Answer => {}
                Letter::Stop => return false,
            }
        }
        true
    }

    /// Takes out queues, which have no turn here any more: what they took has been delivered. Each
    /// keeps its account's debt.
    fn give(
        &mut self,
        waiter: Option<&Waiter>,
        is_meant: impl Fn(&OwnedQueue) -> bool,
    ) -> Vec<OwnedQueue> {
        for account in &self.accounts {
            let queues = self.queues.get_mut(account.queues.clone());
            queues.into_iter().flatten().for_each(|queue| queue.balance = account.balance);
        }
        let mut given: Vec<_> = self.queues.extract_if(.., |queue| is_meant(queue)).collect();
        for queue in &mut given {
            waiter.iter().for_each(|waiter| waiter.forget(queue));
            queue.given_at = waiter.map(Waiter::now);
        }
        self.share_out();
        given
    }

    /// The queues of a vNIC share an account: a guest chooses how many it uses. Those of an uplink
    /// have one each.
    fn share_out(&mut self) {
        let Worker { queues, view, accounts, .. } = self;
        queues.sort_unstable_by_key(|queue| (queue.port, queue.number));
        let is_vnic = |id| view.port(id).is_some_and(|port| port.settings.role == PortRole::Vnic);
        let shared = queues.chunk_by_mut(|one, next| one.port == next.port && is_vnic(one.port));
        let mut end = 0;
        let account = |queues: &mut [OwnedQueue]| {
            end += queues.len();
            // A debt that came with one of them is its account's from now on.
            let owed =
                queues.iter_mut().map(|queue| std::mem::replace(&mut queue.balance, QUANTUM));
            let owed = owed.min()?;
            let first = queues.first()?;
            let number = (!is_vnic(first.port)).then_some(first.number);
            let places = end - queues.len()..end;
            Some(Account::of(first.port, number, places, accounts).owing(owed))
        };
        *accounts = shared.filter_map(account).collect();
    }
}

impl Turn<'_> {
    /// One burst of one queue, from take to release; the frames taken, and their work.
    fn carry_out(&self, queue: &mut OwnedQueue, scratch: &mut Scratch) -> (usize, u64) {
        let mut limit = queue.dearness.limit();
        if self.from.waits {
            let Some(room) = queue.pressure.allowance(self) else {
                queue.resting_until = Some(self.now + PAUSE);
                return (0, 0);
            };
            limit = room.min(limit);
        }
        let mut burst = std::mem::take(&mut scratch.burst).recycle();
        burst.limit(limit);
        let kernel_ns = queue.ingress.kernel_ns();
        let fault = queue.ingress.take(self.now, &mut burst).err();
        let (taken, bytes, mut work) = (burst.frames().len(), burst.bytes(), 0);
        if taken > 0 {
            queue.load.frames.add(taken as u64);
            queue.load.bytes.add(bytes as u64);
            let cost = work::of_taking(taken, burst.slice_count(), kernel_ns);
            scratch.deliverer.work = cost;
            let toward = self.run(&burst, scratch);
            if self.from.waits {
                let weighted = scratch.deliverer.weighted.take().map(|(_, target)| target);
                let toward = weighted.or(toward);
                queue.pressure.leave(self, toward);
                queue.pressure.note(toward, scratch.deliverer.taken, self.now);
            }
            work = scratch.deliverer.work + std::mem::take(&mut scratch.filtering.work);
            queue.dearness.note(taken, bytes, work);
        } else if self.from.waits {
            queue.pressure.leave(self, None);
        }
        scratch.burst = burst.recycle();
        queue.ingress.release();
        queue.note(self.from, fault.as_ref(), self.now, taken);
        (taken, work)
    }

    /// parse, admit, look up, steer; then, for each egress queue, coalesce, fit, deliver, count.
    /// The egress queue, if there was only one.
    #[inline(never)]
    fn run(&self, burst: &Burst<'_>, scratch: &mut Scratch) -> Option<Target> {
        let Scratch { frames, outbox, deliverer, filtering, .. } = scratch;
        let from_cell = self.from.cell(self.worker)?;
        let mut parts = std::mem::take(&mut scratch.parts).recycle();
        let frames = self.read(burst, &mut parts, frames, from_cell);
        if self.from.filter.asks_ingress {
            filtering.enter(self.from, frames, &parts, from_cell, self.now);
            filtering.mark(self.from, frames, &mut parts.headers);
        }
        deliverer.work += self.decide(&parts, frames, outbox, from_cell);
        let frames = &*frames;
        let (mut last, mut targets) = (None, 0);
        while let Some((target, mut list)) = outbox.take() {
            if let Some(to) = self.view.port(target.port)
                && let Some(cell) = to.cell(self.worker)
            {
                let mut delivery = Delivery {
                    from: self.from,
                    to,
                    queue: target.queue,
                    now: self.now,
                    burst,
                    frames,
                    parts: &mut parts,
                    cell,
                    from_cell,
                    offloads: to.shared.live.offloads(),
                };
                if to.filter.egress.is_some() && !to.shared.is_at_rest(target.queue, self.now) {
                    filtering.leave(&delivery, &mut list);
                }
                deliverer.deliver(&list, &mut delivery);
                if to.is_weighted {
                    self.pay(to, target, deliverer);
                }
            }
            outbox.put_back(target, list);
            (last, targets) = (Some(target), targets + 1);
        }
        let sole = last.filter(|_| targets == 1);
        if frames.len() <= black_hole::SPARSE
            && let Some(target) = sole
            && scratch.black_holes.look(frames, &parts.headers, self.now)
        {
            self.tell_black_hole(target.port);
        }
        scratch.parts = parts.recycle();
        sole
    }

    #[cold]
    fn tell_black_hole(&self, to: PortId) {
        let (from, Some(to)) = (self.from, self.view.port(to)) else { return };
        // By sender: one that varies where it sends would fill the queue of events.
        if !from.shared.may_report_too_big(self.now) {
            return;
        }
        from.shared.events.push(HealthEvent::BlackHole {
            from: from.shared.id,
            from_mtu: from.settings.mtu,
            to: to.shared.id,
            to_mtu: to.settings.mtu,
        });
    }

    /// Copies and parses each frame of the burst into its place in `frames`.
    #[inline(never)]
    fn read<'f, 'q>(
        &self,
        burst: &Burst<'q>,
        parts: &mut Parts<'q>,
        frames: &'f mut Vec<Frame>,
        cell: &PortCell,
    ) -> &'f mut [Frame] {
        cell.ingress_frames.add(burst.frames().len() as u64);
        cell.ingress_bytes.add(burst.bytes() as u64);
        frames.extend((frames.len()..burst.frames().len()).map(Frame::at));
        parts.headers.make_room(burst.frames().len());
        // Not zipped: two pointers that advance take fewer registers than an index into both.
        let mut places = frames.iter_mut();
        for raw in burst.frames() {
            let Some(frame) = places.next() else { break };
            if let Err(reason) = frame.read(burst, raw, parts, cell) {
                count_drop(cell, reason, 1);
                frame.header = Span::default();
            }
        }
        frames.get_mut(..burst.frames().len()).unwrap_or_default()
    }

    /// The work that [`work::of_taking`] does not count.
    #[inline(never)]
    fn decide(
        &self,
        parts: &Parts<'_>,
        frames: &mut [Frame],
        outbox: &mut Outbox,
        cell: &PortCell,
    ) -> u64 {
        let mut decider = Decider::new(self, cell);
        let mut noter = Noter::new(self.from, self.queue, self.now);
        let mut place = 0;
        while let Some(next @ [_, ..]) = frames.get_mut(place..) {
            let (count, verdict) = decider.decide(place, next, &parts.headers, outbox);
            if let Err(reason) = verdict {
                count_drop(cell, reason, 1);
            } else if let Some(noter) = &mut noter {
                noter.note(next.get(..count).unwrap_or_default(), &parts.headers);
            }
            if self.from.capture.is_some() {
                for frame in next.iter().take(count).filter(|frame| !frame.is_dropped()) {
                    show(self.from, Direction::Ingress, frame, parts, self.now, verdict.err());
                }
            }
            place += count;
        }
        decider.learning
    }

    /// The burst's port pays for what an egress queue took of it, where that is shared by weights.
    #[cold]
    pub(crate) fn pay(&self, to: &Port, at: Target, deliverer: &mut Deliverer) {
        let Some(mut weights) = self.weights(to, at) else { return };
        let bytes = deliverer.taken.bytes;
        if bytes == 0 {
            // All was dropped on its way there, so the port waits for nothing.
            weights.leave(self.place());
            return;
        }
        let weight = self.from.settings.weight.unwrap_or(1);
        let ahead = weights.is_short.then(|| weights.charge(self.from.shared.id, bytes, weight));
        if deliverer.weighted.is_none_or(|(most, _)| ahead >= most) {
            deliverer.weighted = Some((ahead, at));
        }
    }
}
