//! What everything that can move has cost so far: the sums whose differences the balancer sees, for recordings.

use super::entries::UplinkTable;
use super::{Running, RunningPort};
use crate::body::{VmmqLoadBody, VmmqQueueBody, VmmqTableBody, VmmqWorkerBody};
use crate::config::VmmqMode;
use balance::Mode;
use datapath::{PortId, WorkerInfo};
use std::collections::HashMap;
use std::time::Instant;

impl Running {
    /// Read at one moment; queues by port.
    pub fn vmmq_load(&mut self, now: Instant) -> VmmqLoadBody {
        let workers = self.switch.workers();
        let places = self.vmmq.find_places(&workers);
        let worker = |(info, (core, node)): (&WorkerInfo, &(usize, usize))| VmmqWorkerBody {
            core: info.cpu.map(|_| *core),
            node: *node,
            busy_ns: info.busy.0,
        };
        let workers = workers.iter().zip(places).map(worker).collect();
        let (tables, ports) = (self.tables(), self.ports_of_tables());
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
        VmmqLoadBody {
            at_ns: u64::try_from(self.vmmq.at(now).as_nanos()).unwrap_or(u64::MAX),
            moves: self.vmmq.moved,
            workers,
            queues: queues.collect(),
            tables: tables.iter().filter_map(|table| self.table_body(table, &ports)).collect(),
        }
    }

    fn table_body(
        &self,
        table: &UplinkTable,
        ports: &HashMap<u32, String>,
    ) -> Option<VmmqTableBody> {
        Some(VmmqTableBody {
            uplink: self.name_of(table.uplink),
            vnic: ports.get(&table.name()).cloned(),
            dynamic: table.mode == Mode::Dynamic,
            queues: table.steering.table(table.vnic).ok()?.to_vec(),
            frames: table.steering.frames(table.vnic).ok()?.to_vec(),
        })
    }
}

/// An open port's name, and whether its queues may move.
fn named<'p>(name: &'p str, port: &'p RunningPort) -> Option<(PortId, (&'p str, bool))> {
    let open = port.open()?;
    let dynamic = port.config.vmmq == Some(VmmqMode::Dynamic) && open.steering().is_none();
    Some((open.id, (name, dynamic)))
}
