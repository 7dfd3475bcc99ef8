//! The devices of this host, by their kinds.

use crate::contract::{OpenError, Opened, Opener};
use crate::store::Store;
use crate::{packet, tap, team, vhost, xdp};
use config::{Device, PortConfig, Scale};

/// Opens the devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        let queues = self.store.queue_pairs(port, scale);
        match port.device() {
            Device::Tap(name) => tap::open(port, name.as_str(), queues, &self.store),
            Device::Packet(name) => packet::open(port, name.as_str(), queues, &self.store),
            Device::Team(_) => team::open(port),
            Device::Xdp(name) => xdp::open(port, name.as_str(), queues, &self.store),
            Device::VhostUser(socket) => vhost::open(port, socket.as_path(), queues, &self.store),
            Device::None => {
                Err(OpenError { reason: "the port names no device".into(), denied: false })
            }
        }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}
