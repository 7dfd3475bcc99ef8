//! A worker: one thread, the queues it owns, and [`Worker::turn`], the whole journey of a frame.

use crate::counters::{Counter, PortCell};
use crate::decide::Decider;
use crate::deliver::{Deliverer, Delivery, count_drop, note_fault, show};
use crate::filter::Filtering;
use crate::frame::Frame;
use crate::headers::Span;
use crate::macs::MacTable;
use crate::mailbox::Mailbox;
use crate::outbox::{Outbox, Target};
use crate::parts::Parts;
use crate::pressure::{PAUSE, Pressure};
use crate::settings::{PortId, PortRole};
use crate::share::{self, Account};
use crate::status::PortState;
use crate::view::{Owners, Port, View};
use crate::wait::Waiter;
use crate::work::{self, Dearness};
use ports::capture::Direction;
use ports::{Burst, IngressQueue, Nanos, PortFault};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// How long a queue rests after its device was found down.
const REST: Nanos = Nanos(100_000_000);

/// How often a busy queue's device is asked what it lost.
const LOST_PERIOD: Nanos = Nanos(100_000_000);

/// An ingress queue with its place in the switch.
pub(crate) struct OwnedQueue {
    pub(crate) port: PortId,
    /// Its number at the port.
    pub(crate) number: usize,
    pub(crate) ingress: IngressQueue,
    /// Rests until then: its device failed, or its receiver has no room.
    pub(crate) resting_until: Option<Nanos>,
    /// When to read the device's count of lost frames next: reading it may be a system call.
    pub(crate) next_count: Nanos,
    pub(crate) pressure: Pressure,
    /// Limits its bursts.
    pub(crate) dearness: Dearness,
    /// Its descriptor wakes the worker.
    pub(crate) watched: bool,
}

impl OwnedQueue {
    pub(crate) fn new(port: PortId, number: usize, ingress: IngressQueue) -> OwnedQueue {
        OwnedQueue {
            port,
            number,
            ingress,
            resting_until: None,
            next_count: Nanos::default(),
            pressure: Pressure::default(),
            dearness: Dearness::default(),
            watched: false,
        }
    }

    fn is_resting(&self, now: Nanos) -> bool {
        self.resting_until.is_some_and(|until| now < until)
    }
}

/// A letter to a worker, read and answered between rounds.
pub(crate) enum Letter {
    /// Use this view from now on.
    View(Arc<View>, SyncSender<()>),
    /// Own these queues from now on.
    Own(Vec<OwnedQueue>, SyncSender<()>),
    /// Give back the queues of a port.
    GiveBack(PortId, SyncSender<Vec<OwnedQueue>>),
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
}

/// What a worker and the control plane share.
pub(crate) struct WorkerShared {
    pub(crate) mailbox: Mailbox<Letter>,
    pub(crate) counters: WorkerCounters,
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
        };
        let (view, owners, queues, accounts) = Default::default();
        Worker { index, shared, macs, view, owners, held: 0, queues, accounts, scratch }
    }

    /// Polls until it reads [`Letter::Stop`].
    pub(crate) fn run(mut self, mut waiter: Waiter) {
        loop {
            if self.shared.mailbox.is_waiting() && !self.read_mail(Some(&waiter)) {
                return;
            }
            let now = waiter.now();
            let taken = self.round(now);
            let counters = &self.shared.counters;
            if taken > 0 {
                counters.busy_turns.add(1);
                counters.frames.add(taken as u64);
                waiter.busy();
            } else {
                counters.idle_turns.add(1);
                let shared = &self.shared;
                if waiter.idle(&mut self.queues, now, || shared.mailbox.is_waiting()) {
                    counters.sleeps.add(1);
                }
            }
        }
    }

    /// A turn for each queue that is neither resting nor in debt, see [`share::round`]; the frames taken.
    pub(crate) fn round(&mut self, now: Nanos) -> usize {
        let held = self.macs.held();
        if held != self.held {
            self.held = held;
            self.owners.read(&self.view);
        }
        let Worker { index, macs, view, owners, queues, accounts, scratch, .. } = self;
        share::round(accounts, queues, |queue| match view.port(queue.port) {
            Some(from) if !queue.is_resting(now) => {
                let turn = Turn { worker: *index, view, macs, owners, from, now };
                turn.carry_out(queue, scratch)
            }
            _ => (0, 0),
        })
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
                Letter::Own(mut queues, reply) => {
                    waiter.iter().for_each(|waiter| {
                        queues.iter_mut().for_each(|queue| waiter.watch(queue));
                    });
                    self.queues.extend(queues);
                    self.share_out();
                    let _ = reply.send(());
                }
                Letter::GiveBack(port, reply) => {
                    let mut given =
                        self.queues.extract_if(.., |queue| queue.port == port).collect::<Vec<_>>();
                    waiter.iter().for_each(|waiter| {
                        given.iter_mut().for_each(|queue| waiter.forget(queue));
                    });
                    self.share_out();
                    let _ = reply.send(given);
                }
                Letter::Stop => return false,
            }
        }
        true
    }

    /// The queues of a vNIC, which stand side by side, share an account: a guest chooses how many it uses. Those of an uplink
    /// have one each.
    fn share_out(&mut self) {
        let Worker { queues, view, accounts, .. } = self;
        let is_vnic = |id| view.port(id).is_some_and(|port| port.settings.role == PortRole::Vnic);
        let shared = queues.chunk_by(|one, next| one.port == next.port && is_vnic(one.port));
        let mut end = 0;
        let account = |queues: &[OwnedQueue]| {
            end += queues.len();
            let first = queues.first()?;
            let number = (!is_vnic(first.port)).then_some(first.number);
            Some(Account::of(first.port, number, end - queues.len()..end, accounts))
        };
        *accounts = shared.filter_map(account).collect();
    }
}

