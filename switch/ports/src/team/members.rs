//! The members of a team, for the control plane and the thread that watches their links.
//!
//! A member with a lost link is taken out at once. A member that is up again is used once it has
//! been up for the fail-back time, so that a flapping link moves no addresses; earlier only if no
//! other member is left. All decisions are made here, with time as an argument.

use super::Shared;
use super::announcer::announce;
use super::home_members::{HomeMember, Moved};
use super::mask::{Mask, PLACES, Place};
use super::rounds::Rounds;
use super::silence::Silence;
use super::state::{Counters, Heard};
use super::{Condition, HomeStatus, Member};
use crate::link::{Carrier, Link};
use crate::packet::StallWatch;
use crate::{Nanos, Offloads};
use std::collections::HashSet;
use std::sync::Arc;

/// Time until the second announcement, in case the first one gets lost.
const AGAIN: Nanos = Nanos::SECOND;

/// Period of aging. A VLAN counts as missing at a member if no frame of it arrived there in the
/// last one to two periods.
const AGE: Nanos = Nanos(300 * Nanos::SECOND.0);

const NO_CARRIER: &str = "its device has no carrier";

pub(super) struct Members {
    shared: Arc<Shared>,
    pub(super) by_place: [Option<MemberEntry>; PLACES],
    /// How long a member must be up before it is used again.
    pub(super) fail_back: Nanos,
    /// Members in use when addresses were last moved and announced.
    used: Mask,
    /// Taken places at that time.
    taken: Mask,
    /// Addresses to announce a second time, and when.
    again: Option<(Nanos, Vec<Moved>)>,
    /// When heard VLANs were last aged.
    aged: Nanos,
    pub(super) rounds: Rounds,
    pub(super) silence: Silence,
}

/// One member of the team, opened or not, at the place that it has taken.
pub(super) struct MemberEntry {
    pub(super) name: String,
    pub(super) device: Option<Opened>,
    /// Why the member carries no frames.
    pub(super) trouble: Option<String>,
    /// Since when its link has been up without a break.
    up_since: Option<Nanos>,
    /// Whether the member was used before, or has been there since the team was made. Only members
    /// that failed have to stay up for the fail-back time.
    trusted: bool,
}

/// What the control plane keeps of an open member.
pub(super) struct Opened {
    /// Asked by others, too, after the lock of the members is given back.
    pub(super) link: Option<Arc<Link>>,
    carrier: Option<Carrier>,
    pub(super) index: u32,
    pub(super) stalls: Option<StallWatch>,
    pub(super) offloads: Offloads,
    /// Most datagrams of a UDP train.
    pub(super) datagrams: u16,
    pub(super) mtu: u16,
    pub(super) degraded: Vec<String>,
    /// Whether the device is gone. Its queues went with it, even if it comes back under its old
    /// number: the member is not used until it is reopened.
    is_gone: bool,
}

impl Members {
    pub(super) fn new(shared: Arc<Shared>, fail_back: Nanos) -> Members {
        Members {
            shared,
            by_place: Default::default(),
            fail_back,
            used: Mask::default(),
            taken: Mask::default(),
            again: None,
            aged: Nanos(0),
            rounds: Rounds::default(),
            silence: Silence::default(),
        }
    }

    pub(super) fn present(&self) -> Mask {
        self.entries().fold(Mask::default(), |mask, (place, _)| mask.with(place))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Place, &MemberEntry)> {
        (0..)
            .map(Place)
            .zip(&self.by_place)
            .filter_map(|(place, entry)| Some((place, entry.as_ref()?)))
    }

    fn entries_mut(&mut self) -> impl Iterator<Item = (Place, &mut MemberEntry)> {
        let by_place = (0..).map(Place).zip(&mut self.by_place);
        by_place.filter_map(|(place, entry)| Some((place, entry.as_mut()?)))
    }

    pub(super) fn place_of(&self, name: &str) -> Option<Place> {
        self.entries().find(|(_, entry)| entry.name == name).map(|(place, _)| place)
    }

