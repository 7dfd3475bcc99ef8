//! Opening a TAP port, with the previous process's descriptors if there are any.

use crate::contract::{OpenError, Opened};
use crate::link::{HostLink, denied, link_denied};
use crate::resume::resume;
use crate::store::{Store, What};
use config::PortConfig;
use ports::packet::Spread;
use ports::tap::{self, TapError, TapOptions};
use rustix::io::Errno;
use wire::Mac;

/// Opens the TAP device `name` with so many queues. One that is made gets this address.
pub(crate) fn open(
    port: &PortConfig,
    name: &str,
    (queues, mac): (u16, Option<Mac>),
    store: &Store,
) -> Result<Opened, OpenError> {
    let mut options = TapOptions::new(name);
    options.queues = queues;
    options.mtu = port.mtu.map(|mtu| mtu.0);
    options.netns = port.netns_path();
    options.napi = port.napi.unwrap_or(false);
    options.mac = mac;
    let by = |files: &[_]| tap::open_kept(&options, files);
    let what = What::of(port, queues);
    let opened =
        resume(port, what.as_ref(), store, by, |error| matches!(error, TapError::Kept { .. }))
            .and_then(|kept| match kept {
                Some((opened, earlier_mac)) => Ok((opened, earlier_mac)),
                None => open_new(&options, port.queues.is_none()).map(|opened| (opened, None)),
            });
    let (opened, earlier_mac) = opened
        .map_err(|error| OpenError { denied: tap_denied(&error), reason: error.to_string() })?;
    let (link, spread) = (opened.link, Spread::Single);
    let index = link.index().unwrap_or_default();
    let keeping = what.map(|what| store.keep(port.name.as_str(), what, &opened.files));
    let watch =
        Box::new(HostLink { link, index, ours: true, spread, stalls: None, fit: None, keeping });
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch, earlier_mac })
}

/// Opens a device of which nothing is kept. One that somebody made for a single queue is opened with
/// that, unless the configuration wants more.
fn open_new(options: &TapOptions, one_will_do: bool) -> Result<tap::Opened, TapError> {
    match tap::open(options) {
        Err(TapError::Attach { source, .. })
            if one_will_do && Errno::from_io_error(&source) == Some(Errno::INVAL) =>
        {
            tap::open(&TapOptions { queues: 1, ..options.clone() })
        }
        opened => opened,
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
