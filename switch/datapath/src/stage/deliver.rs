//! Deliver: sends one egress queue's frames of a turn, and counts them.

use crate::counters::{DropReason, PortCell, count_drop};
use crate::frame::Frame;
use crate::frame::parts::Parts;
use crate::port::capture::show;
use crate::port::policy::Policy;
use crate::stage::coalesce::Coalescer;
use crate::stage::fit::{Fitted, Fitter, are_taken};
use crate::stage::too_big::Answer;
use crate::status::{HealthEvent, PortState};
use crate::turn::Delivery;
use crate::turn::outbox::{Cause, Run, Target};
use crate::turn::pressure::Taken;
use crate::turn::work;
use ports::capture::Direction;
use ports::{Burst, EgressDrop, Outgoing, PortFault, recycle};
use wire::vnet::VnetHeader;

/// Scratch of delivering, kept between turns.
pub(crate) struct Deliverer {
    coalescer: Coalescer,
    fitted: Vec<Fitted>,
    outgoing: Vec<Outgoing<'static>>,
    drops: Vec<(usize, EgressDrop)>,
    /// What the turn has cost so far.
    pub(crate) work: u64,
    /// Of the last list.
    pub(crate) taken: Taken,
    /// The egress queue of the turn, of those shared by weights, at which the port is farthest
    /// ahead, and how far; `None`: it is not short.
    pub(crate) weighted: Option<(Option<u64>, Target)>,
}

impl Deliverer {
    pub(crate) fn new() -> Deliverer {
        Deliverer {
            coalescer: Coalescer::new(),
            fitted: Vec::with_capacity(2 * Burst::FRAMES),
            outgoing: Vec::with_capacity(2 * Burst::FRAMES),
            drops: Vec::with_capacity(Burst::FRAMES),
            work: 0,
            taken: Taken::default(),
            weighted: None,
        }
    }

