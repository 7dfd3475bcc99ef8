//! The load so far of everything that can move, for recordings: the sums whose differences the
//! balancer sees.

use super::Running;
use super::entries::{UplinkTable, ports_of_tables, tables};
use super::port::RunningPort;
use api::body::{VmmqLoadBody, VmmqQueueBody, VmmqTableBody, VmmqWorkerBody};
use balance::Mode;
use datapath::{PortId, WorkerInfo};
use std::collections::HashMap;
use std::time::Instant;

impl Running {
    /// Sums so far, read one after the other; queues by port.
    pub fn vmmq_load(&mut self, now: Instant) -> VmmqLoadBody {
        let workers = self.switch.workers();
        let places = self.vmmq.find_places(&workers);
        let worker = |(info, (core, node)): (&WorkerInfo, &(usize, usize))| VmmqWorkerBody {
            core: info.cpu.map(|_| *core),
            node: *node,
            busy_ns: info.busy.0,
        };
        let workers = workers.iter().zip(places).map(worker).collect();
        let (tables, vnics) = (tables(&self.ports, |_| true), ports_of_tables(&self.ports));
        let names: HashMap<PortId, (&str, bool)> =
            self.ports.iter().filter_map(|(name, port)| named(name.as_str(), port)).collect();
        let queues = self.switch.queues().into_iter().filter_map(|queue| {
            let (port, dynamic) = names.get(&queue.port)?;
            Some(VmmqQueueBody {
                port: (*port).to_owned(),
                queue: queue.queue,
                worker: queue.worker,
                dynamic: *dynamic,
                busy_ns: queue.busy.0,
                frames: queue.frames,
                bytes: queue.bytes,
            })
        });
        let table = |table: &UplinkTable| {
            Some(VmmqTableBody {
                uplink: names.get(&table.uplink)?.0.to_owned(),
                vnic: vnics.get(&table.name()).cloned(),
                number: table.vnic.number,
                generation: table.vnic.generation,
                dynamic: table.mode == Mode::Dynamic,
                queues: table.steering.table(table.vnic).ok()?.to_vec(),
                frames: table.steering.frames(table.vnic).ok()?.to_vec(),
            })
        };
        VmmqLoadBody {
            at_ns: u64::try_from(self.vmmq.at(now).as_nanos()).unwrap_or(u64::MAX),
            moves: self.vmmq.moved(),
            workers,
            queues: queues.collect(),
            tables: tables.iter().filter_map(table).collect(),
        }
    }
}

/// An open port's name, and whether its queues may move.
fn named<'p>(name: &'p str, port: &'p RunningPort) -> Option<(PortId, (&'p str, bool))> {
    let open = port.open()?;
    let dynamic = port.is_dynamic() && open.steering().is_none();
    Some((open.id, (name, dynamic)))
}
