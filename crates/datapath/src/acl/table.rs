//! Rules compiled: a table for each field, from ranges of its values to the set of rules they satisfy.

use super::{AclAction, AclEnd, AclProtocol, AclRule};
use crate::Prefix;
use std::net::IpAddr;
use std::ops::{Shr, Sub};
use wire::ethernet::EthernetHeader;
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::upper::{self, Upper};
use wire::{Header, Parsed, Traits, tcp, udp};

/// Rules as bits, the first rule lowest.
pub(super) type Set = [u64; 4];

/// Most rules.
pub(super) const RULES: usize = 64 * size_of::<Set>() / 8;

/// What a frame is as one number, so that what rules ask for are ranges of it: family (1: IPv4, 2: IPv6) and protocol.
const FAMILY: u32 = 1 << 8;
/// The numbers of what is not IP.
const OTHER: u32 = 0;
const ARP: u32 = 1;
/// What cannot be read.
const HIDDEN: u32 = 2;

/// Stands for the ports of a frame that shows none.
const NO_PORT: u32 = 1 << 16;

/// The fields of a frame that rules ask about; pairs are of source and destination.
pub(super) struct Fields<'h> {
    ethernet: Option<&'h EthernetHeader>,
    kind: u32,
    addresses: Addresses<'h>,
    /// [`NO_PORT`] where the frame shows none.
    ports: [u32; 2],
}

