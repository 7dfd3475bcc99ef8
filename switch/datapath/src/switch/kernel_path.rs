//! The switch's side of the kernel path: which decisions end with a change, and what is done every
//! second for flows that no frame of the switch keeps alive.

use super::Switch;
use crate::PortId;
use crate::options::SwitchError;
use crate::port::carry::{Slow, why_slow_from, why_slow_to};
use crate::port::macs::MacKey;
use crate::port::view::{Port, View};
use crate::worker::wait::time_since;
use ports::kernel_path::{Carried, FlowReport, Glance, KernelPath};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use wire::Mac;

/// Flows that are looked at under one lock, so that workers never wait long for it.
const AT_ONCE: usize = 256;

/// Time after which a flow without frames leaves the table.
const IDLE: Duration = Duration::from_secs(30);

/// Time after which a flow that never carried a frame leaves it.
const UNUSED: Duration = Duration::from_secs(5);

/// A flow that the kernel carries.
#[derive(Clone, Copy, Debug)]
pub struct CarriedFlow {
    /// The port it comes from.
    pub from: PortId,
    /// The port it goes to.
    pub to: PortId,
    /// Its key and counts.
    pub report: FlowReport,
}

impl Switch {
    /// Has established flows between ports with a hook carried by the kernel. Called before the
    /// first port is added.
    pub fn use_kernel_path(&mut self, path: KernelPath) {
        self.macs.use_kernel_path(path);
    }

    /// Returns the kernel path in use.
    pub fn kernel_path(&self) -> Option<&KernelPath> {
        self.macs.kernel_path()
    }

    /// Extends the lease of all carried flows, keeps the addresses known that they are from, and
    /// removes flows that are over. Called about once a second.
    pub fn tend_kernel_path(&mut self) {
        let Some(path) = self.macs.kernel_path().cloned() else { return };
        path.extend_lease();
        let keeper = Keeper::of(self);
        while path.sweep(AT_ONCE, IDLE, |flow| keeper.keeps(self, flow)) == AT_ONCE {}
    }

    /// Returns what the kernel has carried from and to a port, as of the last second.
    pub fn carried(&self, port: PortId) -> Carried {
        let hook = self.entry(port).ok().and_then(|entry| entry.port.shared.hook.as_ref());
        hook.map(|hook| hook.carried()).unwrap_or_default()
    }

    /// Returns up to `most` flows that the kernel carries.
    pub fn carried_flows(&self, most: usize) -> Vec<CarriedFlow> {
        let Some(path) = self.macs.kernel_path() else { return Vec::new() };
        let ports = self.by_hook();
        let of = |hook| ports.get(&hook).map(|port| port.shared.id);
        let flow = |report: FlowReport| {
            Some(CarriedFlow { from: of(report.from)?, to: of(report.to)?, report })
        };
        path.list(most).into_iter().filter_map(flow).collect()
    }

    /// Returns the flow of a frame that enters at a port, if the kernel carries it.
    pub fn carried_flow(&self, from: PortId, frame: &[u8]) -> Option<FlowReport> {
        let hook = self.entry(from).ok()?.port.shared.hook.as_ref()?;
        let report = hook.report(Glance::read(frame)?.key)?;
        (report.is_carried && report.is_in_force).then_some(report)
    }

    /// Returns why the kernel carries no flow from or to a port; `None` if it may.
    ///
    /// # Errors
    /// Fails if there is no such port.
    pub fn why_slow(&self, port: PortId) -> Result<Option<Slow>, SwitchError> {
        let port = &self.entry(port)?.port;
        let unhooked = port.shared.hook.is_none().then_some(Slow::NoHook);
        Ok(unhooked.or_else(|| why_slow_from(port)).or_else(|| why_slow_to(port)))
    }

