//! Deliver: one egress queue's share of a turn goes out, and is counted.

use crate::coalesce::{Coalescer, Item, Policy};
use crate::counters::{DropReason, PortCell};
use crate::fit::{self, Fitting, Source};
use crate::frame::Frame;
use crate::outbox::{Cause, Run};
use crate::parts::Parts;
use crate::settings::PortId;
use crate::status::{HealthEvent, PortState};
use crate::view::Port;
use crate::work;
use ports::capture::Direction;
use ports::{Burst, EgressDrop, Nanos, Offloads, Outgoing, PortFault, recycle};
use std::cell::Cell;
use std::sync::PoisonError;

/// Scratch of delivering, kept between turns.
pub(crate) struct Deliverer {
    coalescer: Coalescer,
    fitting: Fitting,
    outgoing: Vec<Outgoing<'static>>,
    drops: Vec<(usize, EgressDrop)>,
    /// From where, to where and in which second a frame too big was last told of.
    told: Cell<Option<(PortId, PortId, u64)>>,
}

/// Where from and where to.
pub(crate) struct Route<'t> {
    pub(crate) from: &'t Port,
    pub(crate) to: &'t Port,
    pub(crate) queue: usize,
    pub(crate) now: Nanos,
}

impl Deliverer {
    pub(crate) fn new() -> Deliverer {
        let frames = Vec::with_capacity(2 * Burst::FRAMES);
        Deliverer {
            coalescer: Coalescer::new(),
            fitting: Fitting { offloads: Offloads::empty(), frames, work: 0 },
            outgoing: Vec::with_capacity(2 * Burst::FRAMES),
            drops: Vec::with_capacity(Burst::FRAMES),
            told: Cell::new(None),
        }
    }

    /// Begins a turn that has cost so much already.
    pub(crate) fn begin(&mut self, work: u64) {
        self.fitting.work = work;
    }

    /// What the turn has cost so far.
    pub(crate) fn work(&self) -> u64 {
        self.fitting.work
    }

