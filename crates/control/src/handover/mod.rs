//! Descriptors that outlive the process: those of TAP devices, so that a device, its carrier and what waits in its queues are
//! there for the next process.
//!
//! A [`Store`] has descriptors by name. What each is says the `manifest`, a memfd that is kept like any other. The same list
//! of names and descriptors goes two ways: to systemd's descriptor store as ports open and close, so that it is there after
//! SIGKILL as well (`systemd`), and to a successor that asks for it, when this process has stopped its ports (`successor`).
//! What the successor does not want, or cannot use, is closed, in systemd's store too, before anything is opened anew.

mod listener;
mod manifest;
mod message;
mod successor;
mod systemd;

pub(crate) use listener::Listener;
pub use manifest::{What, parse};
pub(crate) use successor::{hand_over, take_over};

use crate::Problem;
use crate::config::PortConfig;
use manifest::Manifest;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the manifest's own descriptor. Those of ports have a dot.
const MANIFEST: &str = "manifest";

/// Descriptors by name and number. Clones are the same store.
#[derive(Clone, Default)]
pub struct Store(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    /// Of an earlier process, not yet wanted.
    inherited: BTreeMap<String, Inherited>,
    kept: BTreeMap<String, Entry>,
    manifest: Option<Manifest>,
    /// Told of each change.
    systemd: Option<systemd::Systemd>,
    /// What systemd has.
    pushed: BTreeSet<String>,
    /// Ports that close from now on close because the process ends.
    is_sealed: bool,
    /// Of the entry that is made next.
    number: u64,
}

/// What is kept under a name.
struct Entry {
    what: What,
    files: Vec<Arc<OwnedFd>>,
    number: u64,
}

/// Keeps the descriptors of a port as long as this lives.
pub struct Keeping {
    store: Store,
    name: String,
    number: u64,
}

impl Store {
    /// Takes what systemd has kept, and tells it of changes from now on. To be called once, before the process has threads
    /// or descriptors that it opened itself.
    pub(crate) fn join_systemd(&self) {
        let Some(systemd) = systemd::Systemd::from_environment() else { return };
        let given = systemd::given();
        self.content().systemd = Some(systemd);
        self.inherit(given);
    }

    /// Takes what an earlier process left. What is not in its manifest is closed.
    pub(crate) fn inherit(&self, given: Vec<(String, OwnedFd)>) {
        if given.is_empty() {
            return;
        }
        let mut content = self.content();
        content.pushed = given.iter().map(|(name, _)| name.clone()).collect();
        let Sorted { manifest, ports, problem } = sort(given);
        if let Some(problem) = problem {
            tracing::warn!("not all that an earlier process left is used: {problem}");
        }
        let of = |(name, (_, files)): (&String, &Inherited)| full_names(name, files.len());
        let mut known: BTreeSet<String> = ports.iter().flat_map(of).collect();
        known.extend(manifest.iter().map(|_| MANIFEST.to_owned()));
        let unknown: Vec<String> = content.pushed.difference(&known).cloned().collect();
        (content.manifest, content.inherited) = (manifest, ports);
        content.remove_from_systemd(&unknown);
    }

