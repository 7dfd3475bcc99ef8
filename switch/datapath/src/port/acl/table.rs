//! Compiled rules: a table per field, from ranges of its values to the set of rules they satisfy.

use crate::counters::Counter;
use crate::settings::acl::{AclAction, AclEnd, AclProtocol, AclRule};
use crossbeam_utils::CachePadded;
use std::net::IpAddr;
use std::ops::{Shr, Sub};
use std::sync::Arc;
use wire::ethernet::EthernetHeader;
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::upper::{self, Upper};
use wire::{Header, Parsed, Traits, tcp, udp};

/// Frames a rule matched, a counter for each worker.
pub(super) type Hits = Arc<[CachePadded<Counter>]>;

/// Rules as bits, the first rule lowest.
pub(super) type Set = [u64; 4];

/// The most rules.
pub(super) const RULES: usize = 64 * size_of::<Set>() / 8;

/// A frame's kind is one number, family (0: IPv4, 1: IPv6) times this plus the protocol, so that a
/// rule asks for ranges of it.
const FAMILY: u32 = 1 << 8;
/// The kinds of frames that are not IP.
const OTHER: u32 = 2 * FAMILY;
const ARP: u32 = OTHER + 1;
/// The kind of frames that cannot be read.
const HIDDEN: u32 = OTHER + 2;

/// Stands for the ports of a frame that shows none.
const NO_PORT: u32 = 1 << 16;

/// The rules by each field; `None` for a field that no rule asks about.
pub(super) struct Tables {
    kinds: Option<Table<u32>>,
    ports: [Option<Table<u32>>; 2],
    v4: [Option<Table<u32>>; 2],
    v6: [Option<Table<u128>>; 2],
    macs: [Option<Table<u64>>; 2],
    /// All rules.
    all: Set,
}

impl Tables {
    pub(super) fn of(rules: &[(AclRule, Hits)]) -> Tables {
        let ends: [fn(&AclRule) -> &AclEnd; 2] = [|rule| &rule.from, |rule| &rule.to];
        let macs = ends.map(|end| {
            Table::of(rules, |rule| match end(rule).mac {
                Some(mac) => vec![(mac.to_u64(), mac.to_u64())],
                None => vec![(0, u64::MAX)],
            })
        });
        let v4_bits = |address| match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        };
        let v6_bits = |address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits()),
        };
        let v4 = ends.map(|end| Table::of(rules, |rule| addresses(end(rule), u32::MAX, v4_bits)));
        let v6 = ends.map(|end| Table::of(rules, |rule| addresses(end(rule), u128::MAX, v6_bits)));
        let ports = ends.map(|end| Table::of(rules, |rule| port_ranges(rule, end(rule))));
        Tables { kinds: Table::of(rules, kinds), ports, v4, v6, macs, all: set_of(0..rules.len()) }
    }

    /// Returns the lowest rule that all of a frame's fields satisfy.
    #[inline]
    pub(super) fn first_match(&self, headers: &[u8], parsed: &Parsed) -> Option<u16> {
        let (kind, ports) = match Upper::of(headers, parsed) {
            Upper::Other => (OTHER, None),
            Upper::Arp => (ARP, None),
            Upper::Hidden => (HIDDEN, None),
            Upper::Ip(protocol, l4) => {
                let family = if parsed.traits.contains(Traits::IPV4) { 0 } else { 1 };
                let ports = l4.and_then(|l4| upper::ports(headers, protocol, l4));
                (family * FAMILY + u32::from(protocol), ports)
            }
        };
        let (from, to) = ports.map_or((NO_PORT, NO_PORT), |(from, to)| (from.into(), to.into()));
        let mut found = self.all;
        keep(&self.kinds, &mut found, || kind);
        keep(&self.ports[0], &mut found, || from);
        keep(&self.ports[1], &mut found, || to);
        // Rules that ask for IP addresses match only IP, by the frame's kind.
        if kind / FAMILY == 0
            && let Some(ip) = Ipv4Header::at(headers, parsed.l3)
        {
            keep(&self.v4[0], &mut found, || u32::from_be_bytes(ip.source));
            keep(&self.v4[1], &mut found, || u32::from_be_bytes(ip.destination));
        } else if kind / FAMILY == 1
            && let Some(ip) = Ipv6Header::at(headers, parsed.l3)
        {
            keep(&self.v6[0], &mut found, || u128::from_be_bytes(ip.source));
            keep(&self.v6[1], &mut found, || u128::from_be_bytes(ip.destination));
        }
        if let Some(ethernet) = EthernetHeader::at(headers, 0) {
            keep(&self.macs[0], &mut found, || ethernet.source.to_u64());
            keep(&self.macs[1], &mut found, || ethernet.destination.to_u64());
        }
        let (place, word) = found.iter().enumerate().find(|(_, word)| **word != 0)?;
        u16::try_from(place * 64 + word.trailing_zeros() as usize).ok()
    }
}

