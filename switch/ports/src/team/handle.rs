//! The control plane's handle of an open team, which changes members, algorithm and pins while
//! frames flow.

use super::mask::{PLACES, Place};
use super::members::{MemberEntry, Members, Opened, is_also};
use super::place::Slot;
use super::status::idle_reason;
use super::{
    Algorithm, Condition, Member, MemberOpener, MemberStatus, Shared, TeamError, TeamStatus,
};
use crate::{Capabilities, Nanos, lock};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::Mac;

/// The control plane's handle of an open team. Dropping it ends the thread that watches the links.
pub struct Team {
    pub(super) inner: Arc<Inner>,
    /// The thread that watches the links.
    pub(super) watcher: Option<JoinHandle<()>>,
}

/// State that the handle and the thread that watches the links share.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    members: Mutex<Members>,
    live: Arc<Capabilities>,
    open: Box<MemberOpener>,
    closing: AtomicBool,
    /// The MTU when a member was last open.
    mtu: AtomicU16,
    start: Instant,
}

impl Inner {
    pub(super) fn new(
        shared: Arc<Shared>,
        members: Members,
        live: Arc<Capabilities>,
        open: Box<MemberOpener>,
    ) -> Inner {
        Inner {
            shared,
            members: Mutex::new(members),
            live,
            open,
            closing: AtomicBool::new(false),
            mtu: AtomicU16::new(0),
            start: Instant::now(),
        }
    }

