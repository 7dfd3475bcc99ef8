//! Locates limits of directions that fail without a router's report, by comparing them with those
//! that do not fail.

use super::Observation;
use crate::plan::Direction;
use std::collections::{BTreeMap, BTreeSet};

/// A limit and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) place: Place,
    /// The largest packet that passes.
    pub(super) carried: u16,
    /// Whether it limits both directions.
    pub(super) both: bool,
    /// Whether packets were reported as too big.
    pub(super) told: bool,
    /// The directions that it limits.
    pub(super) pairs: Vec<Direction>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The switch port of a host, toward it, from it, or both.
    Port { host: usize, toward: bool, from: bool },
    /// A link between some hosts and others.
    Link { from: BTreeSet<usize>, to: BTreeSet<usize> },
}

impl Place {
    pub(super) fn hosts(&self) -> BTreeSet<usize> {
        match self {
            Place::Port { host, .. } => BTreeSet::from([*host]),
            Place::Link { from, to } => from | to,
        }
    }
}

/// Locates the limits of the remaining failures, by the size that still passes.
pub(super) fn locate(all: &[Observation], fails: &[&Observation]) -> Vec<Located> {
    let mut by_carried: BTreeMap<u16, Vec<&Observation>> = BTreeMap::new();
    fails.iter().for_each(|it| by_carried.entry(it.carried).or_default().push(it));
    let places = by_carried.into_iter().flat_map(|(carried, group)| {
        let group = Group { all, carried, open: group };
        group.places()
    });
    merge_directions(places.collect())
}

/// Directions that carry the same largest size.
struct Group<'g> {
    all: &'g [Observation],
    carried: u16,
    open: Vec<&'g Observation>,
}

/// One end of a direction.
type End = fn(&Observation) -> usize;

impl<'g> Group<'g> {
    fn places(mut self) -> Vec<Located> {
        if !self.is_of_one_host()
            && let Some(link) = self.link()
        {
            return vec![link];
        }
        let mut places = Vec::new();
        while let Some(port) = self.port() {
            places.push(port);
        }
        places.extend(self.rest());
        places
    }

    /// Whether the ports of one host explain the whole group.
    fn is_of_one_host(&self) -> bool {
        let Some(first) = self.open.first() else { return false };
        [first.from, first.to].into_iter().any(|host| {
            self.open.iter().all(|it| {
                it.to == host && self.limits(host, |it| it.to)
                    || it.from == host && self.limits(host, |it| it.from)
            })
        })
    }

    /// Whether a host has several directions at this end, and all of them carry no more than this
    /// group's.
    fn limits(&self, host: usize, end: End) -> bool {
        let mut own = self.all.iter().filter(|it| end(it) == host).peekable();
        let several = own.clone().nth(1).is_some();
        several && own.all(|it| it.carried <= self.carried)
    }

    /// Returns the link that all directions of the group cross and no other direction does, in one
    /// direction or in both.
    fn link(&self) -> Option<Located> {
        let ends = |end: End| self.open.iter().map(|it| end(it)).collect::<BTreeSet<_>>();
        let (mut from, mut to) = (ends(|it| it.from), ends(|it| it.to));
        let both = !from.is_disjoint(&to);
        if both {
            from = self.reached_from(*from.first()?);
            to = &ends(|it| it.to) - &from;
        }
        if from.len() + to.len() < 3 {
            return None;
        }
        let crosses = |it: &Observation, one: &BTreeSet<usize>, other: &BTreeSet<usize>| {
            one.contains(&it.from) && other.contains(&it.to)
        };
        let is_crossing =
            |it: &Observation| crosses(it, &from, &to) || both && crosses(it, &to, &from);
        let all_cross = self.open.iter().all(|it| is_crossing(it));
        let no_other =
            self.all.iter().filter(|it| is_crossing(it)).all(|it| it.carried <= self.carried);
        let (place, pairs) = (Place::Link { from, to }, pairs(self.open.iter()));
        let told = self.open.iter().all(|it| it.told.is_some());
        (all_cross && no_other).then_some(Located {
            place,
            carried: self.carried,
            both,
            told,
            pairs,
        })
    }

