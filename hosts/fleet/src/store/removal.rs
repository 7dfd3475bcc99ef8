//! Deletes the documents of a host that was removed, or that had its credentials stolen.

use super::{Store, claims, hosts};
use crate::Name;
use crate::etcd::{Lease, Operation};
use problem::Problem;

impl Store {
    /// Deletes a host's status, even one that another client wrote, and revokes its lease. The
    /// host's agent notices that, and reports again.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn end_status(&self, host: &Name) -> Result<(), Problem> {
        let key = hosts::key(host, "status");
        let found = self.etcd.get(&key)?.keys;
        if let Some(lease) = found.first().map(|pair| pair.lease).filter(|lease| *lease != 0) {
            self.etcd.revoke(Lease(lease))?;
        }
        self.transact(Vec::new(), vec![Operation::delete(&key)]).map(drop)
    }

    /// Deletes all that a host has written: its registration, its status and its claims.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn erase(&self, host: &Name) -> Result<(), Problem> {
        let prefixes = [hosts::prefix(host), claims::prefix(host)];
        let all = prefixes.iter().map(|prefix| Operation::delete_prefix(prefix)).collect();
        self.transact(Vec::new(), all).map(drop)
    }
}
