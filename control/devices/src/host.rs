//! The devices of this host, by their kinds.

use crate::contract::{OpenError, Opened, Opener};
use crate::own_mac::Identity;
use crate::store::Store;
use crate::{packet, tap, team, veth, vhost, xdp};
use config::{Device, PortConfig, Scale};
use ports::kernel_path::KernelPath;
use problem::Problem;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wire::Mac;

/// Opens the devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
    /// Who this daemon is; not set on a host without a machine-id.
    identity: OnceLock<Identity>,
    /// Not set if the kernel carries nothing.
    kernel_path: OnceLock<KernelPath>,
    /// This daemon's state directory.
    state: OnceLock<PathBuf>,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        let queues = self.store.queue_pairs(port, scale);
        match port.device() {
            Device::Tap(name) => {
                let mac = self.own_mac(port).filter(|_| port.mac.is_none());
                tap::open(port, name.as_str(), (queues, mac), &self.store)
            }
            Device::Veth(name) => {
                let own = (queues, self.own_mac(port));
                let host = (self.state(), &self.store, self.kernel_path.get());
                veth::open(port, name.as_str(), own, host)
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
        let _ = self.state.set(state.to_owned());
        if let Some(identity) = Identity::of_host(state) {
            let _ = self.identity.set(identity);
        }
    }

    fn use_kernel_path(&self, path: KernelPath) {
        let _ = self.kernel_path.set(path);
    }

    fn remove(&self, port: &PortConfig) -> Result<(), Problem> {
        match port.device() {
            Device::Veth(_) => veth::remove(port, self.state()),
            _ => Ok(()),
        }
    }

    fn remove_strays(&self, ports: &[&PortConfig]) {
        veth::remove_strays(ports, self.state());
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}

impl HostDevices {
    /// Returns the address of a device that the switch makes for a port.
    fn own_mac(&self, port: &PortConfig) -> Option<Mac> {
        self.identity.get().map(|identity| identity.mac_of(port))
    }

    /// Returns the state directory; empty if none was told, as in a program that is not the daemon.
    fn state(&self) -> &Path {
        self.state.get().map_or(Path::new(""), PathBuf::as_path)
    }
}
