//! The devices of this host, by their kinds.

use crate::contract::{OpenError, Opened, Opener};
use crate::store::Store;
use crate::{packet, tap, team, vhost, xdp};
use config::{Device, PortConfig};

/// Opens the devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError> {
        match port.device() {
            Device::Tap(name) => tap::open(port, name.as_str(), &self.store),
            Device::Packet(name) => packet::open(port, name.as_str(), &self.store),
            Device::Team(_) => team::open(port),
            Device::Xdp(name) => xdp::open(port, name.as_str(), &self.store),
            Device::VhostUser(socket) => vhost::open(port, socket.as_path(), &self.store),
            Device::None => {
                Err(OpenError { reason: "the port names no device".into(), denied: false })
            }
        }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}
