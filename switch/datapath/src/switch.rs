//! The control plane's handle of a running switch.

mod answers;
mod flows;
pub mod kernel_path;
mod queues;
pub mod rehearsal;
mod rss;
mod status;

use crate::flow::FlowTable;
use crate::options::{SwitchError, SwitchOptions};
use crate::port::bucket::Storm;
use crate::port::filter_table::Filter;
use crate::port::macs::{MacTable, Seen};
use crate::port::pacer::Pacer;
use crate::port::policy::Policy;
use crate::port::rate::Rate;
use crate::port::state::{Events, HeldMac, StateCell};
use crate::port::steering::Steering;
use crate::port::view::{Port, PortShared, View};
use crate::stage::black_hole::BlackHoles;
use crate::turn::queue::QueueLoad;
use crate::worker::command::Command;
use crate::worker::handle::Handle;
use crate::{HealthEvent, PortId, PortInfo, PortSettings, PortState, Vlan};
use crossbeam_utils::CachePadded;
use ports::capture::Capture;
use ports::{Device, IngressQueue, Nanos, lock};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use wire::Mac;

/// A running switch.
///
/// Calls take effect before they return: every worker has passed a turn boundary by then. If a
/// worker does not answer, they return [`SwitchError::WorkerHangs`]. Then only changes that take
/// something away are made, once the worker answers.
pub struct Switch {
    pub(crate) workers: Vec<Handle>,
    options: SwitchOptions,
    macs: Arc<MacTable>,
    events: Arc<Events>,
    start: Instant,
    /// The ports by number, of which the view in force is made.
    ports: Vec<Option<Entry>>,
    /// The view in force.
    view: Arc<View>,
    /// Ingress queues that are not handed out to workers yet; `None` if each is handed out as soon
    /// as its port is added.
    waiting: Option<Vec<(PortId, Vec<IngressQueue>)>>,
    /// Whether the workers have tables of flows.
    looks_at_flows: bool,
    /// Empty tables of flows, for the workers to use next.
    spare_flows: Vec<FlowTable>,
}

/// A port to add.
pub struct NewPort {
    /// Its name, which no other port has.
    pub name: String,
    /// Its queues.
    pub device: Device,
    /// How frames pass it.
    pub settings: PortSettings,
}

/// A port as the control plane keeps it.
struct Entry {
    port: Arc<Port>,
    /// The worker of each queue.
    queue_workers: Vec<usize>,
    /// The load of each queue.
    loads: Vec<Arc<CachePadded<QueueLoad>>>,
}

impl Switch {
    /// The most ports.
    pub const PORTS: usize = 1 << 14;

    /// Starts the workers.
    ///
    /// # Errors
    ///
    /// Fails if a thread cannot be started or pinned to its core.
    pub fn start(options: SwitchOptions) -> Result<Switch, SwitchError> {
        let mut switch = Switch::stepped(options);
        for (worker, handle) in std::mem::take(&mut switch.workers).into_iter().enumerate() {
            let cpu = switch.options.workers.get(worker).and_then(|worker| worker.cpu);
            let started = handle.start(cpu, switch.options.wait, switch.start);
            let refused = |source| SwitchError::Worker { worker, cpu, source };
            switch.workers.push(started.map_err(refused)?);
        }
        Ok(switch)
    }

    /// Makes a switch with workers that run only in [`Switch::step`], on the caller's clock: for
    /// tests, benches and simulation.
    pub fn stepped(options: SwitchOptions) -> Switch {
        let macs = Arc::new(MacTable::new(options.mac_entries, options.mac_ageing_s));
        let handle = |index| Handle::stepped(index, macs.clone());
        let workers = (0..options.workers.len()).map(handle).collect();
        Switch {
            workers,
            options,
            macs,
            events: Arc::default(),
            start: Instant::now(),
            ports: Vec::new(),
            view: Arc::default(),
            waiting: None,
            looks_at_flows: false,
            spare_flows: Vec::new(),
        }
    }

    /// Keeps the queues of the ports that are added from now on from the workers, until
    /// [`Switch::let_go`]. Frames wait in the devices.
    pub fn hold(&mut self) {
        self.waiting.get_or_insert_default();
    }

    /// Hands out all queues to workers, once the ports that frames go to are there as well.
    pub fn let_go(&mut self) {
        // If a worker does not answer, that is an event, and no error here.
        let _ = self.waiting.take().map(|waiting| self.hand_out(waiting));
    }

