//! The fleet's documents in etcd: JSON below `/millrace/v1/`.
//!
//! | key | value | written by |
//! | --- | --- | --- |
//! | `revisions/NUMBER` | a model and its author; never changed | `apply`, `rollback` |
//! | `desired` | the revision that each host is to have | the roll-out |
//! | `rollout` | who drives a roll-out, under a lease | the roll-out |
//! | `hosts/NAME/registration` | a host's labels | its agent |
//! | `hosts/NAME/status` | the host's revision and findings, under a lease | its agent |
//! | `carriers/PORT` | the host that is to carry a port without `host` | `move` |
//! | `coming/PORT` | the host that prepares a port whose guest migrates there | `move --migrate-with` |
//! | `check-mtu` | a check of MTUs that runs, under its lease | `fleet mtu` |
//! | `hosts/NAME/mtu` | what a host has found out for it, under the status's lease | its agent |
//! | `experiment` | an experiment between two hosts that runs, under its lease | `fleet validate` |
//! | `hosts/NAME/order` | the secret of the experiment for this host, under that lease | `fleet validate` |
//! | `hosts/NAME/experiment` | what came of this host's part, under the status's lease | its agent |
//! | `claims/NAME/MAC` | a host's claim on an address; its mod revision is the fencing token | its agent, `move --take-over` |
//!
//! A host's agent writes only below `hosts/NAME/` and `claims/NAME/`, and etcd's roles permit it no
//! more (`rights`).
//!
//! Agents watch the keys that sort before `hosts/`, so that one host's status wakes no other host's
//! agent.

pub(crate) mod claims;
mod coming;
mod desired;
mod experiment;
mod hosts;
mod mtu;
mod removal;
mod revision;
mod rights;

pub use claims::{Carrier, Claim, Claims};
pub use desired::{Desired, Phase};
pub(crate) use experiment::LONGEST as LONGEST_ANSWER;
pub use experiment::{Experiment, ExperimentAnswer, ExperimentRequest, Extent, Outcome};
pub use hosts::{HostRecord, Registration, Status};
pub use mtu::{MtuAnswer, MtuPlan, MtuRequest};
pub use revision::Revision;
pub use rights::User;

use crate::etcd::{Compare, Etcd, KeyValue, Lease, Operation, Transaction};
use problem::Problem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What agents watch: the keys from the first up to but not including the second.
pub const WATCHED: (&str, &str) = ("/millrace/v1/carriers/", "/millrace/v1/hosts/");
pub(crate) const DESIRED: &str = "/millrace/v1/desired";
const DRIVER: &str = "/millrace/v1/rollout";

/// The fleet's documents, through a client of etcd.
pub struct Store {
    /// The client, for leases and watches.
    pub etcd: Etcd,
}

/// A document, and the revision of etcd at which it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The document, if it exists.
    pub document: Option<T>,
    /// etcd's revision at which it was last written; 0 if it never was.
    pub mod_revision: i64,
    /// The cluster that answered.
    pub cluster: u64,
    /// etcd's revision at the time of the read.
    pub etcd_revision: i64,
}

/// Everything that an agent follows, read at one revision of etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The revision that each host is to have.
    pub desired: Read<Desired>,
    /// Which host carries which address.
    pub claims: Claims,
    /// The check of MTUs that runs.
    pub mtu: Option<MtuRequest>,
    /// The experiment that runs.
    pub experiment: Option<ExperimentRequest>,
}

/// The driver of a roll-out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The person who started it.
    pub author: String,
    /// When it was started, in seconds since 1970.
    pub since: u64,
    /// The revision that is rolled out.
    pub revision: u64,
}

impl Store {
    /// Returns the store behind this client.
    pub fn new(etcd: Etcd) -> Store {
        Store { etcd }
    }

    /// Reads the desired state: the revision that each host is to have.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request, or the document cannot be read.
    pub fn desired(&self) -> Result<Read<Desired>, Problem> {
        self.read(DESIRED)
    }

