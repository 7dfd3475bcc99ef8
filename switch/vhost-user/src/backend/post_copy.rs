//! A guest that arrives before its memory, see [`post_copy`](crate::post_copy).

use super::{Backend, messages, note_base, refused, stop};
use crate::Features;
use crate::lock::lock;
use crate::migration::Step;
use crate::post_copy::{Crossing, Departure, Ferry, Handover, Order, PostCopy, dock};
use crate::vring::Vring;
use guestmem::{GuestMemory, Region};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use vhost::vhost_user::Result;

/// Refuses what a front end asks for while pages are missing.
fn not_now(what: &str) -> vhost::vhost_user::Error {
    refused(format!(
        "{what} while its memory arrives by post-copy: it must be complete (POSTCOPY_END) first"
    ))
}

impl Backend {
    /// Returns the ferry, if there is one.
    pub(crate) fn ferry(&self) -> Option<Arc<Ferry>> {
        self.post_copy.ferry().cloned()
    }

    /// Whether pages of the guest may be missing.
    pub(super) fn lacks_pages(&self) -> bool {
        matches!(self.post_copy, PostCopy::Listening(_) | PostCopy::Served(_))
    }

    /// Refuses a change that pages on their way do not allow.
    pub(super) fn expect_all_pages(&self, what: &str) -> Result<()> {
        if self.lacks_pages() { Err(not_now(what)) } else { Ok(()) }
    }

    /// Refuses memory of a front end whose earlier connection ended while pages were missing: by
    /// this one it cannot serve them, and a page that is made here would take a missing one's place.
    pub(super) fn expect_whole_memory(&self) -> Result<()> {
        let process = self.shared.note(|status| status.process);
        let interrupted = *lock(&self.shared.interrupted);
        if interrupted.is_some() && interrupted == process {
            return Err(refused(
                "its memory was still arriving by post-copy when its connection ended: the guest needs a restart, or to \
                 migrate once more",
            ));
        }
        Ok(())
    }

    /// Starts the process that will wait for missing pages. Returns its userfaultfd.
    pub(super) fn advise(&mut self) -> Result<OwnedFd> {
        if self.post_copy.ferry().is_some() {
            return Err(refused("post-copy was advised already (POSTCOPY_ADVISE)"));
        }
        let (ferry, faults) = self.shared.stop_fd().and_then(dock::ferry).map_err(|error| {
            let socket = self.shared.options.socket.display();
            tracing::warn!(%socket, "a guest cannot migrate here by post-copy: {error}");
            refused(error)
        })?;
        self.post_copy = PostCopy::Advised(Arc::new(ferry));
        Ok(faults)
    }

    /// From now on the front end gives memory with missing pages.
    pub(super) fn listen(&mut self) -> Result<()> {
        if self.memory.is_some() || self.vrings.iter().any(|vring| vring.started) {
            return Err(refused(
                "post-copy begins after memory was given: it must begin before (POSTCOPY_LISTEN)",
            ));
        }
        let PostCopy::Advised(ferry) = &self.post_copy else {
            return Err(refused("post-copy was not advised (POSTCOPY_ADVISE)"));
        };
        self.post_copy = PostCopy::Listening(ferry.clone());
        self.note(Some(Step::Awaited));
        self.tell(crate::State::Connected);
        Ok(())
    }

    /// Maps a table of memory in the ferry, like [`Backend::await_regions`]. There may be one: rings
    /// may lie in it.
    pub(super) fn await_table(&mut self, regions: Vec<Region>) -> Result<Vec<u64>> {
        if self.memory.is_some() {
            return Err(not_now("another table of its memory comes"));
        }
        self.await_regions(regions)
    }

    /// Maps regions in the ferry, after what is known of the guest's memory. Returns their addresses
    /// there.
    pub(super) fn await_regions(&mut self, regions: Vec<Region>) -> Result<Vec<u64>> {
        let PostCopy::Listening(ferry) = &self.post_copy else {
            return Err(not_now("a memory region comes"));
        };
        let (ferry, began) = (ferry.clone(), Instant::now());
        let mut all = self.memory.as_ref().map(|memory| memory.regions()).unwrap_or_default();
        all.extend(regions.iter().cloned());
        if !self.slots.hold(all.len()) {
            return Err(refused(format!(
                "{} memory regions are more than are served, or than other front ends leave of those they share",
                all.len()
            )));
        }
        let limit = self.shared.options.memory_limit;
        // Checked here, where nothing touches it: its rings are those of the ferry.
        let memory = messages::map(all, |all| GuestMemory::map_untouched(limit, all))?;
        let map = |region| ferry.ask(&Order::Map(region)).map_err(refused);
        let addresses = regions.into_iter().map(map).collect::<Result<_>>()?;
        self.replace_memory(memory, began)?;
        Ok(addresses)
    }

    /// The front end knows the addresses, and serves their pages.
    pub(super) fn serve_pages(&mut self) -> Result<()> {
        if let PostCopy::Listening(ferry) = &self.post_copy {
            ferry.ask(&Order::Listen).map_err(refused)?;
            self.post_copy = PostCopy::Served(ferry.clone());
        }
        Ok(())
    }

