//! Descriptors that outlive the process. They are those of TAP devices, which keep a device, its
//! carrier and its queued frames for the next process; those of packet rings, in which frames wait
//! too; the sockets to which guests' front ends connect; and, after an orderly end, sessions with
//! connected front ends.
//!
//! A [`Store`] holds descriptors by name. The `manifest`, a memfd kept like the others, describes
//! each. The same names and descriptors go two ways: to systemd's descriptor store as ports open
//! and close, so that they survive SIGKILL (`systemd`), and to a successor that asks the daemon for
//! them, once it has stopped its ports. The next process closes descriptors that it does not want
//! or cannot use, in systemd's store too, before it opens anything anew.

mod inherited;
mod manifest;
pub mod message;
mod systemd;

pub(crate) use inherited::{Carrier, Inherited};
pub use manifest::{List, VERSION, What, parse};

use config::{MacAddress, PortConfig, Scale};
use inherited::{Sorted, list_of, sort};
use manifest::Manifest;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the manifest's own descriptor. Names of ports' descriptors contain a dot.
pub const MANIFEST: &str = "manifest";

/// Suffix of the name of a port's session.
const SESSION: &str = ".session";

/// Descriptors by name and number. Clones share the store.
#[derive(Clone, Default)]
pub struct Store(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    /// Descriptors of an earlier process that no port has taken yet.
    inherited: BTreeMap<String, Inherited>,
    /// The part of that process's list that the next process still needs: a port stays in it until
    /// its descriptors are kept anew or closed, so that a process that ends before all ports are
    /// open loses none.
    left: List,
    /// Names in systemd's store that the next process must not find: sessions, and those in no
    /// manifest.
    unknown: Vec<String>,
    kept: BTreeMap<String, Entry>,
    /// Addresses that ports must keep in the next process.
    addresses: BTreeMap<String, MacAddress>,
    manifest: Option<Manifest>,
    /// systemd's descriptor store, which is told each change.
    systemd: Option<systemd::Systemd>,
    /// Names in systemd's store.
    pushed: BTreeSet<String>,
    /// Whether ports now close because the process ends.
    is_sealed: bool,
    /// Number of the next entry.
    number: u64,
    /// Callers of [`Store::in_one_list`] that are at work.
    lists: usize,
    /// Whether the manifest waits for them.
    is_late: bool,
}

/// The descriptors kept under a name.
struct Entry {
    what: What,
    files: Vec<Arc<OwnedFd>>,
    /// A stopped session.
    session: Option<OwnedFd>,
    number: u64,
}

/// Keeps a port's descriptors until dropped.
pub struct Keeping {
    store: Store,
    name: String,
    number: u64,
}

impl Store {
    /// Takes the descriptors that systemd has kept, and reports changes to it from now on. Call it
    /// once, before the process has threads or descriptors of its own.
    pub fn join_systemd(&self) {
        let Some(systemd) = systemd::Systemd::from_environment() else { return };
        let given = systemd::given();
        self.content().systemd = Some(systemd);
        self.inherit(given);
    }

    /// Takes the descriptors that an earlier process left. Those not in its manifest are closed.
    pub fn inherit(&self, given: Vec<(String, OwnedFd)>) {
        if given.is_empty() {
            return;
        }
        let mut content = self.content();
        content.pushed = given.iter().map(|(name, _)| name.clone()).collect();
        let Sorted { manifest, ports, problem } = sort(given);
        if let Some(problem) = problem {
            tracing::warn!(target: "control::handover", "not all descriptors of the previous process can be used: {problem}");
        }
        let of = |(name, left): (&String, &Inherited)| full_names(name, left.files.len());
        // A session resumes only once, so systemd's copy is of no further use.
        let mut known: BTreeSet<String> = ports.iter().flat_map(of).collect();
        known.extend(manifest.iter().map(|_| MANIFEST.to_owned()));
        let unknown: Vec<String> = content.pushed.difference(&known).cloned().collect();
        content.left = list_of(&ports);
        (content.manifest, content.inherited) = (manifest, ports);
        content.unknown = unknown;
    }

