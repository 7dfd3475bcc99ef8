//! Guests that are about to come: the host that a vhost-user port's guest migrates to prepares the
//! port while the guest still runs on the host that has claimed the address. The claim follows the
//! guest.

use super::{Carrier, Store, text};
use crate::Name;
use crate::etcd::Operation;
use config::PortName;
use problem::Problem;

pub(super) const COMING: &str = "/millrace/v1/coming/";

fn key(port: &PortName) -> String {
    format!("{COMING}{port}")
}

impl Store {
    /// Has a host prepare a port for a guest that still runs elsewhere.
    ///
    /// Fails if etcd does not answer or refuses the request.
    pub fn prepare(&self, port: &PortName, host: &Name) -> Result<(), Problem> {
        let coming = text(&Carrier { host: host.clone() })?;
        self.transact(Vec::new(), vec![Operation::put(&key(port), coming, None)]).map(drop)
    }

    /// Ends the preparation of a port: its guest has come, or will not.
    ///
    /// Fails if etcd does not answer or refuses the request.
    pub fn end_preparation(&self, port: &PortName) -> Result<(), Problem> {
        self.transact(Vec::new(), vec![Operation::delete(&key(port))]).map(drop)
    }
}