    /// Coalesces, fits and delivers one list of the outbox.
    pub(crate) fn deliver<'q>(
        &mut self,
        list: &[Run],
        route: &Route<'_>,
        source: &Source<'_, 'q>,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) {
        if route.to.shared.state.is_broken() {
            let frames = list.iter().map(Run::count).sum();
            return count_drop(cell, DropReason::EgressDown, frames);
        }
        count_causes(list, cell);
        self.fitting.offloads = route.to.shared.live.offloads();
        let policy = route.to.policy.and_then(|policy| policy.toward(self.fitting.offloads));
        if policy.is_none() && self.pass(list, route, source, parts, cell) {
            return;
        }
        let mark = parts.mark();
        match policy {
            None => self.fit_plain(list, route, source, parts, cell),
            Some(policy) => {
                self.coalesce(list, &policy, source, parts, cell);
                self.fit_items(route, source, parts, cell);
            }
        }
        let mut outgoing: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.outgoing));
        self.fitting.outgoing(parts, &mut outgoing);
        self.send(&outgoing, route, cell);
        self.outgoing = recycle(outgoing);
        self.fitting.frames.clear();
        parts.rewind(mark);
    }

    /// Delivers a list of frames that the port takes as they are. `false`: it does not, and nothing has happened.
    fn pass(
        &mut self,
        list: &[Run],
        route: &Route<'_>,
        source: &Source<'_, '_>,
        parts: &Parts<'_>,
        cell: &PortCell,
    ) -> bool {
        let offloads = self.fitting.offloads;
        if !source.runs(list).all(|frames| fit::are_taken(frames, route.to, offloads)) {
            return false;
        }
        let mut outgoing: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.outgoing));
        source.runs(list).for_each(|frames| extend(&mut outgoing, frames, parts));
        self.send(&outgoing, route, cell);
        self.outgoing = recycle(outgoing);
        true
    }

    /// Every frame by itself.
    fn fit_plain<'q>(
        &mut self,
        list: &[Run],
        route: &Route<'_>,
        source: &Source<'_, 'q>,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) {
        for frame in source.runs(list).flatten() {
            let fitted = self.fitting.single(frame, route.to, source.burst, parts, cell);
            if let Err(reason) = fitted {
                self.unfit(frame, reason, route, parts, cell);
            }
        }
    }

    #[inline(never)]
    fn coalesce(
        &mut self,
        list: &[Run],
        policy: &Policy,
        source: &Source<'_, '_>,
        parts: &Parts<'_>,
        cell: &PortCell,
    ) {
        self.coalescer.clear();
        for (run, frames) in list.iter().zip(source.runs(list)) {
            for (place, frame) in run.numbers().zip(frames) {
                // What a mirror shows is what passed.
                if run.cause == Cause::Mirrored {
                    self.coalescer.pass(place);
                } else {
                    let turn = (source.burst, &parts.headers);
                    self.coalescer.add(place, frame, turn, policy, cell);
                }
            }
        }
        self.coalescer.count_trains(cell);
        self.fitting.work += work::of_coalescing(list.iter().map(Run::count).sum());
    }

    #[inline(never)]
    fn fit_items<'q>(
        &mut self,
        route: &Route<'_>,
        source: &Source<'_, 'q>,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) {
        for item in self.coalescer.items() {
            let fitted = self.fitting.fit(*item, route.to, source, &self.coalescer, parts, cell);
            let Err(reason) = fitted else { continue };
            let unfit = |place: u16| {
                if let Some(frame) = source.frames.get(usize::from(place)) {
                    self.unfit(frame, reason, route, parts, cell);
                }
            };
            match *item {
                Item::Single(place) => unfit(place),
                Item::Train(train) => {
                    if let Some(train) = self.coalescer.train(train) {
                        self.coalescer.members(train).for_each(unfit);
                    }
                }
            }
        }
    }

    /// Once a second, not once a frame.
    fn tell_too_big(&self, route: &Route<'_>) {
        let Route { from, to, now, .. } = route;
        let told = Some((from.shared.id, to.shared.id, now.as_secs()));
        if self.told.replace(told) != told {
            to.shared.events.push(HealthEvent::TooBig {
                from: from.shared.id,
                from_mtu: from.settings.mtu,
                to: to.shared.id,
                to_mtu: to.settings.mtu,
            });
        }
    }

    /// Counts and shows what could not be fitted.
    #[cold]
    fn unfit(
        &self,
        frame: &Frame,
        reason: DropReason,
        route: &Route<'_>,
        parts: &Parts<'_>,
        cell: &PortCell,
    ) {
        if reason == DropReason::TooBig {
            self.tell_too_big(route);
        }
        count_drop(cell, reason, 1);
        show(route.to, Direction::Egress, frame, parts, route.now, Some(reason));
    }

    /// One lock, one publish.
    fn send(&mut self, outgoing: &[Outgoing<'_>], route: &Route<'_>, cell: &PortCell) {
        self.drops.clear();
        let Some(queue) = route.to.shared.egress.get(route.queue) else { return };
        let result =
            queue.lock().unwrap_or_else(PoisonError::into_inner).deliver(outgoing, &mut self.drops);
        match result {
            Ok(()) => {
                if !route.to.shared.state.is_up() && self.drops.is_empty() && !outgoing.is_empty() {
                    route.to.shared.set_state(PortState::Up);
                }
            }
            Err(fault) => {
                note_fault(route.to, &fault);
                self.drops.clear();
                self.drops.extend((0..outgoing.len()).map(|place| (place, EgressDrop::Down)));
            }
        }
        self.count(outgoing, route, cell);
    }

    fn count(&mut self, outgoing: &[Outgoing<'_>], route: &Route<'_>, cell: &PortCell) {
        let (mut bytes, mut slices) = (0, 0);
        for frame in outgoing {
            bytes += u64::from(frame.len);
            slices += frame.payload.len();
        }
        let kernel_ns = route.to.shared.kernel_ns;
        self.fitting.work += work::of_delivering(outgoing.len(), slices, bytes, kernel_ns);
        for (place, drop) in &self.drops {
            count_drop(cell, egress_reason(*drop), 1);
            bytes -= outgoing.get(*place).map_or(0, |frame| u64::from(frame.len));
            if *drop == EgressDrop::Down {
                note_fault(route.to, &PortFault::Down);
            }
        }
        cell.egress_frames.add((outgoing.len() - self.drops.len().min(outgoing.len())) as u64);
        cell.egress_bytes.add(bytes);
        if let Some(capture) = &route.to.capture {
            for (place, frame) in outgoing.iter().enumerate() {
                let drop = self.drops.iter().find(|(dropped, _)| *dropped == place);
                let reason = drop.map(|(_, drop)| egress_reason(*drop).name());
                capture.offer(route.now, Direction::Egress, frame.header, frame.payload, reason);
            }
        }
    }
}

/// The frames as they are.
#[inline(never)]
fn extend<'p>(outgoing: &mut Vec<Outgoing<'p>>, frames: &[Frame], parts: &'p Parts<'_>) {
    let out = |frame: &Frame| parts.outgoing(frame.vnet, frame.header, frame.rest, frame.len);
    outgoing.extend(frames.iter().map(out));
}

fn count_causes(list: &[Run], cell: &PortCell) {
    for run in list {
        match run.cause {
            Cause::Addressed => {}
            Cause::Flooded => cell.flooded_frames.add(run.count() as u64),
            Cause::Mirrored => cell.mirrored_frames.add(run.count() as u64),
        }
    }
}

fn egress_reason(drop: EgressDrop) -> DropReason {
    match drop {
        EgressDrop::Full => DropReason::EgressFull,
        EgressDrop::Down => DropReason::EgressDown,
        EgressDrop::Refused => DropReason::EgressRefused,
    }
}

/// Counts frames dropped for a reason.
pub(crate) fn count_drop(cell: &PortCell, reason: DropReason, frames: usize) {
    if let Some(counter) = cell.drops.get(reason as usize) {
        counter.add(frames as u64);
    }
}

/// A fault of a device becomes the port's state.
pub(crate) fn note_fault(port: &Port, fault: &PortFault) {
    port.shared.set_state(match fault {
        PortFault::Down => PortState::Down(fault.to_string()),
        PortFault::Gone(_) | PortFault::Io { .. } => PortState::Broken(fault.to_string()),
    });
}

/// Shows a frame of the burst to a port's capture, if it has one.
pub(crate) fn show(
    port: &Port,
    direction: Direction,
    frame: &Frame,
    parts: &Parts<'_>,
    now: Nanos,
    reason: Option<DropReason>,
) {
    if let Some(capture) = &port.capture {
        let (header, rest) = (parts.headers.get(frame.header), parts.lent(frame.rest));
        capture.offer(now, direction, header, rest, reason.map(DropReason::name));
    }
}
