//! The desired state: which revision each host is to have, during a roll-out and after it.

use crate::Name;
use serde::{Deserialize, Serialize};

/// The phase of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Some hosts are to have the revision, and the others follow.
    Running,
    /// All hosts are to have it.
    Done,
    /// It has stopped: the hosts that had it keep it, and the others do not get it.
    Stopped,
    /// It has stopped, and all hosts go back to the revision before.
    RolledBack,
}

impl Phase {
    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Running => "running",
            Phase::Done => "done",
            Phase::Stopped => "stopped",
            Phase::RolledBack => "rolled back",
        }
    }
}

/// The desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// The revision that is rolled out.
    pub revision: u64,
    /// The revision of hosts that it has not reached; 0 if they have none.
    pub before: u64,
    /// The phase of its roll-out.
    pub phase: Phase,
    /// The hosts that it has reached, while not all are to have it.
    pub hosts: Vec<Name>,
    /// Why it has stopped; empty if it has not.
    #[serde(default)]
    pub reason: String,
    /// The person who applied it.
    pub author: String,
    /// When this was written, in seconds since 1970.
    pub at: u64,
}

impl Desired {
    /// Returns the revision that a host is to have.
    pub fn of(&self, host: &Name) -> u64 {
        if self.reaches(host) { self.revision } else { self.before }
    }

    /// Returns the revision on which the next one is based: the last with a completed roll-out. So
    /// a host that an unfinished revision has not reached never gets that by way of the next.
    pub fn base(&self) -> u64 {
        match self.phase {
            Phase::Done => self.revision,
            Phase::Running | Phase::Stopped | Phase::RolledBack => self.before,
        }
    }

    /// Whether a host is to have the revision that is rolled out, rather than the one before.
    pub fn reaches(&self, host: &Name) -> bool {
        match self.phase {
            Phase::Done => true,
            Phase::RolledBack => false,
            Phase::Running | Phase::Stopped => self.hosts.contains(host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_new_revision_once_it_is_named_or_all_have_it() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let at = |phase| Desired {
            revision: 7,
            before: 6,
            phase,
            hosts: vec![name("a")],
            reason: String::new(),
            author: "anna".to_owned(),
            at: 0,
        };
        let of = |phase| (at(phase).of(&name("a")), at(phase).of(&name("b")));
        assert_eq!((of(Phase::Running), of(Phase::Stopped)), ((7, 6), (7, 6)));
        assert_eq!((of(Phase::Done), of(Phase::RolledBack)), ((7, 7), (6, 6)));
        let base = |phase| at(phase).base();
        assert_eq!((base(Phase::Done), base(Phase::Stopped), base(Phase::Running)), (7, 6, 6));
    }
}
