//! What the daemon knows of a device: it asks an [`Opener`] for the device of a port, and once a
//! second the device's [`Watch`] for its state.

use crate::store::Store;
use config::PortConfig;
use ports::Device;
use ports::packet::Spread;
use ports::team::Team;
use ports::vhost::Status;
use problem::Problem;
use std::time::Instant;
use wire::Mac;

/// A port's device, opened.
pub struct Opened {
    /// Its queues.
    pub device: Device,
    /// Offloads that the kernel lacks and that are done in software or lost, for people.
    pub degraded: Vec<String>,
    /// The link behind it.
    pub watch: Box<dyn Watch>,
    /// The address that the port had in an earlier process, if it resumes what that process left.
    pub earlier_mac: Option<Mac>,
}

/// Why a device could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// For people.
    pub reason: String,
    /// This process lacks a privilege.
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
}

/// Whether a device carries frames, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It carries frames.
    Up,
    /// It carries none for now, for this reason.
    Down(String),
    /// It carries none until its guest restarts. The device itself works and stays open.
    Broken(String),
    /// It carries none until it is reopened.
    Failed(String),
    /// The device no longer exists.
    Gone,
}

/// Opens the devices that the configuration names, several at the same time.
pub trait Opener: Send + Sync {
    /// Opens the port's device; creates it first if its kind is created by the switch.
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError>;
    /// Descriptors that outlive the process.
    fn store(&self) -> Store {
        Store::default()
    }
}

/// A device that is polled once a second.
pub trait Watch: Send {
    /// The device now.
    fn state(&self) -> DeviceState;
    /// The host devices that frames pass, each with its MTU: the port's own, and those below it.
    fn links(&self) -> Vec<(String, u16)> {
        Vec::new()
    }
    /// How flows are spread over several ingress queues, if the switch spreads them.
    fn spread(&self) -> Spread {
        Spread::Single
    }
    /// The receive mode, if the device's kind has several.
    fn way(&self) -> Option<&'static str> {
        None
    }
    /// The guest, if the device is a guest's vNIC.
    fn guest(&self) -> Option<Status> {
        None
    }
    /// Most memory that the guest may have mapped, if limited.
    fn memory_limit(&self) -> Option<u64> {
        None
    }
    /// Takes the guest's link up or down.
    fn set_link(&self, _is_up: bool) {}
    /// Events of the guest since the last call, in sentences.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }
    /// The team, if the device is one.
    fn team(&self) -> Option<&Team> {
        None
    }
    /// Asks the device to end, so that another process can resume where this one stops. No worker
    /// has its queues any more.
    fn suspend(&self) {}
    /// Keeps what that process needs to resume, if the device ends in time.
    fn hand_over(&mut self, _until: Instant) {}
    /// Sets the device's own MTU, if the port's kind lets the switch set it.
    fn set_mtu(&self, mtu: u16) -> Result<(), Problem>;
}
