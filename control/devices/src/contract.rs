//! What the daemon knows of a device: it asks an [`Opener`] for the device of a port, and once a
//! second the device's [`Watch`] for its state.

use crate::store::Store;
use config::{PortConfig, Rate, Scale};
use ports::Device;
use ports::kernel_path::KernelPath;
use ports::packet::Spread;
use ports::team::Team;
use ports::vhost::Status;
use problem::Problem;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;
use wire::Mac;

/// The opened device of a port.
pub struct Opened {
    /// The device's queues.
    pub device: Device,
    /// Offloads that the kernel lacks, each as a sentence: the switch does them in software, or
    /// they are lost.
    pub degraded: Vec<String>,
    /// The state of the device, from now on.
    pub watch: Box<dyn Watch>,
    /// The address that the port had in an earlier process, if it resumes what that process left.
    pub earlier_mac: Option<Mac>,
}

/// Why a device could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The reason, for people.
    pub reason: String,
    /// Whether this process lacks a privilege.
    pub denied: bool,
}

/// A device as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceState {
    /// Whether it carries frames.
    pub condition: Condition,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Front ends that have connected so far, if the device is a guest's vNIC; otherwise 0.
    pub connections: u64,
    /// Whether such a front end is connected now.
    pub connected: bool,
}

/// Whether a device carries frames, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It carries frames.
    Up,
    /// It carries no frames for now, for this reason.
    Down(String),
    /// It carries no frames until its guest restarts. The device itself works and stays open.
    Broken(String),
    /// It carries no frames until it is reopened.
    Failed(String),
    /// The device no longer exists.
    Gone,
}

/// Opens the devices that the configuration names. The daemon calls it from several threads.
pub trait Opener: Send + Sync {
    /// Opens the port's device. Creates it first if it is of a kind that the switch creates. How
    /// many queues a port without the key gets depends on `scale`.
    ///
    /// # Errors
    /// The device does not exist, is in use, or this process may not open it.
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError>;

    /// Tells the directory in which this daemon keeps its state, and no other daemon of this host.
    /// Called before ports open, and before the process may read fewer files.
    fn identify(&self, _state: &Path) {}

    /// Attaches ports that are opened from now on to the kernel path, where their devices can be.
    fn use_kernel_path(&self, _path: KernelPath) {}

    /// Removes what the switch made for a port and what outlives the process. Called once the port's
    /// device is closed, if the port is removed or gets another device.
    ///
    /// # Errors
    /// The kernel does not remove it.
    fn remove(&self, _port: &PortConfig) -> Result<(), Problem> {
        Ok(())
    }

    /// Removes what an earlier process of this daemon made for ports that are not among these.
    fn remove_strays(&self, _ports: &[&PortConfig]) {}

    /// Returns the descriptors that outlive the process.
    fn store(&self) -> Store {
        Store::default()
    }
}

/// An open device, as the daemon asks for its state once a second. Dropping it closes what the
/// device's queues do not own.
pub trait Watch: Send {
    /// Returns the state of the device now.
    fn state(&self) -> DeviceState;

    /// Returns the host's devices that frames pass, each with its MTU: the port's own, and those
    /// below it.
    fn links(&self) -> Vec<(String, u16)> {
        Vec::new()
    }

    /// Returns what could not be set to keep the host's own stack from the device, each as a sentence
    /// with its remedy.
    fn exposed(&self) -> &[String] {
        &[]
    }

    /// Whether the device merges what it receives in a way of its own (LRO).
    fn merges_by_lro(&self) -> bool {
        false
    }

    /// Returns an IPv4 address that the host itself has on the device, if the device is not the
    /// switch's own.
    fn host_address(&self) -> Option<Ipv4Addr> {
        None
    }

    /// Returns how flows are spread over several ingress queues, if the switch spreads them.
    fn spread(&self) -> Spread {
        Spread::Single
    }

    /// Returns the receive mode, if the device's kind has several.
    fn way(&self) -> Option<&'static str> {
        None
    }

    /// Returns the guest's state, if the device is a guest's vNIC.
    fn guest(&self) -> Option<Status> {
        None
    }

    /// Returns the most memory that the guest may have mapped, if limited.
    fn memory_limit(&self) -> Option<u64> {
        None
    }

    /// Takes the guest's link up or down.
    fn set_link(&self, _is_up: bool) {}

    /// Notes the port's rate, which a guest reads as the speed of its link.
    fn set_rate(&self, _rate: Option<Rate>) {}

    /// Returns the guest's events since the last call, in sentences.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the team, if the device is one.
    fn team(&self) -> Option<&Team> {
        None
    }

    /// Asks the device to end, so that another process can resume where this one stops. The caller
    /// has taken the device's queues from the workers.
    fn suspend(&self) {}

    /// Keeps what that process needs to resume, if the device ends before `until`.
    fn hand_over(&mut self, _until: Instant) {}

    /// Sets the device's own MTU, if the port's kind lets the switch set it.
    ///
    /// # Errors
    /// The kernel refuses the MTU.
    fn set_mtu(&self, mtu: u16) -> Result<(), Problem>;

    /// Gives the user's end of the device another address, if the port's kind lets the switch set it.
    /// Returns whether it does.
    ///
    /// # Errors
    /// The kernel refuses the address.
    fn set_mac(&self, _mac: Mac) -> Result<bool, Problem> {
        Ok(false)
    }
}