enum Addresses<'h> {
    /// Without IP no rule asks for any.
    None,
    V4(&'h Ipv4Header),
    V6(&'h Ipv6Header),
}

impl<'h> Fields<'h> {
    #[inline]
    pub(super) fn read(headers: &'h [u8], parsed: &Parsed) -> Fields<'h> {
        let without_ip = |kind| (kind, [NO_PORT; 2], Addresses::None);
        let (kind, ports, addresses) = match Upper::of(headers, parsed) {
            Upper::Other => without_ip(OTHER),
            Upper::Arp => without_ip(ARP),
            Upper::Hidden => without_ip(HIDDEN),
            Upper::Ip(protocol, l4) => {
                let ports = l4.and_then(|l4| upper::ports(headers, protocol, l4));
                let ports = ports.map_or([NO_PORT; 2], |(from, to)| [from.into(), to.into()]);
                let (family, addresses) = addresses(headers, parsed);
                (family * FAMILY + u32::from(protocol), ports, addresses)
            }
        };
        Fields { ethernet: EthernetHeader::at(headers, 0), kind, addresses, ports }
    }
}

/// Number of the family, and the header that the parser has seen.
#[inline]
fn addresses<'h>(headers: &'h [u8], parsed: &Parsed) -> (u32, Addresses<'h>) {
    if parsed.traits.contains(Traits::IPV4) {
        (1, Ipv4Header::at(headers, parsed.l3).map_or(Addresses::None, Addresses::V4))
    } else {
        (2, Ipv6Header::at(headers, parsed.l3).map_or(Addresses::None, Addresses::V6))
    }
}

/// The rules by each field. `None`: no rule asks about it.
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
    pub(super) fn of(rules: &[AclRule]) -> Tables {
        let ends: [fn(&AclRule) -> &AclEnd; 2] = [|rule| &rule.from, |rule| &rule.to];
        let macs = ends.map(|end| {
            Table::of(rules, |rule| match end(rule).mac {
                Some(mac) => vec![(mac.to_u64(), mac.to_u64())],
                None => vec![(0, u64::MAX)],
            })
        });
        let v4 = ends.map(|end| {
            Table::of(rules, |rule| match end(rule).prefix {
                None => vec![(0, u32::MAX)],
                Some(Prefix { first: IpAddr::V4(first), last: IpAddr::V4(last) }) => {
                    vec![(first.to_bits(), last.to_bits())]
                }
                Some(_) => vec![],
            })
        });
        let v6 = ends.map(|end| {
            Table::of(rules, |rule| match end(rule).prefix {
                None => vec![(0, u128::MAX)],
                Some(Prefix { first: IpAddr::V6(first), last: IpAddr::V6(last) }) => {
                    vec![(first.to_bits(), last.to_bits())]
                }
                Some(_) => vec![],
            })
        });
        let ports = ends.map(|end| Table::of(rules, |rule| port_ranges(rule, end(rule))));
        Tables { kinds: Table::of(rules, kinds), ports, v4, v6, macs, all: set_of(0..rules.len()) }
    }

    /// The lowest rule that all fields satisfy.
    #[inline]
    pub(super) fn first_match(&self, fields: &Fields<'_>) -> Option<u16> {
        let mut found = self.all;
        keep(&self.kinds, &mut found, || fields.kind);
        keep(&self.ports[0], &mut found, || fields.ports[0]);
        keep(&self.ports[1], &mut found, || fields.ports[1]);
        match fields.addresses {
            Addresses::None => {}
            Addresses::V4(ip) => {
                keep(&self.v4[0], &mut found, || u32::from_be_bytes(ip.source));
                keep(&self.v4[1], &mut found, || u32::from_be_bytes(ip.destination));
            }
            Addresses::V6(ip) => {
                keep(&self.v6[0], &mut found, || u128::from_be_bytes(ip.source));
                keep(&self.v6[1], &mut found, || u128::from_be_bytes(ip.destination));
            }
        }
        if let Some(ethernet) = fields.ethernet {
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
    let Some(table) = table else { return };
    found.iter_mut().zip(table.rules_of(value())).for_each(|(word, set)| *word &= set);
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

/// Kinds of frames that a rule takes.
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
    let of_ip = [1, 2].into_iter().filter(|family| fits(*family == 1)).flat_map(|family| {
        let kind = move |protocol: u8| family * FAMILY + u32::from(protocol);
        protocols.iter().map(move |(first, last)| (kind(*first), kind(*last)))
    });
    hidden.into_iter().chain(arp).chain(of_ip).collect()
}

/// Ports that a rule takes at one end; where it denies, also that the frame shows none.
fn port_ranges(rule: &AclRule, end: &AclEnd) -> Vec<(u32, u32)> {
    let Some(ports) = &end.ports else { return vec![(0, u32::MAX)] };
    let none = (rule.action == AclAction::Deny).then_some((NO_PORT, NO_PORT));
    [(u32::from(*ports.start()), u32::from(*ports.end()))].into_iter().chain(none).collect()
}

/// A number that fields are.
trait Word:
    Copy + Ord + Into<u128> + TryFrom<u128> + TryInto<u8> + Sub<Output = Self> + Shr<u32, Output = Self>
{
}

impl Word for u32 {}
impl Word for u64 {}
impl Word for u128 {}

/// For each range of a field's values, between one bound and the next, the rules it satisfies.
///
/// The values from the second bound on are cut into buckets of one size. A value's bucket says in which ranges it may lie:
/// mostly one or two, and only where many bounds are close together a search among more.
struct Table<Value> {
    /// In order; the first is 0.
    bounds: Vec<Value>,
    /// As many.
    sets: Vec<Set>,
    /// The second bound: where the buckets start.
    start: Value,
    /// Log of a bucket's size.
    shift: u32,
    /// The range in which each bucket starts; behind them, the last range.
    buckets: Box<[u16; BUCKETS + 1]>,
}

const BUCKETS: usize = 256;

impl<Value: Word> Table<Value> {
    /// `None`: every rule takes all values.
    fn of(
        rules: &[AclRule],
        ranges: impl Fn(&AclRule) -> Vec<(Value, Value)>,
    ) -> Option<Table<Value>> {
        Table::of_ranges(&rules.iter().map(ranges).collect::<Vec<_>>())
    }

    /// `taken`: for each rule the ranges of values it takes, first and last.
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
        let set = |value: &Value| set_of((0..taken.len()).filter(|rule| takes(rule, value)));
        let sets: Vec<_> = bounds.iter().map(set).collect();
        if sets == [set_of(0..taken.len())] {
            return None;
        }
        Some(Table::with_buckets(bounds, sets))
    }

    #[allow(clippy::cast_possible_truncation, reason = "256 rules have no 2^16 ranges")]
    fn with_buckets(bounds: Vec<Value>, sets: Vec<Set>) -> Table<Value> {
        let last = bounds.len() - 1;
        let start = bounds[last.min(1)];
        let span: u128 = (bounds[last] - start).into();
        let shift = (128 - span.leading_zeros()).saturating_sub(BUCKETS.ilog2());
        let range_of = |value: u128| bounds.partition_point(|bound| (*bound).into() <= value) - 1;
        let mut buckets = Box::new([last as u16; BUCKETS + 1]);
        for (bucket, range) in buckets.iter_mut().take(BUCKETS).enumerate() {
            *range = range_of(start.into().saturating_add((bucket as u128) << shift)) as u16;
        }
        Table { bounds, sets, start, shift, buckets }
    }

    /// The rules that a value satisfies.
    #[inline(always)]
    fn rules_of(&self, value: Value) -> &Set {
        let mut range = 0;
        if value >= self.start {
            let bucket: u8 = ((value - self.start) >> self.shift).try_into().unwrap_or(u8::MAX);
            let [first, last] = [0, 1].map(|next| self.buckets[usize::from(bucket) + next]);
            range = usize::from(first);
            let further = self.bounds.get(range + 1..=last.into()).unwrap_or_default();
            range += match further {
                [] => 0,
                [bound] => usize::from(*bound <= value),
                _ => further.partition_point(|bound| *bound <= value),
            };
        }
        self.sets.get(range).unwrap_or(&[0; 4])
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
                prop_assert_eq!(*table.rules_of(value), expected, "{}", value);
            }
        }
    }

    #[test]
    fn rules_that_take_all_values_need_no_table() {
        assert!(Table::<u128>::of_ranges(&[vec![(0, u128::MAX)], vec![(0, u128::MAX)]]).is_none());
        let table = Table::of_ranges(&[vec![(0, u128::MAX)], vec![(1, 1)]]).unwrap();
        assert_eq!(*table.rules_of(u128::MAX), set_of([0].into_iter()));
        assert_eq!(*table.rules_of(1), set_of(0..2));
    }
}
