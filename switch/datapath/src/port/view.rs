//! The immutable snapshot of ports and settings that a worker uses for a turn; a new one replaces
//! it.

use crate::counters::{DropReason, PortCell};
use crate::port::bucket::Storm;
use crate::port::filter_table::Filter;
use crate::port::followed::Followed;
use crate::port::macs::{MacTable, Seen};
use crate::port::pacer::Pacer;
use crate::port::policy::Policy;
use crate::port::rate::Rate;
use crate::port::state::{Events, HeldMac, StateCell};
use crate::port::steering::Steering;
use crate::port::weights::Weights;
use crate::settings::{PathMtu, PortId, PortRole, PortSettings, Rss, Steer};
use crate::stage::black_hole::BlackHoles;
use crate::status::{HealthEvent, PortState};
use crossbeam_utils::CachePadded;
use ports::capture::Capture;
use ports::kernel_path::Hook;
use ports::steering::ENTRIES;
use ports::{Capabilities, EgressQueue, Nanos, PortFault};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use wire::Mac;
use wire::toeplitz::Toeplitz;

/// All ports, by number.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) ports: Vec<Option<Arc<Port>>>,
    /// The number of egress queues of all ports: the length of an outbox.
    pub(crate) slots: usize,
}

impl View {
    #[inline]
    pub(crate) fn port(&self, id: PortId) -> Option<&Arc<Port>> {
        self.ports.get(usize::from(id.0))?.as_ref()
    }

    /// Returns all ports.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.ports.iter().flatten()
    }
}

/// The ports' own addresses, sorted, each with its port. Every worker has its copy, since a port
/// may come to hold an address without a new view.
#[derive(Default)]
pub(crate) struct Owners(Vec<(u64, PortId)>);

impl Owners {
    /// Reads the addresses of all ports anew.
    pub(crate) fn read(&mut self, view: &View) {
        let own = |port: &Arc<Port>| Some((port.own_mac()?, port.shared.id));
        self.0.clear();
        self.0.extend(view.all().filter_map(own));
        self.0.sort_unstable();
    }

    /// Whether an address (see [`Mac::to_u64`]) is any port's own.
    #[inline]
    pub(crate) fn include(&self, mac: u64) -> bool {
        self.0.binary_search_by_key(&mac, |(own, _)| *own).is_ok()
    }

    /// Returns the ports that an address (see [`Mac::to_u64`]) belongs to. They are several if each
    /// has it in VLANs of its own.
    pub(crate) fn of<'v>(&self, view: &'v View, mac: u64) -> impl Iterator<Item = &'v Arc<Port>> {
        let first = self.0.partition_point(|(other, _)| *other < mac);
        let same = self.0.iter().skip(first).take_while(move |(other, _)| *other == mac);
        same.filter_map(|(_, id)| view.port(*id))
    }

    /// Returns the port of a VLAN that an address (see [`Mac::to_u64`]) belongs to.
    pub(crate) fn in_vlan<'v>(&self, view: &'v View, mac: u64, vlan: u16) -> Option<&'v Arc<Port>> {
        self.of(view, mac).find(|owner| owner.settings.vlan.tagging(vlan).is_some())
    }
}

/// Returns the port that frames to an address go to: the one that it belongs to, unless that does not
/// [insist](Port::insists) and the address was learned at an uplink.
#[inline]
pub(crate) fn destination<'v>(
    owner: Option<&'v Port>,
    learned: impl FnOnce() -> Option<&'v Port>,
) -> Option<&'v Port> {
    match owner {
        None => learned(),
        Some(owner) if owner.insists() => Some(owner),
        Some(owner) => learned().filter(|at| at.settings.role == PortRole::Uplink).or(Some(owner)),
    }
}

/// The part of a port that outlives a change of its settings.
pub(crate) struct PortShared {
    pub(crate) id: PortId,
    pub(crate) name: String,
    /// The device's offloads and number of queues. They change at any time, so they are read once a
    /// list.
    pub(crate) live: Arc<Capabilities>,
    pub(crate) mac: Option<Mac>,
    /// The device's attachment to the kernel path.
    pub(crate) hook: Option<Arc<Hook>>,
    pub(crate) held_mac: HeldMac,
    /// Shared by all workers.
    pub(crate) egress: Box<[EgressQueue]>,
    pub(crate) steering: Steering,
    /// The counters of each worker.
    pub(crate) cells: Box<[CachePadded<PortCell>]>,
    /// Frames lost by the device, as each queue last reported.
    pub(crate) lost: Box<[AtomicU64]>,
    /// The cost of a frame in the kernel, as [`EgressQueue`] says it.
    pub(crate) kernel_ns: u32,
    /// The time (nanoseconds) until which each egress queue is left alone, after its device was
    /// down.
    pub(crate) resting_until: Box<[AtomicU64]>,
    /// The senders to each egress queue; used at uplinks, while a port has a weight.
    pub(crate) weights: Box<[Mutex<Weights>]>,
    pub(crate) state: StateCell,
    pub(crate) black_holes: BlackHoles,
    /// The second of the last report that a frame was too big for the port.
    pub(crate) too_big_at: AtomicU64,
    /// The time (nanoseconds) at which the port will have had all messages about packets too big,
    /// at their steady rate.
    pub(crate) answered_until: AtomicU64,
    pub(crate) events: Arc<Events>,
    pub(crate) macs: Arc<MacTable>,
}

