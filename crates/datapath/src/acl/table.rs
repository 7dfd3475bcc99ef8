//! Rules compiled: a table for each field, from ranges of its values to the set of rules they satisfy.

use super::{AclAction, AclEnd, AclProtocol, AclRule};
use crate::Prefix;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use wire::upper::{self, Upper};
use wire::{Mac, Parsed, Traits, tcp, udp};

/// Rules as bits, the first rule lowest.
pub(super) type Set = [u64; 4];

/// Most rules.
pub(super) const RULES: usize = 64 * size_of::<Set>() / 8;

/// A frame's protocol and destination port as one number, so that what rules ask for are ranges of it: family (1: IPv4,
/// 2: IPv6), protocol, and 17 bits of port, of which the highest says that there is none in the frame.
const FAMILY: u32 = 1 << 25;
const PROTOCOL: u32 = 1 << 17;
const NO_PORT: u32 = 1 << 16;
/// The numbers of what is not IP.
const OTHER: u32 = 0;
const ARP: u32 = 1;
/// What cannot be read.
const HIDDEN: u32 = 2;

/// The fields of a frame that rules ask about; pairs are of source and destination.
pub(super) struct Fields {
    macs: [u64; 2],
    addresses: Addresses,
    /// Protocol and destination port.
    service: u32,
    /// Source port, or [`NO_PORT`].
    source_port: u32,
}

enum Addresses {
    /// Without IP no rule asks for any.
    None,
    V4([u32; 2]),
    V6([u128; 2]),
}

impl Fields {
    pub(super) fn read(headers: &[u8], parsed: &Parsed) -> Fields {
        let mac = |at| Mac(read(headers, at).unwrap_or_default()).to_u64();
        let point = |service| (service, NO_PORT, Addresses::None);
        let (service, source_port, addresses) = match Upper::of(headers, parsed) {
            Upper::Other => point(OTHER),
            Upper::Arp => point(ARP),
            Upper::Hidden => point(HIDDEN),
            Upper::Ip(protocol, l4) => {
                let ports = l4.and_then(|l4| upper::ports(headers, protocol, l4));
                let (from, to) = ports.map_or((NO_PORT, NO_PORT), |(a, b)| (a.into(), b.into()));
                let (family, addresses) = addresses(headers, parsed);
                (family * FAMILY + u32::from(protocol) * PROTOCOL + to, from, addresses)
            }
        };
        Fields { macs: [mac(6), mac(0)], addresses, service, source_port }
    }
}

fn read<const N: usize>(headers: &[u8], at: usize) -> Option<[u8; N]> {
    headers.get(at..)?.first_chunk().copied()
}

/// Number of the family, source and destination; the parser has seen them.
fn addresses(headers: &[u8], parsed: &Parsed) -> (u32, Addresses) {
    let l3 = usize::from(parsed.l3);
    if parsed.traits.contains(Traits::IPV4) {
        let at = |at| u32::from_be_bytes(read(headers, l3 + at).unwrap_or_default());
        (1, Addresses::V4([at(12), at(16)]))
    } else {
        let at = |at| u128::from_be_bytes(read(headers, l3 + at).unwrap_or_default());
        (2, Addresses::V6([at(8), at(24)]))
    }
}

/// The rules by each field.
pub(super) struct Tables {
    services: Table<u32>,
    v4: [Table<u32>; 2],
    v6: [Table<u128>; 2],
    source_ports: Table<u32>,
    macs: [Table<u64>; 2],
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
        let (services, source_ports) = (Table::of(rules, services), Table::of(rules, source_ports));
        Tables { services, v4, v6, source_ports, macs }
    }

    /// The lowest rule that all fields satisfy.
    pub(super) fn first_match(&self, fields: &Fields) -> Option<u16> {
        let mut found = [u64::MAX; 4];
        self.services.keep(&mut found, fields.service);
        self.source_ports.keep(&mut found, fields.source_port);
        match fields.addresses {
            Addresses::None => {}
            Addresses::V4(pair) => keep_both(&self.v4, &mut found, pair),
            Addresses::V6(pair) => keep_both(&self.v6, &mut found, pair),
        }
        keep_both(&self.macs, &mut found, fields.macs);
        let (place, word) = found.iter().enumerate().find(|(_, word)| **word != 0)?;
        u16::try_from(place * 64 + word.trailing_zeros() as usize).ok()
    }
}

