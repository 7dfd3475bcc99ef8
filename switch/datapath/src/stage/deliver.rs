//! Deliver: sends one egress queue's frames of a turn, and counts them.

use crate::counters::{DropReason, PortCell, count_drop};
use crate::flow::watch::{Watch, Way};
use crate::frame::Frame;
use crate::frame::parts::Parts;
use crate::port::capture::show;
use crate::port::pacer::{Copies, Paced};
use crate::port::policy::Policy;
use crate::settings::PortId;
use crate::stage::coalesce::Coalescer;
use crate::stage::fit::{Fitted, Fitter, are_taken};
use crate::stage::held::HeldSignals;
use crate::stage::too_big::Answer;
use crate::status::HealthEvent;
use crate::turn::outbox::{Cause, Run};
use crate::turn::slow::{Part, SlowPorts};
use crate::turn::work::{self, Meter};
use crate::turn::{Delivered, Delivery, Exit};
use ports::capture::Direction;
use ports::{Burst, EgressDrop, Outgoing, PortFault, Slice, Stopwatch, recycle};
use wire::vnet::{GsoType, VnetHeader};

/// The buffers of delivering, kept between turns.
pub(crate) struct Deliverer {
    coalescer: Coalescer,
    fitted: Vec<Fitted>,
    outgoing: Vec<Outgoing<'static>>,
    pub(super) drops: Vec<(usize, EgressDrop)>,
    /// Frames that have waited, and their payload.
    pub(super) released: Vec<Outgoing<'static>>,
    pub(super) slices: Vec<Slice<'static>>,
    pub(super) paced: Vec<Paced>,
    /// Signals to guests that this worker has held back.
    pub(crate) held: HeldSignals,
    pub(crate) slow: SlowPorts,
    /// What the worker sees of flows; the stages before use it as well.
    pub(crate) flows: Watch,
    /// The time since the turn, or the release of paced frames, began.
    pub(crate) stopwatch: Stopwatch,
    /// The port whose memory the frames lie in; `None` if they lie in ours.
    pub(crate) sender: Option<PortId>,
    /// Frames on their way into a pacer or out of it, and which of them wait there.
    pub(super) copies: Copies,
    pub(super) waits: Vec<bool>,
}

impl Deliverer {
    pub(crate) fn new() -> Deliverer {
        Deliverer {
            coalescer: Coalescer::new(),
            fitted: Vec::with_capacity(2 * Burst::FRAMES),
            outgoing: Vec::with_capacity(2 * Burst::FRAMES),
            drops: Vec::with_capacity(Burst::FRAMES),
            released: Vec::new(),
            slices: Vec::new(),
            paced: Vec::new(),
            held: HeldSignals::default(),
            slow: SlowPorts::default(),
            flows: Watch::new(),
            stopwatch: Stopwatch::STILL,
            sender: None,
            copies: Copies::default(),
            waits: Vec::new(),
        }
    }