    /// Returns the hosts that a host can reach with larger packets, also over other hosts.
    fn reached_from(&self, host: usize) -> BTreeSet<usize> {
        let (mut reached, mut next) = (BTreeSet::from([host]), vec![host]);
        while let Some(from) = next.pop() {
            let further = self.all.iter().filter(|it| it.from == from && it.carried > self.carried);
            next.extend(further.map(|it| it.to).filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// Returns the port that explains most of the remaining directions, and at least two, and
    /// removes these.
    fn port(&mut self) -> Option<Located> {
        let ends: [End; 2] = [|it| it.to, |it| it.from];
        let ports = ends.into_iter().enumerate().flat_map(|(place, end)| {
            let hosts: BTreeSet<usize> = self.open.iter().map(|it| end(it)).collect();
            hosts.into_iter().map(move |host| (place, end, host))
        });
        let of = |end: End, host: usize| self.open.iter().filter(move |it| end(it) == host);
        let limiting = ports.filter(|(_, end, host)| self.limits(*host, *end));
        let (place, end, host) =
            limiting.max_by_key(|(place, end, host)| (of(*end, *host).count(), 1 - place))?;
        let pairs = pairs(of(end, host));
        if pairs.len() < 2 {
            return None;
        }
        let told = of(end, host).all(|it| it.told.is_some());
        self.open.retain(|it| end(it) != host);
        let place = Place::Port { host, toward: place == 0, from: place == 1 };
        Some(Located { place, carried: self.carried, both: false, told, pairs })
    }

    /// Returns the remaining limits: senders with the same receivers make one link.
    fn rest(&self) -> Vec<Located> {
        let mut receivers: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for it in &self.open {
            receivers.entry(it.from).or_default().insert(it.to);
        }
        let mut links: BTreeMap<BTreeSet<usize>, BTreeSet<usize>> = BTreeMap::new();
        for (from, to) in receivers {
            links.entry(to).or_default().insert(from);
        }
        let located = |(to, from): (BTreeSet<usize>, BTreeSet<usize>)| {
            let own =
                || self.open.iter().filter(|it| from.contains(&it.from) && to.contains(&it.to));
            let (pairs, told) = (pairs(own()), own().all(|it| it.told.is_some()));
            let place = Place::Link { from: from.clone(), to };
            Located { place, carried: self.carried, both: false, told, pairs }
        };
        links.into_iter().map(located).collect()
    }
}

fn pairs<'o>(of: impl Iterator<Item = &'o &'o Observation>) -> Vec<Direction> {
    of.map(|it| (it.from, it.to)).collect()
}

/// Bytes that a device may take beyond its MTU in one direction only: a veth has room for a tag.
const TAG: u16 = 4;

/// Merges two findings about the two directions of one port or link.
fn merge_directions(places: Vec<Located>) -> Vec<Located> {
    let mut merged: Vec<Located> = Vec::new();
    for it in places {
        let twin = merged.iter_mut().find(|other| {
            let alike = other.carried.abs_diff(it.carried) <= TAG;
            alike && !other.both && is_reverse(&other.place, &it.place)
        });
        match twin {
            Some(twin) => {
                if let Place::Port { toward, from, .. } = &mut twin.place {
                    (*toward, *from) = (true, true);
                }
                twin.both = true;
                twin.carried = twin.carried.min(it.carried);
                twin.told &= it.told;
                twin.pairs.extend(it.pairs);
            }
            None => merged.push(it),
        }
    }
    merged
}

fn is_reverse(one: &Place, other: &Place) -> bool {
    match (one, other) {
        (Place::Port { host, toward, .. }, Place::Port { host: same, toward: opposite, .. }) => {
            host == same && toward != opposite
        }
        (Place::Link { from, to }, Place::Link { from: their, to: others }) => {
            from == others && to == their
        }
        _ => false,
    }
}
