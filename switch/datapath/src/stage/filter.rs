//! Drops frames that a port's guards and ACLs refuse: from a burst before the lookup, from a list
//! before delivery.
//!
//! A worker calls this only for ports that have guards or ACLs, once per burst and once per list.

mod memory;

use crate::counters::{DropReason, PortCell, count_drop};
use crate::flow::watch::Watch;
use crate::frame::Frame;
use crate::frame::headers::{Headers, Span};
use crate::frame::parts::Parts;
use crate::port::acl::{Acl, Ruling};
use crate::port::capture::show;
use crate::port::filter_table::Filter;
use crate::port::view::Port;
use crate::settings::guard::Guards;
use crate::turn::outbox::{Cause, Run, append};
use crate::turn::work::{self, Meter};
use crate::turn::{Delivery, Turn};
use memory::Memory;
use ports::Burst;
use ports::capture::Direction;
use std::sync::Arc;
use wire::Parsed;

/// The guards and rules of a burst or list, and the frames in a row that one rule decided about,
/// not counted yet.
struct Asked<'f> {
    guards: &'f Option<Arc<Guards>>,
    acl: &'f Option<Arc<Acl>>,
    rule: u16,
    frames: u64,
    meter: &'f mut Meter,
}

impl<'f> Asked<'f> {
    fn new(
        guards: &'f Option<Arc<Guards>>,
        acl: &'f Option<Arc<Acl>>,
        meter: &'f mut Meter,
    ) -> Asked<'f> {
        Asked { guards, acl, rule: Ruling::NO_RULE, frames: 0, meter }
    }

    #[inline(never)]
    fn decide(&self, headers: &[u8], parsed: &Parsed) -> Ruling {
        // The frame was dropped when it was read, see `Frame::is_dropped`.
        if headers.is_empty() {
            return Ruling::PASS;
        }
        if let Some(Err(reason)) = self.guards.as_ref().map(|guards| guards.check(headers, parsed))
        {
            return Ruling { drop: Some(reason), ..Ruling::PASS };
        }
        self.acl.as_ref().map_or(Ruling::PASS, |acl| acl.decide(headers, parsed))
    }
}

/// A worker's memory for filtering.
pub(crate) struct Filtering {
    memory: Memory,
    worker: usize,
    /// Places of the burst's refused frames, with the reasons. They are dropped behind the loop that
    /// finds them, which has its registers to itself.
    refused: Vec<(u16, DropReason)>,
    /// An empty list, kept for its allocation.
    spare: Vec<Run>,
}

impl Filtering {
    pub(crate) fn new(worker: usize) -> Filtering {
        Filtering {
            memory: Memory::new(),
            worker,
            refused: Vec::with_capacity(Burst::FRAMES),
            spare: Vec::new(),
        }
    }

    /// Returns why a frame is dropped, if it is, and counts the rule that decides.
    #[inline(always)]
    fn check(
        &mut self,
        asked: &mut Asked<'_>,
        headers: &[u8],
        parsed: &Parsed,
    ) -> Option<DropReason> {
        let decision = self.memory.recall(headers, parsed, || {
            asked.meter.add_filtering(work::OF_FILTERING_ANEW);
            asked.decide(headers, parsed)
        });
        if decision.rule != asked.rule {
            self.count(asked);
            (asked.rule, asked.frames) = (decision.rule, 0);
        }
        asked.frames += 1;
        decision.drop
    }

    /// Counts frames at the rule that decided.
    fn count(&self, asked: &mut Asked<'_>) {
        if asked.frames == 0 {
            return;
        }
        asked.meter.add_filtering(asked.frames * work::OF_FILTERING);
        if let Some(acl) = asked.acl {
            acl.count(asked.rule, self.worker, asked.frames);
        }
    }

    /// Drops what the port may not send, as [`Frame::read`] does: without private bytes.
    #[inline(never)]
    pub(crate) fn enter(
        &mut self,
        turn: &Turn<'_>,
        frames: &mut [Frame],
        parts: &Parts<'_>,
        cell: &PortCell,
        meter: &mut Meter,
        flows: &mut Watch,
    ) {
        self.memory.begin();
        let Filter { guards, ingress, .. } = &turn.from.filter;
        let mut asked = Asked::new(guards, ingress, meter);
        for frame in &*frames {
            let headers = parts.headers.get(frame.header);
            if let Some(reason) = self.check(&mut asked, headers, &frame.parsed) {
                self.refuse(frame.place, reason);
            }
        }
        self.count(&mut asked);
        if !self.refused.is_empty() {
            self.drop_refused(turn, frames, parts, cell, flows);
        }
    }

    /// Notes a frame to drop.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, place: u16, reason: DropReason) {
        self.refused.push((place, reason));
    }

    #[cold]
    fn drop_refused(
        &mut self,
        turn: &Turn<'_>,
        frames: &mut [Frame],
        parts: &Parts<'_>,
        cell: &PortCell,
        flows: &mut Watch,
    ) {
        let (from, now) = (turn.from, turn.now);
        for (place, reason) in self.refused.drain(..) {
            let Some(frame) = frames.get_mut(usize::from(place)) else { continue };
            count_drop(cell, reason, 1);
            flows.drop_one(frame.dropped(&parts.headers, reason), turn.way_in(), now);
            show(from, Direction::Ingress, frame, parts, now, Some(reason));
            frame.header = Span::default();
        }
    }

    /// Marks the frames that may enter, each by the first rule that matches.
    #[inline]
    pub(crate) fn mark(
        &self,
        from: &Port,
        frames: &mut [Frame],
        headers: &mut Headers,
        meter: &mut Meter,
    ) {
        if let Some(marks) = &from.filter.marks {
            self.mark_by(marks, frames, headers, meter);
        }
    }

    #[cold]
    fn mark_by(&self, marks: &Acl, frames: &mut [Frame], headers: &mut Headers, meter: &mut Meter) {
        for frame in frames {
            let bytes = headers.get_mut(frame.header);
            // The frame was dropped, see `Frame::is_dropped`.
            if bytes.is_empty() {
                continue;
            }
            meter.add_filtering(work::OF_FILTERING_ANEW);
            if let Some((rule, mark)) = marks.mark(bytes, &frame.parsed) {
                marks.count(rule, self.worker, 1);
                mark.set(bytes, &mut frame.parsed);
            }
        }
    }

    /// Removes from a list the frames that the port may not receive. A mirror's copies stay: the
    /// rules are about what the port receives.
    #[inline(never)]
    pub(crate) fn leave(
        &mut self,
        delivery: &Delivery<'_, '_>,
        list: &mut Vec<Run>,
        meter: &mut Meter,
        flows: &mut Watch,
    ) {
        let Delivery { to, frames, parts, now, .. } = delivery;
        self.memory.begin();
        let mut asked = Asked::new(&None, &to.filter.egress, meter);
        let mut all = std::mem::replace(list, std::mem::take(&mut self.spare));
        for run in all.drain(..) {
            for frame in frames.get(run.places()).unwrap_or_default() {
                let headers = parts.headers.get(frame.header);
                let mirrored = run.cause == Cause::Mirrored;
                let mut check = || self.check(&mut asked, headers, &frame.parsed);
                match if mirrored { None } else { check() } {
                    None => append(list, Run::new(frame.place.into(), 1, run.cause)),
                    Some(reason) => {
                        delivery.refuse(frame, reason, flows);
                        show(to, Direction::Egress, frame, parts, *now, Some(reason));
                    }
                }
            }
        }
        self.count(&mut asked);
        self.spare = all;
    }
}
