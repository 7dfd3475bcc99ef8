//! The state of one connection: its front end's messages, and the rings made from them.

mod channel;
mod commands;
mod messages;
mod post_copy;
mod record;
mod unlisted;

pub(crate) use record::ResumeError;

use crate::asked::Asked;
use crate::back_channel::BackChannel;
use crate::inflight::Inflight;
use crate::lock::lock;
use crate::migration::{Migration, Step};
use crate::post_copy::PostCopy;
use crate::reconnect_backoff::ReconnectBackoff;
use crate::session::Shared;
use crate::slots::Slots;
use crate::vring::{StartError, Vring};
use crate::{Features, Negotiated, RingSlot, Running, State};
use guestmem::{DirtyLog, GuestMemory, Region};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserLog, VhostUserProtocolFeatures};
use vhost::vhost_user::{Error, Result};

/// The state of one connection. Dropping it stops the rings.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    memory: Option<Arc<GuestMemory>>,
    /// The front end's share of the process's mappings, for the regions of `memory`.
    slots: Slots,
    /// How long to wait before the front end's next message is read.
    pause: Duration,
    taken: Features,
    /// Receive offloads, if the guest has set them by command.
    offloads: Option<Features>,
    /// Number of queue pairs in use, if the guest has set it by command.
    wished_pairs: Option<u16>,
    /// What the guest has set by command about the frames that it receives.
    asked: Asked,
    /// Whether the session of an earlier process is being resumed.
    goes_on: bool,
    /// Whether the front end asked for the features before `VHOST_USER_SET_OWNER`.
    asked_early: bool,
    /// Whether the front end serves the control queue itself, see [`Backend::offered`].
    keeps_commands: bool,
    log: Option<Log>,
    /// Rings that were kicked before the log was set up that a migration needs, by their numbers in
    /// messages.
    await_log: Vec<u32>,
    /// Pages of the guest that are on their way.
    post_copy: PostCopy,
    /// Rings that wait for them, by their numbers in messages.
    await_pages: Vec<u32>,
    /// Where packed rings note their position, for the process that serves them next.
    inflight: Option<Inflight>,
    vrings: Vec<Vring>,
    /// Whether `VHOST_USER_SET_OWNER` was received.
    owned: bool,
    protocol: VhostUserProtocolFeatures,
    /// The front end's channel for messages to it.
    channel: Option<BackChannel>,
    /// The guest's address that the front end named by `SEND_RARP`.
    address: Option<[u8; 6]>,
    /// The device status that the front end set last.
    device_status: u64,
    migration: Migration,
    /// The MTU that the front end has announced to the guest (`NET_SET_MTU`).
    told_mtu: Option<u64>,
    /// Why no ring may start: the front end has announced a larger MTU to the guest than the
    /// port's.
    unfit: Option<String>,
}

/// The dirty log of a guest that migrates.
struct Log {
    log: Arc<DirtyLog>,
    /// Where the log is in `file`, as the front end said.
    said: VhostUserLog,
    file: File,
}

/// Returns the error that refuses a message, with the reason.
fn refused(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(reason))
}

/// Returns whether a ring that begins at this base is a fresh one. It begins at 0, a packed one with
/// both wrap counters set.
fn is_fresh(base: u32) -> bool {
    base & 0x7fff_7fff == 0
}

/// Stops a ring, once no worker has it, and notes in `vring` the base at which it stopped.
fn stop(vring: &mut Vring, ring: &RingSlot, backoff: &ReconnectBackoff) {
    vring.started = false;
    if let Some(crossing) = vring.crossing.take() {
        note_base(vring, crossing.end(ring).unwrap_or(vring.base), backoff);
        return;
    }
    let Some(mut running) = ring.stop() else { return };
    if running.hold.settle() {
        running.notify();
    }
    note_base(vring, running.queue.base(), backoff);
}

/// Notes the base at which a ring has stopped.
fn note_base(vring: &mut Vring, base: u32, backoff: &ReconnectBackoff) {
    vring.base = base;
    if base != vring.began {
        backoff.note_moved();
    }
}

