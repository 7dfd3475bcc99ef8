//! Which flows are in the kernel's maps: their places, whose they are, and what they carried.
//!
//! Places of removed flows rest before they are used again: a program may still hold one.

use super::FlowKey;
use std::collections::{HashMap, HashSet, VecDeque};

/// How long the place of a removed flow rests, in nanoseconds.
const REST: u64 = 1_000_000_000;

/// The flows that count against a port may be this many times what is free.
const SHARE: usize = 4;

/// The part of the table that flows from uplinks leave free: outsiders can flood many ports at once.
const KEPT: usize = 5;

/// Counts of carried traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames as they came: a train is one.
    pub frames: u64,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Frames that were trains.
    pub trains: u64,
    /// Segments of these trains.
    pub train_segments: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.trains += other.trains;
        self.train_segments += other.train_segments;
    }

    fn since(self, before: Tally) -> Tally {
        Tally {
            frames: self.frames.wrapping_sub(before.frames),
            bytes: self.bytes.wrapping_sub(before.bytes),
            trains: self.trains.wrapping_sub(before.trains),
            train_segments: self.train_segments.wrapping_sub(before.train_segments),
        }
    }
}

/// What was carried from and to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// From the port.
    pub ingress: Tally,
    /// To the port.
    pub egress: Tally,
}

/// A flow of the table.
#[derive(Clone, Copy, Debug)]
pub struct FlowReport {
    /// Its key.
    pub key: FlowKey,
    /// Its VLAN inside the switch.
    pub vlan: u16,
    /// The hooks it goes from and to, by number.
    pub from: u16,
    /// See `from`.
    pub to: u16,
    /// What it carried.
    pub tally: Tally,
    /// Nanoseconds since its last frame, or since it was offered.
    pub quiet: u64,
    /// Nanoseconds since it was offered.
    pub age: u64,
    /// Whether it is carried; else it is pending or over.
    pub is_carried: bool,
    /// Whether its decision holds.
    pub is_in_force: bool,
}

/// The hooks of a flow, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) from: u16,
    pub(super) to: u16,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: FlowKey,
    pub(super) ends: Ends,
    /// The hook in whose share it counts; another than the one it comes from if that is an uplink.
    payer: u16,
    pub(super) generations: [u32; 2],
    pub(super) vlan: u16,
    /// When it was offered.
    pub(super) since: u64,
    /// What was added to the ports' counts.
    tallied: Tally,
}

impl Entry {
    pub(super) fn new(
        key: FlowKey,
        ends: Ends,
        payer: u16,
        generations: [u32; 2],
        vlan: u16,
        since: u64,
    ) -> Entry {
        Entry { key, ends, payer, generations, vlan, since, tallied: Tally::default() }
    }
}

#[derive(Default)]
struct HookState {
    is_used: bool,
    /// The flows of its share.
    flows: usize,
    carried: Carried,
}

pub(super) struct Table {
    places: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Places that rest, and since when.
    resting: VecDeque<(u64, u32)>,
    by_key: HashMap<FlowKey, u32>,
    /// The flows from or to each station until they are [forgotten](Table::forget_station).
    by_station: HashMap<[u8; 6], HashSet<u32>>,
    hooks: Vec<HookState>,
    most_flows: usize,
    most_hooks: usize,
    /// Where the next look of a sweep begins.
    hand: usize,
}

impl Table {
    pub(super) fn new(most_flows: usize, most_hooks: usize) -> Table {
        Table {
            places: Vec::new(),
            free: Vec::new(),
            resting: VecDeque::new(),
            by_key: HashMap::new(),
            by_station: HashMap::new(),
            hooks: Vec::new(),
            most_flows,
            most_hooks,
            hand: 0,
        }
    }

