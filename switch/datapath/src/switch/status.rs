//! What the control plane reads of a switch: ports, counters, workers, learned addresses.

use super::{Entry, Switch};
use crate::options::WorkerOptions;
use crate::worker::handle::Handle;
use crate::{MacEntry, PortCounters, PortId, PortInfo, WorkerInfo};
use ports::Nanos;
use std::sync::atomic::Ordering;

impl Switch {
    /// Returns all ports, by number.
    pub fn ports(&self) -> Vec<PortInfo> {
        let info = |Entry { port, queue_workers, .. }: &Entry| {
            let (state, state_changes) = port.shared.state.get();
            PortInfo {
                id: port.shared.id,
                name: port.shared.name.clone(),
                settings: port.settings.clone(),
                state,
                state_changes,
                offloads: port.shared.live.offloads(),
                mac: port.shared.mac,
                held_mac: port.shared.held_mac(),
                queue_workers: queue_workers.clone(),
            }
        };
        self.entries().map(info).collect()
    }

    /// Returns one port's counters since it was added, over all workers.
    pub fn counters(&self, port: PortId) -> Option<PortCounters> {
        let shared = &self.entry(port).ok()?.port.shared;
        let mut sum = PortCounters::default();
        shared.cells.iter().for_each(|cell| sum.add(cell));
        shared.hook.iter().for_each(|hook| sum.add_carried(&hook.carried()));
        sum.device_lost = shared.lost.iter().map(|lost| lost.load(Ordering::Relaxed)).sum();
        Some(sum)
    }

    /// Returns the frames that each rule of a port's ACL matched, in the order of its settings. A
    /// rule counts for as long as it stays.
    pub fn acl_hits(&self, port: PortId) -> Vec<u64> {
        self.entry(port)
            .map(|entry| entry.port.filter.hits(&entry.port.settings))
            .unwrap_or_default()
    }

    /// Returns all workers.
    pub fn workers(&self) -> Vec<WorkerInfo> {
        let info = |(handle, options): (&Handle, &WorkerOptions)| {
            let counters = &handle.shared.counters;
            WorkerInfo {
                cpu: options.cpu,
                busy_rounds: counters.busy_rounds.get(),
                idle_rounds: counters.idle_rounds.get(),
                sleeps: counters.sleeps.get(),
                frames: counters.frames.get(),
                hangs: handle.hangs,
                busy: Nanos(counters.busy.get()),
                waited: Nanos(counters.waited.get()),
            }
        };
        self.workers.iter().zip(&self.options.workers).map(info).collect()
    }

    /// Returns the learned addresses.
    pub fn macs(&self) -> Vec<MacEntry> {
        self.macs.entries(1 + self.start.elapsed().as_secs())
    }
}
