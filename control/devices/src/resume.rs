//! Opening a port with the descriptors that an earlier process left for it.

use crate::store::{Store, What};
use config::PortConfig;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::Mac;

/// Opens a port with an earlier process's descriptors, and returns the address that it had there;
/// `None` if it must be opened anew, because there are none or `are_unfit` says so of the error.
/// After any other error the descriptors wait for the next attempt.
pub(crate) fn resume<T, E: Display>(
    port: &PortConfig,
    what: Option<&What>,
    store: &Store,
    open: impl FnOnce(&[Arc<OwnedFd>]) -> Result<T, E>,
    are_unfit: impl FnOnce(&E) -> bool,
) -> Result<Option<(T, Option<Mac>)>, E> {
    let name = port.name.as_str();
    let Some(left) = what.and_then(|what| store.take(name, what)) else {
        return Ok(None);
    };
    match open(&left.files) {
        Ok(opened) => {
            tracing::info!(target: "control::devices", "port {name} resumes with the previous process's descriptors");
            Ok(Some((opened, left.address.map(|address| address.0))))
        }
        Err(error) if are_unfit(&error) => {
            tracing::warn!(target: "control::devices", "port {name} opens its device anew instead of resuming: {error}");
            store.discard(name, left);
            Ok(None)
        }
        Err(error) => {
            store.put_back(name, left);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;

    /// Returns whether opening fails with this error, and whether the descriptors are still kept
    /// for the next attempt.
    fn is_left_after(error: &'static str) -> (bool, bool) {
        let config = Config::from_toml("t", "[[port]]\nname='a'\ntap='t'").unwrap();
        let port = &config.ports[0];
        let what = What::of(port, 1).unwrap();
        let (kept, _) = std::io::pipe().unwrap();
        let (before, store) = (Store::default(), Store::default());
        let _keeping = before.keep("a", what.clone(), &[Arc::new(kept.into())]);
        store.inherit(before.given());
        let refuse = |_: &[Arc<OwnedFd>]| Err::<(), _>(error);
        let opened = resume(port, Some(&what), &store, refuse, |error| *error == "unfit");
        (opened.is_err(), store.take("a", &what).is_some())
    }

    /// An attempt that failed for lack of descriptors closed the kept ones, and with them the
    /// device.
    #[test]
    fn what_was_kept_waits_unless_it_is_refused() {
        assert_eq!(is_left_after("no helper"), (true, true));
        assert_eq!(is_left_after("unfit"), (false, false));
    }
}