/// A port as one view sees it.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) shared: Arc<PortShared>,
    pub(crate) settings: PortSettings,
    /// Coalescing, if it is on. Whether the other side can take trains is asked once a list.
    pub(crate) policy: Option<Policy>,
    /// Kept over changes that leave the limit as it is.
    pub(crate) rate: Option<Arc<Mutex<Rate>>>,
    /// Kept over changes, once the port has had a `rate-to`.
    pub(crate) pacer: Option<Arc<Mutex<Pacer>>>,
    /// Kept over changes that leave the limits as they are.
    pub(crate) storm: Option<Arc<Mutex<Storm>>>,
    pub(crate) capture: Option<Arc<Capture>>,
    pub(crate) filter: Filter,
    /// The tables of the key in force; `None` if the port has one egress queue.
    pub(crate) toeplitz: Option<Arc<Toeplitz>>,
    /// The place of its first egress queue in an outbox.
    pub(crate) slot: usize,
    /// Whether the port is an uplink that is shared by weights, because some port has a weight.
    pub(crate) is_weighted: bool,
    /// Whether the port's frames may wait for room at a receiver.
    pub(crate) waits: bool,
}

impl Port {
    /// Notes that the port's device works.
    #[cold]
    pub(crate) fn come_up(&self) {
        self.decide_state(PortState::Up, None);
    }

    /// Notes a state, unless the state has changed since the one that the decision was made on,
    /// which had changed so often. Frames to the port's address may go elsewhere from now on, or
    /// come to it.
    pub(crate) fn decide_state(&self, state: PortState, decided_on: Option<u64>) {
        if self.shared.decide_state(state, decided_on) {
            self.settings.mac.into_iter().for_each(|mac| self.shared.macs.has_moved(mac));
        }
    }

    /// Returns the counters of this worker at this port.
    #[inline]
    pub(crate) fn cell(&self, worker: usize) -> Option<&PortCell> {
        self.shared.cells.get(worker).map(|cell| &**cell)
    }

    /// Returns the address (see [`Mac::to_u64`]) that belongs to this port alone in its VLANs,
    /// configured or held.
    #[inline]
    pub(crate) fn own_mac(&self) -> Option<u64> {
        self.settings.mac.or_else(|| self.shared.held_mac()).map(Mac::to_u64)
    }

    /// Returns where an address is that the port sends from.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        Seen { port: self.shared.id, downs: self.shared.state.downs() }
    }

    /// Returns the most datagrams of a UDP train that the port takes as one.
    pub(crate) fn datagrams(&self) -> u16 {
        self.shared.live.datagrams()
    }

    /// Whether no uplink may have the port's own address: it is configured, and the port carries
    /// frames.
    pub(crate) fn insists(&self) -> bool {
        self.settings.mac.is_some() && self.shared.is_ready()
    }

    /// Whether the port may not send from an address of this other port. A vNIC never may. Behind an
    /// uplink it may be the address of a guest that moved to another host.
    pub(crate) fn may_not_send_as(&self, owner: &Port) -> bool {
        self.settings.role == PortRole::Vnic || owner.insists()
    }

    /// Returns whether the port is told that its packets are too big for another.
    pub(crate) fn is_told_of(&self, other: &Port) -> bool {
        match self.settings.path_mtu {
            PathMtu::WhereMtusDiffer => self.settings.mtu != other.settings.mtu,
            PathMtu::On => true,
            PathMtu::Off => false,
        }
    }

    /// Returns why frames may not pass between two ports, as an error. Isolated ports reach uplinks
    /// only. Uplinks reach each other only if both allow transit: two uplinks to one network would
    /// be a loop.
    pub(crate) fn may_reach(&self, other: &Port) -> Result<(), DropReason> {
        let is_uplink = |port: &Port| port.settings.role == PortRole::Uplink;
        let barred = |isolated: &Port, peer: &Port| isolated.settings.isolated && !is_uplink(peer);
        DropReason::Isolated.when(barred(self, other) || barred(other, self))?;
        let both_allow = self.settings.transit && other.settings.transit;
        DropReason::UplinkToUplink.when(is_uplink(self) && is_uplink(other) && !both_allow)
    }
}

