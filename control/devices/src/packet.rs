//! Opening a packet port, with the previous process's ring if there is one.

use crate::contract::{OpenError, Opened};
use crate::link::{HostLink, denied, link_denied};
use crate::resume::resume;
use crate::store::{Store, What};
use config::{PortConfig, PortRole};
use ports::Device;
use ports::kernel_path::KernelPath;
use ports::packet::{self, PacketError, PacketOptions};
use wire::Mac;

/// Opens the network device `name` by AF_PACKET with so many queues. An xdp port falls back to this;
/// its descriptors are not kept.
pub(crate) fn open(
    port: &PortConfig,
    name: &str,
    queues: u16,
    store: &Store,
    kernel_path: Option<&KernelPath>,
) -> Result<Opened, OpenError> {
    let mut options = PacketOptions::new(name);
    options.netns = port.netns_path();
    options.queues = u8::try_from(queues).unwrap_or(u8::MAX);
    options.promiscuous = port.promiscuous.unwrap_or(true);
    options.kernel_path = kernel_path.cloned();
    options.is_station = port.role() == PortRole::Vnic;
    let Interface { device, degraded, link, earlier_mac } = open_interface(port, options, store)?;
    Ok(Opened { device, degraded, watch: Box::new(link), earlier_mac })
}

/// An opened network device.
pub(crate) struct Interface {
    pub(crate) device: Device,
    pub(crate) degraded: Vec<String>,
    pub(crate) link: HostLink,
    pub(crate) earlier_mac: Option<Mac>,
}

/// Opens a network device for a port, with the ring that an earlier process left if there is one.
pub(crate) fn open_interface(
    port: &PortConfig,
    mut options: PacketOptions,
    store: &Store,
) -> Result<Interface, OpenError> {
    let what = What::of(port, options.queues.into());
    options.kept = what.is_some();
    let by = |files: &[_]| packet::open_kept(&options, files);
    let opened =
        resume(port, what.as_ref(), store, by, |error| matches!(error, PacketError::Kept { .. }))
            .and_then(|kept| match kept {
                Some((opened, earlier_mac)) => Ok((opened, earlier_mac)),
                None => open_new(&options, port.queues.is_none()).map(|opened| (opened, None)),
            });
    let (opened, earlier_mac) = opened
        .map_err(|error| OpenError { denied: packet_denied(&error), reason: error.to_string() })?;
    let what = what.filter(|_| !opened.files.is_empty());
    let keeping = what.map(|what| store.keep(port.name.as_str(), what, &opened.files));
    let (link, spread, stalls) = (opened.link, opened.spread, Some(opened.stalls));
    let index = link.index().unwrap_or_default();
    let link = HostLink { link, index, ours: false, spread, stalls, fit: None, keeping };
    let (device, degraded) = (opened.device, opened.degraded);
    Ok(Interface { device, degraded, link, earlier_mac })
}

/// Opens a device of which nothing is kept. Where several queues need its link up, it is opened with
/// one, unless the configuration wants more.
fn open_new(options: &PacketOptions, one_will_do: bool) -> Result<packet::Opened, PacketError> {
    match packet::open(options) {
        Err(down @ PacketError::Down { .. }) if one_will_do => {
            let mut opened = packet::open(&PacketOptions { queues: 1, ..options.clone() })?;
            opened.degraded.push(format!("one queue until it is opened again: {down}"));
            Ok(opened)
        }
        opened => opened,
    }
}

/// Returns whether the device was not opened for lack of a privilege.
pub(crate) fn packet_denied(error: &PacketError) -> bool {
    match error {
        PacketError::Socket { source, .. }
        | PacketError::Set { source, .. }
        | PacketError::Ring { source, .. } => denied(source),
        PacketError::Down { .. } | PacketError::Kept { .. } => false,
        PacketError::Link(error) => link_denied(error),
    }
}
