//! Opening an xdp port. It uses AF_PACKET if AF_XDP is not available because of a privilege, a
//! driver or an MTU.

use crate::contract::{DeviceState, OpenError, Opened, Watch};
use crate::link::{HostLink, denied, link_denied};
use crate::packet;
use crate::store::Store;
use config::PortConfig;
use ports::packet::Spread;
use ports::xdp::{self, Mode, XdpError, XdpOptions};
use problem::Problem;

/// The receive mode of a port that fell back to AF_PACKET.
const BY_PACKET: &str = "by packet";

/// Opens the network device `name`, by AF_PACKET with so many queues if that is what is left.
pub(crate) fn open(
    port: &PortConfig,
    name: &str,
    queues: u16,
    store: &Store,
) -> Result<Opened, OpenError> {
    let mut options = XdpOptions::new(name);
    options.netns = port.netns_path();
    options.queues = port.queues.map(|queues| queues.0.into());
    options.promiscuous = port.promiscuous.unwrap_or(true);
    match xdp::open(&options) {
        Ok(opened) => {
            let (link, fit) = (opened.link, Some(opened.fit));
            let index = link.index().unwrap_or_default();
            let link = HostLink {
                link,
                index,
                ours: false,
                spread: Spread::Single,
                stalls: None,
                fit,
                keeping: None,
            };
            let watch = Interface { watch: Box::new(link), way: way(opened.mode) };
            Ok(Opened {
                device: opened.device,
                degraded: opened.limits,
                watch: Box::new(watch),
                earlier_mac: None,
            })
        }
        Err(error) if error.leaves_packet() => instead(port, name, queues, store, &error),
        Err(error) => Err(refusal(&error)),
    }
}

/// Opens the port as a packet port, and adds the reason to what it lacks.
fn instead(
    port: &PortConfig,
    name: &str,
    queues: u16,
    store: &Store,
    error: &XdpError,
) -> Result<Opened, OpenError> {
    let reason =
        format!("{error}: the port uses AF_PACKET instead, until it is removed and added again");
    let mut opened = packet::open(port, name, queues, store, None).map_err(|packet| OpenError {
        reason: format!("{error}; AF_PACKET failed too: {}", packet.reason),
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
        XdpError::Link(error) => link_denied(error),
        _ => false,
    };
    OpenError { reason: error.to_string(), denied }
}

/// The link behind an xdp port, or behind the packet port that replaces it.
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