#[inline(always)]
fn keep_both<Value: Copy + Ord>(tables: &[Table<Value>; 2], found: &mut Set, pair: [Value; 2]) {
    tables.iter().zip(pair).for_each(|(table, value)| table.keep(found, value));
}

/// Protocols and destination ports that a rule takes.
fn services(rule: &AclRule) -> Vec<(u32, u32)> {
    let ends = [&rule.from, &rule.to];
    let ported = ends.iter().any(|end| end.ports.is_some());
    let denies = rule.action == AclAction::Deny;
    let transports = match rule.protocol {
        AclProtocol::Any if !ported && ends.iter().all(|end| end.prefix.is_none()) => {
            return vec![(0, u32::MAX)];
        }
        AclProtocol::Ip(number) => vec![number..=number],
        _ if ported => vec![tcp::PROTOCOL..=tcp::PROTOCOL, udp::PROTOCOL..=udp::PROTOCOL],
        _ => vec![0..=u8::MAX],
    };
    let fits = |is_v4: bool| match rule.protocol {
        AclProtocol::Arp => false,
        AclProtocol::Ipv4 if !is_v4 => false,
        AclProtocol::Ipv6 if is_v4 => false,
        _ => ends.iter().all(|end| end.prefix.is_none_or(|own| own.first.is_ipv4() == is_v4)),
    };
    let mut points = if denies { vec![HIDDEN] } else { vec![] };
    points.extend((rule.protocol == AclProtocol::Arp).then_some(ARP));
    let mut ranges: Vec<_> = points.into_iter().map(|point| (point, point)).collect();
    for family in [1, 2].into_iter().filter(|family| fits(*family == 1)) {
        for transport in &transports {
            let base = |protocol: &u8| family * FAMILY + u32::from(*protocol) * PROTOCOL;
            let (first, last) = (base(transport.start()), base(transport.end()));
            match &rule.to.ports {
                None => ranges.push((first, last + PROTOCOL - 1)),
                Some(ports) => {
                    ranges.extend(port_ranges(ports, denies).map(|(a, b)| (first + a, first + b)))
                }
            }
        }
    }
    ranges
}

/// The ports, and that none is known where the rule denies.
fn port_ranges(ports: &RangeInclusive<u16>, denies: bool) -> impl Iterator<Item = (u32, u32)> {
    let known = (u32::from(*ports.start()), u32::from(*ports.end()));
    [known].into_iter().chain(denies.then_some((NO_PORT, NO_PORT)))
}

fn source_ports(rule: &AclRule) -> Vec<(u32, u32)> {
    let Some(ports) = &rule.from.ports else { return vec![(0, u32::MAX)] };
    port_ranges(ports, rule.action == AclAction::Deny).collect()
}

/// For each range of a field's values, between one bound and the next, the rules it satisfies.
struct Table<Value> {
    /// In order; the first is 0.
    bounds: Vec<Value>,
    /// As many.
    sets: Vec<Set>,
}

impl<Value: Copy + Ord + Into<u128> + TryFrom<u128>> Table<Value> {
    /// `ranges`: the values a rule takes, first and last.
    fn of(rules: &[AclRule], ranges: impl Fn(&AclRule) -> Vec<(Value, Value)>) -> Table<Value> {
        let taken: Vec<Vec<(Value, Value)>> = rules.iter().map(ranges).collect();
        let behind = |last: Value| last.into().checked_add(1)?.try_into().ok();
        let edges = taken.iter().flatten().flat_map(|range| [Some(range.0), behind(range.1)]);
        let mut bounds: Vec<_> = edges.chain([0.try_into().ok()]).flatten().collect();
        bounds.sort_unstable();
        bounds.dedup();
        let set = |value: &Value| {
            let mut set = Set::default();
            for (rule, ranges) in taken.iter().enumerate() {
                if ranges.iter().any(|(first, last)| (first..=last).contains(&value))
                    && let Some(word) = set.get_mut(rule / 64)
                {
                    *word |= 1 << (rule % 64);
                }
            }
            set
        };
        Table { sets: bounds.iter().map(set).collect(), bounds }
    }
}

impl<Value: Copy + Ord> Table<Value> {
    /// Keeps the rules that a value satisfies.
    #[inline(always)]
    fn keep(&self, found: &mut Set, value: Value) {
        let place = self.bounds.partition_point(|bound| *bound <= value).saturating_sub(1);
        if let Some(set) = self.sets.get(place) {
            found.iter_mut().zip(set).for_each(|(word, set)| *word &= set);
        }
    }
}