    /// Reads everything that an agent follows.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request, or the desired state cannot be read.
    pub fn wanted(&self) -> Result<Wanted, Problem> {
        let found = self.etcd.between(WATCHED.0, WATCHED.1)?;
        let claims = Claims::of(&found.keys);
        let desired = found.keys.iter().find(|pair| pair.key == DESIRED);
        let desired = Read {
            document: desired.map(told).transpose()?,
            mod_revision: desired.map_or(0, |pair| pair.mod_revision),
            cluster: found.cluster,
            etcd_revision: found.revision,
        };
        let (mtu, experiment) = (mtu::request(&found.keys), experiment::request(&found.keys));
        Ok(Wanted { desired, claims, mtu, experiment })
    }

    /// Reads the driver of the current roll-out, if there is one.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request, or the document cannot be read.
    pub fn driver(&self) -> Result<Read<Driver>, Problem> {
        self.read(DRIVER)
    }

    /// Stores a new revision and starts its roll-out, unless the desired state was written
    /// meanwhile or another roll-out is in progress. Returns the mod revision of the desired state;
    /// `None` if nothing was written.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn begin(
        &self,
        revision: &Revision,
        desired: &Desired,
        unchanged: i64,
        driver: (&Driver, Lease),
    ) -> Result<Option<i64>, Problem> {
        let key = revision::key(revision.number);
        let compare = vec![
            Compare::unchanged(DESIRED, unchanged),
            Compare::absent(&key),
            Compare::absent(DRIVER),
        ];
        let success = vec![
            Operation::put(&key, text(revision)?, None),
            Operation::put(DESIRED, text(desired)?, None),
            Operation::put(DRIVER, text(driver.0)?, Some(driver.1)),
        ];
        self.transact(compare, success)
    }

    /// Writes the desired state, unless it was written meanwhile.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn set_desired(&self, desired: &Desired, unchanged: i64) -> Result<Option<i64>, Problem> {
        let compare = vec![Compare::unchanged(DESIRED, unchanged)];
        self.transact(compare, vec![Operation::put(DESIRED, text(desired)?, None)])
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Read<T>, Problem> {
        let found = self.etcd.get(key)?;
        let first = found.keys.first();
        Ok(Read {
            document: first.map(told).transpose()?,
            mod_revision: first.map_or(0, |key| key.mod_revision),
            cluster: found.cluster,
            etcd_revision: found.revision,
        })
    }

    /// Carries out operations if all comparisons hold. Returns etcd's revision of the writes;
    /// `None` if a comparison failed, so that nothing was written.
    fn transact(
        &self,
        compare: Vec<Compare>,
        success: Vec<Operation>,
    ) -> Result<Option<i64>, Problem> {
        self.carry_out(&Transaction { compare, success })
    }

    /// Carries out a transaction. Returns etcd's revision after it; `None` if a comparison failed.
    fn carry_out(&self, transaction: &Transaction) -> Result<Option<i64>, Problem> {
        let outcome = self.etcd.transact(transaction)?;
        Ok(outcome.succeeded.then_some(outcome.revision))
    }
}

fn text(document: &impl Serialize) -> Result<String, Problem> {
    serde_json::to_string(document)
        .map_err(|error| Problem::new("a document of the fleet cannot be written").seen(error))
}

/// Reads a document that agents or people wrote. Replaces control characters, by which it could
/// control a terminal.
fn told<T: DeserializeOwned>(key: &KeyValue) -> Result<T, Problem> {
    let mut value: serde_json::Value = document(key)?;
    daemon::migration::clean(&mut value);
    config::from_value(value).map_err(|problem| problem.at(&key.key))
}

/// Reads a document. Fails, and names its key, if it is of another version or malformed.
fn document<T: DeserializeOwned>(key: &KeyValue) -> Result<T, Problem> {
    config::from_json(key.value.as_bytes()).map_err(|problem| problem.at(&key.key))
}