    /// Takes one list of the outbox the way it needs, and delivers it with one call of its egress
    /// queue.
    pub(crate) fn deliver(&mut self, list: &[Run], delivery: &mut Delivery<'_, '_>) {
        self.taken = Taken::default();
        if delivery.to.shared.is_at_rest(delivery.queue, delivery.now) {
            let frames = list.iter().map(Run::count).sum();
            self.work += work::OF_REST * frames as u64;
            return count_drop(delivery.cell, DropReason::EgressDown, frames);
        }
        count_causes(list, delivery.cell);
        let mark = delivery.parts.mark();
        let mut outgoing: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.outgoing));
        let Delivery { to, offloads, frames, .. } = *delivery;
        match to.policy.and_then(|policy| policy.toward(offloads)) {
            Some(policy) => {
                self.coalesce(list, &policy, delivery);
                self.fit_items(list, delivery);
            }
            // The egress queue takes all of them as they are.
            None if runs(frames, list).all(|run| are_taken(run, to, offloads)) => {
                runs(frames, list).for_each(|run| extend(&mut outgoing, run, delivery.parts));
            }
            None => self.fit(list, delivery),
        }
        outgoing.extend(self.fitted.iter().map(|frame| frame.outgoing(delivery.parts)));
        self.send(&outgoing, delivery);
        self.outgoing = recycle(outgoing);
        self.fitted.clear();
        delivery.parts.rewind(mark);
    }

    #[inline(never)]
    fn fit(&mut self, list: &[Run], delivery: &mut Delivery<'_, '_>) {
        for frame in runs(delivery.frames, list).flatten() {
            let mut fitter = Fitter { delivery, fitted: &mut self.fitted, work: &mut self.work };
            if let Err(reason) = fitter.fit(frame) {
                self.work += refuse(frame, reason, list, delivery, &mut self.drops);
            }
        }
    }

    #[inline(never)]
    fn coalesce(&mut self, list: &[Run], policy: &Policy, delivery: &Delivery<'_, '_>) {
        self.coalescer.clear();
        for (run, frames) in list.iter().zip(runs(delivery.frames, list)) {
            for frame in frames {
                // What a mirror shows is what passed.
                if run.cause == Cause::Mirrored {
                    self.coalescer.pass(frame);
                } else {
                    self.coalescer.add(frame, policy, delivery);
                }
            }
        }
        self.coalescer.count_trains(delivery.cell);
        self.work += work::of_coalescing(list.iter().map(Run::count).sum());
        self.work += work::of_checksum(self.coalescer.summed);
    }

    /// Fits what coalescing made of a list.
    #[inline(never)]
    fn fit_items(&mut self, list: &[Run], delivery: &mut Delivery<'_, '_>) {
        let frames = delivery.frames;
        let frame = |place: u16| frames.get(usize::from(place));
        for (first, train) in self.coalescer.items() {
            let Some(first) = frame(first) else { continue };
            let mut fitter = Fitter { delivery, fitted: &mut self.fitted, work: &mut self.work };
            let Some(train) = train else {
                if let Err(reason) = fitter.fit(first) {
                    self.work += refuse(first, reason, list, delivery, &mut self.drops);
                }
                continue;
            };
            let members = || self.coalescer.members(train).filter_map(frame);
            if let Err(reason) = fitter.fit_train(train, first, members()) {
                for it in members() {
                    self.work += refuse(it, reason, list, delivery, &mut self.drops);
                }
            }
        }
    }

    /// Calls the egress queue.
    fn send(&mut self, outgoing: &[Outgoing<'_>], delivery: &Delivery<'_, '_>) {
        self.drops.clear();
        let shared = &delivery.to.shared;
        let Some(queue) = shared.egress.get(delivery.queue) else { return };
        let result = queue.deliver_at(delivery.now, outgoing, &mut self.drops);
        match result {
            Ok(()) => {
                if !shared.state.is_up() && self.drops.is_empty() && !outgoing.is_empty() {
                    shared.set_state(PortState::Up);
                }
            }
            Err(fault) => {
                shared.note_fault(&fault);
                self.drops.clear();
                self.drops.extend((0..outgoing.len()).map(|place| (place, EgressDrop::Down)));
            }
        }
        if self.drops.iter().any(|(_, drop)| *drop == EgressDrop::Down) {
            shared.note_fault(&PortFault::Down);
            shared.rest(delivery.queue, delivery.now);
        }
        self.count(outgoing, delivery);
    }

    fn count(&mut self, outgoing: &[Outgoing<'_>], delivery: &Delivery<'_, '_>) {
        let Delivery { to, cell, now, .. } = *delivery;
        let (mut bytes, mut slices) = (0, 0);
        for frame in outgoing {
            bytes += u64::from(frame.len);
            slices += frame.payload.len();
        }
        self.work += work::of_delivering(outgoing.len(), slices, bytes, to.shared.kernel_ns);
        if to.shared.kernel_ns > 0 {
            self.work += outgoing.iter().map(work::of_cutting).sum::<u64>();
        }
        for (place, drop) in &self.drops {
            count_drop(cell, egress_reason(*drop), 1);
            bytes -= outgoing.get(*place).map_or(0, |frame| u64::from(frame.len));
        }
        let frames = outgoing.len() - self.drops.len().min(outgoing.len());
        self.taken = Taken { frames, bytes };
        cell.egress_frames.add(frames as u64);
        cell.egress_bytes.add(bytes);
        if let Some(capture) = &to.capture {
            // Both are in order: a full port drops nearly all of a list.
            let mut drops = self.drops.iter().peekable();
            for (place, frame) in outgoing.iter().enumerate() {
                let drop = drops.next_if(|(dropped, _)| *dropped == place);
                let reason = drop.map(|(_, drop)| egress_reason(*drop).name());
                let (header, payload) = (frame.header, frame.payload);
                let copied = capture.offer(now, Direction::Egress, header, payload, reason);
                self.work += work::of_capturing(copied);
            }
        }
    }
}

/// Counts a frame that could not be fitted and shows it to the capture. A frame too big is reported
/// once a second for each port that cannot take it, however many send such frames, and its sender
/// is told, which is work.
#[cold]
fn refuse(
    frame: &Frame,
    reason: DropReason,
    list: &[Run],
    delivery: &Delivery<'_, '_>,
    drops: &mut Vec<(usize, EgressDrop)>,
) -> u64 {
    let Delivery { from, to, cell, now, .. } = *delivery;
    if reason == DropReason::TooBig && to.shared.may_report_too_big(now) {
        to.shared.events.push(HealthEvent::TooBig {
            from: from.shared.id,
            from_mtu: from.settings.mtu,
            to: to.shared.id,
            to_mtu: to.settings.mtu,
        });
    }
    count_drop(cell, reason, 1);
    show(to, Direction::Egress, frame, delivery.parts, now, Some(reason));
    // A mirror and those that get a copy by chance are not on the frame's way.
    let is_meant = |run: &Run| {
        run.cause == Cause::Addressed && run.places().contains(&usize::from(frame.place))
    };
    let is_told = reason == DropReason::TooBig && from.is_told_of(to);
    if is_told && list.iter().any(is_meant) && from.shared.may_answer_too_big(now) {
        tell_sender(frame, delivery, drops)
    } else {
        0
    }
}

/// Tells the sender of a frame that is too big for `to`, at the port it came from. What that is as
/// work.
fn tell_sender(
    frame: &Frame,
    delivery: &Delivery<'_, '_>,
    drops: &mut Vec<(usize, EgressDrop)>,
) -> u64 {
    let Delivery { from, to, from_cell, now, .. } = *delivery;
    let headers = delivery.parts.headers.get(frame.header);
    let own = from.settings.vlan.tagging(frame.vlan).map(|tagging| (from.settings.mtu, tagging));
    let message = own.and_then(|own| Answer::about(frame, headers, to.settings.mtu, own));
    let (Some(message), Some(queue)) = (message, from.shared.egress.first()) else { return 0 };
    let header = message.bytes();
    #[allow(clippy::cast_possible_truncation, reason = "it is a header and a quote")]
    let len = header.len() as u32;
    let outgoing = Outgoing { vnet: VnetHeader::default(), header, payload: &[], len };
    drops.clear();
    let is_delivered = !from.shared.is_at_rest(0, now)
        && queue.deliver_at(now, &[outgoing], drops).is_ok()
        && drops.is_empty();
    let reason = match drops.first() {
        Some((_, drop)) => egress_reason(*drop),
        None => DropReason::EgressDown,
    };
    if is_delivered {
        from_cell.path_mtu_messages.add(1);
        from_cell.egress_frames.add(1);
        from_cell.egress_bytes.add(len.into());
    } else {
        count_drop(from_cell, reason, 1);
    }
    if let Some(capture) = &from.capture {
        let reason = (!is_delivered).then(|| reason.name());
        capture.offer(now, Direction::Egress, header, &[], reason);
    }
    work::of_delivering(1, 0, len.into(), from.shared.kernel_ns)
}

/// The frames of a list of the outbox, in order.
#[inline]
fn runs<'f>(frames: &'f [Frame], list: &[Run]) -> impl Iterator<Item = &'f [Frame]> {
    list.iter().map(move |run| frames.get(run.places()).unwrap_or_default())
}

/// The frames as they are.
#[inline(never)]
fn extend<'p>(outgoing: &mut Vec<Outgoing<'p>>, frames: &[Frame], parts: &'p Parts<'_>) {
    outgoing.extend(frames.iter().map(|frame| Fitted::unchanged(frame).outgoing(parts)));
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
        EgressDrop::PathDown => DropReason::PathDown,
        EgressDrop::Refused => DropReason::EgressRefused,
    }
}
