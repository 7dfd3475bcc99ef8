//! The devices of this host, by their kinds.

use crate::contract::{OpenError, Opened, Opener};
use crate::store::Store;
use crate::{packet, tap, team, vhost, xdp};
use config::PortConfig;

/// The devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError> {
        if let Some(name) = &port.tap {
            tap::open(port, name.as_str(), &self.store)
        } else if let Some(name) = &port.packet {
            packet::open(port, name.as_str(), &self.store)
        } else if let Some(name) = &port.xdp {
            xdp::open(port, name.as_str(), &self.store)
        } else if port.team.is_some() {
            team::open(port)
        } else if let Some(socket) = &port.vhost_user {
            vhost::open(port, socket.as_path(), &self.store)
        } else {
            Err(OpenError { reason: "the port names no device".into(), denied: false })
        }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}
