//! Probing: which members of a team hear each other, by VLAN and by size.
//!
//! The thread that watches the links runs a round every ten seconds: each member sends a small and
//! a full-size [`Probe`] in each VLAN that the team carries. Workers note which arrive, and the next
//! round judges. Members of one layer 2 network hear each other, because their switches flood group
//! frames; a member never hears its own. No probe is taken into the switch, answered or counted as
//! traffic.

use super::Shared;
use super::mask::{Mask, PLACES, Place};
use super::probe::{Probe, Size};
use super::probes::VLANS;
use super::state::{Heard, State};
use crate::{Nanos, Outgoing, lock};
use wire::Mac;
use wire::vnet::VnetHeader;

/// Time between two rounds, and while it is not certain whether members hear each other.
const PERIOD: Nanos = Nanos(10 * Nanos::SECOND.0);
const SOON: Nanos = Nanos(2 * Nanos::SECOND.0);
/// Rounds in a row without an answer after which members count as apart.
const ROUNDS: u8 = 3;

/// A VLAN in which a member and most others do not hear each other's probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The VLAN; 0 for untagged frames.
    pub vlan: u16,
    /// The others.
    pub from: Vec<Place>,
    /// The IP packet's size in bytes if only full-size probes are lost; `None` if small ones are.
    pub bytes: Option<u16>,
}

/// The rounds of a team, for the thread that probes.
#[derive(Default)]
pub(super) struct Rounds {
    due: Nanos,
    /// The members in use and their smallest MTU in the current round.
    of: (Mask, u16),
    probed: Vec<Probed>,
}

/// A VLAN, with what was found out about it by each size.
struct Probed {
    vlan: u16,
    sizes: [Outcome; 2],
}

#[derive(Default)]
struct Outcome {
    /// Members that sent their probe in the current round.
    sent: Mask,
    /// Whether the last rounds are enough to tell.
    is_certain: bool,
    /// Rounds in a row in which members were apart.
    lost: u8,
    /// Members that were apart in the last round, with those that they are apart from.
    apart: Vec<(Place, Mask)>,
}

impl Rounds {
    /// Whether the next round is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// Judges the current round, and begins the next one between the members in use; `mtu` is their
    /// smallest.
    pub(super) fn step(&mut self, shared: &Shared, now: Nanos, used: Mask, mtu: u16) {
        let probes = &shared.state.probes;
        let round = probes.begin();
        let is_same = self.of == (used, mtu);
        for (index, probed) in self.probed.iter_mut().enumerate() {
            for (size, outcome) in Size::ALL.into_iter().zip(&mut probed.sizes) {
                let heard = probes.take(index, size);
                if is_same {
                    outcome.judge(&heard);
                }
            }
        }
        if !is_same {
            self.of = (used, mtu);
            self.probed.clear();
        }
        self.choose(&shared.state);
        for place in used.places() {
            self.send(shared, place, round);
        }
        let mut outcomes = self.probed.iter().flat_map(|probed| &probed.sizes);
        let is_certain = outcomes.all(|outcome| outcome.is_certain);
        self.due = now + if is_certain { PERIOD } else { SOON };
    }

    /// Chooses the VLANs of the next round: those in which stations behind the team have sent, then
    /// those in which a member has received frames for groups.
    fn choose(&mut self, state: &State) {
        let mut vlans = lock(&state.neighbour_cache).vlans();
        let heard = self.of.0.places().filter_map(|place| state.heard.get(place.index()));
        let mut heard: Vec<u16> = heard.flat_map(Heard::list).collect();
        heard.sort_unstable();
        heard.dedup();
        heard.retain(|vlan| !vlans.contains(vlan));
        vlans.extend(heard);
        // One member has no other to be heard by.
        vlans.truncate(if self.of.0.0.count_ones() < 2 { 0 } else { VLANS });
        self.probed.retain(|probed| vlans.contains(&probed.vlan));
        vlans.retain(|vlan| self.probed.iter().all(|probed| probed.vlan != *vlan));
        let new = |vlan| Probed { vlan, sizes: Default::default() };
        self.probed.extend(vlans.into_iter().map(new));
        self.probed.truncate(VLANS);
        let outcomes = self.probed.iter_mut().flat_map(|probed| &mut probed.sizes);
        outcomes.for_each(|outcome| outcome.sent = Mask::default());
    }