/// Returns the addresses of this process at which a guest's regions are mapped.
fn mapped(memory: &GuestMemory) -> Vec<Range<u64>> {
    let range = |region: Region| {
        let start = memory.translate(region.gpa, 1)?.addr().get() as u64;
        Some(start..start + region.size)
    };
    memory.regions().into_iter().filter_map(range).collect()
}

impl Backend {
    pub(crate) fn new(shared: Arc<Shared>) -> Backend {
        let vrings = shared.rings.iter().map(|_| Vring::default()).collect();
        let mut backend = Backend {
            shared,
            memory: None,
            slots: Slots::default(),
            pause: Duration::ZERO,
            taken: Features::empty(),
            offloads: None,
            wished_pairs: None,
            asked: Asked::default(),
            goes_on: false,
            asked_early: false,
            keeps_commands: false,
            log: None,
            await_log: Vec::new(),
            post_copy: PostCopy::None,
            await_pages: Vec::new(),
            inflight: None,
            vrings,
            owned: false,
            protocol: VhostUserProtocolFeatures::empty(),
            channel: None,
            address: None,
            device_status: 0,
            migration: Migration::default(),
            told_mtu: None,
            unfit: None,
        };
        backend.note_channel();
        backend.tell(State::Connected);
        backend
    }

    /// Returns the features that are offered to this front end.
    ///
    /// QEMU serves the control queue itself. It passes on what is offered of RSS and hash reports,
    /// and would keep the driver's commands about them to itself. It is known by its two questions,
    /// one before `SET_OWNER` and one after it, of which the second counts for it. The front ends
    /// that pass the queue on ask once: OpenVMM before it, crosvm and user-mode Linux after it. So
    /// do Cloud Hypervisor, which takes none of these features, and DPDK's virtio-user, which is not
    /// to be told apart: it takes RSS, if its application wants that, and keeps the table.
    fn offered(&self) -> Features {
        let offered = self.shared.options.offered();
        if self.keeps_commands { offered - Features::COMMANDED } else { offered }
    }

    /// Returns the features and protocol features that the front end acknowledged.
    pub(crate) fn agreed(&self) -> (u64, u64) {
        (self.taken.bits(), self.protocol.bits())
    }

    /// Returns the index in `vrings` of a ring, by its number in messages. In messages the control
    /// queue comes after the pairs that the guest uses, in `vrings` after all pairs of the port.
    fn place(&self, number: u32) -> Result<usize> {
        let own = self.vrings.len() - 1;
        let number = number as usize;
        let control = if self.taken.contains(Features::MQ) { own } else { 2 };
        if number == control {
            return Ok(own);
        }
        if number < own {
            return Ok(number);
        }
        Err(refused(format!("ring {number}: this port has {own}, and a control queue")))
    }

