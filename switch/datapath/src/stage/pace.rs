//! Pace: what a port receives above its `rate-to` waits, and leaves when its time has come.
//!
//! The worker that left frames waiting looks at them again between its turns, and sleeps no longer
//! than until then. Several workers may do so for one port. Frames are copied and delivered without
//! the pacer's lock, by one worker at a time, which keeps each flow in order.

use crate::counters::{DropReason, count_drop};
use crate::port::pacer::{Copied, Copies, Paced, Pacer};
use crate::port::view::View;
use crate::stage::deliver::Deliverer;
use crate::turn::work::{self, Meter};
use crate::turn::{Delivered, Delivery, Exit};
use ports::{Locked, Nanos, Outgoing, Slice, Stopwatch, lock, recycle};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Calls of an egress queue in one look, so that a worker's own queues wait no longer than for a
/// turn.
const CALLS: usize = 8;

/// The longest that a worker that ends delivers what waits.
const FLUSH: Duration = Duration::from_millis(500);

/// Locks a pacer, with the tokens and for the guest of now.
fn of_now<'p>(pacer: &'p Mutex<Pacer>, exit: &Exit<'_>) -> Locked<'p, Pacer> {
    let mut pacer = lock(pacer);
    pacer.serve(exit.to.shared.live.guest());
    pacer.refill(exit.now);
    pacer
}

