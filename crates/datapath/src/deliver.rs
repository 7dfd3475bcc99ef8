//! Deliver: one egress queue's share of a turn goes out, and is counted.

use crate::coalesce::{Coalescer, Item, Policy};
use crate::counters::{DropReason, PortCell};
use crate::fit::{Fitting, Source};
use crate::frame::{Frame, Headers};
use crate::outbox::{Cause, Entry};
use crate::recycle::recycle;
use crate::settings::PortId;
use crate::status::{HealthEvent, PortState};
use crate::view::Port;
use ports::capture::Direction;
use ports::{Burst, Egress, EgressDrop, Nanos, Outgoing, PortFault, Slice};
use std::cell::Cell;
use std::sync::PoisonError;

/// Scratch of delivering, kept between turns.
pub(crate) struct Deliverer {
    coalescer: Coalescer,
    frames: Vec<crate::fit::Fitted>,
    pieces: Vec<Slice<'static>>,
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
        Deliverer {
            coalescer: Coalescer::new(),
            frames: Vec::with_capacity(2 * Burst::FRAMES),
            pieces: Vec::with_capacity(4 * Burst::FRAMES),
            outgoing: Vec::with_capacity(2 * Burst::FRAMES),
            drops: Vec::with_capacity(Burst::FRAMES),
            told: Cell::new(None),
        }
    }

    /// Coalesces, fits and delivers one list of the outbox.
    pub(crate) fn deliver<'q>(
        &mut self,
        list: &[Entry],
        route: &Route<'_>,
        source: &Source<'_, 'q>,
        headers: &mut Headers,
        cell: &PortCell,
    ) {
        if route.to.shared.state.is_broken() {
            return count_drop(cell, DropReason::EgressDown, list.len());
        }
        let offloads = route.to.shared.live.offloads();
        let mut fitting: Fitting<'q> = Fitting {
            offloads,
            frames: std::mem::take(&mut self.frames),
            pieces: recycle(std::mem::take(&mut self.pieces)),
        };
        count_causes(list, cell);
        match route.to.policy.and_then(|policy| policy.toward(offloads)) {
            None => self.fit_plain(list, &mut fitting, route, source, headers, cell),
            Some(policy) => {
                self.coalesce(list, &policy, source, headers, cell);
                self.fit_items(&mut fitting, route, source, headers, cell);
            }
        }
        self.send(&fitting, route, headers, cell);
        fitting.clear();
        (self.frames, self.pieces) = (fitting.frames, recycle(fitting.pieces));
    }

    /// Every frame by itself.
    #[inline(never)]
    fn fit_plain<'q>(
        &mut self,
        list: &[Entry],
        fitting: &mut Fitting<'q>,
        route: &Route<'_>,
        source: &Source<'_, 'q>,
        headers: &mut Headers,
        cell: &PortCell,
    ) {
        for entry in list {
            let Some(frame) = source.frames.get(usize::from(entry.place)) else { continue };
            if let Err(reason) = fitting.single(frame, route.to, source.burst, headers, cell) {
                self.unfit(Item::Single(entry.place), reason, route, source, headers, cell);
            }
        }
    }

    #[inline(never)]
    fn coalesce(
        &mut self,
        list: &[Entry],
        policy: &Policy,
        source: &Source<'_, '_>,
        headers: &Headers,
        cell: &PortCell,
    ) {
        self.coalescer.clear();
        for entry in list {
            match source.frames.get(usize::from(entry.place)) {
                // What a mirror shows is what passed.
                Some(frame) if entry.cause != Cause::Mirrored => {
                    let turn = (source.burst, headers);
                    self.coalescer.add(entry.place, frame, turn, policy, cell);
                }
                _ => self.coalescer.pass(entry.place),
            }
        }
        self.coalescer.count_trains(cell);
    }

    #[inline(never)]
    fn fit_items<'q>(
        &mut self,
        fitting: &mut Fitting<'q>,
        route: &Route<'_>,
        source: &Source<'_, 'q>,
        headers: &mut Headers,
        cell: &PortCell,
    ) {
        for item in self.coalescer.items() {
            let fitted = fitting.fit(*item, route.to, source, &self.coalescer, headers, cell);
            if let Err(reason) = fitted {
                self.unfit(*item, reason, route, source, headers, cell);
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
        item: Item,
        reason: DropReason,
        route: &Route<'_>,
        source: &Source<'_, '_>,
        headers: &Headers,
        cell: &PortCell,
    ) {
        if reason == DropReason::TooBig {
            self.tell_too_big(route);
        }
        let each = |place: u16| {
            count_drop(cell, reason, 1);
            if let (Some(capture), Some(frame)) =
                (&route.to.capture, source.frames.get(usize::from(place)))
            {
                let mut rest = Vec::new();
                frame.lend_rest(source.burst, &mut rest);
                capture.offer(
                    route.now,
                    Direction::Egress,
                    headers.get(frame.header),
                    &rest,
                    Some(reason.name()),
                );
            }
        };
        match item {
            Item::Single(place) => each(place),
            Item::Train(train) => {
                if let Some(train) = self.coalescer.train(train) {
                    self.coalescer.members(train).for_each(each);
                }
            }
        }
    }

    /// One lock, one publish.
    #[inline(never)]
    fn send(
        &mut self,
        fitting: &Fitting<'_>,
        route: &Route<'_>,
        headers: &Headers,
        cell: &PortCell,
    ) {
        let mut outgoing: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.outgoing));
        fitting.outgoing(headers, &mut outgoing);
        self.drops.clear();
        let Some(queue) = route.to.shared.egress.get(route.queue) else { return };
        let result = queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .deliver(&outgoing, &mut self.drops);
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
        self.count(&outgoing, route, cell);
        self.outgoing = recycle(outgoing);
    }

    fn count(&self, outgoing: &[Outgoing<'_>], route: &Route<'_>, cell: &PortCell) {
        let mut bytes: u64 = outgoing.iter().map(|frame| u64::from(frame.len)).sum();
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

fn count_causes(list: &[Entry], cell: &PortCell) {
    for entry in list {
        match entry.cause {
            Cause::Addressed => {}
            Cause::Flooded => cell.flooded_frames.add(1),
            Cause::Mirrored => cell.mirrored_frames.add(1),
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

/// Shows a frame of the burst to the capture of the port it came from.
pub(crate) fn capture_ingress(
    port: &Port,
    frame: &Frame,
    burst: &Burst<'_>,
    headers: &Headers,
    now: Nanos,
    reason: Option<DropReason>,
) {
    if let Some(capture) = &port.capture {
        let mut rest = Vec::new();
        frame.lend_rest(burst, &mut rest);
        capture.offer(
            now,
            Direction::Ingress,
            headers.get(frame.header),
            &rest,
            reason.map(DropReason::name),
        );
    }
}