impl PortShared {
    /// How long an egress queue is left alone after its device was down. A frame that is not tried
    /// costs one branch a burst.
    const REST: Nanos = Nanos(10_000_000);

    /// Returns the number of egress queues that the other side serves, the first ones; 0 if it is
    /// not ready.
    #[inline]
    pub(crate) fn queues_in_use(&self) -> usize {
        self.egress.len().min(self.live.queues().into())
    }

    /// Whether frames reach the other side. A guest that stops serves no queue at once; the port's
    /// state follows later.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.is_up() && self.live.queues() > 0
    }

    /// Whether frames for an egress queue are to be dropped without a try.
    #[inline]
    pub(crate) fn is_at_rest(&self, queue: usize, now: Nanos) -> bool {
        if self.state.is_up() {
            return false;
        }
        let until = self.resting_until.get(queue).map_or(0, |until| until.load(Ordering::Relaxed));
        self.state.is_broken() || now.0 < until
    }

    /// Leaves an egress queue alone for a while.
    pub(crate) fn rest(&self, queue: usize, now: Nanos) {
        if let Some(until) = self.resting_until.get(queue) {
            until.store((now + Self::REST).0, Ordering::Relaxed);
        }
    }

    /// Notes a report of a packet too big for the port. Returns `false` if there was one in this
    /// second.
    pub(crate) fn may_report_too_big(&self, now: Nanos) -> bool {
        let second = now.as_secs();
        self.too_big_at.load(Ordering::Relaxed) != second
            && self.too_big_at.swap(second, Ordering::Relaxed) != second
    }

    /// Notes one more message to the port that a packet was too big (RFC 1812, 4.3.2.8). Returns
    /// `false` if the port has had its share: a thousand a second, and 64 at once.
    pub(crate) fn may_answer_too_big(&self, now: Nanos) -> bool {
        const INTERVAL: u64 = 1_000_000;
        let next = |until: u64| {
            let until = until.max(now.0);
            (until < now.0 + 64 * INTERVAL).then_some(until + INTERVAL)
        };
        self.answered_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Derives the port's state from a fault of its device.
    pub(crate) fn note_fault(&self, fault: &PortFault) {
        if matches!(fault, PortFault::Down) && self.state.is_down() {
            return;
        }
        self.set_state(match fault {
            PortFault::Down => PortState::Down(fault.to_string()),
            PortFault::Gone(_) | PortFault::Io { .. } => PortState::Broken(fault.to_string()),
        });
    }

    /// Returns the address that the guard holds the port to.
    #[inline]
    pub(crate) fn held_mac(&self) -> Option<Mac> {
        self.held_mac.get(self.live.guest())
    }

    /// Notes a state; a change is an event.
    pub(crate) fn set_state(&self, state: PortState) {
        self.decide_state(state, None);
    }

    /// See [`Port::decide_state`]. Returns whether the state is another.
    fn decide_state(&self, state: PortState, decided_on: Option<u64>) -> bool {
        let is_other = self.state.set(state.clone(), decided_on);
        if is_other {
            self.hook.iter().for_each(|hook| hook.withdraw());
            self.events.push(HealthEvent::PortState { port: self.id, state });
        }
        is_other
    }

    /// Returns the hash tables that the settings need. The tables of a key that stays are taken
    /// from `old`.
    pub(crate) fn toeplitz(&self, rss: Rss, old: Option<&Port>) -> Option<Arc<Toeplitz>> {
        if self.egress.len() < 2 {
            return None;
        }
        if rss.steer != Steer::Rss {
            self.steering.followed.get_or_init(Followed::new);
        }
        let kept = old.filter(|old| old.settings.rss.key == rss.key);
        let new = || Arc::new(Toeplitz::new(&rss.key.unwrap_or(self.steering.key)));
        kept.and_then(|old| old.toeplitz.clone()).or_else(|| Some(new()))
    }

    /// Returns the queue that each entry of the switch's own table goes to.
    #[allow(clippy::cast_possible_truncation, reason = "entries name 256 queues at most")]
    pub(crate) fn table(&self) -> [u8; ENTRIES] {
        let in_use = self.queues_in_use();
        std::array::from_fn(|entry| self.steering.queue(entry, in_use) as u8)
    }
}
