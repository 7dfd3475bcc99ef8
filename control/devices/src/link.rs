//! The state of a network device of the host behind a port.

use crate::contract::{Condition, DeviceState, Watch};
use crate::store::Keeping;
use ports::link::{Link, LinkError};
use ports::packet::{Spread, StallWatch};
use ports::xdp::Fit;
use problem::Problem;
use std::io;
use std::net::Ipv4Addr;

/// An open network device of the host.
pub(crate) struct HostLink {
    pub(crate) link: Link,
    /// The kernel's number of the device that was opened.
    pub(crate) index: u32,
    /// Whether the switch owns the device and sets its MTU with the port's.
    pub(crate) ours: bool,
    pub(crate) spread: Spread,
    /// Finds rings that the kernel no longer fills; `None` if the kernel fills none.
    pub(crate) stalls: Option<StallWatch>,
    /// Compares the device with its state when opened, for which its sockets were made.
    pub(crate) fit: Option<Fit>,
    /// Keeps the descriptors that outlive the process, if there are any.
    #[allow(dead_code, reason = "they are kept as long as this is there")]
    pub(crate) keeping: Option<Keeping>,
}

impl Watch for HostLink {
    fn state(&self) -> DeviceState {
        let lost = |condition| DeviceState { condition, mtu: 0, connections: 0, connected: false };
        // Asked first: in a namespace that was deleted the device is there as long as we hold it.
        if let Some(fault) = self.link.fault(self.index) {
            return lost(Condition::Failed(fault));
        }
        let Ok(mtu) = self.link.mtu() else { return lost(Condition::Gone) };
        let down = |reason: &str| Condition::Down(reason.to_owned());
        let condition = if !self.link.is_up().unwrap_or(false) {
            down("its device is administratively down")
        } else if !self.has_carrier() {
            down("its device has no carrier")
        } else if let Some(queue) = self.stalls.as_ref().and_then(StallWatch::stalled) {
            Condition::Failed(format!(
                "the kernel no longer fills the ring of queue {queue}; this happens after an SCTP train or a UDP train that \
                 needs fragmenting, sent by a peer on this host"
            ))
        } else {
            Condition::Up
        };
        let misfit = self.fit.as_ref().and_then(|fit| fit.fault(&self.link));
        let condition = misfit.map_or(condition, Condition::Failed);
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        DeviceState { condition, mtu, connections: 0, connected: false }
    }

    fn merges_by_lro(&self) -> bool {
        !self.ours && self.link.merges_by_lro()
    }

    fn host_address(&self) -> Option<Ipv4Addr> {
        if self.ours { None } else { self.link.ipv4() }
    }

    fn links(&self) -> Vec<(String, u16)> {
        let of = |link: &Link| {
            Some((link.name().to_owned(), u16::try_from(link.mtu().ok()?).unwrap_or(u16::MAX)))
        };
        let lower = self.link.lower();
        [&self.link].into_iter().chain(&lower).filter_map(of).collect()
    }

    fn spread(&self) -> Spread {
        self.spread.clone()
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        if !self.ours {
            return Ok(());
        }
        self.link.set_mtu(mtu.into()).map_err(|error| Problem::new(error.to_string()))
    }
}

impl HostLink {
    /// Whether the device has a carrier. The kernel says so of a device that came up just now only
    /// after up to a second, unless it is asked about the device itself; that waits for others who
    /// change devices.
    fn has_carrier(&self) -> bool {
        let is_running = self.link.has_carrier().unwrap_or(false);
        is_running || self.ours && self.link.detects_carrier().unwrap_or(false)
    }
}

/// Returns whether a link was not opened for lack of a privilege.
pub(crate) fn link_denied(error: &LinkError) -> bool {
    match error {
        LinkError::NotPermitted { .. } => true,
        LinkError::Io { source, .. } | LinkError::Namespace { source, .. } => denied(source),
        _ => false,
    }
}

/// Returns whether a system call was refused for lack of a privilege.
pub(crate) fn denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