    /// Adds a member, opened or not, at the first free place. Returns `None` if no place is free.
    pub(super) fn add(&mut self, name: &str, member: Result<Member, String>) -> Option<Place> {
        let place = (0..8).map(Place).find(|place| !self.present().has(*place))?;
        let entry = MemberEntry {
            name: name.to_owned(),
            device: None,
            trouble: Some("it is not open".to_owned()),
            up_since: None,
            trusted: true,
        };
        self.by_place.get_mut(place.index())?.replace(entry);
        self.install(place, member);
        Some(place)
    }

    /// Puts a member's queues into its place, or stores the reason why there are none.
    pub(super) fn install(&mut self, place: Place, member: Result<Member, String>) {
        let twin = member.as_ref().ok().and_then(|member| self.twin(place, member));
        let member = twin.map_or(member, Err);
        let Members { shared, by_place, .. } = self;
        let (Some(slot), Some(Some(entry))) = (shared.slot(place), by_place.get_mut(place.index()))
        else {
            return;
        };
        match member {
            Err(reason) => entry.trouble = Some(reason),
            Ok(member) => {
                shared.state.set_mac(place, member.mac);
                entry.device = Some(Opened {
                    index: member.index().unwrap_or_default(),
                    link: member.link.map(Arc::new),
                    carrier: member.carrier,
                    stalls: member.stalls,
                    offloads: member.offloads,
                    datagrams: member.datagrams,
                    mtu: member.mtu,
                    degraded: member.degraded,
                    is_gone: false,
                });
                // Without a link it is up until `note` says otherwise.
                if entry.device.as_ref().is_some_and(|device| device.link.is_none()) {
                    entry.up_since = Some(Nanos(0));
                }
                entry.trouble = None;
                slot.put(Some((member.ingress, member.egress)));
            }
        }
    }

    /// Returns why a member cannot be added: another member has the same device by another name.
    fn twin(&self, place: Place, member: &Member) -> Option<String> {
        let index = member.index()?;
        let is_same = |(other, entry): &(Place, &MemberEntry)| {
            *other != place && entry.index() == Some(index)
        };
        self.entries().find(is_same).map(|(_, entry)| is_also(&entry.name))
    }

    /// Frees a place. Its addresses have moved when this returns.
    pub(super) fn leave(&mut self, place: Place, now: Nanos) {
        if let Some(entry) = self.by_place.get_mut(place.index()) {
            *entry = None;
        }
        self.decide(now);
        self.shared.slot(place).into_iter().for_each(|slot| slot.put(None));
        self.shared.state.set_mac(place, wire::Mac::default());
        if let Some(heard) = self.shared.state.heard.get(place.index()) {
            heard.forget();
        }
    }

    /// Takes out members with links that are down, as far as the kernel tells without a lock.
    pub(super) fn glance(&mut self, now: Nanos) {
        self.look_by(now, |device| device.flaw().map(Condition::Down));
    }

    /// Checks all links. Members known to be down are taken out before devices are asked for a
    /// carrier that cannot be read otherwise: the kernel answers under its lock of all links, which
    /// another process may hold for long.
    pub(super) fn look(&mut self, now: Nanos) {
        self.glance(now);
        self.look_by(now, Opened::condition);
        self.look_at_addresses();
    }

    /// Takes over the devices' current addresses.
    fn look_at_addresses(&self) {
        for (place, entry) in self.entries() {
            let device = entry.device.as_ref().filter(|device| !device.is_gone);
            let link = device.and_then(|device| device.link.as_ref());
            if let Some(mac) = link.and_then(|link| link.mac().ok())
                && mac != self.shared.state.mac(place)
            {
                self.shared.state.set_mac(place, mac);
            }
        }
    }

