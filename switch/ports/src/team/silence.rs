//! Finds members that hear nothing while others do.
//!
//! A broadcast reaches every member of one layer 2 network. So a member that has received no frame
//! for a group for a minute, while another received ten broadcasts of stations outside, is in
//! another network, or nothing passes to it.

use super::mask::{Mask, PLACES, Place};
use super::state::State;
use crate::Nanos;
use std::sync::atomic::Ordering::Relaxed;

/// How long a member must be silent.
const SILENT: Nanos = Nanos(60 * Nanos::SECOND.0);
/// Broadcasts of stations outside that another member must have received meanwhile.
const BROADCASTS: u64 = 10;

/// What each member has heard lately, for the thread that watches the links.
#[derive(Default)]
pub(super) struct Silence([Member; PLACES]);

#[derive(Default, Clone, Copy)]
struct Member {
    /// Counters at the last look: frames for groups, and broadcasts of stations outside.
    groups: u64,
    broadcasts: u64,
    /// Since when it has been in use and received no frame for a group.
    since: Option<Nanos>,
    /// Broadcasts that another member has received since then.
    others: u64,
    is_silent: bool,
}

impl Silence {
    /// Looks at the counters of the members in use.
    pub(super) fn step(&mut self, state: &State, now: Nanos, used: Mask) {
        let mut new = [0; PLACES];
        let mut is_heard = [false; PLACES];
        let counted = self.0.iter_mut().zip(&state.counters);
        for ((member, counters), (new, is_heard)) in counted.zip(new.iter_mut().zip(&mut is_heard))
        {
            let groups = counters.groups.load(Relaxed);
            let broadcasts = counters.broadcasts.load(Relaxed);
            *is_heard = groups != std::mem::replace(&mut member.groups, groups);
            *new = broadcasts - std::mem::replace(&mut member.broadcasts, broadcasts);
        }
        for place in (0..8).map(Place) {
            let others = used.without(place).places().filter_map(|other| new.get(other.index()));
            let others = others.copied().max().unwrap_or(0);
            let Some(member) = self.0.get_mut(place.index()) else { continue };
            if !used.has(place) || is_heard.get(place.index()).is_some_and(|heard| *heard) {
                (member.since, member.others) = (None, 0);
            } else {
                member.since.get_or_insert(now);
                member.others += others;
            }
            let is_long = member.since.is_some_and(|since| now.since(since) >= SILENT);
            member.is_silent = is_long && member.others >= BROADCASTS;
        }
    }

    /// Returns the broadcasts that another member received while this one was silent; `None` if it
    /// is not silent.
    pub(super) fn of(&self, place: Place) -> Option<u64> {
        let member = self.0.get(place.index()).filter(|member| member.is_silent)?;
        Some(member.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::Algorithm;

    /// One second, in which the two members receive so many frames for groups, all of them
    /// broadcasts from outside.
    fn second(silence: &mut Silence, state: &State, now: u64, heard: [u64; 2]) {
        for (counters, heard) in state.counters.iter().zip(heard) {
            counters.groups.fetch_add(heard, Relaxed);
            counters.broadcasts.fetch_add(heard, Relaxed);
        }
        silence.step(state, Nanos(now * Nanos::SECOND.0), Mask(0b11));
    }

    /// A member in another access VLAN heard nothing for 12 minutes, and nothing was found.
    #[test]
    fn a_member_that_hears_nothing_for_a_minute_while_another_does_is_silent() {
        let (mut silence, state) = (Silence::default(), State::new(Algorithm::default()).unwrap());
        (0..60).for_each(|now| second(&mut silence, &state, now, [1, 0]));
        assert_eq!(silence.of(Place(1)), None);
        second(&mut silence, &state, 60, [0, 0]);
        assert_eq!((silence.of(Place(0)), silence.of(Place(1))), (None, Some(60)));
        // It stays so while nothing more arrives, until the member hears something.
        (61..200).for_each(|now| second(&mut silence, &state, now, [0, 0]));
        assert_eq!(silence.of(Place(1)), Some(60));
        second(&mut silence, &state, 200, [0, 1]);
        assert_eq!(silence.of(Place(1)), None);
    }

    #[test]
    fn in_a_quiet_network_no_member_is_silent() {
        let (mut silence, state) = (Silence::default(), State::new(Algorithm::default()).unwrap());
        (0..200).for_each(|now| second(&mut silence, &state, now, [u64::from(now < 9), 0]));
        assert_eq!(silence.of(Place(1)), None);
    }
}
