//! A client of etcd's HTTP gateway: JSON below `/v3`, which every etcd since 3.4 serves on its
//! client port.
//!
//! [`Etcd`] is blocking, with one answer per request; only the answer of [`watch`](Etcd::watch)
//! does not end. With several endpoints, one is used until it fails or does not answer, then the
//! next. A write that may have been carried out is never sent twice. [`Access`] says how etcd is
//! reached, by TLS or on loopback, and as which user.

pub(crate) mod access;
mod auth;
mod endpoint;
pub(crate) mod error;
mod exchange;
#[cfg(test)]
pub(crate) mod fake;
mod lease;
mod login;
pub(crate) mod message;
mod tls;
mod watch;

pub use access::{Access, Identity};
pub use auth::{Permission, Right};
pub use endpoint::Endpoint;
pub use error::EtcdError;
pub use lease::Lease;
pub use message::{Compare, KeyValue, Operation, Transaction};
pub use watch::Watched;

use message::{RangeAnswer, RangeRequest, TxnAnswer};
use problem::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// After so long a read that failed is tried once more.
const AGAIN: Duration = Duration::from_millis(300);

/// A client. It must not be used inside an async runtime.
pub struct Etcd {
    access: Arc<Access>,
    /// The endpoint that answered last.
    current: Cell<usize>,
    /// Whether the last request got no answer.
    away: Cell<bool>,
    /// When a request got an answer last.
    answered: Cell<Option<Instant>>,
    runtime: Runtime,
}

/// The result of a read, and the cluster that answered.
#[derive(Clone, Debug)]
pub struct Found {
    /// The keys, in order.
    pub keys: Vec<KeyValue>,
    /// The cluster.
    pub cluster: u64,
    /// etcd's revision at the time of the read, which increases with every change.
    pub revision: i64,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether all comparisons held, so that the operations were carried out.
    pub succeeded: bool,
    /// etcd's revision afterwards: the mod revision of all keys written.
    pub revision: i64,
}

impl Etcd {
    /// Makes a client for a cluster, without connecting.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors.
    pub fn new(access: Arc<Access>) -> Result<Etcd, Problem> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| Problem::new("the etcd client cannot be started").seen(error))?;
        let first = fastrand::usize(..access.endpoints.len().max(1));
        let (away, answered) = (Cell::new(false), Cell::new(None));
        Ok(Etcd { access, current: Cell::new(first), away, answered, runtime })
    }

    /// Reads one key; nothing is found if it does not exist.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn get(&self, key: &str) -> Result<Found, EtcdError> {
        self.range(&RangeRequest::key(key))
    }

    /// Reads all keys with this prefix.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn list(&self, prefix: &str) -> Result<Found, EtcdError> {
        self.range(&RangeRequest::prefix(prefix))
    }

    /// Reads all keys from `begin` up to but not including `end`.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn between(&self, begin: &str, end: &str) -> Result<Found, EtcdError> {
        self.range(&RangeRequest::between(begin, end))
    }

    /// Reads the greatest keys with this prefix, at most `most`, greatest first.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn last(&self, prefix: &str, most: u32) -> Result<Found, EtcdError> {
        self.range(&RangeRequest::last(prefix, most))
    }

    /// Asks again if the fault is the member's, which is the next one then, or has had a moment:
    /// reading changes nothing.
    fn range(&self, request: &RangeRequest) -> Result<Found, EtcdError> {
        let ask = || self.call("/v3/kv/range", request);
        let answer: RangeAnswer = ask().or_else(|error| {
            if !error.is_of_member() {
                return Err(error);
            }
            std::thread::sleep(AGAIN);
            ask()
        })?;
        let header = answer.header;
        Ok(Found { keys: answer.kvs, cluster: header.cluster_id, revision: header.revision })
    }

    /// Carries out all operations if all comparisons hold, and otherwise none.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn transact(&self, transaction: &Transaction) -> Result<Outcome, EtcdError> {
        let answer: TxnAnswer = self.call("/v3/kv/txn", transaction)?;
        Ok(Outcome { succeeded: answer.succeeded, revision: answer.header.revision })
    }

    /// Whether the last request got no answer.
    pub fn is_away(&self) -> bool {
        self.away.get()
    }

    /// When a request got an answer last, also one that refuses.
    pub fn answered_at(&self) -> Option<Instant> {
        self.answered.get()
    }

    /// Sends any request of etcd's gateway, and reads the answer.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request, or the answer cannot be decoded.
    pub fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, EtcdError> {
        let body = serde_json::to_vec(request).map_err(|error| EtcdError::broken(&error))?;
        let answer = self.runtime.block_on(login::ask(self, path, body));
        self.away.set(matches!(answer, Err(EtcdError::Unreachable(_))));
        if !self.away.get() {
            self.answered.set(Some(Instant::now()));
        }
        let answer = answer.inspect_err(|error| self.turn_away(error))?;
        serde_json::from_slice(&answer).map_err(|error| EtcdError::broken(&error))
    }

    /// Selects the next member for later requests if this one did not answer or has no leader.
    fn turn_away(&self, error: &EtcdError) {
        if error.is_of_member() {
            self.current.set((self.current.get() + 1) % self.access.endpoints.len().max(1));
        }
    }
}
