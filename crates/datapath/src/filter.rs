//! What a port's guards and ACLs drop: of a burst before it is decided where it goes, of a list before it is delivered.
//!
//! A worker calls this only for ports that have some, once a burst and once a list.

use crate::acl::{Acl, Memory};
use crate::counters::{DropReason, PortCell};
use crate::deliver::{Delivery, count_drop, show};
use crate::frame::Frame;
use crate::guard::Guards;
use crate::headers::Span;
use crate::outbox::{Cause, Run, append};
use crate::parts::Parts;
use crate::settings::PortSettings;
use crate::view::Port;
use ports::Nanos;
use ports::capture::Direction;
use std::sync::Arc;

/// Compiled from a port's settings. `None` where there is nothing to ask.
#[derive(Clone, Default)]
pub(crate) struct Filter {
    pub(crate) guards: Option<Arc<Guards>>,
    pub(crate) ingress: Option<Arc<Acl>>,
    pub(crate) egress: Option<Arc<Acl>>,
}

impl Filter {
    /// `old`: the port's filter so far; rules that stay keep their counters.
    pub(crate) fn of(settings: &PortSettings, workers: usize, old: Option<&Filter>) -> Filter {
        let compile = |direction, old: Option<&Arc<Acl>>| {
            Acl::compile(&settings.acl, direction, workers, old.map(|old| &**old)).map(Arc::new)
        };
        let guards = &settings.guards;
        Filter {
            guards: (*guards != Guards::default()).then(|| Arc::new(guards.clone())),
            ingress: compile(Direction::Ingress, old.and_then(|old| old.ingress.as_ref())),
            egress: compile(Direction::Egress, old.and_then(|old| old.egress.as_ref())),
        }
    }

    /// Frames each of the rules matched.
    pub(crate) fn hits(&self, settings: &PortSettings) -> Vec<u64> {
        let hits = |rule| {
            [&self.ingress, &self.egress].into_iter().flatten().find_map(|acl| acl.hits(rule))
        };
        settings.acl.iter().map(|rule| hits(rule).unwrap_or_default()).collect()
    }

    /// Whether [`Filtering::enter`] has something to do.
    #[inline]
    pub(crate) fn asks_ingress(&self) -> bool {
        self.guards.is_some() || self.ingress.is_some()
    }
}

/// What a worker keeps for filtering.
pub(crate) struct Filtering {
    memory: Memory,
    /// An empty list, kept for its allocation.
    spare: Vec<Run>,
}

impl Filtering {
    pub(crate) fn new(worker: usize) -> Filtering {
        Filtering { memory: Memory::new(worker), spare: Vec::new() }
    }

    /// Drops what the port may not send, as [`Frame::read`] does: without private bytes.
    #[inline(never)]
    pub(crate) fn enter(
        &mut self,
        from: &Port,
        frames: &mut [Frame],
        parts: &Parts<'_>,
        cell: &PortCell,
        now: Nanos,
    ) {
        let Filter { guards, ingress, .. } = &from.filter;
        let scope = self.memory.begin();
        let mut check = |frame: &Frame| {
            let headers = parts.headers.get(frame.header);
            guards.as_ref().map_or(Ok(()), |guards| guards.check(headers, &frame.parsed))?;
            let admits =
                |acl: &Arc<Acl>| acl.admits(headers, &frame.parsed, &mut self.memory, scope);
            if ingress.as_ref().is_none_or(admits) { Ok(()) } else { Err(DropReason::AclDenied) }
        };
        for frame in frames.iter_mut().filter(|frame| !frame.is_dropped()) {
            if let Err(reason) = check(frame) {
                count_drop(cell, reason, 1);
                show(from, Direction::Ingress, frame, parts, now, Some(reason));
                frame.header = Span::default();
            }
        }
    }

    /// Takes what the port may not receive out of a list. What a mirror shows is not what it receives.
    #[inline(never)]
    pub(crate) fn leave(&mut self, delivery: &Delivery<'_, '_>, list: &mut Vec<Run>) {
        let Delivery { to, frames, parts, cell, now, .. } = delivery;
        let Some(acl) = &to.filter.egress else { return };
        let scope = self.memory.begin();
        let mut all = std::mem::replace(list, std::mem::take(&mut self.spare));
        for run in all.drain(..) {
            for (place, frame) in run.places().zip(frames.get(run.places()).unwrap_or_default()) {
                let headers = parts.headers.get(frame.header);
                if run.cause == Cause::Mirrored
                    || acl.admits(headers, &frame.parsed, &mut self.memory, scope)
                {
                    append(list, Run::new(place, 1, run.cause));
                } else {
                    count_drop(cell, DropReason::AclDenied, 1);
                    show(to, Direction::Egress, frame, parts, *now, Some(DropReason::AclDenied));
                }
            }
        }
        self.spare = all;
    }
}
