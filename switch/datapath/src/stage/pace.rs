//! Pace: what a port receives above its `rate-to` waits, and leaves when its time has come.
//!
//! The worker that left frames waiting looks at them again between its turns, and sleeps no longer
//! than until then. Several workers may do so for one port; the pacer's lock, which is held while
//! frames leave, keeps each flow in order.

use crate::counters::{DropReason, count_drop};
use crate::port::pacer::{Oldest, Paced, Pacer};
use crate::port::view::View;
use crate::stage::deliver::Deliverer;
use crate::turn::work::{self, Meter};
use crate::turn::{Delivered, Delivery, Exit};
use ports::{Nanos, Outgoing, Slice, lock, recycle};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Calls of an egress queue in one look, so that a worker's own queues wait no longer than for a
/// turn.
const CALLS: usize = 8;

/// The longest that a worker that ends delivers what waits.
const FLUSH: Duration = Duration::from_millis(500);

/// Locks a pacer, with the tokens and for the guest of now.
fn of_now<'p>(pacer: &'p Mutex<Pacer>, exit: &Exit<'_>) -> MutexGuard<'p, Pacer> {
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
        let passing = {
            let mut pacer = of_now(all, &exit);
            pacer.pass(outgoing)
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
        let mut pacer = lock(all);
        for frame in others {
            if pacer.wait(frame, delivery.queue, delivery.offloads) {
                (taken.frames, taken.bytes) =
                    (taken.frames + 1, taken.bytes + u64::from(frame.len));
            } else {
                count_drop(exit.cell, DropReason::RateLimited, 1);
                let reason = Some(DropReason::RateLimited.name());
                meter.add(exit.show(frame, reason));
            }
            (slices, bytes) = (slices + frame.payload.len(), bytes + u64::from(frame.len));
        }
        let work = work::of_delivering(others.len(), slices, bytes, kernel_ns);
        meter.add(work);
        meter.add_later(work);
        let id = exit.to.shared.id;
        if pacer.rehearses() {
            drop(pacer);
            while self.look(all, exit, meter).is_some() {}
            return taken;
        }
        if let Some(pause) = pacer.pause()
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

    /// Returns when to look at them first.
    pub(crate) fn next_look(&self) -> Option<Nanos> {
        self.paced.iter().map(|paced| paced.at).min()
    }

    /// Delivers the frames whose time has come at ports where this worker left some waiting.
    /// Returns the work.
    #[cold]
    pub(crate) fn release(&mut self, view: &View, worker: usize, now: Nanos) -> u64 {
        let mut meter = Meter::new(0);
        self.sender = None;
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
        for paced in &mut self.paced {
            paced.at = now;
            let pacer = view.port(paced.port).and_then(|port| port.pacer.as_ref());
            pacer.into_iter().for_each(|pacer| lock(pacer).set_rate(None));
        }
        let end = Instant::now() + FLUSH;
        while self.paces() && Instant::now() < end {
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
            let mut pacer = lock(pacer);
            count_drop(exit.cell, DropReason::RateLimited, pacer.take_discarded());
            let Some((queue, count)) = pacer.due() else { return pacer.pause() };
            // The guest may have turned the queue off since.
            let queue = if queue < exit.to.shared.queues_in_use() { queue } else { 0 };
            self.send_oldest(&pacer, count, &Exit { queue, ..exit }, meter);
            pacer.remove(count);
        }
        Some(Nanos(0))
    }

    /// Delivers the oldest frames. A guest that takes less than when they were fitted loses those
    /// that need it.
    fn send_oldest(&mut self, pacer: &Pacer, count: usize, exit: &Exit<'_>, meter: &mut Meter) {
        let shared = &exit.to.shared;
        if shared.is_at_rest(exit.queue, exit.now) {
            return count_drop(exit.cell, DropReason::EgressDown, count);
        }
        let live = shared.live.offloads();
        let is_taken =
            |frame: &Oldest<'_>| live.contains(frame.offloads) || frame.vnet.asks_nothing();
        let all = || pacer.oldest(count).filter(is_taken);
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