    /// Ends the workers, each after its turn: the frames they took are delivered, and the others
    /// wait in the devices. Returns whether all have ended; one that hangs may still take from its
    /// ports. Call it once.
    pub fn stop(&mut self) -> bool {
        self.workers.iter_mut().for_each(|handle| handle.post(Command::Stop));
        self.workers.iter_mut().fold(true, |all, handle| all & handle.join())
    }

    /// Runs one round of every worker of a stepped switch. Returns the frames taken.
    pub fn step(&mut self, now: Nanos) -> usize {
        self.workers.iter_mut().map(|handle| handle.step(now)).sum()
    }

    /// Adds a port to the switch. Frames flow when this returns, unless its queues are [kept
    /// back](Switch::hold).
    ///
    /// # Errors
    ///
    /// Fails if the name is in use, if there is no number left, or if a worker does not answer;
    /// then the port is not added.
    pub fn add_port(
        &mut self,
        name: &str,
        device: Device,
        settings: PortSettings,
    ) -> Result<PortId, SwitchError> {
        self.all_answer()?;
        let mut names = self.names();
        let added = self.place(NewPort { name: name.to_owned(), device, settings }, &mut names)?;
        let id = added.0;
        self.put_in_force(vec![added]).map(|()| id)
    }

    /// Adds ports as [`Switch::add_port`] does, all with one view. Returns the number of each, or
    /// why it was not added.
    ///
    /// # Errors
    ///
    /// Fails if a worker does not answer; then no port is added.
    pub fn add_ports(
        &mut self,
        ports: Vec<NewPort>,
    ) -> Result<Vec<Result<PortId, SwitchError>>, SwitchError> {
        self.all_answer()?;
        let mut names = self.names();
        let (mut added, mut results) = (Vec::new(), Vec::new());
        for port in ports {
            let placed = self.place(port, &mut names);
            results.push(placed.map(|(id, ingress)| {
                added.push((id, ingress));
                id
            }));
        }
        self.put_in_force(added).map(|()| results)
    }

    fn names(&self) -> HashSet<String> {
        self.entries().map(|entry| entry.port.shared.name.clone()).collect()
    }

    /// Gives a port a number, in no view yet. Returns its ingress queues as well.
    fn place(
        &mut self,
        port: NewPort,
        names: &mut HashSet<String>,
    ) -> Result<(PortId, Vec<IngressQueue>), SwitchError> {
        let NewPort { name, device, settings } = port;
        if names.contains(&name) {
            return Err(SwitchError::NameInUse(name));
        }
        let place = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        let id = u16::try_from(place).ok().filter(|_| place < Self::PORTS).map(PortId);
        let id = id.ok_or(SwitchError::TooManyPorts(Self::PORTS))?;
        let (shared, ingress) = self.shared_of(id, &name, device);
        let queue_workers: Vec<usize> =
            (0..ingress.len()).map(|queue| (place + queue) % self.workers.len().max(1)).collect();
        let port = Arc::new(new_port(Arc::new(shared), settings, None, None));
        if place == self.ports.len() {
            self.ports.push(None);
        }
        if let Some(free) = self.ports.get_mut(place) {
            let loads = ingress.iter().map(|_| Arc::default()).collect();
            *free = Some(Entry { port, queue_workers, loads });
        }
        names.insert(name);
        Ok((id, ingress))
    }

    /// Publishes new ports and hands out their queues, or takes the ports out again.
    fn put_in_force(&mut self, added: Vec<(PortId, Vec<IngressQueue>)>) -> Result<(), SwitchError> {
        let ids: BTreeSet<PortId> = added.iter().map(|(id, _)| *id).collect();
        let mut done = self.publish();
        self.reclaim(&ids);
        match &mut self.waiting {
            Some(waiting) => waiting.extend(added),
            None => done = done.and_then(|()| self.hand_out(added)),
        }
        if done.is_err() {
            let _ = self.remove_ports(&ids);
        }
        done
    }

    /// Makes the part of a new port that outlives a change of its settings. Returns its ingress
    /// queues as well.
    fn shared_of(&self, id: PortId, name: &str, device: Device) -> (PortShared, Vec<IngressQueue>) {
        let Device { ingress, egress, live, mac, hook, mtu: _ } = device;
        let shared = PortShared {
            id,
            name: name.to_owned(),
            live,
            mac,
            hook,
            held_mac: HeldMac::default(),
            kernel_ns: egress.iter().map(|queue| queue.kernel_ns()).max().unwrap_or(0),
            cells: self.workers.iter().map(|_| CachePadded::default()).collect(),
            resting_until: egress.iter().map(|_| AtomicU64::new(0)).collect(),
            weights: egress.iter().map(|_| Mutex::default()).collect(),
            lost: ingress.iter().map(|_| AtomicU64::new(0)).collect(),
            state: StateCell::default(),
            black_holes: BlackHoles::default(),
            too_big_at: AtomicU64::new(u64::MAX),
            answered_until: AtomicU64::new(0),
            steering: Steering::new(egress.len()),
            egress: egress.into(),
            events: self.events.clone(),
            macs: self.macs.clone(),
        };
        (shared, ingress)
    }

