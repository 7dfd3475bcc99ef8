//! Port ACLs: stateless rules. The first match decides; a frame without a match passes.
//!
//! `Acl::compile` turns the rules of one direction into a table per tested field (table.rs). A
//! table maps a value of its field to the set of rules that it satisfies, as bits in the order of
//! the rules; the lowest bit that all sets share is the deciding rule.
//!
//! If a frame lacks a field that a rule tests (ports in a fragment other than the first, anything
//! in an unreadable frame), deny matches and allow does not.

mod mark;
mod table;

use crate::Prefix;
use crate::counters::{Counter, DropReason};
use crossbeam_utils::CachePadded;
pub use mark::AclMark;
use ports::capture::Direction;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::Tables;
use wire::{Mac, Parsed};

/// What happens to the frames of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclAction {
    /// They pass.
    Allow,
    /// They are dropped as `acl_denied`.
    Deny,
    /// They are marked: the first such rule that matches says how, and whether they pass is decided
    /// by the others. From the port into the switch only.
    Mark(AclMark),
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

/// The answer of a port's guards and rules about a frame.
#[derive(Clone, Copy)]
pub(crate) struct Ruling {
    /// Why it is dropped.
    pub(crate) drop: Option<DropReason>,
    /// The rule that decided, which counts the frame, or [`Ruling::NO_RULE`].
    pub(crate) rule: u16,
}

impl Ruling {
    /// Above every rule's number.
    pub(crate) const NO_RULE: u16 = u16::MAX;
    /// The frame passes, by no rule.
    pub(crate) const PASS: Ruling = Ruling { drop: None, rule: Ruling::NO_RULE };
}

/// Frames a rule matched, a counter for each worker.
type Hits = Arc<[CachePadded<Counter>]>;

/// The rules of one port and direction that decide, or those that mark, as workers use them.
pub(crate) struct Acl {
    rules: Vec<(AclRule, Hits)>,
    tables: Tables,
}

impl Acl {
    /// `None`: no rules `are_asked`. Rules that `old` has too go on counting.
    pub(crate) fn compile(
        settings: &[AclRule],
        are_asked: impl Fn(&AclRule) -> bool,
        workers: usize,
        old: Option<&Acl>,
    ) -> Option<Acl> {
        let asked = settings.iter().filter(|rule| are_asked(rule));
        let new = || (0..workers).map(|_| CachePadded::default()).collect();
        let counted = |rule: &AclRule| {
            let known = old.and_then(|old| old.hits_of(rule));
            (rule.clone(), known.cloned().unwrap_or_else(new))
        };
        let rules: Vec<_> = asked.take(table::RULES).map(counted).collect();
        let tables = Tables::of(&rules);
        (!rules.is_empty()).then_some(Acl { rules, tables })
    }

    fn hits_of(&self, rule: &AclRule) -> Option<&Hits> {
        self.rules.iter().find(|(other, _)| other == rule).map(|(_, hits)| hits)
    }

    /// Frames a rule matched, if it is one of these.
    pub(crate) fn hits(&self, rule: &AclRule) -> Option<u64> {
        Some(self.hits_of(rule)?.iter().map(|counter| counter.get()).sum())
    }

    /// Counts frames that a rule decided about.
    pub(crate) fn count(&self, rule: u16, worker: usize, frames: u64) {
        let rule = self.rules.get(usize::from(rule));
        if let Some(counter) = rule.and_then(|(_, hits)| hits.get(worker)) {
            counter.add(frames);
        }
    }

    /// What the first rule that matches says.
    pub(crate) fn decide(&self, headers: &[u8], parsed: &Parsed) -> Ruling {
        let Some(rule) = self.tables.first_match(headers, parsed) else { return Ruling::PASS };
        let decides = self.rules.get(usize::from(rule));
        let denies = decides.is_some_and(|(rule, _)| matches!(rule.action, AclAction::Deny));
        Ruling { drop: denies.then_some(DropReason::AclDenied), rule }
    }

    /// The first rule that matches, and how it marks.
    pub(crate) fn mark(&self, headers: &[u8], parsed: &Parsed) -> Option<(u16, AclMark)> {
        let rule = self.tables.first_match(headers, parsed)?;
        match self.rules.get(usize::from(rule))?.0.action {
            AclAction::Mark(mark) => Some((rule, mark)),
            AclAction::Allow | AclAction::Deny => None,
        }
    }
}
