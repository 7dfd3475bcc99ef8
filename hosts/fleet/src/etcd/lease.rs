//! Leases: the keys attached to a lease are deleted when it expires.

use super::message::Number;
use super::{Etcd, EtcdError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A lease, by etcd's ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease(pub i64);

#[derive(Serialize)]
struct Grant {
    #[serde(rename = "TTL")]
    ttl: Number,
}

#[derive(Serialize)]
struct ById {
    #[serde(rename = "ID")]
    id: Number,
}

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID")]
    id: Number,
}

/// The answer to a keep-alive request: without a TTL, the lease does not exist.
#[derive(Deserialize)]
struct KeptAlive {
    result: TimeToLive,
}

#[derive(Deserialize)]
struct TimeToLive {
    #[serde(rename = "TTL", default)]
    ttl: Number,
}

impl Etcd {
    /// Grants a lease that expires after this time, in whole seconds, unless it is kept alive.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn grant(&self, time: Duration) -> Result<Lease, EtcdError> {
        let ttl = Number(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        let granted: Granted = self.call("/v3/lease/grant", &Grant { ttl })?;
        Ok(Lease(granted.id.0))
    }

    /// Renews a lease for its TTL. Returns false if it has expired.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn keep_alive(&self, lease: Lease) -> Result<bool, EtcdError> {
        let kept: Result<KeptAlive, EtcdError> =
            self.call("/v3/lease/keepalive", &ById { id: Number(lease.0) });
        match kept {
            Ok(kept) => Ok(kept.result.ttl.0 > 0),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Revokes a lease. Its keys are deleted at once. A lease that has expired is no error.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn revoke(&self, lease: Lease) -> Result<(), EtcdError> {
        let ended: Result<serde_json::Value, EtcdError> =
            self.call("/v3/lease/revoke", &ById { id: Number(lease.0) });
        match ended {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
