//! Decides which frames of a member are accepted: neither copies that another member also receives,
//! nor the team's own frames that come back.

use super::age::has_passed;
use super::mask::{Mask, PLACES, Place};
use super::probe;
use super::sent::REFLECTION_MS;
use super::state::{State, count};
use crate::{Nanos, RawFrame, Slice, lock};
use wire::Mac;

/// Milliseconds of silence after which one of our addresses that is heard outside has left. The
/// station's own frames come back from the switch outside long before, even if a worker was held
/// up.
const LEFT_MS: u32 = 5_000;
/// Milliseconds after an announcement within which it may come back.
const LATE_MS: u32 = 1_000;

/// Why a frame is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// Its source is one of our addresses: the switch outside sent it back.
    Reflected,
    /// Another member receives it.
    Copy,
    /// It is for the member itself, which belongs to the host and is no vNIC.
    ToMember,
    /// It is for the members of teams, which probe each other.
    Probe,
}

/// Decision about frames with the same addresses.
#[derive(Clone, Copy)]
enum Verdict {
    Take,
    Refuse(Refusal),
    /// They are for an address with another home: a copy may arrive there, too.
    TakeAway,
    /// They are for an address with its home here, and another member has received such frames
    /// lately: copies of those are refused. Holds the pair of addresses.
    TakeNew(u64),
}

/// Decides about the frames of one burst. Looks up a run of frames with the same addresses once.
pub(super) struct Gate<'s> {
    state: &'s State,
    place: Place,
    macs: &'s [u64; PLACES],
    alive: Mask,
    now: Nanos,
    now_ms: u32,
    grace: bool,
    last: Option<(Head, Verdict)>,
    taken: u64,
    refused: [u64; 4],
    /// Frames for groups, probes apart, and of these the broadcasts of stations outside.
    groups: u64,
    broadcasts: u64,
}

/// Destination, source and VLAN.
type Head = ([u8; 12], u16);