/// Keeps the rules that a field's value satisfies.
#[inline(always)]
fn keep<Value: Word>(table: &Option<Table<Value>>, found: &mut Set, value: impl Fn() -> Value) {
    if let Some(rules) = table.as_ref().and_then(|table| table.rules_of(value())) {
        found.iter_mut().zip(rules).for_each(|(word, set)| *word &= set);
    }
}

fn set_of(rules: impl Iterator<Item = usize>) -> Set {
    let mut set = Set::default();
    for rule in rules {
        if let Some(word) = set.get_mut(rule / 64) {
            *word |= 1 << (rule % 64);
        }
    }
    set
}

/// Returns the kinds of frames that a rule matches.
fn kinds(rule: &AclRule) -> Vec<(u32, u32)> {
    let ends = [&rule.from, &rule.to];
    let ported = ends.iter().any(|end| end.ports.is_some());
    let protocols = match rule.protocol {
        AclProtocol::Any if !ported && ends.iter().all(|end| end.prefix.is_none()) => {
            return vec![(0, u32::MAX)];
        }
        AclProtocol::Ip(number) => vec![(number, number)],
        _ if ported => [tcp::PROTOCOL, udp::PROTOCOL].map(|number| (number, number)).to_vec(),
        _ => vec![(0, u8::MAX)],
    };
    let fits = |is_v4: bool| match rule.protocol {
        AclProtocol::Arp => false,
        AclProtocol::Ipv4 if !is_v4 => false,
        AclProtocol::Ipv6 if is_v4 => false,
        _ => ends.iter().all(|end| end.prefix.is_none_or(|own| own.first.is_ipv4() == is_v4)),
    };
    let hidden = (rule.action == AclAction::Deny).then_some((HIDDEN, HIDDEN));
    let arp = (rule.protocol == AclProtocol::Arp).then_some((ARP, ARP));
    let of_ip = [0, 1].into_iter().filter(|family| fits(*family == 0)).flat_map(|family| {
        let kind = move |protocol: u8| family * FAMILY + u32::from(protocol);
        protocols.iter().map(move |(first, last)| (kind(*first), kind(*last)))
    });
    hidden.into_iter().chain(arp).chain(of_ip).collect()
}

/// Returns the addresses that a rule matches at one end, in the family that `bits` reads; `most` is
/// the family's highest.
fn addresses<Value: Word>(
    end: &AclEnd,
    most: Value,
    bits: fn(IpAddr) -> Option<Value>,
) -> Vec<(Value, Value)> {
    let Some(prefix) = end.prefix else { return vec![(Value::default(), most)] };
    bits(prefix.first).zip(bits(prefix.last)).into_iter().collect()
}

/// Returns the ports that a rule matches at one end. A rule that denies also matches a frame that
/// shows no ports.
fn port_ranges(rule: &AclRule, end: &AclEnd) -> Vec<(u32, u32)> {
    let Some(ports) = &end.ports else { return vec![(0, u32::MAX)] };
    let none = (rule.action == AclAction::Deny).then_some((NO_PORT, NO_PORT));
    [(u32::from(*ports.start()), u32::from(*ports.end()))].into_iter().chain(none).collect()
}

/// An unsigned number that a field is read as.
trait Word:
    Copy
    + Default
    + Ord
    + Into<u128>
    + TryFrom<u128>
    + TryInto<usize>
    + Sub<Output = Self>
    + Shr<u32, Output = Self>
{
}

impl Word for u32 {}
impl Word for u64 {}
impl Word for u128 {}

/// For each range of a field's values, between one bound and the next, the rules it satisfies.
///
/// The values from the second bound on are cut into buckets of one size. A value's bucket says in
/// which ranges it may lie: mostly one or two, and only where many ranges are close together a
/// search among more.
struct Table<Value> {
    /// The first value of each range, and the rules that its values satisfy; in order, from 0 on.
    ranges: Vec<(Value, Set)>,
    /// The second range's first value: where the buckets start.
    start: Value,
    /// Log of a bucket's size.
    shift: u32,
    /// The ranges in which each bucket starts and ends.
    buckets: Box<[[u16; 2]; BUCKETS]>,
}

/// The number of buckets. IP has as many kinds of frames, so each kind has a bucket of its own.
const BUCKETS: usize = 512;

