//! A check of MTUs: the request, which only people write, and each host's answer, which its agent
//! writes below the host's name.
//!
//! The request is there while `fleet mtu` runs, under its lease. It comes in two parts, because a
//! responder acknowledges only probes of a check that it knows: first the badge, and once the hosts
//! are ready the plan.

use super::hosts::{PREFIX, key};
use super::{Read, Store, text, told};
use crate::Name;
use crate::etcd::{Compare, KeyValue, Lease, Operation};
use path_mtu::frame::Badge;
use path_mtu::judge::Observation;
use path_mtu::plan::{self, Direction};
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The request's key, among those that agents watch.
pub(super) const REQUEST: &str = "/millrace/v1/check-mtu";
/// The name of an answer's key below a host's own name.
const ANSWER: &str = "mtu";
/// Most bytes of an answer. One of 1,000 peers is shorter.
const LONGEST: usize = 512 << 10;

/// The request of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MtuRequest {
    /// The badge that probes of this check carry, 128 random bits in hexadecimal digits. It also
    /// identifies the check.
    pub badge: String,
    /// The person who asked for it.
    pub author: String,
    /// When it was asked for, in seconds since 1970.
    pub since: u64,
    /// The plan, once all hosts had time to get ready.
    #[serde(default)]
    pub plan: Option<MtuPlan>,
}

/// The plan: which host probes which. Every agent derives its own peers from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MtuPlan {
    /// The MTU that every direction has to carry.
    pub mtu: u16,
    /// Number of peers of each host; `None` for all.
    pub peers: Option<usize>,
    /// The seed by which a sample of peers is drawn.
    pub seed: u64,
    /// The hosts, with the addresses of their responders.
    pub hosts: Vec<(Name, SocketAddr)>,
}

/// A host's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MtuAnswer {
    /// The check that it is for.
    pub badge: String,
    /// Whether its responder acknowledges probes of this check.
    pub ready: bool,
    /// The MTU of the device with the responder's address; 0 if it is not known.
    pub device_mtu: u16,
    /// What its directions carry; `None` if that is not known yet. Their `from` is not read.
    #[serde(default)]
    pub directions: Option<Vec<Observation>>,
    /// Why it cannot probe.
    #[serde(default)]
    pub problem: Option<Problem>,
}

impl MtuRequest {
    /// Returns the badge in bytes; `None` if it is not one.
    pub fn badge(&self) -> Option<Badge> {
        let mut badge = Badge::default();
        if self.badge.len() != 2 * badge.len() || !self.badge.is_ascii() {
            return None;
        }
        for (place, byte) in badge.iter_mut().enumerate() {
            *byte = u8::from_str_radix(self.badge.get(2 * place..2 * place + 2)?, 16).ok()?;
        }
        Some(badge)
    }
}

impl MtuPlan {
    /// Returns all directions that are probed.
    pub fn directions(&self) -> Vec<Direction> {
        plan::directions(self.hosts.len(), self.peers, self.seed)
    }

    /// Returns the peers that the host at this place probes.
    pub fn peers_of(&self, host: usize) -> Vec<usize> {
        plan::peers_of(host, self.hosts.len(), self.peers, self.seed)
    }
}

/// Returns the request among the keys that an agent has read. One that cannot be read is ignored,
/// so that it does not keep the agent from following.
pub(super) fn request(keys: &[KeyValue]) -> Option<MtuRequest> {
    keys.iter().find(|pair| pair.key == REQUEST).and_then(|pair| told(pair).ok())
}

impl Store {
    /// Reads the request of the running check, if there is one.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request, or the document cannot be read.
    pub fn mtu_request(&self) -> Result<Read<MtuRequest>, Problem> {
        self.read(REQUEST)
    }

