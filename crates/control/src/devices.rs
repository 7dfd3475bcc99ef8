//! Opening devices: the only place that knows what kinds of ports there are.
//!
//! The rest of the crate sees an [`Opener`], so that tests run the whole control plane on memory ports.

use crate::Problem;
use crate::config::{Namespace, PortConfig};
use ports::Device;
use ports::link::{Link, LinkError};
use ports::packet::{self, PacketError, PacketOptions};
use ports::tap::{self, TapError, TapOptions};
use std::io;
use std::path::PathBuf;

/// A port's device, opened.
pub struct Opened {
    /// Its queues.
    pub device: Device,
    /// What the kernel does not do and is done in software, for people.
    pub degraded: Vec<String>,
    /// The link behind it.
    pub watch: Box<dyn Watch>,
}

/// Why a device did not open.
#[derive(Debug)]
pub struct OpenError {
    /// For people.
    pub reason: String,
    /// It takes a privilege this process has not.
    pub denied: bool,
}

/// A device as the host sees it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// There is such a device.
    pub exists: bool,
    /// It is administratively up.
    pub up: bool,
    /// The other side is there.
    pub carrier: bool,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
}

/// Opens what the configuration names.
pub trait Opener: Send {
    /// Opens the port's device, and makes it where that is what its kind does.
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError>;
}

/// A device that is asked once a second.
pub trait Watch: Send {
    /// The device now.
    fn look(&self) -> Look;
    /// Sets the device's own MTU, where the port's kind says that it is ours to set.
    fn set_mtu(&self, mtu: u16) -> Result<(), Problem>;
}

/// The devices of this host.
pub struct HostDevices;

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError> {
        match (&port.tap, &port.packet) {
            (Some(name), _) => open_tap(port, name.as_str()),
            (None, Some(name)) => open_packet(port, name.as_str()),
            (None, None) => Err(OpenError { reason: "no device is named".into(), denied: false }),
        }
    }
}

fn netns(port: &PortConfig) -> Option<PathBuf> {
    port.netns.as_ref().map(Namespace::path)
}

fn queues(port: &PortConfig) -> u16 {
    port.queues.map_or(1, |queues| queues.0)
}

fn open_tap(port: &PortConfig, name: &str) -> Result<Opened, OpenError> {
    let mut options = TapOptions::new(name);
    options.queues = queues(port);
    options.mtu = port.mtu.map(|mtu| mtu.0);
    options.netns = netns(port);
    let opened = tap::open(&options)
        .map_err(|error| OpenError { denied: tap_denied(&error), reason: error.to_string() })?;
    let watch = Box::new(HostLink { link: opened.link, ours: true });
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch })
}

fn open_packet(port: &PortConfig, name: &str) -> Result<Opened, OpenError> {
    let mut options = PacketOptions::new(name);
    options.netns = netns(port);
    options.promiscuous = port.promiscuous.unwrap_or(true);
    let opened = packet::open(&options)
        .map_err(|error| OpenError { denied: packet_denied(&error), reason: error.to_string() })?;
    let watch = Box::new(HostLink { link: opened.link, ours: false });
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch })
}

fn packet_denied(error: &PacketError) -> bool {
    match error {
        PacketError::Socket { source, .. }
        | PacketError::Set { source, .. }
        | PacketError::Ring { source, .. } => denied(source),
        PacketError::Link(error) => link_denied(error),
    }
}

fn tap_denied(error: &TapError) -> bool {
    match error {
        TapError::NoTun(source)
        | TapError::Attach { source, .. }
        | TapError::Set { source, .. } => denied(source),
        TapError::Link(error) => link_denied(error),
        TapError::Queues { .. } => false,
    }
}

fn link_denied(error: &LinkError) -> bool {
    match error {
        LinkError::NotPermitted { .. } => true,
        LinkError::Io { source, .. } | LinkError::Namespace { source, .. } => denied(source),
        _ => false,
    }
}

fn denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A link of this host.
struct HostLink {
    link: Link,
    /// The device is the switch's own, so its MTU is set with the port's.
    ours: bool,
}

impl Watch for HostLink {
    fn look(&self) -> Look {
        let mtu = self.link.mtu().ok();
        Look {
            exists: mtu.is_some(),
            up: self.link.is_up().unwrap_or(false),
            carrier: self.link.has_carrier().unwrap_or(false),
            mtu: mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(u16::MAX),
        }
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        if !self.ours {
            return Ok(());
        }
        self.link.set_mtu(mtu.into()).map_err(|error| Problem::new(error.to_string()))
    }
}