    /// Coalesces and fits one egress queue's frames if needed, then delivers them in one call.
    /// Returns what the queue took.
    pub(crate) fn deliver(
        &mut self,
        list: &[Run],
        delivery: &mut Delivery<'_, '_>,
        meter: &mut Meter,
    ) -> Delivered {
        let rests = delivery.to.shared.is_at_rest(delivery.queue, delivery.now);
        if rests || self.slow.is_shut(delivery.to.shared.id, delivery.now) {
            let frames = list.iter().map(Run::count).sum();
            meter.add(work::OF_REST * frames as u64);
            let reason = if rests { DropReason::EgressDown } else { DropReason::WorkLimit };
            count_drop(delivery.cell, reason, frames);
            let all = runs(delivery.frames, list).flatten();
            let all = all.map(|frame| frame.dropped(&delivery.parts.headers, reason));
            self.flows.drop(all, frames, delivery.way_in(), delivery.now);
            return Delivered::default();
        }
        count_causes(list, delivery.cell);
        let mark = delivery.parts.mark();
        let mut outgoing: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.outgoing));
        let Delivery { to, offloads, frames, .. } = *delivery;
        match to.policy.and_then(|policy| policy.toward(offloads)) {
            Some(policy) => {
                self.coalesce(list, &policy, delivery, meter);
                self.fit_items(list, delivery, meter);
            }
            // The egress queue takes all of them as they are.
            None if runs(frames, list).all(|run| are_taken(run, to, offloads)) => {
                runs(frames, list).for_each(|run| extend(&mut outgoing, run, delivery.parts));
            }
            None => self.fit(list, delivery, meter),
        }
        outgoing.extend(self.fitted.iter().map(|frame| frame.outgoing(delivery.parts)));
        if self.flows.looks() {
            self.flows.deliver(&outgoing, delivery.way_out(), delivery.now);
        }
        let delivered = match &to.pacer {
            None => self.send(&outgoing, &delivery.exit(), meter),
            Some(pacer) => self.pace(pacer, &outgoing, delivery, meter),
        };
        self.outgoing = recycle(outgoing);
        self.fitted.clear();
        delivery.parts.rewind(mark);
        delivered
    }

    #[inline(never)]
    fn fit(&mut self, list: &[Run], delivery: &mut Delivery<'_, '_>, meter: &mut Meter) {
        for frame in runs(delivery.frames, list).flatten() {
            let mut fitter = Fitter { delivery, fitted: &mut self.fitted, meter };
            if let Err(reason) = fitter.fit(frame) {
                refuse(frame, reason, list, delivery, meter, &mut self.drops, &mut self.flows);
            }
        }
    }

    #[inline(never)]
    fn coalesce(
        &mut self,
        list: &[Run],
        policy: &Policy,
        delivery: &Delivery<'_, '_>,
        meter: &mut Meter,
    ) {
        self.coalescer.clear();
        for (run, frames) in list.iter().zip(runs(delivery.frames, list)) {
            for frame in frames {
                // A mirror shows the frames as they passed.
                if run.cause == Cause::Mirrored {
                    self.coalescer.pass(frame);
                } else {
                    self.coalescer.add(frame, policy, delivery);
                }
            }
        }
        self.coalescer.count_trains(delivery.cell);
        meter.add(work::of_coalescing(list.iter().map(Run::count).sum()));
        meter.add(work::of_checksum(self.coalescer.summed));
    }

    /// Fits what coalescing made of a list.
    #[inline(never)]
    fn fit_items(&mut self, list: &[Run], delivery: &mut Delivery<'_, '_>, meter: &mut Meter) {
        let frames = delivery.frames;
        let frame = |place: u16| frames.get(usize::from(place));
        for (first, train) in self.coalescer.items() {
            let Some(first) = frame(first) else { continue };
            let mut fitter = Fitter { delivery, fitted: &mut self.fitted, meter };
            let Some(train) = train else {
                if let Err(reason) = fitter.fit(first) {
                    refuse(first, reason, list, delivery, meter, &mut self.drops, &mut self.flows);
                }
                continue;
            };
            let members = || self.coalescer.members(train).filter_map(frame);
            if let Err(reason) = fitter.fit_train(train, first, members()) {
                for it in members() {
                    refuse(it, reason, list, delivery, meter, &mut self.drops, &mut self.flows);
                }
            }
        }
    }

    /// Calls the egress queue. Returns what it took.
    pub(super) fn send(
        &mut self,
        outgoing: &[Outgoing<'_>],
        exit: &Exit<'_>,
        meter: &mut Meter,
    ) -> Delivered {
        self.drops.clear();
        let shared = &exit.to.shared;
        let Some(queue) = shared.egress.get(exit.queue) else {
            return Delivered::default();
        };
        let load = Load::of(outgoing);
        let work = load.work(outgoing.len(), shared.kernel_ns);
        let result = match queue.guest() {
            Some(guest) => {
                let part = Part { work, frames: outgoing.len(), bytes: load.bytes };
                self.send_to_guest(guest, outgoing, exit, (part, meter));
                Ok(())
            }
            None => queue.deliver_at(exit.now, outgoing, &mut self.drops),
        };
        match result {
            Ok(()) => {
                if !shared.state.is_up() && self.drops.is_empty() && !outgoing.is_empty() {
                    exit.to.come_up();
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
            shared.rest(exit.queue, exit.now);
        }
        meter.add(work);
        self.count(outgoing, &load, exit, meter)
    }

    /// Counts what was delivered and dropped, and shows it to the capture.
    fn count(
        &mut self,
        outgoing: &[Outgoing<'_>],
        load: &Load,
        exit: &Exit<'_>,
        meter: &mut Meter,
    ) -> Delivered {
        let Exit { to, cell, .. } = *exit;
        let Load { mut bytes, claims, .. } = *load;
        if claims > u16::from(u8::MAX) {
            count_trains(outgoing, cell);
        }
        if to.shared.kernel_ns > 0 {
            meter.add(outgoing.iter().map(work::of_cutting).sum());
        }
        for (place, drop) in &self.drops {
            count_drop(cell, egress_reason(*drop), 1);
            bytes -= outgoing.get(*place).map_or(0, |frame| u64::from(frame.len));
        }
        self.show_drops(outgoing, exit);
        let frames = outgoing.len() - self.drops.len().min(outgoing.len());
        cell.egress_frames.add(frames as u64);
        cell.egress_bytes.add(bytes);
        if to.capture.is_some() {
            // Drops and frames are both in order. A search would be slow: a full port drops nearly
            // all of a list.
            let mut drops = self.drops.iter().peekable();
            for (place, frame) in outgoing.iter().enumerate() {
                let drop = drops.next_if(|(dropped, _)| *dropped == place);
                let reason = drop.map(|(_, drop)| egress_reason(*drop).name());
                meter.add(exit.show(frame, reason));
            }
        }
        Delivered { frames, bytes }
    }

    /// Shows the frames that the egress queue did not take to the look at flows.
    #[inline]
    fn show_drops(&mut self, outgoing: &[Outgoing<'_>], exit: &Exit<'_>) {
        if self.drops.is_empty() {
            return;
        }
        let dropped = |(place, drop): &(usize, EgressDrop)| {
            let frame = outgoing.get(*place)?;
            Some((frame.header, frame.len, egress_reason(*drop)))
        };
        let way =
            Way { from: self.sender, to: Some(exit.to.shared.id), vlan: &exit.to.settings.vlan };
        self.flows.drop(self.drops.iter().filter_map(dropped), self.drops.len(), way, exit.now);
    }
}

/// What a list of frames has together.
struct Load {
    bytes: u64,
    slices: usize,
    /// See [`VnetHeader::claims`].
    claims: u16,
}

impl Load {
    #[inline]
    fn of(outgoing: &[Outgoing<'_>]) -> Load {
        let mut load = Load { bytes: 0, slices: 0, claims: 0 };
        for frame in outgoing {
            load.bytes += u64::from(frame.len);
            load.slices += frame.payload.len();
            load.claims |= frame.vnet.claims();
        }
        load
    }

    /// Returns the work of delivering so many frames.
    #[inline]
    fn work(&self, frames: usize, kernel_ns: u32) -> u64 {
        work::of_delivering(frames, self.slices, self.bytes, kernel_ns)
    }
}

impl Exit<'_> {
    /// Shows a frame to the port's capture, if there is one. Returns the work.
    #[cold]
    pub(super) fn show(&self, frame: &Outgoing<'_>, reason: Option<&'static str>) -> u64 {
        let Some(capture) = &self.to.capture else { return 0 };
        let (header, payload) = (frame.header, frame.payload);
        let copied = capture.offer(self.now, Direction::Egress, header, payload, reason);
        work::of_capturing(copied)
    }
}

/// Counts the trains among delivered frames.
#[inline(never)]
fn count_trains(outgoing: &[Outgoing<'_>], cell: &PortCell) {
    let (mut trains, mut segments) = (0, 0);
    for frame in outgoing.iter().filter(|frame| frame.vnet.gso() != GsoType::None) {
        #[allow(clippy::cast_possible_truncation, reason = "a header has at most 64 KiB")]
        let payload = frame.len.saturating_sub(frame.header.len() as u32);
        trains += 1;
        segments += frame.vnet.segments_of(payload);
    }
    cell.egress_trains.add(trains);
    cell.egress_train_segments.add(segments);
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
    meter: &mut Meter,
    drops: &mut Vec<(usize, EgressDrop)>,
    flows: &mut Watch,
) {
    let Delivery { from, to, now, .. } = *delivery;
    if reason == DropReason::TooBig && to.shared.may_report_too_big(now) {
        to.shared.events.push(HealthEvent::TooBig {
            from: from.shared.id,
            from_mtu: from.settings.mtu,
            to: to.shared.id,
            to_mtu: to.settings.mtu,
        });
    }
    delivery.refuse(frame, reason, flows);
    show(to, Direction::Egress, frame, delivery.parts, now, Some(reason));
    // Mirrors, and ports that get a flooded copy, are not on the frame's way.
    let is_meant = |run: &Run| {
        run.cause == Cause::Addressed && run.places().contains(&usize::from(frame.place))
    };
    let is_told = reason == DropReason::TooBig && from.is_told_of(to);
    if is_told && list.iter().any(is_meant) && from.shared.may_answer_too_big(now) {
        meter.add(tell_sender(frame, delivery, drops));
    }
}

/// Tells the sender of a frame that is too big for `to`, at the port it came from. Returns the
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

/// Returns the frames of a list of the outbox, in order.
#[inline]
fn runs<'f>(frames: &'f [Frame], list: &[Run]) -> impl Iterator<Item = &'f [Frame]> {
    list.iter().map(move |run| frames.get(run.places()).unwrap_or_default())
}

/// Adds frames as they are.
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
        EgressDrop::Late => DropReason::WorkLimit,
    }
}
