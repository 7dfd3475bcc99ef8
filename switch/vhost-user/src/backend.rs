//! The state of one connection: its front end's messages, and the rings made from them.

mod messages;
mod record;
mod unlisted;

pub(crate) use record::ResumeError;

use crate::control::{self, Command};
use crate::inflight::Inflight;
use crate::lock::lock;
use crate::migration::{Migration, Step};
use crate::reconnect_backoff::ReconnectBackoff;
use crate::session::Shared;
use crate::slots::Slots;
use crate::vring::{StartError, Vring};
use crate::{Features, Negotiated, RingSlot, State};
use guestmem::{DirtyLog, GuestMemory, Region};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserLog, VhostUserProtocolFeatures};
use vhost::vhost_user::{Error, Result};

/// The state of one connection; with it go the rings.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    memory: Option<Arc<GuestMemory>>,
    /// Room for its regions.
    slots: Slots,
    /// How long the next message waits.
    pause: Duration,
    taken: Features,
    /// Receive offloads as the guest has set them by command.
    offloads: Option<Features>,
    /// Queue pairs the guest has asked for by command.
    wished_pairs: Option<u16>,
    log: Option<Log>,
    /// Rings that were kicked before there was the log that their guest's memory needs, by their
    /// numbers in messages.
    await_log: Vec<u32>,
    /// Where packed rings note their position, for the process that serves them next.
    inflight: Option<Inflight>,
    vrings: Vec<Vring>,
    /// `VHOST_USER_SET_OWNER` has come.
    owned: bool,
    protocol: VhostUserProtocolFeatures,
    /// The guest's address, as its front end has asked to have it announced.
    address: Option<[u8; 6]>,
    /// The device status as the front end has set it last.
    device_status: u64,
    migration: Migration,
    /// The MTU that the guest was told of.
    told_mtu: Option<u64>,
    /// Why no ring starts: what the guest was told of the device is not so.
    unfit: Option<String>,
}

/// Where writes are logged while the guest moves.
struct Log {
    log: Arc<DirtyLog>,
    /// Where it is in its file.
    said: VhostUserLog,
    file: File,
}

/// A message that is refused, with the reason.
fn refused(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(reason))
}

/// Stops a ring, once no worker has it. Its base is where it has come to.
fn stop(vring: &mut Vring, ring: &RingSlot, backoff: &ReconnectBackoff) {
    vring.started = false;
    let Some(running) = ring.stop() else { return };
    vring.base = running.queue.base();
    if vring.base != vring.began {
        backoff.note_moved();
    }
}