    /// Takes the configured addresses of these ports from those that learned or held them in their
    /// VLANs.
    fn reclaim(&self, ports: &BTreeSet<PortId>) {
        let settings = ports.iter().filter_map(|port| Some(&self.entry(*port).ok()?.port.settings));
        let mut owned: HashMap<Mac, Vec<&Vlan>> = HashMap::new();
        for PortSettings { mac, vlan, .. } in settings {
            mac.iter().for_each(|mac| owned.entry(*mac).or_default().push(vlan));
        }
        if owned.is_empty() {
            return;
        }
        let is_owned = |mac: Mac, meets: &dyn Fn(&Vlan) -> bool| {
            owned.get(&mac).is_some_and(|vlans| vlans.iter().any(|vlan| meets(vlan)))
        };
        for Entry { port, .. } in self.entries() {
            let overlaps = |vlan: &Vlan| port.settings.vlan.overlaps(vlan);
            self.release_mac(&port.shared, |other| {
                other.held_mac().is_some_and(|mac| is_owned(mac, &overlaps))
            });
        }
        self.macs.forget(|key, _| is_owned(key.mac(), &|vlan| vlan.tagging(key.vlan()).is_some()));
    }

    /// Releases the address that a port is held to, if it is the one meant at that moment.
    fn release_mac(&self, port: &PortShared, is_meant: impl Fn(&PortShared) -> bool) {
        // Asked before, because a change makes every worker read all owners anew.
        if is_meant(port) {
            self.macs.change_owners(|| {
                if is_meant(port) {
                    port.held_mac().into_iter().for_each(|mac| self.macs.has_moved(mac));
                    port.held_mac.release();
                }
            });
        }
    }

    /// Removes a port. When this returns its queues are closed, and no worker that answers touches
    /// them any more.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port. If a worker does not answer, the port is removed once it
    /// does.
    pub fn remove_port(&mut self, port: PortId) -> Result<(), SwitchError> {
        self.remove_ports(&BTreeSet::from([port]))
    }

    /// Removes ports as [`Switch::remove_port`] does, all with one view.
    ///
    /// # Errors
    ///
    /// Fails as [`Switch::remove_port`] does. Those that there are, are removed.
    pub fn remove_ports(&mut self, ports: &BTreeSet<PortId>) -> Result<(), SwitchError> {
        let (mut entries, mut done) = (Vec::new(), Ok(()));
        for port in ports {
            match self.ports.get_mut(usize::from(port.0)).and_then(Option::take) {
                Some(entry) => entries.push(entry),
                None => done = Err(SwitchError::NoSuchPort(*port)),
            }
        }
        if entries.is_empty() {
            return done;
        }
        // First no worker delivers to them, then none takes from them; then their queues can be
        // dropped.
        let published = self.publish();
        let gone = Arc::new(ports.clone());
        let queues = self.ask(|reply| Command::GiveBack(gone.clone(), reply));
        self.waiting.iter_mut().for_each(|waiting| waiting.retain(|(id, _)| !ports.contains(id)));
        self.macs.forget(|_, seen| ports.contains(&seen.port));
        drop(entries);
        done.and(published).and(queues.map(drop))
    }

    /// Changes a running port. Turning coalescing off drains every open train before this returns.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, or if a worker does not answer.
    pub fn change_port(&mut self, port: PortId, settings: PortSettings) -> Result<(), SwitchError> {
        self.change_ports(vec![(port, settings)])
    }

