//! The devices of this host, by their kinds.

use crate::contract::{OpenError, Opened, Opener};
use crate::own_mac::Identity;
use crate::store::Store;
use crate::{packet, tap, team, vhost, xdp};
use config::{Device, PortConfig, Scale};
use ports::kernel_path::KernelPath;
use std::path::Path;
use std::sync::OnceLock;

/// Opens the devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
    /// Who this daemon is; not set on a host without a machine-id.
    identity: OnceLock<Identity>,
    /// Not set if the kernel carries nothing.
    kernel_path: OnceLock<KernelPath>,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        let queues = self.store.queue_pairs(port, scale);
        match port.device() {
            Device::Tap(name) => {
                let mac = self.identity.get().filter(|_| port.mac.is_none());
                let mac = mac.map(|identity| identity.mac_of(port));
                tap::open(port, name.as_str(), (queues, mac), &self.store)
            }
            Device::Packet(name) => {
                let path = self.kernel_path.get();
                packet::open(port, name.as_str(), queues, &self.store, path)
            }
            Device::Team(_) => team::open(port),
            Device::Xdp(name) => xdp::open(port, name.as_str(), queues, &self.store),
            Device::VhostUser(socket) => vhost::open(port, socket.as_path(), queues, &self.store),
            Device::None => {
                Err(OpenError { reason: "the port names no device".into(), denied: false })
            }
        }
    }

    fn identify(&self, state: &Path) {
        if let Some(identity) = Identity::of_host(state) {
            let _ = self.identity.set(identity);
        }
    }

    fn use_kernel_path(&self, path: KernelPath) {
        let _ = self.kernel_path.set(path);
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}