    /// Begins a check, unless another one runs. Returns etcd's revision of the request; `None` if
    /// another one runs.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn begin_mtu(&self, request: &MtuRequest, lease: Lease) -> Result<Option<i64>, Problem> {
        self.put_request(request, lease, 0)
    }

    /// Adds the plan to the request. Returns false if the request was deleted or replaced
    /// meanwhile.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn plan_mtu(
        &self,
        request: &MtuRequest,
        lease: Lease,
        unchanged: i64,
    ) -> Result<bool, Problem> {
        self.put_request(request, lease, unchanged).map(|written| written.is_some())
    }

    fn put_request(
        &self,
        request: &MtuRequest,
        lease: Lease,
        unchanged: i64,
    ) -> Result<Option<i64>, Problem> {
        let compare = vec![Compare::unchanged(REQUEST, unchanged)];
        self.transact(compare, vec![Operation::put(REQUEST, text(request)?, Some(lease))])
    }

    /// Writes a host's answer, which is deleted with the lease of its status.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn answer_mtu(&self, host: &Name, answer: &MtuAnswer, lease: Lease) -> Result<(), Problem> {
        let put = Operation::put(&key(host, ANSWER), text(answer)?, Some(lease));
        self.transact(Vec::new(), vec![put]).map(drop)
    }

    /// Deletes a host's answer.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn forget_mtu(&self, host: &Name) -> Result<(), Problem> {
        self.transact(Vec::new(), vec![Operation::delete(&key(host, ANSWER))]).map(drop)
    }

    /// Reads the answers of all hosts to this check.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn mtu_answers(&self, badge: &str) -> Result<BTreeMap<Name, MtuAnswer>, Problem> {
        let found = self.etcd.list(PREFIX)?;
        let answers = found.keys.iter().filter_map(read_answer);
        Ok(answers.filter(|(_, answer)| answer.badge == badge).collect())
    }
}

/// Reads an answer, which is not trusted; `None` if it cannot be read.
fn read_answer(pair: &KeyValue) -> Option<(Name, MtuAnswer)> {
    let (name, what) = pair.key.strip_prefix(PREFIX)?.split_once('/')?;
    if what != ANSWER || pair.value.len() > LONGEST {
        return None;
    }
    Some((name.parse().ok()?, told(pair).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> KeyValue {
        let (key, value) = (key.to_owned(), value.to_owned());
        KeyValue { key, value, create_revision: 1, mod_revision: 1, lease: 0 }
    }

    #[test]
    fn a_badge_has_thirty_two_digits() {
        let request = |badge: &str| MtuRequest {
            badge: badge.to_owned(),
            author: String::new(),
            since: 0,
            plan: None,
        };
        let badge = request("000102030405060708090a0b0c0d0e0f").badge().unwrap();
        assert_eq!((badge[0], badge[15]), (0, 15));
        for wrong in
            ["", "00", "0001020304050607080910111213141é", "zz0102030405060708090a0b0c0d0e0f"]
        {
            assert_eq!(request(wrong).badge(), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_request_is_none_and_agents_follow_on() {
        let good = r#"{"badge":"00","author":"a","since":1}"#;
        assert!(request(&[pair(REQUEST, good)]).is_some_and(|it| it.plan.is_none()));
        for wrong in ["", "{}", "[]", "\u{fffd}"] {
            assert_eq!(request(&[pair(REQUEST, wrong)]), None);
        }
        assert_eq!(request(&[pair("/millrace/v1/desired", good)]), None);
    }

    #[test]
    fn an_answer_of_a_hostile_host_is_bounded_and_cannot_steer_a_terminal() {
        let answer =
            |more: &str| format!(r#"{{"badge":"00","ready":true,"device_mtu":9000{more}}}"#);
        let key = "/millrace/v1/hosts/a/mtu";
        let problem = r#","problem":{"error":"\u001b[2J"}"#;
        let (name, read) = read_answer(&pair(key, &answer(problem))).unwrap();
        assert_eq!((name.as_str(), read.problem.unwrap().error.as_str()), ("a", "\u{fffd}[2J"));
        let long = format!(r#","problem":{{"error":"{}"}}"#, "x".repeat(LONGEST));
        for (key, value) in [
            (key, answer(&long)),
            (key, answer(r#","directions":[{"to":-1}]"#)),
            (key, r#"{"badge":"00","ready":true,"device_mtu":70000}"#.to_owned()),
            ("/millrace/v1/hosts/a/status", answer("")),
            ("/millrace/v1/hosts/-/mtu", answer("")),
            ("/millrace/v1/hosts/mtu", answer("")),
        ] {
            assert_eq!(read_answer(&pair(key, &value)), None, "{key} {:.40}", value);
        }
    }
}