impl Deliverer {
    /// Delivers the frames that the port may receive now, and lets the others wait. Returns what was
    /// taken or waits. The work of frames that wait is that of two deliveries.
    #[cold]
    pub(super) fn pace(
        &mut self,
        all: &Mutex<Pacer>,
        outgoing: &[Outgoing<'_>],
        delivery: &Delivery<'_, '_>,
        meter: &mut Meter,
    ) -> Delivered {
        let exit = delivery.exit();
        let (passing, free) = {
            let mut pacer = of_now(all, &exit);
            (pacer.pass(outgoing), pacer.free())
        };
        let (first, others) = outgoing.split_at_checked(passing).unwrap_or_default();
        let mut taken = match first {
            [] => Delivered::default(),
            first => self.send(first, &exit, meter),
        };
        if others.is_empty() {
            return taken;
        }
        let (kernel_ns, mut slices, mut bytes) = (exit.to.shared.kernel_ns, 0, 0);
        self.copies.gather(others, delivery.offloads, free);
        self.waits.clear();
        let (rehearses, pause) = {
            let mut pacer = lock(all);
            let waits = |frame: Copied<'_>| pacer.wait(&frame, delivery.queue);
            self.waits.extend(self.copies.iter().map(waits));
            (pacer.rehearses(), pacer.pause())
        };
        self.waits.resize(others.len(), false);
        for (frame, waits) in others.iter().zip(&self.waits) {
            if *waits {
                (taken.frames, taken.bytes) =
                    (taken.frames + 1, taken.bytes + u64::from(frame.len));
            } else {
                count_drop(exit.cell, DropReason::RateLimited, 1);
                let dropped = (frame.header, frame.len, DropReason::RateLimited);
                self.flows.drop_one(dropped, delivery.way_out(), exit.now);
                let reason = Some(DropReason::RateLimited.name());
                meter.add(exit.show(frame, reason));
            }
            (slices, bytes) = (slices + frame.payload.len(), bytes + u64::from(frame.len));
        }
        let work = work::of_delivering(others.len(), slices, bytes, kernel_ns);
        meter.add(work);
        meter.add_later(work);
        let id = exit.to.shared.id;
        if rehearses {
            while self.look(all, exit, meter).is_some() {}
            return taken;
        }
        if let Some(pause) = pause
            && self.paced.iter().all(|paced| paced.port != id)
        {
            self.paced.push(Paced { port: id, at: exit.now + pause });
        }
        taken
    }

    /// Whether frames wait that this worker has to look at.
    pub(crate) fn paces(&self) -> bool {
        !self.paced.is_empty()
    }

    /// Returns when to look first at them, or at a signal that is held back.
    pub(crate) fn next_look(&self) -> Option<Nanos> {
        self.paced.iter().map(|paced| paced.at).chain(self.held.first()).min()
    }

    /// Delivers the frames whose time has come at ports where this worker left some waiting.
    /// Returns the work.
    #[cold]
    pub(crate) fn release(&mut self, view: &View, worker: usize, now: Nanos) -> u64 {
        let mut meter = Meter::new(0);
        let mut paced = std::mem::take(&mut self.paced);
        paced.retain_mut(|paced| {
            if paced.at > now {
                return true;
            }
            let port = view.port(paced.port);
            let Some((to, pacer)) = port.and_then(|port| Some((port, port.pacer.as_ref()?))) else {
                return false;
            };
            let Some(cell) = to.cell(worker) else { return false };
            let next = self.look(pacer, Exit { to, queue: 0, now, cell }, &mut meter);
            paced.at = now + next.unwrap_or_default();
            next.is_some()
        });
        self.paced = paced;
        meter.total()
    }

    /// Delivers what waits, whatever the rates: the worker ends.
    pub(crate) fn flush(&mut self, view: &View, worker: usize, now: Nanos) {
        self.held.send_all(view);
        for paced in &self.paced {
            let pacer = view.port(paced.port).and_then(|port| port.pacer.as_ref());
            pacer.into_iter().for_each(|pacer| lock(pacer).set_rate(None));
        }
        (self.stopwatch, self.sender) = (Stopwatch::STILL, None);
        let end = Instant::now() + FLUSH;
        while self.paces() && Instant::now() < end {
            self.paced.iter_mut().for_each(|paced| paced.at = now);
            self.release(view, worker, now);
        }
        for paced in self.paced.drain(..) {
            if let Some(port) = view.port(paced.port)
                && let (Some(pacer), Some(cell)) = (&port.pacer, port.cell(worker))
            {
                let mut pacer = lock(pacer);
                pacer.discard();
                count_drop(cell, DropReason::RateLimited, pacer.take_discarded());
            }
        }
    }

    /// Delivers frames of one port. Returns how long to wait for the next.
    fn look(&mut self, pacer: &Mutex<Pacer>, exit: Exit<'_>, meter: &mut Meter) -> Option<Nanos> {
        drop(of_now(pacer, &exit));
        for _ in 0..CALLS {
            let queue = {
                let mut pacer = lock(pacer);
                count_drop(exit.cell, DropReason::RateLimited, pacer.take_discarded());
                let Some(queue) = pacer.take_due(&mut self.copies) else { return pacer.pause() };
                queue
            };
            // The guest may have turned the queue off since.
            let queue = if queue < exit.to.shared.queues_in_use() { queue } else { 0 };
            let copies = std::mem::take(&mut self.copies);
            self.send_copies(&copies, &Exit { queue, ..exit }, meter);
            self.copies = copies;
            lock(pacer).has_left();
        }
        Some(Nanos(0))
    }

    /// Delivers frames that have waited. A guest that takes less than when they were fitted loses
    /// those that need it.
    fn send_copies(&mut self, copies: &Copies, exit: &Exit<'_>, meter: &mut Meter) {
        let count = copies.iter().count();
        let shared = &exit.to.shared;
        if shared.is_at_rest(exit.queue, exit.now) {
            return count_drop(exit.cell, DropReason::EgressDown, count);
        }
        let live = shared.live.offloads();
        let is_taken =
            |frame: &Copied<'_>| live.contains(frame.offloads) || frame.vnet.asks_nothing();
        let all = || copies.iter().filter(is_taken);
        count_drop(exit.cell, DropReason::EgressRefused, count - all().count());
        let mut slices: Vec<Slice<'_>> = recycle(std::mem::take(&mut self.slices));
        slices.extend(all().map(|frame| Slice::from(frame.payload)));
        let mut outgoing: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.released));
        outgoing
            .extend(all().zip(slices.chunks(1)).map(|(frame, payload)| frame.outgoing(payload)));
        self.send(&outgoing, exit, meter);
        self.released = recycle(outgoing);
        self.slices = recycle(slices);
    }
}