    fn look_by(&mut self, now: Nanos, ask: impl Fn(&Opened) -> Option<Condition>) {
        let gone = self.shared.state.take_gone();
        for (place, entry) in self.entries_mut() {
            if let Some(device) = &mut entry.device {
                device.is_gone |= gone.has(place) || !device.is_there();
            }
        }
        let conditions: Vec<(Place, Condition)> = self
            .entries()
            .filter_map(|(place, entry)| Some((place, ask(entry.device.as_ref()?)?)))
            .collect();
        for (place, condition) in conditions {
            self.note(place, &condition, now);
        }
        self.decide(now);
    }

    /// Stores the condition of a member's link. [`Members::decide`] applies it.
    pub(super) fn note(&mut self, place: Place, condition: &Condition, now: Nanos) {
        let Some(Some(entry)) = self.by_place.get_mut(place.index()) else { return };
        match condition {
            Condition::Up => {
                entry.trouble = None;
                entry.up_since.get_or_insert(now);
            }
            Condition::Down(reason) => {
                entry.trouble = Some(reason.clone());
                entry.up_since = None;
                entry.trusted = false;
            }
        }
    }

    /// Decides which members carry frames, and moves and announces addresses accordingly.
    pub(super) fn decide(&mut self, now: Nanos) {
        let fallen = self.used.0 & !self.shared.state.alive().0;
        let fail_back = self.fail_back;
        let (mut up, mut usable) = (Mask::default(), Mask::default());
        for (place, entry) in self.entries_mut() {
            if Mask(fallen).has(place) {
                // A worker found it down, whatever its link says by now.
                entry.trusted = false;
                entry.up_since = entry.up_since.map(|_| now);
            }
            let Some(since) = entry.up_since else { continue };
            up = up.with(place);
            entry.trusted |= now.since(since) >= fail_back;
            if entry.trusted {
                usable = usable.with(place);
            }
        }
        if now.since(self.aged) >= AGE {
            self.aged = now;
            self.shared.state.heard.iter().for_each(Heard::age);
        }
        let used = if usable.is_empty() { up } else { usable };
        let present = self.present();
        let Shared { state, .. } = &*self.shared;
        if used != self.used || fallen != 0 || present != self.taken {
            self.taken = present;
            let old = std::mem::replace(&mut self.used, used);
            let moved = state.home_members.change(old, used, present, || state.set_alive(used));
            announce(&self.shared, &moved);
            self.announce_again(moved, now);
        }
        self.repeat(now);
    }

    /// Pins addresses to members and frees the others. Returns the addresses without room.
    pub(super) fn pin(&mut self, pins: &[(wire::Mac, Place)], now: Nanos) -> Vec<wire::Mac> {
        let state = &self.shared.state;
        let (moved, without_room) = state.home_members.pin(pins, self.used, state.now_ms());
        announce(&self.shared, &moved);
        self.announce_again(moved, now);
        without_room
    }

    fn announce_again(&mut self, moved: Vec<Moved>, now: Nanos) {
        if moved.is_empty() {
            return;
        }
        let (_, waiting) = self.again.get_or_insert((now + AGAIN, Vec::new()));
        let anew: HashSet<wire::Mac> = moved.iter().map(|new| new.mac).collect();
        waiting.retain(|old| !anew.contains(&old.mac));
        waiting.extend(moved);
    }

    /// Announces again the moved addresses that are still at their new member.
    fn repeat(&mut self, now: Nanos) {
        let Some((_, waiting)) = self.again.take_if(|(due, _)| now >= *due) else { return };
        let used = self.used;
        let stands = |moved: &Moved| {
            let home = self.shared.state.home_members.get(moved.mac.to_u64());
            home.and_then(|home| home.current(used)) == Some(moved.to)
        };
        let waiting: Vec<Moved> = waiting.into_iter().filter(stands).collect();
        announce(&self.shared, &waiting);
    }

    /// Returns when to check next if no link changes: when a fail-back time ends or an announcement
    /// is due.
    pub(super) fn due(&self) -> Option<Nanos> {
        let proving = self.entries().filter(|(_, entry)| !entry.trusted);
        let proven = proving.filter_map(|(_, entry)| Some(entry.up_since? + self.fail_back));
        proven.chain(self.again.as_ref().map(|(due, _)| *due)).min()
    }