    /// Starts a ring whose pages may be missing, in the ferry. The control queue waits for the end:
    /// it is served by this thread, which must not wait for a page.
    pub(super) fn start_across(&mut self, number: u32) -> Result<()> {
        let PostCopy::Served(ferry) = &self.post_copy else {
            return Err(refused(format!(
                "ring {number} was started before the front end knew the addresses of its memory"
            )));
        };
        let (ferry, place) = (ferry.clone(), self.place(number)?);
        self.stop_ring(number)?;
        if place + 1 == self.vrings.len() {
            self.await_pages.push(number);
            return Ok(());
        }
        let (memory, features) = (self.memory.clone(), self.taken);
        let always_enabled = !features.contains(Features::PROTOCOL_FEATURES);
        let budget = self.shared.signals.clone();
        let said_no = |error: String| refused(format!("ring {number}: {error}"));
        let (vring, ring) = self.vring(number)?;
        vring.enabled |= always_enabled;
        let setup = vring.setup(memory.as_ref(), features).map_err(|it| said_no(it.to_string()))?;
        let kick = vring.kick.clone().ok_or_else(|| said_no("no kick descriptor".into()))?;
        let departure = Departure {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            setup,
            features,
            is_enabled: vring.enabled,
            kick,
            call: vring.call.as_ref(),
            error: vring.error.clone(),
            budget: &budget,
        };
        let (crossing, mut running, began) =
            Crossing::begin(&ferry, departure).map_err(|it| said_no(it.to_string()))?;
        if place.is_multiple_of(2) {
            running.queue.disarm();
        }
        (vring.started, vring.began, vring.crossing) = (true, began, Some(crossing));
        let ring = ring.clone();
        running.hash = self.asked.settings().hash.clone();
        ring.start(running).map_err(refused)?;
        self.tell(crate::State::Connected);
        Ok(())
    }

    /// All pages are here: the guest's rings take the places of those that were carried.
    pub(super) fn end_post_copy(&mut self) -> Result<()> {
        // Kept until its rings have stopped.
        let ended = std::mem::take(&mut self.post_copy);
        if ended.ferry().is_none() {
            return Err(refused("post-copy ends that did not begin (POSTCOPY_LISTEN)"));
        }
        let is_carried =
            |(place, vring): (usize, &Vring)| vring.crossing.is_some().then_some(place);
        let carried: Vec<_> = self.vrings.iter().enumerate().filter_map(is_carried).collect();
        for place in carried {
            let handover = self.leave_ferry(place);
            // Where the ring stopped is not known.
            if ended.ferry().is_some_and(|ferry| ferry.has_failed()) {
                return Err(refused("the process that waited for the guest's pages has ended"));
            }
            let number = self.number(place);
            // It is of the back end before.
            self.inflight.iter().for_each(|inflight| inflight.forget(number));
            match handover {
                Some(handover) => self.take_over(place, handover)?,
                None => self.start(number)?,
            }
        }
        for number in std::mem::take(&mut self.await_pages) {
            self.start(number)?;
        }
        self.note(Some(Step::Complete));
        self.tell(crate::State::Connected);
        Ok(())
    }

    /// Has the ferry stop a ring. A receive ring's relay takes frames until [`Backend::take_over`].
    fn leave_ferry(&mut self, place: usize) -> Option<Handover> {
        let (vring, ring) = (self.vrings.get_mut(place)?, self.shared.rings.get(place)?);
        let waits_for_log = self.taken.contains(Features::LOG_ALL);
        if let Some(crossing) = vring.crossing.take_if(|it| it.is_egress() && !waits_for_log) {
            let handover = crossing.hand_over()?;
            note_base(vring, handover.position(), &self.shared.reconnect_backoff);
            return Some(handover);
        }
        stop(vring, ring, &self.shared.reconnect_backoff);
        None
    }

    /// Starts the guest's own receive ring in its relay's place.
    fn take_over(&mut self, place: usize, handover: Handover) -> Result<()> {
        let running = self.build(self.number(place))?;
        let Some(ring) = self.shared.rings.get(place) else { return Ok(()) };
        handover.complete(ring, running).map_err(refused)
    }

    /// Refuses to go on if a ring was stopped and the ferry did not say where.
    pub(super) fn expect_ferry(&self) -> Result<()> {
        if self.post_copy.ferry().is_some_and(|ferry| ferry.has_failed()) {
            return Err(refused(
                "a page of the guest's memory did not arrive in time, or the process that waits for it has ended",
            ));
        }
        Ok(())
    }

    /// Ends the ferry: its rings stop where they are.
    pub(super) fn abandon_pages(&mut self) {
        self.post_copy.ferry().into_iter().for_each(|ferry| ferry.abandon());
    }

    /// Notes that this connection ends while pages are missing.
    pub(super) fn note_interruption(&self) {
        if matches!(self.post_copy, PostCopy::Served(_)) {
            let process = self.shared.note(|status| status.process);
            *lock(&self.shared.interrupted) = process;
        }
    }
}