    /// Closes what an earlier process left and no port is going to take, so that no device is busy because of it.
    pub(crate) fn want<'p>(&self, ports: impl Iterator<Item = &'p PortConfig>) {
        let wanted: BTreeMap<String, What> =
            ports.filter_map(|port| Some((port.name.to_string(), What::of(port)?))).collect();
        let mut content = self.content();
        let inherited = take(&mut content.inherited);
        let mut names = Vec::new();
        for (name, (what, files)) in inherited {
            if wanted.get(&name) == Some(&what) {
                content.inherited.insert(name, (what, files));
                continue;
            }
            tracing::info!("port {name} is another than before: its descriptors are closed");
            names.extend(full_names(&name, files.len()));
        }
        content.remove_from_systemd(&names);
    }

    /// What an earlier process left for a port, one descriptor for each queue.
    pub(crate) fn take(&self, name: &str, wanted: &What) -> Option<Vec<OwnedFd>> {
        let (what, files) = self.content().inherited.remove(name)?;
        if what == *wanted {
            return Some(files);
        }
        let count = files.len();
        drop(files);
        self.discard(name, count);
        None
    }

    /// Has systemd close what could not be used.
    pub(crate) fn discard(&self, name: &str, count: usize) {
        self.content().remove_from_systemd(&full_names(name, count));
    }

    /// Keeps the descriptors of a port.
    pub(crate) fn keep(&self, name: &str, what: What, files: &[Arc<OwnedFd>]) -> Keeping {
        let mut content = self.content();
        content.forget(name);
        content.number += 1;
        let number = content.number;
        let entry = Entry { what, files: files.to_vec(), number };
        content.kept.insert(name.to_owned(), entry);
        content.write();
        for (full, file) in full_names(name, files.len()).iter().zip(files) {
            content.push(full, file.as_fd());
        }
        Keeping { store: self.clone(), name: name.to_owned(), number }
    }

    /// From now on ports close because the process ends: what is kept stays.
    pub(crate) fn seal(&self) {
        self.content().is_sealed = true;
    }

    fn forget(&self, name: &str, number: u64) {
        let mut content = self.content();
        // The port may have been opened anew meanwhile.
        let is_it = content.kept.get(name).is_some_and(|entry| entry.number == number);
        if !content.is_sealed && is_it {
            content.forget(name);
            content.write();
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.store.forget(&self.name, self.number);
    }
}

impl Content {
    fn forget(&mut self, name: &str) {
        let Some(entry) = self.kept.remove(name) else { return };
        let names = full_names(name, entry.files.len());
        drop(entry);
        self.remove_from_systemd(&names);
    }

    /// Says in the manifest what is kept. Without one nothing is lost but the next process's start: it opens all anew.
    fn write(&mut self) {
        if let Err(error) = self.try_write() {
            tracing::warn!("descriptors cannot be kept for the next process: {error}");
        }
    }

    fn try_write(&mut self) -> std::io::Result<()> {
        let manifest = self.manifest.take().map_or_else(Manifest::new, Ok)?;
        self.push(MANIFEST, manifest.as_fd());
        let kept = self.kept.iter().map(|(name, entry)| (name.clone(), entry.what.clone()));
        self.manifest.insert(manifest).write(&kept.collect())
    }

    /// Puts a descriptor into systemd's store, unless that has it already.
    fn push(&mut self, name: &str, file: BorrowedFd<'_>) {
        if let Some(systemd) = &self.systemd
            && self.pushed.insert(name.to_owned())
        {
            systemd.push(name, file);
        }
    }

    fn remove_from_systemd(&mut self, names: &[String]) {
        if let Some(systemd) = &self.systemd {
            systemd.remove(names);
        }
        self.pushed.retain(|name| !names.contains(name));
    }

    /// All that is kept, the manifest last.
    fn all(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let of = |(name, entry): (&String, &Entry)| full_names(name, entry.files.len());
        let names = self.kept.iter().flat_map(of);
        let files =
            self.kept.values().flat_map(|entry| entry.files.iter().map(|file| file.as_fd()));
        let manifest = self.manifest.iter().map(|file| (MANIFEST.to_owned(), file.as_fd()));
        names.zip(files).chain(manifest).collect()
    }
}

/// The names of a port's descriptors: letters, digits, `.`, `_` and `-`, as systemd takes them.
fn full_names(port: &str, queues: usize) -> Vec<String> {
    (0..queues).map(|queue| format!("{port}.{queue}")).collect()
}

/// What it is, and its descriptors in the order of the queues.
type Inherited = (What, Vec<OwnedFd>);

/// What an earlier process left, as far as its manifest tells what it is and it is all there.
#[derive(Default)]
struct Sorted {
    manifest: Option<Manifest>,
    ports: BTreeMap<String, Inherited>,
    /// What is wrong with the rest.
    problem: Option<Problem>,
}

