//! The stages of a turn, in their order: take, read, filter, decide and steer; then, for each
//! egress queue, filter, coalesce, fit, pace and deliver.
//!
//! [`Turn::carry_out`] runs them for one burst of one queue. Each stage is a function that is never
//! inlined, so that its loop has the registers to itself: in one function all stages take a third
//! more instructions.

pub(crate) mod black_hole;
pub(crate) mod carry;
pub(crate) mod coalesce;
pub(crate) mod decide;
pub(crate) mod deliver;
pub(crate) mod filter;
pub(crate) mod fit;
mod held;
mod measure;
pub(crate) mod pace;
pub(crate) mod read;
pub(crate) mod segment;
pub(crate) mod steer;
pub(crate) mod take;
pub(crate) mod too_big;

use crate::counters::{DropReason, PortCell, count_drop};
use crate::flow::watch::Watch;
use crate::frame::Frame;
use crate::frame::headers::Headers;
use crate::frame::parts::Parts;
use crate::port::capture::show;
use crate::port::view::Port;
use crate::settings::PortId;
use crate::stage::carry::Recent;
use crate::stage::decide::Decider;
use crate::stage::deliver::Deliverer;
use crate::stage::filter::Filtering;
use crate::stage::steer::Noter;
use crate::status::HealthEvent;
use crate::turn::floods::Floods;
use crate::turn::guests::Guests;
use crate::turn::outbox::{Outbox, Target};
use crate::turn::queue::OwnedQueue;
use crate::turn::work::{self, Meter};
use crate::turn::{Carried, Delivered, Delivery, Turn};
use ports::Burst;
use ports::capture::Direction;
use ports::kernel_path::Hook;
use wire::vnet::VnetHeader;

/// The buffers of a worker's turns, kept from one to the next for their allocations.
pub(crate) struct Scratch {
    burst: Burst<'static>,
    /// As many as the longest burst so far had; a turn fills the first ones.
    frames: Vec<Frame>,
    parts: Parts<'static>,
    /// The lists of the egress queues.
    pub(crate) outbox: Outbox,
    pub(crate) floods: Floods,
    pub(crate) guests: Guests,
    pub(crate) deliverer: Deliverer,
    filtering: Filtering,
    recent: Recent,
}

impl Scratch {
    pub(crate) fn new(worker: usize) -> Scratch {
        Scratch {
            burst: Burst::new(),
            frames: (0..Burst::FRAMES).map(Frame::at).collect(),
            parts: Parts::new(),
            outbox: Outbox::default(),
            floods: Floods::default(),
            guests: Guests::default(),
            deliverer: Deliverer::new(),
            filtering: Filtering::new(worker),
            recent: Recent::new(),
        }
    }
}

/// Where the frames of a burst went.
#[derive(Default)]
struct Sent {
    /// The egress queue that the sender waits for: the weighted one where it leads its share most,
    /// else the only one.
    toward: Option<Target>,
    /// What the last egress queue took.
    delivered: Delivered,
}

/// The weighted egress queue where the sender leads its share most.
struct Lead {
    /// The lead; `None` if the queue is not short of room.
    ahead: Option<u64>,
    queue: Target,
}