impl<'s> Gate<'s> {
    pub(super) fn new(
        state: &'s State,
        place: Place,
        macs: &'s [u64; PLACES],
        now: Nanos,
        grace: bool,
    ) -> Gate<'s> {
        let (alive, now_ms) = (state.alive(), state.tick(now));
        Gate {
            state,
            place,
            macs,
            alive,
            now,
            now_ms,
            grace,
            last: None,
            taken: 0,
            refused: [0; 4],
            groups: 0,
            broadcasts: 0,
        }
    }

    pub(super) fn admits(&mut self, frame: &RawFrame, slices: &[Slice<'_>]) -> bool {
        // The switch drops runts.
        let Some(head) = head(frame, slices) else { return true };
        let verdict = match self.last {
            Some((last, verdict)) if last == head => verdict,
            _ => self.judge(head),
        };
        self.last = Some((head, verdict));
        let refusal = self.refusal(verdict, slices);
        let (addresses, vlan) = head;
        match refusal {
            Some(Refusal::Probe) => self.state.probes.hear(self.place, vlan, slices),
            _ if addresses[0] & 1 != 0 => self.count_group(&addresses, refusal),
            _ => {}
        }
        match refusal {
            None => self.taken += 1,
            Some(refusal) => {
                self.refused.get_mut(refusal as usize).into_iter().for_each(|count| *count += 1);
                return false;
            }
        }
        true
    }

    fn count_group(&mut self, addresses: &[u8; 12], refusal: Option<Refusal>) {
        let is_outside = refusal != Some(Refusal::Reflected);
        self.groups += 1;
        self.broadcasts += u64::from(is_outside && addresses.starts_with(&Mac::BROADCAST.0));
    }

    fn refusal(&self, verdict: Verdict, slices: &[Slice<'_>]) -> Option<Refusal> {
        let State { claims, flooded, .. } = self.state;
        match verdict {
            Verdict::Take => {}
            Verdict::Refuse(refusal) => return Some(refusal),
            Verdict::TakeAway => flooded.note(slices, self.now_ms),
            Verdict::TakeNew(_) if flooded.has_taken(slices, self.now_ms) => {
                return Some(Refusal::Copy);
            }
            Verdict::TakeNew(pair) => claims.take(pair, self.place, self.now),
        }
        None
    }

    fn judge(&self, (addresses, vlan): Head) -> Verdict {
        let [to, from] = [&addresses[..6], &addresses[6..]].map(number);
        let is_group = addresses[0] & 1 != 0;
        if addresses.starts_with(&probe::GROUP.0) {
            return Verdict::Refuse(Refusal::Probe);
        }
        if self.is_reflected(from, vlan) {
            return Verdict::Refuse(Refusal::Reflected);
        }
        // The team's own group frames come back to other members only.
        if is_group && let Some(heard) = self.state.heard.get(self.place.index()) {
            heard.note(vlan);
        }
        if self.macs.contains(&to) {
            return Verdict::Refuse(Refusal::ToMember);
        }
        let State { home_members, claims, .. } = self.state;
        let pair = claims.pair(addresses, vlan);
        let home = if is_group { None } else { home_members.get(to) };
        let is_ours = home.is_some();
        if home.is_some_and(|home| home.current(self.alive) == Some(self.place)) {
            if claims.is_elsewhere(pair, self.place, self.alive, self.now) {
                return Verdict::TakeNew(pair);
            }
            claims.take(pair, self.place, self.now);
            return Verdict::Take;
        }
        if is_ours && self.grace {
            return Verdict::Take;
        }
        match claims.may_take(pair, self.place, self.alive, self.now) {
            true if is_ours => Verdict::TakeAway,
            true => Verdict::Take,
            false => Verdict::Refuse(Refusal::Copy),
        }
    }

    /// Whether the source is one of our addresses, so that the switch outside sent the frame back.
    fn is_reflected(&self, from: u64, vlan: u16) -> bool {
        let State { home_members, sent, .. } = self.state;
        if self.macs.contains(&from) || sent.is_recent(from, vlan, self.now_ms) {
            return true;
        }
        let Some((home, age)) = home_members.get_with_age(from, self.now_ms) else { return false };
        if !has_passed(age, REFLECTION_MS) && sent.is_crowded(from, vlan, self.now_ms) {
            return true;
        }
        if has_passed(age, REFLECTION_MS) && self.state.is_settled(self.now_ms, LATE_MS) {
            self.is_outside((from, vlan), !home.is_pinned() && has_passed(age, LEFT_MS));
        }
        self.grace
    }

    /// Notes that one of our addresses sends from outside, as a guest that moved to another host
    /// does. It is not announced from here in this VLAN unless it sends from here again. In another
    /// VLAN it may be another station's.
    #[cold]
    fn is_outside(&self, (mac, vlan): (u64, u16), has_left: bool) {
        let mut cache = lock(&self.state.neighbour_cache);
        let station = Mac::from_u64(mac);
        if !has_left || !self.state.is_settled(self.now_ms, LEFT_MS) {
            cache.hear(station, vlan, self.now_ms);
        } else if cache.leave(station, vlan) {
            drop(cache);
            self.state.home_members.forget(mac);
        }
    }

    pub(super) fn count(&self) {
        let Some(counters) = self.state.counters(self.place) else { return };
        let [reflected, copies, to_member, probes] = self.refused;
        count(&counters.ingress_frames, self.taken);
        count(&counters.reflected, reflected);
        count(&counters.copies, copies);
        count(&counters.to_member, to_member);
        count(&counters.probes, probes);
        count(&counters.groups, self.groups);
        count(&counters.broadcasts, self.broadcasts);
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the frame's addresses and VLAN. `None`: the frame is too short.
fn head(frame: &RawFrame, slices: &[Slice<'_>]) -> Option<Head> {
    let mut bytes = [0; 16];
    let mut len = 0;
    for slice in slices {
        len += slice.copy_to(bytes.get_mut(len..).unwrap_or_default());
    }
    let addresses = *bytes.first_chunk()?;
    let beside = frame.vlan.map_or(0, |tag| tag.tci & 0xfff);
    let vlan = match bytes {
        [.., 0x81, 0, high, low] => u16::from_be_bytes([high, low]) & 0xfff,
        _ => beside,
    };
    (len >= 14).then_some((addresses, vlan))
}