fn sort(given: Vec<(String, OwnedFd)>) -> Sorted {
    let mut files: BTreeMap<String, OwnedFd> = given.into_iter().collect();
    let Some(manifest) = files.remove(MANIFEST).map(Manifest::of) else {
        return Sorted {
            problem: Some(Problem::new("nothing says what it is")),
            ..Sorted::default()
        };
    };
    let named = match manifest.read() {
        Ok(named) => named,
        Err(problem) => return Sorted { problem: Some(problem), ..Sorted::default() },
    };
    let mut ports = BTreeMap::new();
    let mut missing = None;
    for (port, what) in named {
        let names = full_names(&port, what.queues().into());
        let of_port: Option<Vec<OwnedFd>> = names.iter().map(|name| files.remove(name)).collect();
        match of_port {
            Some(of_port) => drop(ports.insert(port, (what, of_port))),
            None => missing = Some(Problem::new(format!("a queue of port {port} is missing"))),
        }
    }
    let rest = files
        .pop_first()
        .map(|(name, _)| Problem::new("the manifest does not say what a descriptor is").seen(name));
    Sorted { manifest: Some(manifest), ports, problem: missing.or(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn port(text: &str) -> PortConfig {
        Config::from_toml("t", &format!("[[port]]\nname='a'\n{text}")).unwrap().ports.remove(0)
    }

    /// What a store hands over, as another process gets it.
    fn given(store: &Store) -> Vec<(String, OwnedFd)> {
        let content = store.content();
        let all = content.all().into_iter();
        all.map(|(name, file)| (name, file.try_clone_to_owned().unwrap())).collect()
    }

    fn two_queues() -> (Store, What, Keeping) {
        let store = Store::default();
        let what = What::of(&port("tap='tap0'\nqueues=2")).unwrap();
        let files = [file(), file()].map(Arc::new);
        let keeping = store.keep("a", what.clone(), &files);
        (store, what, keeping)
    }

    #[test]
    fn what_is_kept_is_taken_once_by_the_same_port() {
        let (store, what, _keeping) = two_queues();
        let next = Store::default();
        next.inherit(given(&store));
        next.want([port("tap='tap0'\nqueues=2")].iter());
        assert_eq!(next.take("a", &what).map(|files| files.len()), Some(2));
        assert!(next.take("a", &what).is_none());
    }

    #[test]
    fn a_port_that_differs_gets_nothing() {
        for text in [
            "tap='tap1'\nqueues=2",
            "tap='tap0'",
            "tap='tap0'\nqueues=2\nnetns='other'",
            "tap='tap0'\nqueues=2\nnapi=true",
            "packet='tap0'\nqueues=2",
        ] {
            let (store, what, _keeping) = two_queues();
            let next = Store::default();
            next.inherit(given(&store));
            next.want([port(text)].iter());
            assert!(next.take("a", &what).is_none(), "{text}");
        }
    }

    #[test]
    fn a_closed_port_is_forgotten_unless_the_process_ends() {
        let (store, _, keeping) = two_queues();
        drop(keeping);
        assert_eq!(given(&store).len(), 1, "the manifest alone");
        let (store, _, keeping) = two_queues();
        store.seal();
        drop(keeping);
        assert_eq!(given(&store).len(), 3);
    }

    /// A port that is opened anew is kept before what it was is dropped.
    #[test]
    fn an_older_opening_does_not_take_the_newer_one_away() {
        let (store, what, older) = two_queues();
        let _newer = store.keep("a", what, &[file(), file()].map(Arc::new));
        drop(older);
        assert_eq!(given(&store).len(), 3);
    }

    #[test]
    fn without_its_manifest_or_a_queue_nothing_is_used() {
        for missing in [MANIFEST, "a.0", "a.1"] {
            let (store, what, _keeping) = two_queues();
            let mut given = given(&store);
            given.retain(|(name, _)| name != missing);
            let next = Store::default();
            next.inherit(given);
            assert!(next.take("a", &what).is_none(), "{missing}");
        }
    }
}