impl Turn<'_> {
    /// Carries one burst of one queue from take to release.
    pub(crate) fn carry_out(&self, queue: &mut OwnedQueue, scratch: &mut Scratch) -> Carried {
        let Some(limit) = self.burst_limit(queue, &scratch.deliverer.slow) else {
            return Carried::default();
        };
        let announcement;
        let mut burst = std::mem::take(&mut scratch.burst).recycle();
        burst.limit(limit);
        burst.limit_time(scratch.deliverer.slow.time_of_taking(self));
        burst.set_speaker(self.from.shared.live.speaker());
        let (kernel_ns, is_guest) = (queue.ingress.kernel_ns(), queue.ingress.is_guest());
        let hook = self.from.shared.hook.as_deref();
        let look = hook.and_then(Hook::begin_look);
        let fault = queue.ingress.take(self.now, &mut burst).err();
        if queue.number == 0 && fault.is_none() {
            announcement = self.from.shared.live.take_announcement(burst.room());
            for frame in &announcement {
                burst.push(VnetHeader::default(), None, &[frame.as_slice().into()]);
            }
        }
        let (taken, bytes) = (burst.taken(), burst.bytes());
        if let (Some(hook), Some(look), 0, None) = (hook, look, taken, &fault) {
            hook.found_empty(look);
        }
        let mut carried = Carried { taken, ..Carried::default() };
        if taken > 0 {
            let pieces = burst.slice_count() + burst.refused_pieces();
            let work = work::of_taking(taken, pieces, kernel_ns);
            if is_guest {
                carried.taking = self.time_of_taking(&burst, work, &mut scratch.deliverer.slow);
            }
            queue.load.frames.add(taken as u64);
            queue.load.bytes.add(bytes as u64);
            if let Some(waited) = burst.waited() {
                queue.load.waits.add(waited, taken);
            }
            self.pay_rate(bytes);
            let mut meter = Meter::new(work);
            let sent = self.run(&burst, scratch, &mut meter);
            if self.from.waits {
                queue.pressure.leave(self, sent.toward);
                queue.pressure.note(sent.toward, sent.delivered, self.now);
            }
            (carried.work, carried.later) = (meter.total(), meter.later());
            carried.taking += meter.sender();
            carried.receivers = meter.receivers();
            queue.cost.note(taken, bytes, carried.work);
        } else if self.from.waits {
            queue.pressure.leave(self, None);
        }
        scratch.burst = burst.recycle();
        queue.ingress.release();
        queue.note(self.from, fault.as_ref(), self.now, taken);
        carried
    }

    /// Runs the stages between take and release.
    #[inline(never)]
    fn run(&self, burst: &Burst<'_>, scratch: &mut Scratch, meter: &mut Meter) -> Sent {
        let Scratch { frames, outbox, floods, guests, deliverer, filtering, recent, .. } = scratch;
        let moment = self.from.shared.hook.as_deref().map(Hook::moment);
        let Some(from_cell) = self.from.cell(self.worker) else { return Sent::default() };
        (deliverer.stopwatch, deliverer.sender) = (self.stopwatch, Some(self.from.shared.id));
        if burst.refused() > 0 {
            from_cell.ingress_frames.add(burst.refused() as u64);
            count_drop(from_cell, DropReason::Scattered, burst.refused());
        }
        let mut parts = std::mem::take(&mut scratch.parts).recycle();
        let frames = self.read(burst, &mut parts, frames, from_cell);
        meter.add(parts.work);
        if self.from.filter.asks_ingress {
            filtering.enter(self, frames, &parts, from_cell, meter, &mut deliverer.flows);
            filtering.mark(self.from, frames, &mut parts.headers, meter);
        }
        let decider = Decider::new(self, from_cell, floods, guests, meter);
        self.decide(&parts, frames, outbox, decider);
        let frames = &*frames;
        self.drop_refused(frames, &parts.headers, outbox, from_cell, &mut deliverer.flows);
        let (mut sent, mut lead, mut last, mut targets) = (Sent::default(), None, None, 0);
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
                    filtering.leave(&delivery, &mut list, meter, &mut deliverer.flows);
                }
                if let Some(moment) = moment {
                    self.offer_flows(&list, frames, &delivery.parts.headers, to, moment, recent);
                }
                sent.delivered = deliverer.deliver(&list, &mut delivery, meter);
                if to.is_weighted {
                    self.pay(to, target, sent.delivered, &mut lead);
                }
            }
            outbox.put_back(target, list);
            (last, targets) = (Some(target), targets + 1);
        }
        let sole = last.filter(|_| targets == 1);
        if frames.len() <= black_hole::SPARSE
            && let Some(target) = sole
            && self.from.shared.black_holes.look(frames, &parts.headers, self.now)
        {
            self.report_black_hole(target.port);
        }
        scratch.parts = parts.recycle();
        sent.toward = lead.map(|lead: Lead| lead.queue).or(sole);
        sent
    }

    /// Counts the frames that go nowhere, and shows them to the look at flows.
    #[inline]
    fn drop_refused(
        &self,
        frames: &[Frame],
        headers: &Headers,
        outbox: &mut Outbox,
        cell: &PortCell,
        flows: &mut Watch,
    ) {
        for (place, reason) in outbox.take_refused() {
            count_drop(cell, reason, 1);
            let dropped = frames.get(place).map(|frame| frame.dropped(headers, reason));
            dropped.into_iter().for_each(|it| flows.drop_one(it, self.way_in(), self.now));
        }
    }

    /// Decides where each frame goes, and puts it into the outbox.
    #[inline(never)]
    fn decide(
        &self,
        parts: &Parts<'_>,
        frames: &mut [Frame],
        outbox: &mut Outbox,
        mut decider: Decider<'_>,
    ) {
        let mut noter = Noter::new(self.from, self.queue, self.now);
        let mut place = 0;
        while let Some(next @ [_, ..]) = frames.get_mut(place..) {
            let (count, verdict) = decider.decide(place, next, &parts.headers, outbox);
            if let Err(reason) = verdict {
                outbox.refuse(place, reason);
            } else if let Some(noter) = &mut noter {
                noter.note(next.get(..count).unwrap_or_default(), &parts.headers);
            }
            if self.from.capture.is_some() {
                decider.unlock();
                for frame in next.iter().take(count).filter(|frame| !frame.is_dropped()) {
                    show(self.from, Direction::Ingress, frame, parts, self.now, verdict.err());
                }
            }
            place += count;
        }
    }

    /// Charges the sender for what a weighted egress queue took of its burst, and keeps the queue
    /// where it leads most.
    #[cold]
    fn pay(&self, to: &Port, at: Target, delivered: Delivered, lead: &mut Option<Lead>) {
        let Some(mut weights) = self.weights(to, at) else { return };
        if delivered.bytes == 0 {
            // All frames were dropped on the way, so the port waits for nothing there.
            weights.leave(self.place());
            return;
        }
        let weight = self.from.settings.weight.unwrap_or(1);
        let short = weights.is_short;
        let ahead = short.then(|| weights.charge(self.from.shared.id, delivered.bytes, weight));
        if lead.as_ref().is_none_or(|lead| ahead >= lead.ahead) {
            *lead = Some(Lead { ahead, queue: at });
        }
    }

    /// Reports that large segments toward a port are lost behind it, at most once a second for each
    /// sender: one that varies where it sends would fill the queue of events.
    #[cold]
    fn report_black_hole(&self, to: PortId) {
        let (from, Some(to)) = (self.from, self.view.port(to)) else { return };
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
}