impl<Value: Word> Table<Value> {
    /// Makes the table of one field; `None` if every rule takes all values.
    fn of(
        rules: &[(AclRule, Hits)],
        ranges: impl Fn(&AclRule) -> Vec<(Value, Value)>,
    ) -> Option<Table<Value>> {
        Table::of_ranges(&rules.iter().map(|(rule, _)| ranges(rule)).collect::<Vec<_>>())
    }

    /// Makes the table from the ranges, first and last value, that each rule takes.
    fn of_ranges(taken: &[Vec<(Value, Value)>]) -> Option<Table<Value>> {
        let behind = |last: Value| last.into().checked_add(1)?.try_into().ok();
        let edges = taken.iter().flatten().flat_map(|range| [Some(range.0), behind(range.1)]);
        let mut bounds: Vec<_> = edges.chain([0.try_into().ok()]).flatten().collect();
        bounds.sort_unstable();
        bounds.dedup();
        let takes = |rule: &usize, value: &Value| {
            let mut ranges = taken.get(*rule).into_iter().flatten();
            ranges.any(|(first, last)| (first..=last).contains(&value))
        };
        let set = |value: Value| set_of((0..taken.len()).filter(|rule| takes(rule, &value)));
        let ranges: Vec<_> = bounds.into_iter().map(|first| (first, set(first))).collect();
        let all = set_of(0..taken.len());
        (ranges.iter().any(|(_, set)| *set != all)).then(|| Table::with_buckets(ranges))
    }

    #[allow(clippy::cast_possible_truncation, reason = "256 rules have no 2^16 ranges")]
    fn with_buckets(ranges: Vec<(Value, Set)>) -> Table<Value> {
        let last = ranges.len() - 1;
        let start = ranges[last.min(1)].0;
        let span: u128 = (ranges[last].0 - start).into();
        let shift = (128 - span.leading_zeros()).saturating_sub(BUCKETS.ilog2());
        let range_of =
            |value: u128| (ranges.partition_point(|range| range.0.into() <= value) - 1) as u16;
        let mut buckets = Box::new([[0; 2]; BUCKETS]);
        for (bucket, ends) in buckets.iter_mut().enumerate() {
            let first = start.into().saturating_add((bucket as u128) << shift);
            *ends = [first, first.saturating_add((1 << shift) - 1)].map(range_of);
        }
        Table { ranges, start, shift, buckets }
    }

    /// Returns the rules that a value satisfies.
    #[inline(always)]
    fn rules_of(&self, value: Value) -> Option<&Set> {
        let mut range = 0;
        if value >= self.start {
            let bucket = ((value - self.start) >> self.shift).try_into().unwrap_or(usize::MAX);
            let [first, last] = self.buckets[bucket.min(BUCKETS - 1)].map(usize::from);
            range = first;
            if first != last {
                let further = self.ranges.get(first + 1..=last).unwrap_or_default();
                range += further.partition_point(|(first, _)| *first <= value);
            }
        }
        self.ranges.get(range).map(|(_, rules)| rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Far apart, close together, and at the ends.
    fn a_value() -> impl Strategy<Value = u32> {
        let near = (0..4u32, 0..40u32).prop_map(|(net, host)| net << 28 | host);
        prop_oneof![near, any::<u32>(), Just(0), Just(u32::MAX)]
    }

    proptest! {
        #[test]
        fn a_value_has_the_rules_whose_ranges_hold_it(
            taken in vec(vec((a_value(), a_value()), 0..4), 1..100),
            values in vec(a_value(), 1..50),
        ) {
            let in_order = |(one, two): &(u32, u32)| (*one.min(two), *one.max(two));
            let taken: Vec<Vec<_>> =
                taken.iter().map(|ranges| ranges.iter().map(in_order).collect()).collect();
            let Some(table) = Table::of_ranges(&taken) else { return Ok(()) };
            let edges = taken.iter().flatten().flat_map(|range| [range.0, range.1]);
            for value in values.into_iter().chain(edges) {
                let holds = |rule: &usize| {
                    taken[*rule].iter().any(|(first, last)| (first..=last).contains(&&value))
                };
                let expected = set_of((0..taken.len()).filter(holds));
                prop_assert_eq!(table.rules_of(value), Some(&expected), "{}", value);
            }
        }
    }

    #[test]
    fn rules_that_take_all_values_need_no_table() {
        assert!(Table::<u128>::of_ranges(&[vec![(0, u128::MAX)], vec![(0, u128::MAX)]]).is_none());
        let table = Table::of_ranges(&[vec![(0, u128::MAX)], vec![(1, 1)]]).unwrap();
        assert_eq!(table.rules_of(u128::MAX), Some(&set_of([0].into_iter())));
        assert_eq!(table.rules_of(1), Some(&set_of(0..2)));
    }
}
