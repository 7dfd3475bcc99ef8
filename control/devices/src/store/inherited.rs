//! Descriptors of ports that an earlier process left. They are sorted by its manifest and wait here
//! until ports take them.

use super::manifest::{List, Manifest, What};
use super::{MANIFEST, SESSION, full_names, session_name};
use config::MacAddress;
use problem::Problem;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The descriptors that were left for one port.
pub(crate) struct Inherited {
    pub(super) what: What,
    /// The address that the port had in that process, if its configuration has none.
    pub(crate) address: Option<MacAddress>,
    /// The descriptors: one per queue of a TAP device, those of a ring, or a guest's socket.
    pub(crate) files: Vec<Arc<OwnedFd>>,
    /// A guest's session.
    pub(crate) session: Option<Carrier>,
}

/// A guest's session, until a port takes it. It is closed on another thread, because the front end
/// chose its files, and some take long to close.
pub(crate) struct Carrier(Option<OwnedFd>);

impl Carrier {
    pub(crate) fn take(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        close_aside(self.0.take().into_iter().collect());
    }
}

impl Inherited {
    /// Closes the descriptors. When this returns, the device is no longer busy and the path's
    /// socket takes no connections.
    pub(super) fn close(self) {
        if let What::Tap { .. } = self.what {
            return;
        }
        // Closing a socket also closes files that front ends have sent and chosen.
        for listener in &self.files {
            // The descriptor may be of any kind.
            let _ = shutdown(listener, Shutdown::Both);
        }
        close_aside(self.files.into_iter().filter_map(Arc::into_inner).collect());
    }
}

/// Returns the list that describes these descriptors.
pub(super) fn list_of(inherited: &BTreeMap<String, Inherited>) -> List {
    let ports = inherited.iter().map(|(name, left)| (name.clone(), left.what.clone()));
    let addresses = inherited.iter().filter_map(|(name, left)| Some((name.clone(), left.address?)));
    List { ports: ports.collect(), addresses: addresses.collect() }
}

/// Descriptors that their manifest describes completely.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) manifest: Option<Manifest>,
    pub(super) ports: BTreeMap<String, Inherited>,
    /// The problem that made the other descriptors unusable.
    pub(super) problem: Option<Problem>,
}

/// Sorts descriptors by the ports that the manifest among them names. The others are closed.
pub(super) fn sort(given: Vec<(String, OwnedFd)>) -> Sorted {
    let (sessions, files): (Vec<_>, Vec<_>) =
        given.into_iter().partition(|(name, _)| name.ends_with(SESSION));
    let mut files: BTreeMap<String, OwnedFd> = files.into_iter().collect();
    let sessions = sessions.into_iter().map(|(name, file)| (name, Carrier(Some(file))));
    let mut sessions: BTreeMap<String, Carrier> = sessions.collect();
    let Some(manifest) = files.remove(MANIFEST).map(Manifest::of) else {
        return Sorted {
            problem: Some(Problem::new("there is no manifest that describes them")),
            ..Sorted::default()
        };
    };
    let list = match manifest.read() {
        Ok(list) => list,
        Err(problem) => return Sorted { problem: Some(problem), ..Sorted::default() },
    };
    let mut ports = BTreeMap::new();
    let mut missing = None;
    for (port, what) in list.ports {
        let address = list.addresses.get(&port).copied();
        let session = sessions.remove(&session_name(&port));
        let names = full_names(&port, what.files().into());
        let of_port: Option<Vec<_>> =
            names.iter().map(|name| files.remove(name).map(Arc::new)).collect();
        match of_port {
            Some(files) => drop(ports.insert(port, Inherited { what, address, files, session })),
            None => missing = Some(Problem::new(format!("a descriptor of port {port} is missing"))),
        }
    }
    let rest = files
        .pop_first()
        .map(|(name, _)| Problem::new("the manifest does not describe a descriptor").seen(name));
    Sorted { manifest: Some(manifest), ports, problem: missing.or(rest) }
}

/// Closes files on another thread.
fn close_aside(files: Vec<OwnedFd>) {
    if !files.is_empty() {
        // If no thread can be started, they are closed here.
        let _ = std::thread::Builder::new().name("close".into()).spawn(move || drop(files));
    }
}