    /// Returns the number of a new hook, unless all are in use.
    pub(super) fn add_hook(&mut self) -> Option<u16> {
        let free = self.hooks.iter().position(|hook| !hook.is_used);
        let number = free.unwrap_or(self.hooks.len());
        if number == self.hooks.len() {
            if number >= self.most_hooks {
                return None;
            }
            self.hooks.push(HookState::default());
        }
        let hook = self.hooks.get_mut(number)?;
        // Flows of the hook before it may still be there, under an earlier generation.
        *hook = HookState { is_used: true, flows: hook.flows, ..HookState::default() };
        u16::try_from(number).ok()
    }

    pub(super) fn remove_hook(&mut self, number: u16) {
        if let Some(hook) = self.hooks.get_mut(usize::from(number)) {
            hook.is_used = false;
        }
    }

    /// Adds a flow. Returns its place; `None` if it is there, or there is no room in its payer's share.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<u32> {
        let Entry { key, ends, payer, .. } = entry;
        if self.by_key.contains_key(&key) {
            return None;
        }
        let kept = if payer == ends.from { 0 } else { self.most_flows / KEPT };
        let free = (self.most_flows - self.len() - self.resting.len()).saturating_sub(kept);
        let hook = self.hooks.get_mut(usize::from(payer))?;
        if hook.flows >= free * SHARE {
            return None;
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.places.len()).ok()?;
                self.places.push(None);
                place
            }
        };
        *self.places.get_mut(place as usize)? = Some(entry);
        hook.flows += 1;
        self.by_key.insert(key, place);
        for station in key.stations() {
            self.by_station.entry(station).or_default().insert(place);
        }
        Some(place)
    }

    /// Removes a flow; its place rests.
    pub(super) fn remove(&mut self, place: u32, now: u64) {
        let Some(entry) = self.places.get_mut(place as usize).and_then(Option::take) else {
            return;
        };
        self.by_key.remove(&entry.key);
        for station in entry.key.stations() {
            if let Some(flows) = self.by_station.get_mut(&station) {
                flows.remove(&place);
                if flows.is_empty() {
                    self.by_station.remove(&station);
                }
            }
        }
        if let Some(hook) = self.hooks.get_mut(usize::from(entry.payer)) {
            hook.flows = hook.flows.saturating_sub(1);
        }
        self.resting.push_back((now, place));
    }

    /// Frees places that have rested.
    pub(super) fn free_old(&mut self, now: u64) {
        while let Some(&(since, place)) = self.resting.front()
            && now.saturating_sub(since) >= REST
        {
            self.resting.pop_front();
            self.free.push(place);
        }
    }

    /// Adds to the ports' counts what a flow has carried since the last time.
    pub(super) fn tally(&mut self, place: u32, tally: Tally) {
        let Some(entry) = self.places.get_mut(place as usize).and_then(Option::as_mut) else {
            return;
        };
        let new = tally.since(entry.tallied);
        entry.tallied = tally;
        let Ends { from, to } = entry.ends;
        if let Some(hook) = self.hooks.get_mut(usize::from(from)) {
            hook.carried.ingress.add(new);
        }
        if let Some(hook) = self.hooks.get_mut(usize::from(to)) {
            hook.carried.egress.add(new);
        }
    }

    /// Returns the next flow of a sweep. `None` at the table's end; then the next sweep begins at
    /// its start.
    pub(super) fn next(&mut self) -> Option<(u32, Entry)> {
        while let Some(place) = self.places.get(self.hand) {
            self.hand += 1;
            if let (Some(entry), Ok(number)) = (place, u32::try_from(self.hand - 1)) {
                return Some((number, *entry));
            }
        }
        self.hand = 0;
        None
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0..).zip(&self.places).filter_map(|(place, entry)| Some((place, entry.as_ref()?)))
    }

    pub(super) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    pub(super) fn get(&self, place: u32) -> Option<&Entry> {
        self.places.get(place as usize).and_then(Option::as_ref)
    }

    /// Returns the places of flows from or to a station, each once: the caller ends them.
    pub(super) fn forget_station(&mut self, mac: [u8; 6]) -> HashSet<u32> {
        self.by_station.remove(&mac).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn carried(&self, hook: u16) -> Carried {
        self.hooks.get(usize::from(hook)).map(|hook| hook.carried).unwrap_or_default()
    }
}
