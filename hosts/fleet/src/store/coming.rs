//! Ports that are prepared for guests about to come: the destination of a guest's migration
//! prepares its vhost-user port while the guest still runs on the host that has claimed the
//! address. The claim follows the guest.

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
    /// Makes a host prepare a port for a guest that still runs on another host.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn prepare(&self, port: &PortName, host: &Name) -> Result<(), Problem> {
        let coming = text(&Carrier { host: host.clone() })?;
        self.transact(Vec::new(), vec![Operation::put(&key(port), coming, None)]).map(drop)
    }

    /// Ends the preparation of a port, because its guest has come or will not.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn end_preparation(&self, port: &PortName) -> Result<(), Problem> {
        self.transact(Vec::new(), vec![Operation::delete(&key(port))]).map(drop)
    }
}