    /// Finds out which members hear each other, and which hear nothing.
    pub(super) fn probe(&mut self, now: Nanos) {
        self.silence.step(&self.shared.state, now, self.used);
        if self.rounds.is_due(now) {
            let used = self.entries().filter(|(place, _)| self.used.has(*place));
            let mtu = used.filter_map(|(_, entry)| entry.mtu()).min().unwrap_or_default();
            self.rounds.step(&self.shared, now, self.used, mtu);
        }
    }

    /// Whether a member carries frames.
    pub(super) fn is_used(&self, place: Place) -> bool {
        self.used.has(place)
    }

    /// Returns the address of a member, the VLANs heard there, and its counters.
    pub(super) fn shown(&self, place: Place) -> (wire::Mac, Vec<u16>, Option<&Counters>) {
        let state = &self.shared.state;
        let vlans = state.heard.get(place.index()).map_or_else(Vec::new, Heard::list);
        (state.mac(place), vlans, state.counters(place))
    }

    /// Returns every address that sent, with its members.
    pub(super) fn homes(&self) -> Vec<HomeStatus> {
        let status = |(mac, home): (wire::Mac, HomeMember)| HomeStatus {
            mac,
            home: home.home(),
            current: home.current(self.used),
            pinned: home.is_pinned(),
        };
        let mut homes: Vec<_> =
            self.shared.state.home_members.list().into_iter().map(status).collect();
        homes.sort_by_key(|home| home.mac);
        homes
    }
}

/// Returns the text for a member that is another one's device.
pub(super) fn is_also(name: &str) -> String {
    format!("it is the same device as {name}")
}

impl MemberEntry {
    /// Returns the kernel's number of its device when it was opened; `None` if it is not open or
    /// has no link.
    pub(super) fn index(&self) -> Option<u32> {
        let device = self.device.as_ref()?;
        device.link.as_ref().map(|_| device.index)
    }

    /// Returns the device's current MTU, in bytes.
    pub(super) fn mtu(&self) -> Option<u16> {
        let device = self.device.as_ref()?;
        let now = device.link.as_ref().and_then(|link| link.mtu().ok());
        Some(now.map_or(device.mtu, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX)))
    }
}

impl Opened {
    /// Returns why it carries no frames, as far as the kernel tells without a lock.
    fn flaw(&self) -> Option<String> {
        let link = self.link.as_ref()?;
        let is = |answer: Result<bool, _>| answer.unwrap_or(false);
        let reason = if self.is_gone {
            "its device has gone"
        } else if !is(link.is_up()) {
            "its device is administratively down"
        } else if !is(link.has_carrier()) || self.carrier.as_ref().is_some_and(Carrier::is_lost) {
            NO_CARRIER
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// Whether its device is the one that was opened. Does not ask for a device that has gone.
    fn is_there(&self) -> bool {
        let is_same = |link: &Link| {
            link.has_device(self.index) && link.index().is_ok_and(|index| index == self.index)
        };
        !self.is_gone && self.link.as_deref().is_none_or(is_same)
    }

    /// Returns its condition, by the device's answer if its carrier is not known otherwise. `None`:
    /// it has no link, so [`Members::note`] sets its condition.
    fn condition(&self) -> Option<Condition> {
        let link = self.link.as_ref()?;
        let flaw = self.flaw().or_else(|| {
            let is_there = self.carrier.is_some() || link.detects_carrier().unwrap_or(false);
            (!is_there).then(|| NO_CARRIER.to_owned())
        });
        Some(flaw.map_or(Condition::Up, Condition::Down))
    }

    /// Whether it must be reopened to carry frames again.
    pub(super) fn is_lost(&self) -> bool {
        self.is_gone || self.stalls.as_ref().is_some_and(|stalls| stalls.stalled().is_some())
    }
}

#[cfg(test)]
mod tests;