/// Where a guest's regions are in this process.
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
            log: None,
            await_log: Vec::new(),
            inflight: None,
            vrings,
            owned: false,
            protocol: VhostUserProtocolFeatures::empty(),
            address: None,
            device_status: 0,
            migration: Migration::default(),
            told_mtu: None,
            unfit: None,
        };
        backend.tell(State::Connected);
        backend
    }

    /// Features and protocol features that the front end took.
    pub(crate) fn agreed(&self) -> (u64, u64) {
        (self.taken.bits(), self.protocol.bits())
    }

    /// The index of a ring in `vrings`, by its number in messages. In messages the control queue
    /// comes after the pairs that the guest uses, in `vrings` after all pairs of the port.
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

    /// The number in messages of a ring in `vrings`.
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

    /// See [`stop`].
    fn stop_ring(&mut self, number: u32) -> Result<&mut Vring> {
        let shared = self.shared.clone();
        self.await_log.retain(|waiting| *waiting != number);
        let (vring, ring) = self.vring(number)?;
        let has_run = vring.started;
        stop(vring, ring, &shared.reconnect_backoff);
        self.note_stop(has_run);
        Ok(self.vring(number)?.0)
    }

    /// Stops all rings; those that wait for a log do not any more.
    fn stop_each(&mut self) {
        let have_run = self.vrings.iter().any(|vring| vring.started);
        for (vring, ring) in self.vrings.iter_mut().zip(&self.shared.rings) {
            stop(vring, ring, &self.shared.reconnect_backoff);
        }
        self.await_log.clear();
        self.note_stop(have_run);
    }

    /// `has_run`: what was stopped now.
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

    /// Starts a ring of which all is known, or has it wait: QEMU that connects again in the middle
    /// of a migration kicks its rings before it says where to log, and what was written between
    /// would not move with the guest.
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
        let place = self.place(number)?;
        let always_enabled = !self.taken.contains(Features::PROTOCOL_FEATURES);
        let log = self.active_log().cloned();
        let inflight = self.inflight.as_ref();
        let (Some(vring), Some(ring)) = (self.vrings.get_mut(place), self.shared.rings.get(place))
        else {
            return Ok(());
        };
        vring.enabled |= always_enabled;
        // Started again without a new base: it resumes where it is.
        stop(vring, ring, &self.shared.reconnect_backoff);
        let said_no = |error: StartError| refused(format!("ring {number}: {error}"));
        let journal = inflight.map(|inflight| inflight.journal(number, vring.size));
        let journal = journal.transpose().map_err(|error| said_no(error.into()))?.flatten();
        let mut running = vring
            .build(self.memory.as_ref(), self.taken, log.as_ref(), journal)
            .map_err(said_no)?;
        // No worker sleeps until a guest offers buffers: while it has none its frames are dropped.
        if place.is_multiple_of(2) && place + 1 < self.shared.rings.len() {
            running.queue.disarm();
        }
        // A process before us may have published buffers and ended before it notified.
        running.notify();
        (vring.started, vring.began) = (true, running.queue.base());
        ring.start(running).map_err(refused)?;
        self.tell(State::Connected);
        Ok(())
    }

    /// Starts the rings that have waited for the log, where there is no need to wait any longer.
    fn start_waiting(&mut self) -> Result<()> {
        std::mem::take(&mut self.await_log).into_iter().try_for_each(|number| self.start(number))
    }

    /// Calls `change` for each started ring, while no worker has it.
    fn each_running(
        &self,
        mut change: impl FnMut(&mut crate::Running) -> Result<()>,
    ) -> Result<()> {
        self.shared
            .rings
            .iter()
            .try_for_each(|ring| ring.change(|running| running.map_or(Ok(()), &mut change)))
    }

    /// `began`: when its mapping was begun.
    fn replace_memory(&mut self, memory: Arc<GuestMemory>, began: Instant) -> Result<()> {
        self.each_running(|running| running.queue.remap(memory.clone()).map_err(refused))?;
        let mapped = mapped(&memory);
        self.shared.note(|status| status.mapped = mapped);
        self.slots.hold(memory.regions().len());
        self.memory = Some(memory);
        self.pause = lock(&self.shared.memory_pace).pause(Instant::now(), began.elapsed());
        Ok(())
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

    /// How long the front end's next message is to wait, once.
    pub(crate) fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Removes all rings.
    pub(crate) fn stop_all(&mut self) {
        self.stop_each();
        self.vrings.fill_with(Vring::default);
        (self.offloads, self.wished_pairs) = (None, None);
    }

    /// Pairs that run and are enabled, as far as the guest uses them.
    fn pairs(&self) -> u16 {
        let ready = |pair: &[Vring]| pair.iter().all(|vring| vring.started && vring.enabled);
        let (pairs, _control) = self.vrings.split_at(self.vrings.len() - 1);
        let ready = pairs.chunks(2).take_while(|pair| ready(pair)).count();
        let ready = u16::try_from(ready).unwrap_or(u16::MAX);
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
            // A fresh ring begins at 0, a fresh packed one with both wrap counters set.
            let is_fresh = |vring: &Vring| vring.began & 0x7fff_7fff == 0;
            let step = self.migration.run(!self.vrings.iter().take(2).all(is_fresh));
            self.note(step);
            self.announce();
            self.shared.unplug();
        }
    }

    /// Has frames sent that tell the network where the guest is, if its address is known and it
    /// runs.
    fn announce(&self) {
        let ring = self.shared.rings.get(1).filter(|_| self.pairs() > 0);
        if let (Some(ring), Some(mac)) = (ring, self.address.or(self.shared.options.mac)) {
            ring.announce((self.shared.options.announcement)(mac));
        }
    }

    /// Serves some of the commands that wait in the control queue; for the rest the ring becomes
    /// ready again.
    pub(crate) fn serve_control(&mut self) {
        let Some(ring) = self.shared.rings.last().cloned() else { return };
        ring.forget_kicks();
        let more = ring.with(|running| control::serve(running, |command| self.carry_out(command)));
        if more == Some(true) {
            ring.look_again();
        }
        self.tell(State::Connected);
    }

    /// Sends the signals that workers have left to the session's thread.
    pub(crate) fn send_owed(&self) {
        self.shared.signals.silence();
        let signals = |vring: &Vring| [vring.call.clone(), vring.error.clone()];
        self.vrings.iter().flat_map(signals).flatten().for_each(|signal| signal.settle());
    }

    pub(crate) fn carry_out(&mut self, command: Command) -> bool {
        match command {
            Command::Noted => true,
            Command::SetMac(mac) => self.shared.options.mac.is_none_or(|own| own == mac),
            Command::SetPairs(pairs) => {
                let known = (1..=self.shared.options.pairs).contains(&pairs);
                if known {
                    self.wished_pairs = Some(pairs);
                }
                known
            }
            Command::SetOffloads(offloads) => {
                let known = self.taken.contains(offloads);
                if known {
                    self.offloads = Some(offloads);
                }
                known
            }
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop_all();
        (self.memory, self.taken) = (None, Features::empty());
        self.shared.note(|status| status.mapped = Vec::new());
        self.tell(State::Waiting);
    }
}