    /// Returns the number in messages of a ring, by its index in `vrings`.
    fn number(&self, place: usize) -> u32 {
        let is_control = place + 1 == self.vrings.len();
        let number = if is_control && !self.taken.contains(Features::MQ) { 2 } else { place };
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    fn vring(&mut self, number: u32) -> Result<(&mut Vring, &Arc<RingSlot>)> {
        let place = self.place(number)?;
        let ring = self.shared.rings.get(place);
        self.vrings.get_mut(place).zip(ring).ok_or_else(|| refused("no such ring"))
    }

    /// Stops a ring by its number in messages, see [`stop`]. Returns its state.
    fn stop_ring(&mut self, number: u32) -> Result<&mut Vring> {
        let shared = self.shared.clone();
        self.await_log.retain(|waiting| *waiting != number);
        self.await_pages.retain(|waiting| *waiting != number);
        let (vring, ring) = self.vring(number)?;
        let has_run = vring.started;
        stop(vring, ring, &shared.reconnect_backoff);
        self.note_stop(has_run);
        Ok(self.vring(number)?.0)
    }

    /// Stops all rings. Rings that wait for a log no longer wait.
    fn stop_each(&mut self) {
        let have_run = self.vrings.iter().any(|vring| vring.started);
        for (vring, ring) in self.vrings.iter_mut().zip(&self.shared.rings) {
            stop(vring, ring, &self.shared.reconnect_backoff);
        }
        self.await_log.clear();
        self.await_pages.clear();
        self.note_stop(have_run);
    }

    /// Notes the end of the last started ring, a step of a migration. `has_run` says whether a ring
    /// was stopped now.
    fn note_stop(&mut self, has_run: bool) {
        if has_run && self.vrings.iter().all(|vring| !vring.started) {
            let step = self.migration.stop();
            self.note(step);
        }
    }

    fn note(&self, step: Option<Step>) {
        step.into_iter().for_each(|step| lock(&self.shared.milestones).push(step));
    }

    fn active_log(&self) -> Option<&Arc<DirtyLog>> {
        let log = self.log.as_ref().filter(|_| self.taken.contains(Features::LOG_ALL));
        log.map(|log| &log.log)
    }

    /// Starts a ring that is set up, or makes it wait for the log: a QEMU that reconnects during a
    /// migration kicks its rings before it sets up the log, and writes in between would be missing
    /// at the destination.
    fn start(&mut self, number: u32) -> Result<()> {
        if let Some(reason) = &self.unfit {
            return Err(refused(reason.as_str()));
        }
        if self.taken.contains(Features::LOG_ALL) && self.log.is_none() {
            self.stop_ring(number)?;
            self.await_log.push(number);
            self.tell(State::Connected);
            return Ok(());
        }
        if self.lacks_pages() {
            return self.start_across(number);
        }
        let place = self.place(number)?;
        let (Some(vring), Some(ring)) = (self.vrings.get_mut(place), self.shared.rings.get(place))
        else {
            return Ok(());
        };
        // If the ring already runs, it resumes where it stopped.
        stop(vring, ring, &self.shared.reconnect_backoff);
        let ring = ring.clone();
        let running = self.build(number)?;
        ring.start(running).map_err(refused)?;
        self.tell(State::Connected);
        Ok(())
    }

    /// Makes a stopped ring, which then counts as started.
    fn build(&mut self, number: u32) -> Result<Running> {
        let place = self.place(number)?;
        let always_enabled = !self.taken.contains(Features::PROTOCOL_FEATURES);
        let log = self.active_log().cloned();
        let inflight = self.inflight.as_ref();
        let vring = self.vrings.get_mut(place).ok_or_else(|| refused("no such ring"))?;
        vring.enabled |= always_enabled;
        let said_no = |error: StartError| refused(format!("ring {number}: {error}"));
        let journal = inflight.map(|inflight| inflight.journal(number, vring.size));
        let journal = journal.transpose().map_err(|error| said_no(error.into()))?.flatten();
        let mut running = vring
            .build(self.memory.as_ref(), self.taken, log.as_ref(), journal)
            .map_err(said_no)?;
        (vring.started, vring.began) = (true, running.queue.base());
        let is_control = place + 1 == self.shared.rings.len();
        if is_control && is_fresh(running.queue.base()) && !self.goes_on {
            // A driver begins. Not every front end tells of the reset before it, and one that only
            // pauses its guest goes on with a control queue that was used.
            self.forget_commands();
        }
        running.hash = self.asked.settings().hash.clone();
        let _ = running.hold.set(self.asked.hold(place));
        // No kick is needed for receive buffers: without them frames to the guest are dropped, and
        // no worker waits for some.
        if place.is_multiple_of(2) && !is_control {
            running.queue.disarm();
        }
        // An earlier process may have published used buffers and ended before it notified the
        // driver.
        running.notify();
        Ok(running)
    }

    /// Starts the rings that waited for the log. Those that still lack it wait again.
    fn start_waiting(&mut self) -> Result<()> {
        std::mem::take(&mut self.await_log).into_iter().try_for_each(|number| self.start(number))
    }

    /// Calls `change` for each started ring, while no worker has it.
    fn each_running(&self, mut change: impl FnMut(&mut Running) -> Result<()>) -> Result<()> {
        self.shared
            .rings
            .iter()
            .try_for_each(|ring| ring.change(|running| running.map_or(Ok(()), &mut change)))
    }

    /// Gives all rings another memory map. `began` is when its mapping began, from which the pause
    /// before the next message is computed.
    fn replace_memory(&mut self, memory: Arc<GuestMemory>, began: Instant) -> Result<()> {
        self.each_running(|running| running.queue.remap(memory.clone()).map_err(refused))?;
        let mapped = mapped(&memory);
        self.shared.note(|status| status.mapped = mapped);
        self.slots.hold(memory.regions().len());
        self.memory = Some(memory);
        self.pay(began);
        Ok(())
    }

    /// Makes the front end's next message wait for a change of what is mapped that began then.
    fn pay(&mut self, began: Instant) {
        let pause = lock(&self.shared.memory_pace).pause(Instant::now(), began.elapsed());
        self.pause = self.pause.max(pause);
    }

    fn apply_log(&mut self) -> Result<()> {
        let step = self.migration.log(self.active_log().is_some());
        self.note(step);
        let log = self.active_log();
        self.each_running(|running| {
            running.queue.set_log(log.cloned());
            Ok(())
        })
    }

    /// Returns how long to wait before the front end's next message is read, and resets it.
    pub(crate) fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Removes all rings.
    pub(crate) fn stop_all(&mut self) {
        self.stop_each();
        self.vrings.fill_with(Vring::default);
        self.forget_commands();
    }

    /// Returns the number of queue pairs up to the last one that is started, enabled and used by the
    /// guest. One before it may be stopped for a moment, while its driver resets it.
    fn pairs(&self) -> u16 {
        let ready = |pair: &[Vring]| pair.iter().all(|vring| vring.started && vring.enabled);
        let (pairs, _control) = self.vrings.split_at(self.vrings.len() - 1);
        let last = pairs.chunks(2).rposition(ready);
        let ready = u16::try_from(last.map_or(0, |last| last + 1)).unwrap_or(u16::MAX);
        let serves_commands = self.vrings.last().is_some_and(|vring| vring.started);
        let asked = self.wished_pairs.or(serves_commands.then_some(1));
        asked.map_or(ready, |asked| ready.min(asked))
    }

    /// Updates the port's capabilities and the session's status.
    fn tell(&mut self, state: State) {
        let features = match self.offloads {
            Some(offloads) => (self.taken - Features::GUEST_OFFLOADS) | offloads,
            None => self.taken,
        };
        let negotiated = Negotiated { features, pairs: self.pairs() };
        (self.shared.options.changed)(&negotiated);
        let state = match (&self.unfit, state) {
            (Some(reason), State::Connected) => State::Broken(reason.clone()),
            _ if negotiated.pairs > 0 => State::Running,
            (_, state) => state,
        };
        let memory = self.memory.as_ref().map_or(0, |memory| memory.bytes());
        let before = self.shared.note(|status| {
            status.state = state;
            (status.taken, status.memory) = (self.taken, memory);
            status.awaits_log = !self.await_log.is_empty();
            std::mem::replace(&mut status.negotiated, negotiated)
        });
        if before.pairs == 0 && negotiated.pairs > 0 {
            let are_fresh = self.vrings.iter().take(2).all(|vring| is_fresh(vring.began));
            let step = self.migration.run(!are_fresh);
            self.note(step);
            self.announce();
            self.shared.unplug();
        }
    }

    /// Leaves the frames that announce the guest's address at its first sending ring, if the
    /// address is known and the guest runs.
    fn announce(&self) {
        let ring = self.shared.rings.get(1).filter(|_| self.pairs() > 0);
        if let (Some(ring), Some(mac)) = (ring, self.address.or(self.shared.options.mac)) {
            ring.announce((self.shared.options.announcement)(mac));
        }
    }

    /// Sends the signals that workers left to the session's thread.
    pub(crate) fn send_owed(&self) {
        self.shared.signals.clear_owed();
        let signals = |vring: &Vring| {
            let to_ferry = vring.crossing.as_ref().map(|crossing| crossing.signal().clone());
            [vring.call.clone(), vring.error.clone(), to_ferry]
        };
        self.vrings.iter().flat_map(signals).flatten().for_each(|signal| signal.settle());
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.note_interruption();
        // Ends the ferry, which may wait for a page that no one serves any more.
        self.abandon_pages();
        self.stop_all();
        (self.memory, self.taken) = (None, Features::empty());
        self.shared.note(|status| status.mapped = Vec::new());
        self.tell(State::Waiting);
    }
}
