//! Opening a TAP port, by the descriptors of the process before where there are some.

use super::{HostLink, OpenError, Opened, denied, link_denied, netns, queues};
use crate::config::PortConfig;
use crate::handover::{Store, What};
use ports::packet::Spread;
use ports::tap::{self, TapError, TapOptions};

pub(super) fn open(port: &PortConfig, name: &str, store: &Store) -> Result<Opened, OpenError> {
    let mut options = TapOptions::new(name);
    options.queues = queues(port);
    options.mtu = port.mtu.map(|mtu| mtu.0);
    options.netns = netns(port);
    options.napi = port.napi.unwrap_or(false);
    let kept = open_kept(port, &options, store);
    let opened = kept
        .map_or_else(|| tap::open(&options), Ok)
        .map_err(|error| OpenError { denied: tap_denied(&error), reason: error.to_string() })?;
    let (link, spread) = (opened.link, Spread::Single);
    let keeping = What::of(port).map(|what| store.keep(port.name.as_str(), what, &opened.files));
    let watch = Box::new(HostLink { link, ours: true, spread, stalls: None, fit: None, keeping });
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch })
}

/// By what an earlier process left; `None`: it is to be opened anew.
fn open_kept(port: &PortConfig, options: &TapOptions, store: &Store) -> Option<tap::Opened> {
    let (name, what) = (port.name.as_str(), What::of(port)?);
    let files = store.take(name, &what)?.files;
    let count = files.len();
    match tap::open_kept(options, files) {
        Ok(opened) => {
            tracing::info!("port {name} goes on with the descriptors of the process before");
            Some(opened)
        }
        Err(error) => {
            tracing::warn!("port {name} is opened anew: {error}");
            store.discard(name, count);
            None
        }
    }
}

fn tap_denied(error: &TapError) -> bool {
    match error {
        TapError::NoTun(source)
        | TapError::Attach { source, .. }
        | TapError::Set { source, .. } => denied(source),
        TapError::Link(error) => link_denied(error),
        TapError::Queues { .. } | TapError::Kept { .. } => false,
    }
}