/// Derives the port's state, and the queue's rest, from the outcome of a take.
#[inline]
fn note_ingress(
    queue: &mut OwnedQueue,
    port: &Port,
    fault: Option<&PortFault>,
    now: Nanos,
    taken: usize,
) {
    let Some(fault) = fault else {
        // A device may report only once that it is down, so an empty take does not mean that it is up again.
        queue.resting_until = None;
        if taken > 0 {
            note_taken(queue, port, now);
        }
        return;
    };
    note_fault(port, fault);
    let forever = !matches!(fault, PortFault::Down);
    queue.resting_until = Some(if forever { Nanos(u64::MAX) } else { now + REST });
}

#[inline]
fn note_taken(queue: &mut OwnedQueue, port: &Port, now: Nanos) {
    if !port.shared.state.is_up() {
        port.shared.set_state(PortState::Up);
    }
    if now >= queue.next_count {
        queue.next_count = now + LOST_PERIOD;
        if let Some(lost) = port.shared.lost.get(queue.number) {
            lost.store(queue.ingress.lost(), Ordering::Relaxed);
        }
    }
}

/// What one turn reads. Its stages are functions of their own, never inlined, so that the loop of each has the registers
/// to itself: all in one function they take a third more instructions.
pub(crate) struct Turn<'t> {
    worker: usize,
    pub(crate) view: &'t View,
    pub(crate) macs: &'t MacTable,
    pub(crate) owners: &'t Owners,
    /// The port the burst came from.
    pub(crate) from: &'t Port,
    pub(crate) now: Nanos,
}

impl Turn<'_> {
    /// One burst of one queue, from take to release; the frames taken, and their work.
    fn carry_out(&self, queue: &mut OwnedQueue, scratch: &mut Scratch) -> (usize, u64) {
        let mut limit = queue.dearness.limit();
        if self.from.settings.back_pressure {
            let Some(room) = queue.pressure.allowance(self.view, self.now) else {
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
            let cost = work::of_taking(taken, burst.slice_count(), kernel_ns);
            scratch.deliverer.work = cost;
            let toward = self.run(&burst, scratch);
            queue.pressure.note(toward, scratch.deliverer.taken, self.now);
            work = scratch.deliverer.work + std::mem::take(&mut scratch.filtering.work);
            queue.dearness.note(taken, bytes, work);
        }
        scratch.burst = burst.recycle();
        queue.ingress.release();
        note_ingress(queue, self.from, fault.as_ref(), self.now, taken);
        (taken, work)
    }

    /// parse, admit, look up, steer; then, for each egress queue, coalesce, fit, deliver, count. The egress queue, if
    /// there was only one.
    fn run(&self, burst: &Burst<'_>, scratch: &mut Scratch) -> Option<Target> {
        let Scratch { frames, outbox, deliverer, filtering, .. } = scratch;
        let cell = self.from.cell(self.worker)?;
        let mut parts = std::mem::take(&mut scratch.parts).recycle();
        let frames = self.read(burst, &mut parts, frames, cell);
        if self.from.filter.asks_ingress() {
            filtering.enter(self.from, frames, &parts, cell, self.now);
        }
        deliverer.work += self.decide(&parts, frames, outbox, cell);
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
                    offloads: to.shared.live.offloads(),
                };
                if to.filter.egress.is_some() {
                    filtering.leave(&delivery, &mut list);
                }
                deliverer.deliver(&list, &mut delivery);
            }
            outbox.put_back(target, list);
            (last, targets) = (Some(target), targets + 1);
        }
        scratch.parts = parts.recycle();
        last.filter(|_| targets == 1)
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
        let mut place = 0;
        while let Some(next @ [_, ..]) = frames.get_mut(place..) {
            let (count, verdict) = decider.decide(place, next, &parts.headers, outbox);
            if let Err(reason) = verdict {
                count_drop(cell, reason, 1);
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
}
