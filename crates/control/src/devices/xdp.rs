//! Opening an xdp port, by AF_PACKET where AF_XDP cannot be had: a privilege, a driver or an MTU may be what lacks.

use super::{DeviceState, HostLink, OpenError, Opened, Watch, denied, netns, open_packet};
use crate::Problem;
use crate::config::PortConfig;
use ports::packet::Spread;
use ports::xdp::{self, Mode, XdpError, XdpOptions};

/// What the device of a port that fell back is called.
const BY_PACKET: &str = "by packet";

pub(super) fn open(port: &PortConfig, name: &str) -> Result<Opened, OpenError> {
    let mut options = XdpOptions::new(name);
    options.netns = netns(port);
    options.queues = port.queues.map(|queues| queues.0.into());
    options.promiscuous = port.promiscuous.unwrap_or(true);
    match xdp::open(&options) {
        Ok(opened) => {
            let (link, fit) = (opened.link, Some(opened.fit));
            let link = HostLink {
                link,
                ours: false,
                spread: Spread::Single,
                stalls: None,
                fit,
                keeping: None,
            };
            let watch = Interface { watch: Box::new(link), way: way(opened.mode) };
            Ok(Opened { device: opened.device, degraded: opened.limits, watch: Box::new(watch) })
        }
        Err(error) if error.leaves_packet() => instead(port, name, &error),
        Err(error) => Err(refusal(&error)),
    }
}

/// The port as a packet port, which says why it is one.
fn instead(port: &PortConfig, name: &str, error: &XdpError) -> Result<Opened, OpenError> {
    let reason = format!(
        "{error}: frames come by AF_PACKET instead, until the port is removed and added again"
    );
    let mut opened = open_packet(port, name).map_err(|packet| OpenError {
        reason: format!("{error}; nor by AF_PACKET: {}", packet.reason),
        denied: packet.denied,
    })?;
    opened.degraded.insert(0, reason);
    let watch = Interface { watch: opened.watch, way: BY_PACKET };
    Ok(Opened { watch: Box::new(watch), ..opened })
}

fn way(mode: Mode) -> &'static str {
    match (mode.native, mode.zero_copy) {
        (true, true) => "native, zero-copy",
        (true, false) => "native, copied",
        (false, _) => "generic, copied",
    }
}

fn refusal(error: &XdpError) -> OpenError {
    let denied = match error {
        XdpError::Set { source, .. } | XdpError::Program { source, .. } => denied(source),
        XdpError::Link(error) => super::link_denied(error),
        _ => false,
    };
    OpenError { reason: error.to_string(), denied }
}

/// The link behind an xdp port, or behind the packet port in its place.
struct Interface {
    watch: Box<dyn Watch>,
    way: &'static str,
}

impl Watch for Interface {
    fn state(&self) -> DeviceState {
        self.watch.state()
    }

    fn spread(&self) -> Spread {
        self.watch.spread()
    }

    fn links(&self) -> Vec<(String, u16)> {
        self.watch.links()
    }

    fn way(&self) -> Option<&'static str> {
        Some(self.way)
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        self.watch.set_mtu(mtu)
    }
}