    /// Sends a member's probes of the round. A member without an address of its own sends none: a
    /// physical switch would see the source at two ports.
    fn send(&mut self, shared: &Shared, place: Place, round: u32) {
        let state = &shared.state;
        let source = state.mac(place);
        let same = state.macs().into_iter().filter(|mac| *mac == source.to_u64()).count();
        if source == Mac::default() || same != 1 {
            return;
        }
        let (token, mtu) = (state.probes.token, self.of.1);
        for (index, probed) in (0..).zip(&mut self.probed) {
            let vlan = probed.vlan;
            for (size, outcome) in Size::ALL.into_iter().zip(&mut probed.sizes) {
                let probe = Probe { token, round, sender: place, index, vlan, size };
                if deliver(shared, place, &probe.frame(source, mtu)) {
                    outcome.sent = outcome.sent.with(place);
                }
            }
        }
    }

    /// Returns the VLANs in which a member and most others do not hear each other.
    pub(super) fn apart(&self, place: Place) -> Vec<Apart> {
        let of = |probed: &Probed| {
            let [small, full] = probed.sizes.each_ref().map(|outcome| outcome.apart_from(place));
            let bytes = small.is_none().then_some(self.of.1);
            let from = small.or(full)?.places().collect();
            Some(Apart { vlan: probed.vlan, from, bytes })
        };
        self.probed.iter().filter_map(of).collect()
    }
}

impl Outcome {
    fn judge(&mut self, heard: &[Mask; PLACES]) {
        self.apart = apart(self.sent, heard);
        self.lost = if self.apart.is_empty() { 0 } else { ROUNDS.min(self.lost + 1) };
        self.is_certain = self.lost == 0 || self.lost == ROUNDS;
    }

    fn apart_from(&self, place: Place) -> Option<Mask> {
        let mut apart = self.apart.iter().filter(|_| self.lost == ROUNDS);
        apart.find(|(member, _)| *member == place).map(|(_, from)| *from)
    }
}

/// Returns each member that is not among the most of `sent` that hear each other, with those. Of
/// two sets of one size, that with the lowest place counts as the most.
fn apart(sent: Mask, heard: &[Mask; PLACES]) -> Vec<(Place, Mask)> {
    let hears = |one: Place, other| heard.get(one.index()).is_some_and(|mask| mask.has(other));
    let (mut rest, mut most) = (sent, Mask::default());
    while let Some(first) = rest.places().next() {
        let mut group = Mask::default().with(first);
        // A path through all members is found after as many steps.
        for _ in 0..PLACES {
            let near = |place: &Place| {
                group.places().any(|known| hears(known, *place) && hears(*place, known))
            };
            group = rest.places().filter(near).fold(group, Mask::with);
        }
        rest = Mask(rest.0 & !group.0);
        if group.0.count_ones() > most.0.count_ones() {
            most = group;
        }
    }
    sent.places().filter(|place| !most.has(*place)).map(|place| (place, most)).collect()
}

/// Gives a frame to a member. Returns whether the member took it.
fn deliver(shared: &Shared, place: Place, frame: &[u8]) -> bool {
    let Ok(len) = u32::try_from(frame.len()) else { return false };
    let outgoing = Outgoing { vnet: VnetHeader::default(), header: frame, payload: &[], len };
    let Some(slot) = shared.slot(place) else { return false };
    let queue = slot.egress();
    let mut drops = Vec::new();
    queue.as_ref().is_some_and(|queue| queue.deliver(&[outgoing], &mut drops).is_ok())
        && drops.is_empty()
}

#[cfg(test)]
mod tests;