    /// Ends the flows that were decided by ports of the view before and that the next one has
    /// changed, in force when this returns. Every worker that answers uses the next one already.
    pub(super) fn end_changed_flows(&self, next: &View) {
        let Some(path) = self.macs.kernel_path() else { return };
        let mut ended = false;
        let places = self.view.ports.len().max(next.ports.len());
        for place in 0..places {
            let at = |view: &View| view.ports.get(place).cloned().flatten();
            let (old, new) = (at(&self.view), at(next));
            if is_same(old.as_ref(), new.as_ref()) {
                continue;
            }
            for port in [&old, &new].into_iter().flatten() {
                port.shared.hook.iter().for_each(|hook| hook.withdraw());
                port.settings.mac.iter().for_each(|mac| path.forget_station(mac.0));
                ended = true;
            }
        }
        if ended && path.flows() > 0 {
            path.settle();
            // Counts the last frames of the flows that have ended, and removes them.
            while path.sweep(AT_ONCE, IDLE, |_| true) == AT_ONCE {}
        }
    }

    fn by_hook(&self) -> HashMap<u16, &Arc<Port>> {
        let hooked = self
            .entries()
            .filter_map(|entry| Some((entry.port.shared.hook.as_ref()?.number(), &entry.port)));
        hooked.collect()
    }
}

/// Whether flows that were decided by one state of a port would be decided alike by the other.
fn is_same(old: Option<&Arc<Port>>, new: Option<&Arc<Port>>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
    Arc::ptr_eq(old, new)
        || Arc::ptr_eq(&old.shared, &new.shared)
            && old.settings == new.settings
            && old.capture.is_some() == new.capture.is_some()
            && (old.is_weighted, old.waits) == (new.is_weighted, new.waits)
}

/// What a sweep asks about each flow.
struct Keeper<'s> {
    ports: HashMap<u16, &'s Arc<Port>>,
    owners: HashMap<Mac, HashSet<PortId>>,
    second: u64,
}

impl<'s> Keeper<'s> {
    fn of(switch: &'s Switch) -> Keeper<'s> {
        let mut owners: HashMap<Mac, HashSet<PortId>> = HashMap::new();
        for entry in switch.entries() {
            if let Some(mac) = entry.port.own_mac() {
                owners.entry(Mac::from_u64(mac)).or_default().insert(entry.port.shared.id);
            }
        }
        let second = time_since(switch.start).as_secs();
        Keeper { ports: switch.by_hook(), owners, second }
    }

    /// Whether a flow stays in the table: its ports are there and ready, and its stations are behind
    /// them. One that carried lately keeps its source known.
    fn keeps(&self, switch: &Switch, flow: &FlowReport) -> bool {
        let unused = flow.tally.frames == 0 && Duration::from_nanos(flow.age) > UNUSED;
        let ports = (self.ports.get(&flow.from), self.ports.get(&flow.to));
        let (Some(from), Some(to)) = ports else { return false };
        let [destination, source] = flow.key.stations().map(Mac);
        !unused
            && to.shared.is_ready()
            && self.is_behind(switch, to, destination, flow.vlan)
            && self.is_behind(switch, from, source, flow.vlan)
            && (flow.quiet > Duration::from_secs(2).as_nanos() as u64
                || self.refresh(switch, from, source, flow.vlan))
    }

    fn owns(&self, port: &Port, mac: Mac) -> bool {
        self.owners.get(&mac).is_some_and(|owners| owners.contains(&port.shared.id))
    }

    fn is_behind(&self, switch: &Switch, port: &Port, mac: Mac, vlan: u16) -> bool {
        let key = MacKey::new(mac.to_u64(), vlan);
        self.owns(port, mac) || switch.macs.lookup(key, self.second) == Some(port.shared.id)
    }

    fn refresh(&self, switch: &Switch, port: &Port, mac: Mac, vlan: u16) -> bool {
        let key = MacKey::new(mac.to_u64(), vlan);
        self.owns(port, mac) || switch.macs.refresh(key, port.seen(), self.second)
    }
}
