//! Chooses the member through which a frame leaves.
//!
//! Frames that teach others where a station is (ARP, neighbour discovery, DHCP, group frames) leave
//! through the home member with the station's own address; so do frames without ports. With
//! algorithm `dynamic` the others leave by their flow.

use super::mask::{Mask, Place};
use super::neighbour_cache;
use super::state::State;
use crate::{EgressDrop, Nanos, Outgoing, lock};
use wire::{Mac, parse};

/// Chooses for the frames of one call. Remembers the home of the last source, as most frames have
/// the same.
pub(super) struct Chooser<'s> {
    state: &'s State,
    alive: Mask,
    now: Nanos,
    now_ms: u32,
    last: Option<(Source, Result<Standing, EgressDrop>)>,
}

/// An address and its VLAN, 0 without a tag.
type Source = (Mac, u16);

/// The member that an address leaves by now.
#[derive(Clone, Copy)]
struct Standing {
    place: Place,
    is_pinned: bool,
}

/// The member that a frame leaves by.
pub(super) struct Way {
    pub(super) place: Place,
    /// Whether it leaves by its source's current member; then it keeps its source address.
    pub(super) is_home: bool,
}

impl<'s> Chooser<'s> {
    pub(super) fn new(state: &'s State, alive: Mask, now: Nanos) -> Chooser<'s> {
        Chooser { state, alive, now, now_ms: state.tick(now), last: None }
    }

    pub(super) fn choose(&mut self, frame: &Outgoing<'_>) -> Result<Way, EgressDrop> {
        let header = frame.header;
        let Some(source) = header.get(6..).and_then(<[u8]>::first_chunk) else {
            let place = self.alive.nth(0).ok_or(EgressDrop::Down)?;
            return Ok(Way { place, is_home: true });
        };
        let vlan = match header.get(12..16) {
            Some([0x81, 0, high, low]) => u16::from_be_bytes([*high, *low]) & 0xfff,
            _ => 0,
        };
        let standing = self.standing((Mac(*source), vlan), header)?;
        if let Some(told) = neighbour_cache::told(header) {
            lock(&self.state.neighbour_cache).note(header, Some(told), self.now_ms);
        }
        let place = if self.state.is_dynamic() && !standing.is_pinned {
            self.by_flow(frame).unwrap_or(standing.place)
        } else {
            standing.place
        };
        Ok(Way { place, is_home: place == standing.place })
    }

    fn standing(&mut self, source: Source, header: &[u8]) -> Result<Standing, EgressDrop> {
        if let Some((last, standing)) = self.last
            && last == source
        {
            return standing;
        }
        let standing = self.find(source, header);
        self.last = Some((source, standing));
        standing
    }

    fn find(&self, (mac, vlan): Source, header: &[u8]) -> Result<Standing, EgressDrop> {
        let none = if self.alive.is_empty() { EgressDrop::Down } else { EgressDrop::PathDown };
        let State { home_members, neighbour_cache, sent, .. } = self.state;
        sent.note(mac, vlan, self.now_ms);
        let number = mac.to_u64();
        let is_new = home_members.get(number).is_none();
        let home = home_members.note(number, self.alive, self.now_ms);
        if is_new && home.is_some() {
            lock(neighbour_cache).note(header, None, self.now_ms);
        }
        let place = home.map_or_else(|| self.alive.nth(number), |home| home.current(self.alive));
        let is_pinned = home.is_some_and(super::home_members::HomeMember::is_pinned);
        place.map(|place| Standing { place, is_pinned }).ok_or(none)
    }

    /// Chooses by the frame's flow. `None`: the frame does not leave by its flow.
    #[inline]
    fn by_flow(&self, frame: &Outgoing<'_>) -> Option<Place> {
        let is_group = frame.header.first()? & 1 != 0;
        if is_group {
            return None;
        }
        let parsed = parse(frame.header, frame.len as usize)?;
        let flow = self.state.flowlets.flow(frame.header, &parsed)?;
        self.state.flowlets.member(flow, self.alive, self.now)
    }
}
