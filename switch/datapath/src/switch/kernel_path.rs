//! The switch's side of the kernel path: which decisions end with a change, and what is done every
//! second for flows that no frame of the switch keeps alive.

use super::Switch;
use crate::PortId;
use crate::options::SwitchError;
use crate::port::carry::{Slow, why_slow_from, why_slow_to};
use crate::port::macs::{MacKey, MacTable};
use crate::port::view::{Owners, Port, View, destination};
use crate::worker::wait::time_since;
use ports::kernel_path::{Carried, FlowReport, Glance, KernelPath};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use wire::Mac;

/// Flows that are looked at under one lock, so that workers never wait long for it.
const AT_ONCE: usize = 256;

/// Time after which a flow without frames leaves the table.
const IDLE: Duration = Duration::from_secs(30);

/// A flow that carried a frame so lately keeps its source known.
const ALIVE: Duration = Duration::from_secs(2);

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
        if self.all_answer().is_err() {
            return path.rest();
        }
        if path.is_resting() {
            // A worker that hung may have decided by an old view.
            let hooks = self.entries().filter_map(|entry| entry.port.shared.hook.as_ref());
            hooks.for_each(|hook| hook.withdraw());
        }
        path.extend_lease();
        let keeper = Keeper::of(self);
        while path.sweep(AT_ONCE, IDLE, |flow| keeper.keeps(flow)) == AT_ONCE {}
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

    /// Returns why the kernel carries no flow from a port, and why none to it; `None` if it may.
    ///
    /// # Errors
    /// Fails if there is no such port.
    pub fn why_slow(&self, port: PortId) -> Result<[Option<Slow>; 2], SwitchError> {
        let port = &self.entry(port)?.port;
        let unhooked = port.shared.hook.is_none().then_some(Slow::NoHook);
        Ok([why_slow_from(port), why_slow_to(port)].map(|slow| unhooked.or(slow)))
    }

    /// Ends the flows that were decided by ports of the view before and that the next one has
    /// changed, in force when this returns. Every worker that answers uses the next one already.
    pub(super) fn end_changed_flows(&self, next: &View) {
        let Some(path) = self.macs.kernel_path() else { return };
        if self.all_answer().is_err() {
            path.rest();
        }
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
    view: &'s View,
    macs: &'s MacTable,
    ports: HashMap<u16, &'s Arc<Port>>,
    owners: Owners,
    second: u64,
}

impl<'s> Keeper<'s> {
    fn of(switch: &'s Switch) -> Keeper<'s> {
        let mut owners = Owners::default();
        owners.read(&switch.view);
        let second = time_since(switch.start).as_secs();
        let (view, macs, ports) = (&*switch.view, &*switch.macs, switch.by_hook());
        Keeper { view, macs, ports, owners, second }
    }

    /// Whether a flow stays in the table: its ports are there and ready, and the switch would still
    /// take it from one to the other. One that carried lately keeps its source known.
    fn keeps(&self, flow: &FlowReport) -> bool {
        let unused = flow.tally.frames == 0 && Duration::from_nanos(flow.age) > UNUSED;
        let ports = (self.ports.get(&flow.from), self.ports.get(&flow.to));
        let (Some(from), Some(to)) = ports else { return false };
        let [destination, source] = flow.key.stations().map(|mac| Mac(mac).to_u64());
        !unused
            && to.shared.is_ready()
            && self.find(destination, flow.vlan) == Some(to.shared.id)
            && self.may_be_at(from, source, flow)
    }

    /// Returns where the switch sends frames to an address, as a turn decides it.
    fn find(&self, mac: u64, vlan: u16) -> Option<PortId> {
        let owner = self.owners.in_vlan(self.view, mac, vlan).map(|owner| &**owner);
        let learned = || {
            let port = self.macs.lookup(MacKey::new(mac, vlan), self.second);
            port.and_then(|port| self.view.port(port)).map(|port| &**port)
        };
        destination(owner, learned).map(|port| port.shared.id)
    }

    /// Whether frames from an address may come from a port, as a turn decides it.
    fn may_be_at(&self, port: &Port, mac: u64, flow: &FlowReport) -> bool {
        match self.owners.in_vlan(self.view, mac, flow.vlan) {
            Some(owner) if owner.shared.id == port.shared.id => return true,
            Some(owner) if port.may_not_send_as(owner) => return false,
            _ => {}
        }
        let key = MacKey::new(mac, flow.vlan);
        if Duration::from_nanos(flow.quiet) > ALIVE {
            return self.macs.lookup(key, self.second) == Some(port.shared.id);
        }
        self.macs.refresh(key, port.seen(), self.second)
    }
}
