//! Port ACLs, compiled: the first rule that matches decides, and a frame without a match passes.
//!
//! [`Acl::compile`] turns the rules of one direction into one table for each field that they test
//! (table.rs). A table maps a value of its field to the set of rules that it satisfies, as bits in
//! the order of the rules; the lowest bit that all sets share is the deciding rule.
//!
//! If a frame lacks a field that a rule tests (ports in a fragment other than the first, anything
//! in an unreadable frame), deny matches and allow does not.

mod table;

use crate::counters::DropReason;
use crate::settings::acl::{AclAction, AclRule};
use crate::settings::mark::AclMark;
use crossbeam_utils::CachePadded;
use table::{Hits, RULES, Tables};
use wire::Parsed;

/// The answer of a port's guards and rules about a frame.
#[derive(Clone, Copy)]
pub(crate) struct Ruling {
    /// Why it is dropped.
    pub(crate) drop: Option<DropReason>,
    /// The rule that decided, which counts the frame, or [`Ruling::NO_RULE`].
    pub(crate) rule: u16,
}

impl Ruling {
    /// A number above every rule's.
    pub(crate) const NO_RULE: u16 = u16::MAX;
    /// The frame passes, by no rule.
    pub(crate) const PASS: Ruling = Ruling { drop: None, rule: Ruling::NO_RULE };
}

/// The rules of one port and direction that decide, or those that mark, as workers use them.
pub(crate) struct Acl {
    rules: Vec<(AclRule, Hits)>,
    tables: Tables,
}

impl Acl {
    /// Compiles the rules for which `are_asked` says so; `None` if there are none. Rules that are
    /// in `old` as well keep their counters.
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
        let rules: Vec<_> = asked.take(RULES).map(counted).collect();
        let tables = Tables::of(&rules);
        (!rules.is_empty()).then_some(Acl { rules, tables })
    }

    fn hits_of(&self, rule: &AclRule) -> Option<&Hits> {
        self.rules.iter().find(|(other, _)| other == rule).map(|(_, hits)| hits)
    }

    /// Returns the frames that a rule matched; `None` if it is not in this ACL.
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

    /// Returns what the first rule that matches says about a frame.
    pub(crate) fn decide(&self, headers: &[u8], parsed: &Parsed) -> Ruling {
        let Some(rule) = self.tables.first_match(headers, parsed) else { return Ruling::PASS };
        let decides = self.rules.get(usize::from(rule));
        let denies = decides.is_some_and(|(rule, _)| matches!(rule.action, AclAction::Deny));
        Ruling { drop: denies.then_some(DropReason::AclDenied), rule }
    }

    /// Returns the first rule that matches, and how it marks.
    pub(crate) fn mark(&self, headers: &[u8], parsed: &Parsed) -> Option<(u16, AclMark)> {
        let rule = self.tables.first_match(headers, parsed)?;
        match self.rules.get(usize::from(rule))?.0.action {
            AclAction::Mark(mark) => Some((rule, mark)),
            AclAction::Allow | AclAction::Deny => None,
        }
    }
}