    /// Changes running ports as [`Switch::change_port`] does, all with one view.
    ///
    /// # Errors
    ///
    /// Fails if one is not there, before any is changed, or if a worker does not answer.
    pub fn change_ports(
        &mut self,
        changes: Vec<(PortId, PortSettings)>,
    ) -> Result<(), SwitchError> {
        self.all_answer()?;
        changes.iter().try_for_each(|(port, _)| self.entry(*port).map(drop))?;
        let changed: BTreeSet<PortId> = changes.iter().map(|(port, _)| *port).collect();
        let mut before = Vec::new();
        for (port, settings) in changes {
            let place = self.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut);
            let Some(Entry { port: place, .. }) = place else { continue };
            let old = place.clone();
            *place = Arc::new(changed_port(&old, settings));
            before.push(old);
        }
        let mut done = self.publish();
        for old in &before {
            self.settle_change(old);
        }
        self.reclaim(&changed);
        // Not before: by its old settings the port may not send from the new address.
        let moved = self.with_other_address(&before);
        if done.is_ok() && !moved.is_empty() {
            done = self.announce(&moved);
        }
        done
    }

    /// Returns the vNICs among these ports that have got another address since.
    fn with_other_address(&self, before: &[Arc<Port>]) -> Vec<PortId> {
        let has_other = |old: &&Arc<Port>| {
            let new = self.entry(old.shared.id).map(|entry| &entry.port.settings);
            new.is_ok_and(|new| new.role == crate::PortRole::Vnic && new.mac != old.settings.mac)
        };
        before.iter().filter(has_other).map(|old| old.shared.id).collect()
    }

    /// Does what follows once every worker has a port's new settings.
    fn settle_change(&self, old: &Port) {
        let id = old.shared.id;
        let Ok(Entry { port: new, .. }) = self.entry(id) else { return };
        self.pace(id, old.settings.clone());
        let guard = |of: &PortSettings| (of.mac, of.mac_guard, of.vlan.clone());
        if guard(&old.settings) != guard(&new.settings) {
            // No worker holds the port to an address by the old settings any more.
            self.release_mac(&new.shared, |_| true);
        }
        if old.settings.mac_limit != new.settings.mac_limit {
            // Addresses that were learned without a limit are in no port's list.
            self.macs.forget(|_, seen| seen.port == id);
        }
    }

    /// Tells a port's pacer a changed rate. What waits there passed by the settings of before, so it
    /// is discarded if others of them have changed.
    fn pace(&self, port: PortId, old: PortSettings) {
        let Ok(Entry { port, .. }) = self.entry(port) else { return };
        let Some(mut pacer) = port.pacer.as_deref().map(lock) else { return };
        let rate_to = port.settings.rate_to;
        if rate_to != old.rate_to {
            pacer.set_rate(rate_to);
        }
        if port.settings != (PortSettings { rate_to, ..old }) {
            pacer.discard();
        }
    }

    /// Returns whether an announcement of the port still waits for its worker.
    pub fn is_announcing(&self, port: PortId) -> bool {
        self.entry(port).is_ok_and(|entry| entry.port.shared.live.is_announcing())
    }

    /// Announces the configured addresses of these ports again, in case the first announcement got
    /// lost. It replaces one that still waits.
    ///
    /// # Errors
    ///
    /// Fails if a worker does not answer.
    pub fn announce(&mut self, ports: &[PortId]) -> Result<(), SwitchError> {
        for port in ports.iter().filter_map(|port| Some(&self.entry(*port).ok()?.port)) {
            if let Some(mac) = port.settings.mac {
                port.shared.live.announce(port.settings.announced().frames(mac));
            }
        }
        // Wakes the workers.
        self.publish()
    }

    /// Starts or (`None`) ends a capture at a port. The caller keeps its own `Arc` and stops the
    /// capture afterwards.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, or if a worker does not answer.
    pub fn set_capture(
        &mut self,
        port: PortId,
        capture: Option<Arc<Capture>>,
    ) -> Result<(), SwitchError> {
        if capture.is_some() {
            self.all_answer()?;
        }
        self.replace(port, |old| Port {
            rate: old.rate.clone(),
            pacer: old.pacer.clone(),
            storm: old.storm.clone(),
            ..new_port(old.shared.clone(), old.settings.clone(), capture, Some(old))
        })
    }

    /// Sets a port's state to what the control plane has learned of its device (link went down,
    /// came back) since it read `known`. If a worker has changed the state meanwhile, the worker
    /// knows better, and nothing changes.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port.
    pub fn set_state(&mut self, known: &PortInfo, state: PortState) -> Result<(), SwitchError> {
        self.entry(known.id)?.port.decide_state(state, Some(known.state_changes));
        Ok(())
    }

    /// Holds a guarded port without a configured address to this one, which its guest had in an
    /// earlier process.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port.
    pub fn hold_mac(&mut self, port: PortId, mac: Mac) -> Result<(), SwitchError> {
        let PortShared { held_mac, live, .. } = &*self.entry(port)?.port.shared;
        self.macs.change_owners(|| {
            let before = held_mac.get(live.guest());
            before.into_iter().chain([mac]).for_each(|mac| self.macs.has_moved(mac));
            held_mac.release();
            held_mac.get_or_hold(mac.to_u64(), live.guest())
        });
        Ok(())
    }

    fn replace(
        &mut self,
        port: PortId,
        make: impl FnOnce(&Port) -> Port,
    ) -> Result<(), SwitchError> {
        let entry = self.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut);
        let entry = entry.ok_or(SwitchError::NoSuchPort(port))?;
        entry.port = Arc::new(make(&entry.port));
        self.publish()
    }

    /// Makes a view of `self.ports`, and waits until every worker uses it.
    fn publish(&mut self) -> Result<(), SwitchError> {
        let weighs = self.entries().any(|entry| entry.port.settings.weight.is_some());
        let mut slots = 0;
        for entry in self.ports.iter_mut().flatten() {
            let is_weighted = weighs && entry.port.settings.role == crate::PortRole::Uplink;
            let waits = entry.port.settings.back_pressure || weighs && !is_weighted;
            let Port { slot, is_weighted: was_weighted, waits: waited, .. } = *entry.port;
            if (slot, was_weighted, waited) != (slots, is_weighted, waits) {
                let old = (*entry.port).clone();
                entry.port = Arc::new(Port { slot: slots, is_weighted, waits, ..old });
            }
            slots += entry.port.shared.egress.len();
        }
        let ports =
            self.ports.iter().map(|entry| entry.as_ref().map(|entry| entry.port.clone())).collect();
        let view = Arc::new(View { ports, slots });
        let done = self.ask(|reply| Command::View(view.clone(), reply)).map(drop);
        self.end_changed_flows(&view);
        self.view = view;
        done
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.ports.iter().flatten()
    }

    fn entry(&self, port: PortId) -> Result<&Entry, SwitchError> {
        let entry = self.ports.get(usize::from(port.0)).and_then(Option::as_ref);
        entry.ok_or(SwitchError::NoSuchPort(port))
    }

    /// Forgets the addresses learned at a port, or all.
    pub fn forget_macs(&mut self, port: Option<PortId>) {
        self.macs.forget(|_, seen| port.is_none_or(|port| port == seen.port));
    }

    /// Returns what happened since the last call, and finds out whether each worker answers.
    ///
    /// Forgets the addresses that ports which went down had learned before: the guest is on another
    /// host, or the next one at the port has addresses of its own. Addresses that were held to
    /// guests which have left are free.
    pub fn take_events(&mut self) -> Vec<HealthEvent> {
        self.look_at_workers();
        let has_lapsed = |port: &PortShared| port.held_mac.has_lapsed(port.live.guest());
        self.entries().for_each(|entry| self.release_mac(&entry.port.shared, has_lapsed));
        let events = self.events.take();
        let went_down = |event: &HealthEvent| match event {
            HealthEvent::PortState { port, state } if *state != PortState::Up => Some(*port),
            _ => None,
        };
        let down: Vec<PortId> = events.iter().filter_map(went_down).collect();
        let down: Vec<Seen> =
            down.into_iter().filter_map(|port| Some(self.entry(port).ok()?.port.seen())).collect();
        if !down.is_empty() {
            let is_old = |now: &Seen, then: Seen| now.port == then.port && now.downs != then.downs;
            self.macs.forget(|_, seen| down.iter().any(|now| is_old(now, seen)));
        }
        events
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes a port with other settings, and keeps what it has of the old ones.
fn changed_port(old: &Port, settings: PortSettings) -> Port {
    let mut new = new_port(old.shared.clone(), settings, old.capture.clone(), Some(old));
    if new.settings.rate == old.settings.rate {
        new.rate.clone_from(&old.rate);
    }
    new.pacer = old.pacer.clone().or(new.pacer);
    if new.settings.storm == old.settings.storm {
        new.storm.clone_from(&old.storm);
    }
    new
}

fn new_port(
    shared: Arc<PortShared>,
    settings: PortSettings,
    capture: Option<Arc<Capture>>,
    old: Option<&Port>,
) -> Port {
    let policy = Policy::of(&settings);
    let rate = settings.rate.map(|limit| Arc::new(Mutex::new(Rate::new(limit))));
    let pacer = settings.rate_to.map(|bits| Arc::new(Mutex::new(Pacer::new(bits))));
    let storm = settings.storm.map(|limit| Arc::new(Mutex::new(Storm::new(limit))));
    let filter = Filter::of(&settings, shared.cells.len(), old.map(|old| &old.filter));
    let toeplitz = shared.toeplitz(settings.rss, old);
    shared.live.set_announced(settings.announced());
    let (slot, is_weighted, waits) = Default::default();
    Port {
        shared,
        settings,
        policy,
        rate,
        pacer,
        storm,
        capture,
        filter,
        toeplitz,
        slot,
        is_weighted,
        waits,
    }
}