    /// Closes sessions that no port has taken; their front ends must reconnect. Sockets and devices
    /// wait for ports that are opened later.
    pub fn end_sessions(&self) {
        let mut content = self.content();
        content.inherited.values_mut().for_each(|left| drop(left.session.take()));
    }

    /// Closes descriptors that no configured port will take, so that they keep no device busy.
    /// Until then systemd has all of them: a process that ends earlier, for example because it has
    /// no configuration, leaves them to the next one.
    pub fn want<'p>(&self, ports: impl Iterator<Item = &'p PortConfig>, scale: Scale) {
        let what = |port: &PortConfig| What::of(port, self.queue_pairs(port, scale));
        let wanted: BTreeMap<String, What> =
            ports.filter_map(|port| Some((port.name.to_string(), what(port)?))).collect();
        let mut content = self.content();
        let inherited = take(&mut content.inherited);
        let mut names = take(&mut content.unknown);
        for (name, left) in inherited {
            if wanted.get(&name) == Some(&left.what) {
                content.inherited.insert(name, left);
                continue;
            }
            tracing::info!(target: "control::handover", "port {name} has changed: its kept descriptors are closed");
            names.extend(full_names(&name, left.files.len()));
            content.left.remove(&name);
            left.close();
        }
        content.remove_from_systemd(&names);
    }

    /// Takes the descriptors that an earlier process left for a port. `None` if there are none, or
    /// if they differ from `wanted`; those are closed.
    pub(crate) fn take(&self, name: &str, wanted: &What) -> Option<Inherited> {
        let left = self.content().inherited.remove(name)?;
        if left.what == *wanted {
            return Some(left);
        }
        self.discard(name, left);
        None
    }

    /// Returns with how many queue pairs a port opens. A TAP without the key keeps those that an
    /// earlier process left: opened anew, its device would lose its addresses.
    pub(crate) fn queue_pairs(&self, port: &PortConfig, scale: Scale) -> u16 {
        match self.content().inherited.get(port.name.as_str()).map(|left| &left.what) {
            Some(What::Tap { queues, .. }) if port.queues.is_none() => *queues,
            _ => port.queue_pairs(scale),
        }
    }

    /// Puts inherited descriptors back, for the next attempt to open the port or for the next
    /// process.
    pub(crate) fn put_back(&self, name: &str, left: Inherited) {
        self.content().inherited.insert(name.to_owned(), left);
    }

    /// Closes descriptors that are of no use, in systemd's store too.
    pub(crate) fn discard(&self, name: &str, left: Inherited) {
        let count = left.files.len();
        left.close();
        self.forget_left(name, count);
    }

    /// Closes the descriptors that an earlier process left for a removed port.
    pub fn discard_left(&self, name: &str) {
        let left = self.content().inherited.remove(name);
        left.into_iter().for_each(|left| self.discard(name, left));
    }

    /// Has systemd close descriptors that an earlier process left for a port, and that this one has
    /// closed.
    pub(crate) fn forget_left(&self, name: &str, count: usize) {
        let mut content = self.content();
        content.left.remove(name);
        content.remove_from_systemd(&full_names(name, count));
    }

    /// Keeps the descriptors of a port.
    pub(crate) fn keep(&self, name: &str, what: What, files: &[Arc<OwnedFd>]) -> Keeping {
        let mut content = self.content();
        content.forget(name);
        content.left.remove(name);
        content.number += 1;
        let number = content.number;
        let entry = Entry { what, files: files.to_vec(), session: None, number };
        content.kept.insert(name.to_owned(), entry);
        content.write();
        for (full, file) in full_names(name, files.len()).iter().zip(files) {
            content.push(full, file.as_fd());
        }
        Keeping { store: self.clone(), name: name.to_owned(), number }
    }

    /// Notes a changed configuration of an open port with a kept ring. Other kinds of ports keep
    /// the configuration with which they were opened.
    pub fn note_change(&self, port: &PortConfig) {
        let mut content = self.content();
        let entry = content.kept.get_mut(port.name.as_str());
        if let (Some(entry), Some(what @ What::Packet { .. })) = (entry, What::of(port, 1))
            && entry.what != what
        {
            entry.what = what;
            content.write();
        }
    }

    /// Returns whether kept descriptors outlive the process without a successor.
    pub fn is_with_systemd(&self) -> bool {
        self.content().systemd.is_some()
    }

    /// Waits until systemd has all kept descriptors.
    pub fn settle(&self) {
        self.content().systemd.iter().for_each(systemd::Systemd::settle);
    }

    /// Notes the addresses, by port, that ports must keep in the next process.
    pub fn note_addresses(&self, addresses: BTreeMap<String, MacAddress>) {
        let mut content = self.content();
        content.addresses = addresses;
        content.write();
    }

    /// Excludes rings from the hand-over: a worker that hangs may still give back slots that a
    /// successor has taken by then. Two processes can use the other descriptors at once: a TAP
    /// device gives each frame to one of them.
    pub fn withhold_rings(&self) {
        let mut content = self.content();
        let is_ring = |_: &String, entry: &mut Entry| matches!(entry.what, What::Packet { .. });
        let names: Vec<String> =
            content.kept.extract_if(.., is_ring).map(|(name, _)| name).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            tracing::warn!(target: "control::handover", "a worker hangs: the successor opens the packet ports anew: {names}");
            content.write();
        }
    }

    /// Does `work` and writes the manifest once at its end, not with each of its changes: a list of
    /// all ports, written for each of them, takes time by the square of their number. A process that
    /// dies meanwhile leaves the list of before, so that the next one opens the ports of `work` anew.
    pub fn in_one_list<T>(&self, work: impl FnOnce() -> T) -> T {
        self.content().lists += 1;
        let _list = OneList(self);
        work()
    }

    /// Calls `work` with the names and descriptors that the next process is to have, the manifest
    /// last if there is one.
    pub fn with_all<T>(&self, work: impl FnOnce(&[(String, BorrowedFd<'_>)]) -> T) -> T {
        let mut content = self.content();
        content.catch_up();
        work(&content.all())
    }

    /// Marks the end of the process: ports that close from now on keep their descriptors.
    pub fn seal(&self) {
        self.content().is_sealed = true;
    }

    fn forget(&self, name: &str, number: u64) {
        let mut content = self.content();
        // The port may have been reopened meanwhile.
        let is_it = content.kept.get(name).is_some_and(|entry| entry.number == number);
        if !content.is_sealed && is_it {
            content.forget(name);
            content.write();
        }
    }

    /// Returns what is handed over, as another process receives it.
    #[cfg(test)]
    pub(crate) fn given(&self) -> Vec<(String, OwnedFd)> {
        let mut content = self.content();
        content.catch_up();
        let all = content.all().into_iter();
        all.map(|(name, file)| (name, file.try_clone_to_owned().unwrap())).collect()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller of [`Store::in_one_list`] at work. Dropped also when its work panics.
struct OneList<'s>(&'s Store);

impl Drop for OneList<'_> {
    fn drop(&mut self) {
        let mut content = self.0.content();
        content.lists -= 1;
        if content.lists == 0 {
            content.catch_up();
        }
    }
}

impl Keeping {
    /// Keeps the port's stopped session.
    pub(crate) fn add_session(&self, session: OwnedFd) {
        let content = &mut *self.store.content();
        content.push(&session_name(&self.name), session.as_fd());
        if let Some(entry) = content.kept.get_mut(&self.name) {
            entry.session = Some(session);
        }
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

    /// Writes the manifest, or has it wait for callers of [`Store::in_one_list`].
    fn write(&mut self) {
        self.is_late = true;
        if self.lists == 0 {
            self.catch_up();
        }
    }

    /// Writes the manifest if it waits. Without it the next process only starts more slowly: it
    /// opens all devices anew.
    fn catch_up(&mut self) {
        if !take(&mut self.is_late) {
            return;
        }
        if let Err(error) = self.try_write() {
            tracing::warn!(target: "control::handover", "descriptors cannot be kept for the next process: {error}");
        }
    }

    fn try_write(&mut self) -> std::io::Result<()> {
        let manifest = self.manifest.take().map_or_else(Manifest::new, Ok)?;
        self.push(MANIFEST, manifest.as_fd());
        let kept = self.kept.iter().map(|(name, entry)| (name.clone(), entry.what.clone()));
        let mut list = self.left.clone();
        list.ports.extend(kept);
        list.addresses.extend(self.addresses.clone());
        self.manifest.insert(manifest).write(&list)
    }

    /// Pushes a descriptor to systemd's store, unless it is there already.
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

    /// Returns all kept descriptors, also those that no port has taken, and the manifest last.
    fn all(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let kept = self.kept.iter().map(|(name, entry)| (name, &entry.files));
        let inherited = self.inherited.iter().map(|(name, left)| (name, &left.files));
        let files = kept
            .chain(inherited)
            .flat_map(|(name, files)| full_names(name, files.len()).into_iter().zip(files))
            .map(|(name, file)| (name, file.as_fd()));
        let sessions = self.kept.iter().filter_map(|(name, entry)| {
            Some((session_name(name), entry.session.as_ref()?.as_fd()))
        });
        let manifest = self.manifest.iter().map(|file| (MANIFEST.to_owned(), file.as_fd()));
        files.chain(sessions).chain(manifest).collect()
    }
}

/// Returns the names of a port's descriptors: letters, digits, `.`, `_` and `-`, which systemd
/// accepts.
fn full_names(port: &str, queues: usize) -> Vec<String> {
    (0..queues).map(|queue| format!("{port}.{queue}")).collect()
}

/// Returns the name of a port's session. Names of the port's other descriptors end with a number.
fn session_name(port: &str) -> String {
    format!("{port}{SESSION}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn port(text: &str) -> PortConfig {
        Config::from_toml("t", &format!("[[port]]\nname='a'\n{text}")).unwrap().ports.remove(0)
    }

    fn given(store: &Store) -> Vec<(String, OwnedFd)> {
        store.given()
    }

    fn two_queues() -> (Store, What, Keeping) {
        let store = Store::default();
        let what = What::of(&port("tap='tap0'\nqueues=2"), 2).unwrap();
        let files = [file(), file()].map(Arc::new);
        let keeping = store.keep("a", what.clone(), &files);
        (store, what, keeping)
    }

    #[test]
    fn what_is_kept_is_taken_once_by_the_same_port() {
        let (store, what, _keeping) = two_queues();
        let next = Store::default();
        next.inherit(given(&store));
        next.want([port("tap='tap0'\nqueues=2")].iter(), Scale::ONE);
        assert_eq!(next.take("a", &what).map(|left| left.files.len()), Some(2));
        assert!(next.take("a", &what).is_none());
    }

    #[test]
    fn the_address_that_a_port_must_keep_goes_with_its_descriptors() {
        let (store, what, _keeping) = two_queues();
        let address = MacAddress(wire::Mac([2, 0, 0, 0, 0, 1]));
        let addresses = ["a", "removed"].map(|port| (port.to_owned(), address));
        store.note_addresses(addresses.into());
        let next = Store::default();
        next.inherit(given(&store));
        assert_eq!(next.take("a", &what).unwrap().address, Some(address));
    }

    #[test]
    fn a_list_is_written_once_for_many_ports_and_before_it_is_handed_over() {
        let store = Store::default();
        let what = What::of(&port("tap='tap0'"), 1).unwrap();
        let written =
            |store: &Store| store.content().manifest.as_ref().map(|it| it.read().unwrap());
        let _kept = store.in_one_list(|| {
            let kept = ["a", "b"].map(|name| store.keep(name, what.clone(), &[Arc::new(file())]));
            assert_eq!(written(&store), None, "not before its end");
            kept
        });
        assert_eq!(written(&store).unwrap().ports.len(), 2);
        store.in_one_list(|| {
            let _c = store.keep("c", what.clone(), &[Arc::new(file())]);
            let next = Store::default();
            next.inherit(given(&store));
            assert!(next.take("c", &what).is_some(), "a successor has all");
        });
        assert_eq!(written(&store).unwrap().ports.len(), 2);
    }

    /// The first port that opened wrote a list of itself alone, so a process that died before all
    /// were open lost the others.
    #[test]
    fn a_port_that_is_not_open_yet_is_not_lost_when_another_opens_and_the_process_dies() {
        let (tap, uplink) = (port("tap='tap0'"), port("packet='eth1'"));
        let what = |port: &PortConfig| What::of(port, port.queue_pairs(Scale::ONE)).unwrap();
        let address = MacAddress(wire::Mac([2, 0, 0, 0, 0, 1]));
        let first = Store::default();
        let _a = first.keep("a", what(&tap), &[Arc::new(file())]);
        let _b = first.keep("b", what(&uplink), &[file(), file()].map(Arc::new));
        let _c = first.keep("c", what(&tap), &[Arc::new(file())]);
        first.note_addresses([("b".to_owned(), address)].into());
        let second = Store::default();
        second.inherit(given(&first));
        // One is being opened, one is open, one has been given up, and one waits.
        let taken = second.take("c", &what(&tap));
        let _a = second.keep("a", what(&tap), &[Arc::new(file())]);
        let third = Store::default();
        third.inherit(given(&second));
        let list = third.content().left.clone();
        assert_eq!(list.ports.keys().collect::<Vec<_>>(), ["a", "b"], "c has no descriptors here");
        assert_eq!(third.take("b", &what(&uplink)).unwrap().address, Some(address));
        assert!(third.take("a", &what(&tap)).is_some());
        assert!(second.content().left.ports.contains_key("c"), "systemd has them still");
        drop(taken);
        second.forget_left("c", 1);
        assert!(!second.content().left.ports.contains_key("c"));
    }

    #[test]
    fn a_port_that_differs_gets_nothing() {
        for text in [
            "tap='tap1'\nqueues=2",
            "tap='tap0'\nqueues=1",
            "tap='tap0'\nqueues=2\nnetns='other'",
            "tap='tap0'\nqueues=2\nnapi=true",
            "packet='tap0'\nqueues=2",
        ] {
            let (store, what, _keeping) = two_queues();
            let next = Store::default();
            next.inherit(given(&store));
            next.want([port(text)].iter(), Scale::ONE);
            assert!(next.take("a", &what).is_none(), "{text}");
        }
    }

    /// A host with other processors, or a switch with other workers, has another default. The device
    /// would have lost its addresses with it.
    #[test]
    fn a_tap_without_the_key_keeps_its_queues() {
        let (store, what, _keeping) = two_queues();
        let next = Store::default();
        next.inherit(given(&store));
        let wide = Scale { workers: 4, processors: 8 };
        next.want([port("tap='tap0'")].iter(), wide);
        assert_eq!(next.queue_pairs(&port("tap='tap0'"), wide), 2);
        assert_eq!(next.queue_pairs(&port("tap='tap0'\nqueues=3"), wide), 3);
        assert!(next.take("a", &what).is_some());
        assert_eq!(next.queue_pairs(&port("tap='tap0'"), wide), 8, "nothing is left");
    }

    /// With more queues, or another change that reopens the port, the ring is not handed over.
    #[test]
    fn a_ring_goes_to_the_same_interface_of_one_queue() {
        for (text, is_same) in [
            ("packet='eth1'\nqueues=1\nmtu=1500", true),
            ("packet='eth1'\nvlan=7", false),
            ("packet='eth1'\ntrunk='7-9'", false),
            ("packet='eth1'\nqueues=2", false),
            ("packet='eth1'\npromiscuous=false", false),
            ("packet='eth1'\nnetns='other'", false),
            ("packet='eth2'", false),
            ("xdp='eth1'", false),
            ("tap='eth1'", false),
        ] {
            let store = Store::default();
            let what = What::of(&port("packet='eth1'"), 1).unwrap();
            let _keeping = store.keep("a", what.clone(), &[file(), file()].map(Arc::new));
            let next = Store::default();
            next.inherit(given(&store));
            next.want([port(text)].iter(), Scale::ONE);
            assert_eq!(next.take("a", &what).is_some(), is_same, "{text}");
        }
    }

    /// Frames that had come in one VLAN were delivered in another one.
    #[test]
    fn a_ring_goes_to_the_vlans_that_its_port_had_last() {
        let store = Store::default();
        let (before, after) = (port("packet='eth1'\nvlan=7"), port("packet='eth1'\nvlan=8"));
        let what = |port: &PortConfig| What::of(port, port.queue_pairs(Scale::ONE)).unwrap();
        let _keeping = store.keep("a", what(&before), &[file(), file()].map(Arc::new));
        store.note_change(&after);
        for (port, is_same) in [(&before, false), (&after, true)] {
            let next = Store::default();
            next.inherit(given(&store));
            assert_eq!(next.take("a", &what(port)).is_some(), is_same);
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

    /// The hung worker and the successor gave the same slots back to the kernel.
    #[test]
    fn a_ring_that_a_worker_may_still_read_is_not_handed_over() {
        let (store, tap, _keeping) = two_queues();
        let uplink = What::of(&port("packet='eth1'"), 1).unwrap();
        let _ring = store.keep("b", uplink.clone(), &[file(), file()].map(Arc::new));
        store.withhold_rings();
        let next = Store::default();
        next.inherit(given(&store));
        assert!(next.take("b", &uplink).is_none());
        assert!(next.take("a", &tap).is_some());
        let given = given(&store);
        assert!(given.iter().all(|(name, _)| !name.starts_with("b.")), "not even unused");
    }

    #[test]
    fn a_session_goes_to_the_same_port_with_its_socket_and_without() {
        for (mode, files) in [("", 1), ("vhost-client=true", 0)] {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("s");
            std::fs::write(&socket, "").unwrap();
            let port =
                |more: &str| port(&format!("vhost-user='{}'\n{mode}\n{more}", socket.display()));
            let what = What::of(&port(""), 1).unwrap();
            let left = || {
                let store = Store::default();
                let listeners: Vec<_> = (0..files).map(|_| Arc::new(file())).collect();
                let keeping = store.keep("a", what.clone(), &listeners);
                store.seal();
                keeping.add_session(file());
                let next = Store::default();
                next.inherit(given(&store));
                next
            };
            let next = left();
            next.want([port("vlan=7")].iter(), Scale::ONE);
            let taken = next.take("a", &what).unwrap();
            assert_eq!((taken.files.len(), taken.session.is_some()), (files, true));
            let next = left();
            next.want([port("mtu=9000")].iter(), Scale::ONE);
            assert!(next.take("a", &what).is_none());
            // Another socket is at the path.
            std::fs::remove_file(&socket).unwrap();
            assert_eq!(What::of(&port(""), 1) == Some(what.clone()), files == 0);
        }
    }

    /// The descriptors were closed on another thread, so the device was still busy, or the path
    /// taken, when the port was reopened.
    #[test]
    fn what_is_not_wanted_is_free_at_once_and_a_session_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = UnixListener::bind(&path).unwrap();
        let guest = port(&format!("vhost-user='{}'", path.display()));
        let (device, other_end) = std::io::pipe().unwrap();
        let tap = port("tap='tap0'");
        for (port, file) in [(guest, OwnedFd::from(socket)), (tap, device.into())] {
            let store = Store::default();
            let _keeping = store.keep("a", What::of(&port, 1).unwrap(), &[Arc::new(file)]);
            let next = Store::default();
            next.inherit(given(&store));
            store.content().kept.clear();
            next.want([].iter(), Scale::ONE);
        }
        assert!(UnixStream::connect(&path).is_err());
        let closed = (&other_end).write(&[0]).map_err(|error| error.kind());
        assert_eq!(closed, Err(std::io::ErrorKind::BrokenPipe));
    }

    /// The front end believed that it was still served.
    #[test]
    fn a_session_that_no_port_takes_ends_and_its_socket_waits() {
        let (left, mut front_end) = UnixStream::pair().unwrap();
        let port = port("vhost-user='/run/s'\nvhost-client=true");
        let what = What::of(&port, 1).unwrap();
        let store = Store::default();
        let keeping = store.keep("a", what.clone(), &[]);
        keeping.add_session(left.into());
        let next = Store::default();
        next.inherit(given(&store));
        store.content().kept.clear();
        next.want([port].iter(), Scale::ONE);
        next.end_sessions();
        assert_eq!(front_end.read(&mut [0]).unwrap(), 0, "it is cut off");
        assert!(next.take("a", &what).unwrap().session.is_none());
    }

    /// A reopened port is kept before its old entry is dropped.
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
