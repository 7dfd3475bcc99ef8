//! Port ACLs: stateless rules, the first that matches decides, and what none matches passes.
//!
//! [`Acl::compile`] turns the rules of one direction into a table for each field they ask about ([`table`]): the field's
//! value gives the set of rules it satisfies, as bits in the order of the rules, and the lowest bit that all sets share is
//! the rule that decides. A worker remembers the decisions of the flows of its turn ([`Memory`]).
//!
//! Where a frame does not show what a rule asks for (ports in a fragment that is not the first, anything in a frame that
//! cannot be read), a rule that denies matches and one that allows does not.

mod table;

use crate::Prefix;
use crate::counters::Counter;
use crossbeam_utils::CachePadded;
use ports::capture::Direction;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::{Fields, Set, Tables};
use wire::{Kind, Mac, Parsed, Traits};

/// What happens to the frames of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclAction {
    /// They pass.
    Allow,
    /// They are dropped as `acl_denied`.
    Deny,
}

/// What a rule asks of the frame's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclProtocol {
    /// Nothing.
    Any,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6 with this transport.
    Ip(u8),
}

/// What a rule asks of a frame's source, or of its destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AclEnd {
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The IP address.
    pub prefix: Option<Prefix>,
    /// The port of TCP or UDP.
    pub ports: Option<RangeInclusive<u16>>,
}

/// One rule: everything it asks for must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclRule {
    /// What happens.
    pub action: AclAction,
    /// From the port into the switch, or out of the switch to the port.
    pub direction: Direction,
    /// The frame's kind.
    pub protocol: AclProtocol,
    /// Its source.
    pub from: AclEnd,
    /// Its destination.
    pub to: AclEnd,
}

/// Frames a rule matched, a counter for each worker.
type Hits = Arc<[CachePadded<Counter>]>;

/// The rules of one port and direction, as workers use them.
pub(crate) struct Acl {
    rules: Vec<(AclRule, Hits)>,
    denies: Set,
    tables: Tables,
}

impl Acl {
    /// Most rules of one direction of a port.
    pub(crate) const RULES: usize = 64 * size_of::<Set>() / 8;

    /// `None`: no rules. Rules that `old` has too go on counting.
    pub(crate) fn compile(
        settings: &[AclRule],
        direction: Direction,
        workers: usize,
        old: Option<&Acl>,
    ) -> Option<Acl> {
        let hits = |rule: &AclRule| {
            let known = old.and_then(|old| old.rules.iter().find(|(other, _)| other == rule));
            known.map_or_else(
                || (0..workers).map(|_| CachePadded::default()).collect(),
                |(_, hits)| hits.clone(),
            )
        };
        let rules: Vec<_> = settings
            .iter()
            .filter(|rule| rule.direction == direction)
            .take(Acl::RULES)
            .map(|rule| (rule.clone(), hits(rule)))
            .collect();
        let plain: Vec<&AclRule> = rules.iter().map(|(rule, _)| rule).collect();
        let denies = table::set(plain.iter().map(|rule| rule.action == AclAction::Deny));
        let tables = Tables::of(&plain);
        (!rules.is_empty()).then_some(Acl { tables, denies, rules })
    }

    /// Frames a rule matched, if it is one of these.
    pub(crate) fn hits(&self, rule: &AclRule) -> Option<u64> {
        let (_, hits) = self.rules.iter().find(|(other, _)| other == rule)?;
        Some(hits.iter().map(|counter| counter.get()).sum())
    }

    /// Whether a frame passes; counts the rule that says so.
    #[inline]
    pub(crate) fn admits(
        &self,
        headers: &[u8],
        parsed: &Parsed,
        memory: &mut Memory,
        scope: Scope,
    ) -> bool {
        let worker = memory.worker;
        let Some(rule) = self.decide(headers, parsed, memory, scope) else { return true };
        if let Some((_, hits)) = self.rules.get(usize::from(rule))
            && let Some(counter) = hits.get(worker)
        {
            counter.add(1);
        }
        !table::contains(&self.denies, rule)
    }

    /// The number of the rule that decides, remembered or found.
    #[inline]
    fn decide(
        &self,
        headers: &[u8],
        parsed: &Parsed,
        memory: &mut Memory,
        scope: Scope,
    ) -> Option<u16> {
        let Some(key) = Key::of(headers, parsed, scope) else {
            return self.first_match(headers, parsed);
        };
        let slot = memory.slots.get_mut(key.slot())?;
        if !slot.0.equals(&key) {
            *slot = (key, self.first_match(headers, parsed));
        }
        slot.1
    }

    /// The number of the rule that decides.
    #[inline(never)]
    fn first_match(&self, headers: &[u8], parsed: &Parsed) -> Option<u16> {
        self.tables.first_match(&Fields::read(headers, parsed))
    }
}

/// The flows of a worker's turn and which rule decided about each.
pub(crate) struct Memory {
    /// The rule by the low bits of a flow's hash; the key says which flow it was.
    slots: Box<[(Key, Option<u16>)]>,
    worker: usize,
    turn: u64,
}

/// The port, direction and turn a decision was made in.
#[derive(Clone, Copy)]
pub(crate) struct Scope(u64);

impl Memory {
    const SLOTS: usize = 256;

    pub(crate) fn new(worker: usize) -> Memory {
        Memory { slots: vec![(Key([0; 8]), None); Memory::SLOTS].into(), worker, turn: 0 }
    }

    /// A scope of its own: what was remembered before holds no more.
    pub(crate) fn begin(&mut self) -> Scope {
        self.turn += 1;
        Scope(self.turn)
    }
}

/// All that rules can ask about an unfragmented IP packet, as it stands in its headers, and the scope.
#[derive(Clone, Copy)]
struct Key([u64; 8]);

impl Key {
    /// `None`: another kind of frame, which is not remembered.
    #[inline]
    fn of(headers: &[u8], parsed: &Parsed, Scope(scope): Scope) -> Option<Key> {
        let l4 = match parsed.kind {
            Kind::Tcp | Kind::Udp => word32(headers, parsed.l4)?,
            Kind::OtherIp => 0,
            _ => return None,
        };
        let is_v4 = parsed.traits.contains(Traits::IPV4);
        let at = |offset: u16| word(headers, parsed.l3 + offset);
        let [a, b, c, d] =
            if is_v4 { [at(12)?, 0, 0, 0] } else { [at(8)?, at(16)?, at(24)?, at(32)?] };
        let l4 = u64::from(l4) << 16 | u64::from(parsed.protocol) << 8 | u64::from(is_v4);
        Some(Key([word(headers, 0)?, word(headers, 4)?, a, b, c, d, l4, scope]))
    }

    /// Without a branch for each word.
    #[inline]
    fn equals(&self, other: &Key) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differ, (one, two)| differ | (one ^ two)) == 0
    }

    /// Its place in a [`Memory`]: a multiplicative hash of addresses and ports.
    #[inline]
    fn slot(&self) -> usize {
        let [_, _, a, b, c, d, l4, _] = self.0;
        let mixed = (a ^ b.rotate_left(8) ^ c.rotate_left(16) ^ d.rotate_left(24) ^ l4)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as usize
    }
}

#[inline]
fn word(headers: &[u8], at: u16) -> Option<u64> {
    headers.get(usize::from(at)..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

#[inline]
fn word32(headers: &[u8], at: u16) -> Option<u32> {
    headers.get(usize::from(at)..)?.first_chunk().copied().map(u32::from_ne_bytes)
}