    /// Locks the members. No worker takes this lock, so what announces them is sent under it:
    /// [`lock`] would not allow that.
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time on the clock of the links.
    pub(super) fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }

    /// Checks the links, and closes members that are no longer used.
    pub(super) fn look(&self) {
        let now = self.now();
        self.members().look(now);
        self.shared.slots.iter().for_each(Slot::close_retired);
    }

    /// Takes out members that are known to be down.
    pub(super) fn glance(&self) {
        let now = self.now();
        self.members().glance(now);
    }

    /// Sets the offloads that all members take.
    pub(super) fn negotiate(&self) {
        let members = self.members();
        let devices = || members.entries().filter_map(|(_, entry)| entry.device.as_ref());
        let offloads = devices().map(|device| device.offloads).reduce(|one, other| one & other);
        self.live.set_offloads(offloads.unwrap_or_default());
        self.live.set_datagrams(devices().map(|device| device.datagrams).min().unwrap_or(1));
    }

    /// Reopens members that are not open, or have a device that was recreated or has stalled.
    pub(super) fn mend(&self) {
        let lost: Vec<(Place, String)> = {
            let members = self.members();
            let is_lost = |(_, entry): &(Place, &MemberEntry)| {
                entry.device.as_ref().is_none_or(Opened::is_lost)
            };
            members
                .entries()
                .filter(is_lost)
                .map(|(place, entry)| (place, entry.name.clone()))
                .collect()
        };
        for (place, name) in lost {
            let member = (self.open)(&name).map_err(|failure| failure.reason);
            let mut members = self.members();
            // The member may have left the team meanwhile.
            if members.place_of(&name) == Some(place) {
                members.install(place, member);
            }
        }
        self.negotiate();
    }

    /// Lets members probe each other. Called about once a second.
    pub(super) fn probe(&self, now: Nanos) {
        self.members().probe(now);
    }

    /// Returns the smallest MTU of the open members; the last one known if none is open.
    pub(super) fn mtu(&self) -> u16 {
        let members = self.members();
        let mtus = members.entries().filter_map(|(_, entry)| entry.mtu());
        if let Some(mtu) = mtus.min() {
            self.mtu.store(mtu, Ordering::Relaxed);
        }
        self.mtu.load(Ordering::Relaxed)
    }

    pub(super) fn next_look(&self, now: Nanos) -> Option<Nanos> {
        self.members().due().map(|due| due.since(now))
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

impl Team {
    /// Stops watching the links. Dropping the team waits until the thread has ended.
    pub fn end(&self) {
        self.inner.closing.store(true, Ordering::Relaxed);
        self.inner.shared.state.look();
    }

    /// Makes these the members.
    ///
    /// # Errors
    /// Fails if one of the new ones does not open or there are more than 8; then nothing changes.
    pub fn try_members(&self, names: &[String]) -> Result<(), TeamError> {
        if names.len() > PLACES {
            return Err(TeamError::TooMany(names.len()));
        }
        let opened = self.open_new(names);
        let failure = opened.iter().find_map(|(name, member)| Some((name, member.as_ref().err()?)));
        if let Some((name, reason)) = failure {
            return Err(TeamError::Member { name: name.clone(), reason: reason.clone() });
        }
        self.replace_members(names, opened);
        Ok(())
    }

    /// Makes these the members. Returns those that do not open yet, with the reason; they are tried
    /// again each second.
    pub fn set_members(&self, names: &[String]) -> Vec<(String, String)> {
        let opened = self.open_new(names);
        let failed = |(name, member): &(String, Result<_, String>)| {
            Some((name.clone(), member.as_ref().err()?.clone()))
        };
        let failed = opened.iter().filter_map(failed).collect();
        self.replace_members(names, opened);
        failed
    }

    fn open_new(&self, names: &[String]) -> Vec<(String, Result<Member, String>)> {
        let is_new = |name: &&String| self.inner.members().place_of(name).is_none();
        let new: Vec<&String> = names.iter().filter(is_new).collect();
        let mut opened: Vec<(String, Result<Member, String>)> = Vec::new();
        for name in new {
            let member = (self.inner.open)(name).map_err(|failure| failure.reason);
            let member = member.and_then(|member| match self.twin(&member, names, &opened) {
                Some(twin) => Err(is_also(&twin)),
                None => Ok(member),
            });
            opened.push((name.clone(), member));
        }
        opened
    }

    /// Returns the name of a remaining member, or of an earlier new one, with the same device.
    fn twin(
        &self,
        member: &Member,
        names: &[String],
        opened: &[(String, Result<Member, String>)],
    ) -> Option<String> {
        let index = member.index()?;
        let members = self.inner.members();
        let mut stay = members.entries().filter(|(_, entry)| names.contains(&entry.name));
        let stays = stay.find(|(_, entry)| entry.index() == Some(index));
        let mut new =
            opened.iter().filter_map(|(name, member)| Some((name, member.as_ref().ok()?)));
        stays
            .map(|(_, entry)| &entry.name)
            .or_else(|| new.find(|(_, other)| other.index() == Some(index)).map(|(name, _)| name))
            .cloned()
    }

    fn replace_members(&self, names: &[String], opened: Vec<(String, Result<Member, String>)>) {
        let now = self.inner.now();
        let mut members = self.inner.members();
        let gone = members.entries().filter(|(_, entry)| !names.contains(&entry.name));
        let gone: Vec<Place> = gone.map(|(place, _)| place).collect();
        // A renamed device must not become a member twice.
        let is_same = |index: u32| {
            opened
                .iter()
                .any(|(_, member)| member.as_ref().is_ok_and(|it| it.index() == Some(index)))
        };
        let is_renamed = |place: &Place| {
            let entry = members.by_place.get(place.index()).and_then(Option::as_ref);
            entry.and_then(MemberEntry::index).is_some_and(is_same)
        };
        let (renamed, gone): (Vec<Place>, Vec<Place>) = gone.into_iter().partition(is_renamed);
        renamed.into_iter().for_each(|place| members.leave(place, now));
        // New members come first, as far as there are places, so that addresses move once.
        let mut opened = opened.into_iter();
        let free = PLACES - members.entries().count();
        for (name, member) in opened.by_ref().take(free) {
            members.add(&name, member);
        }
        members.look(now);
        for place in gone {
            members.leave(place, now);
        }
        for (name, member) in opened {
            members.add(&name, member);
        }
        members.look(now);
        drop(members);
        self.inner.negotiate();
    }

    /// Pins addresses to members, by name, and frees all others. Ignores pins to members that the
    /// team does not have. Returns the addresses without room because too many are pinned.
    pub fn pin(&self, pins: &[(Mac, String)]) -> Vec<Mac> {
        let now = self.inner.now();
        let mut members = self.inner.members();
        let place = |(mac, name): &(Mac, String)| Some((*mac, members.place_of(name)?));
        let pins: Vec<(Mac, Place)> = pins.iter().filter_map(place).collect();
        members.pin(&pins, now)
    }

    /// Forgets addresses after their port has closed: they are announced no more.
    pub fn forget(&self, macs: &[Mac]) {
        let state = &self.inner.shared.state;
        for mac in macs {
            state.home_members.forget(mac.to_u64());
            lock(&state.neighbour_cache).forget(*mac);
        }
    }

    /// Sets the algorithm that spreads egress frames from now on.
    pub fn set_algorithm(&self, algorithm: Algorithm) {
        self.inner.shared.state.set_algorithm(algorithm);
    }

    /// Sets how long a member must be up before it is used again, from now on.
    pub fn set_fail_back(&self, fail_back: Duration) {
        self.inner.members().fail_back = fail_back.into();
        self.inner.shared.state.look();
    }

    /// Sets the condition of a member without a link, at a time of the caller's clock.
    pub fn note(&self, name: &str, condition: &Condition, now: Nanos) {
        let mut members = self.inner.members();
        if let Some(place) = members.place_of(name) {
            members.note(place, condition, now);
        }
        members.decide(now);
    }

    /// Returns the team's status. The devices are asked last, without the lock that failover takes.
    pub fn status(&self) -> TeamStatus {
        let state = &self.inner.shared.state;
        let algorithm = if state.is_dynamic() { Algorithm::Dynamic } else { Algorithm::HyperVPort };
        let members = self.inner.members();
        let link = |entry: &MemberEntry| entry.device.as_ref()?.link.clone();
        let links: Vec<_> = members.entries().map(|(_, entry)| link(entry)).collect();
        let of = |(place, entry)| MemberStatus::of(place, entry, &members);
        let mut status = TeamStatus {
            algorithm,
            fail_back: members.fail_back,
            members: members.entries().map(of).collect(),
            homes: members.homes(),
        };
        drop(members);
        for (member, link) in status.members.iter_mut().zip(links) {
            link.iter().for_each(|link| member.ask(link));
        }
        status
    }

    /// Returns each member's name and largest IP packet in bytes, 0 while it is not open. Asks no
    /// device for what may wait for others of the host.
    pub fn mtus(&self) -> Vec<(String, u16)> {
        let members = self.inner.members();
        let mtu = |entry: &MemberEntry| (entry.name.clone(), entry.mtu().unwrap_or_default());
        members.entries().map(|(_, entry)| mtu(entry)).collect()
    }

    /// Returns the largest IP packet that all members carry, in bytes.
    pub fn mtu(&self) -> u16 {
        self.inner.mtu()
    }

    /// Returns why this member carries no frames; `None` if it does, or is not in the team. Asks no
    /// device, as a device's answer may wait for others of the host.
    pub fn lost(&self, name: &str) -> Option<String> {
        let members = self.inner.members();
        let (place, entry) = members.entries().find(|(_, entry)| entry.name == name)?;
        idle_reason(members.is_used(place), entry.trouble.as_deref())
    }

    /// Returns why no member carries frames; `None` if one does.
    pub fn trouble(&self) -> Option<String> {
        let members = self.inner.members();
        if members.entries().any(|(place, _)| members.is_used(place)) {
            return None;
        }
        let reason = |(_, entry): (Place, &MemberEntry)| {
            Some(format!("{}: {}", entry.name, entry.trouble.as_deref()?))
        };
        let reasons: Vec<String> = members.entries().filter_map(reason).collect();
        Some(format!("no member of the team carries frames ({})", reasons.join("; ")))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.end();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}
