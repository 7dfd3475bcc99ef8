//! Rules compiled: a table for each field, from ranges of its values to the set of rules they satisfy.

use super::{AclAction, AclEnd, AclProtocol, AclRule};
use crate::Prefix;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use wire::upper::{self, Upper};
use wire::{Mac, Parsed, Traits, tcp, udp};

/// Rules as bits, the first rule lowest.
pub(super) type Set = [u64; 4];

/// The set of the rules for which `is_in` says so.
pub(super) fn set(is_in: impl Iterator<Item = bool>) -> Set {
    let mut set = Set::default();
    for (rule, _) in is_in.enumerate().filter(|(_, is_in)| *is_in) {
        if let Some(word) = set.get_mut(rule / 64) {
            *word |= 1 << (rule % 64);
        }
    }
    set
}

pub(super) fn contains(set: &Set, rule: u16) -> bool {
    set.get(usize::from(rule / 64)).is_some_and(|word| word >> (rule % 64) & 1 != 0)
}

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

/// The fields of a frame that rules ask about.
pub(super) struct Fields {
    /// Ethernet addresses, source and destination.
    macs: [u64; 2],
    /// IP addresses, source and destination, IPv4's mapped into IPv6's; 0 without IP, and then no rule asks.
    addresses: [u128; 2],
    /// Protocol and destination port.
    service: u32,
    /// Source port, or [`NO_PORT`].
    source_port: u32,
}

impl Fields {
    pub(super) fn read(headers: &[u8], parsed: &Parsed) -> Fields {
        let mac = |at| Mac(read(headers, at).unwrap_or_default()).to_u64();
        let macs = [mac(6), mac(0)];
        let (service, source_port, addresses) = match Upper::of(headers, parsed) {
            Upper::Other => (OTHER, NO_PORT, None),
            Upper::Arp => (ARP, NO_PORT, None),
            Upper::Hidden => (HIDDEN, NO_PORT, None),
            Upper::Ip(protocol, l4) => {
                let ports = l4.and_then(|l4| upper::ports(headers, protocol, l4));
                let (from, to) =
                    ports.map_or((NO_PORT, NO_PORT), |(from, to)| (from.into(), to.into()));
                let (family, addresses) = addresses(headers, parsed);
                (family * FAMILY + u32::from(protocol) * PROTOCOL + to, from, addresses)
            }
        };
        Fields { macs, addresses: addresses.unwrap_or_default(), service, source_port }
    }
}

fn read<const N: usize>(headers: &[u8], at: usize) -> Option<[u8; N]> {
    headers.get(at..)?.first_chunk().copied()
}

/// Number of the family, source and destination.
fn addresses(headers: &[u8], parsed: &Parsed) -> (u32, Option<[u128; 2]>) {
    let l3 = usize::from(parsed.l3);
    if parsed.traits.contains(Traits::IPV4) {
        let at = |at| read(headers, l3 + at).map(|bytes: [u8; 4]| bits(bytes.into()));
        (1, at(12).zip(at(16)).map(Into::into))
    } else {
        let at = |at| read(headers, l3 + at).map(u128::from_be_bytes);
        (2, at(8).zip(at(24)).map(Into::into))
    }
}

/// An address as IPv6.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The rules by each field.
pub(super) struct Tables {
    services: Table<u32>,
    addresses: [Table<u128>; 2],
    source_ports: Table<u32>,
    macs: [Table<u64>; 2],
}

impl Tables {
    pub(super) fn of(rules: &[&AclRule]) -> Tables {
        let mac = |end: fn(&AclRule) -> &AclEnd| {
            Table::of(rules, |rule| match end(rule).mac {
                Some(mac) => vec![(mac.to_u64(), mac.to_u64())],
                None => vec![(0, u64::MAX)],
            })
        };
        let address = |end: fn(&AclRule) -> &AclEnd| {
            Table::of(rules, |rule| match end(rule).prefix {
                Some(Prefix { first, last }) => vec![(bits(first), bits(last))],
                None => vec![(0, u128::MAX)],
            })
        };
        Tables {
            services: Table::of(rules, services),
            addresses: [address(|rule| &rule.from), address(|rule| &rule.to)],
            source_ports: Table::of(rules, source_ports),
            macs: [mac(|rule| &rule.from), mac(|rule| &rule.to)],
        }
    }

    /// The lowest rule that all fields satisfy.
    pub(super) fn first_match(&self, fields: &Fields) -> Option<u16> {
        let mut found = *self.services.at(fields.service);
        let [from, to] = &self.addresses;
        let [from_mac, to_mac] = &self.macs;
        if fields.service >= FAMILY {
            and(&mut found, from.at(fields.addresses[0]));
            and(&mut found, to.at(fields.addresses[1]));
        }
        and(&mut found, self.source_ports.at(fields.source_port));
        and(&mut found, from_mac.at(fields.macs[0]));
        and(&mut found, to_mac.at(fields.macs[1]));
        let (place, word) = found.iter().enumerate().find(|(_, word)| **word != 0)?;
        u16::try_from(place * 64 + word.trailing_zeros() as usize).ok()
    }
}

fn and(set: &mut Set, other: &Set) {
    set.iter_mut().zip(other).for_each(|(word, other)| *word &= other);
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
    fn of(rules: &[&AclRule], ranges: impl Fn(&AclRule) -> Vec<(Value, Value)>) -> Table<Value> {
        let taken: Vec<Vec<(Value, Value)>> = rules.iter().map(|rule| ranges(rule)).collect();
        let behind = |last: Value| last.into().checked_add(1)?.try_into().ok();
        let mut bounds: Vec<Value> = taken
            .iter()
            .flatten()
            .flat_map(|&(first, last)| [Some(first), behind(last)])
            .chain([0.try_into().ok()])
            .flatten()
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        let takes = |ranges: &Vec<(Value, Value)>, value| {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&value))
        };
        let sets = bounds.iter().map(|value| set(taken.iter().map(|ranges| takes(ranges, *value))));
        Table { sets: sets.collect(), bounds }
    }

    /// The rules that a value satisfies.
    #[inline]
    fn at(&self, value: Value) -> &Set {
        let place = self.bounds.partition_point(|bound| *bound <= value).saturating_sub(1);
        self.sets.get(place).unwrap_or(&[0; 4])
    }
}
