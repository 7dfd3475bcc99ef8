//! Computes what each queue and each entry did between two readings of the daemon's counters.

use api::body::{VmmqLoadBody, VmmqQueueBody, VmmqTableBody};
use std::collections::{HashMap, HashSet};

/// The name under which frames for no vNIC are counted. No port can have it, because of the space.
const DEFAULT_TABLE: &str = "default table";

/// The name of an item.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) uplink: Option<String>,
    pub(super) vnic: String,
    /// For an entry: number of the vNIC's table, if not the first.
    pub(super) table: Option<u32>,
    pub(super) entry: Option<u8>,
    /// For a queue: the queue's number.
    pub(super) queue: u16,
}

/// What one item did since the last reading.
pub(super) struct Done {
    pub(super) name: Name,
    /// For an entry: the queue that the entry names.
    pub(super) queue: u16,
    pub(super) worker: usize,
    pub(super) dynamic: bool,
    pub(super) reach: Option<Vec<usize>>,
    pub(super) busy_ns: f64,
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

/// Returns what each queue did, and each entry that had frames.
pub(super) fn done(last: &VmmqLoadBody, now: &VmmqLoadBody, tables: &Tables) -> Vec<Done> {
    let steered: HashSet<&str> = now.tables.iter().map(|table| table.uplink.as_str()).collect();
    let old: HashMap<_, _> =
        last.queues.iter().map(|queue| ((queue.port.as_str(), queue.queue), queue)).collect();
    let queue = |queue: &VmmqQueueBody| {
        let old = old.get(&(queue.port.as_str(), queue.queue));
        let number = u16::try_from(queue.queue).unwrap_or(u16::MAX);
        Done {
            name: Name {
                uplink: None,
                vnic: queue.port.clone(),
                table: None,
                entry: None,
                queue: number,
            },
            queue: number,
            worker: queue.worker,
            dynamic: queue.dynamic,
            reach: None,
            busy_ns: since(queue.busy_ns, old.map_or(queue.busy_ns, |old| old.busy_ns)),
            frames: queue.frames.saturating_sub(old.map_or(queue.frames, |old| old.frames)),
            bytes: queue.bytes.saturating_sub(old.map_or(queue.bytes, |old| old.bytes)),
        }
    };
    let queues: Vec<Done> = now.queues.iter().map(queue).collect();
    let mut found = entries(last, now, &queues, tables);
    found.extend(queues.into_iter().filter(|queue| !steered.contains(queue.name.vnic.as_str())));
    found
}

/// A table, and its position among its vNIC's tables.
type OfTable<'t> = (&'t VmmqTableBody, Option<u32>);

/// Returns the entries that had frames. An entry's share of its queue's time and bytes is its share
/// of the queue's frames, as in the balancer.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "frames and bytes of an interval"
)]
fn entries(last: &VmmqLoadBody, now: &VmmqLoadBody, queues: &[Done], tables: &Tables) -> Vec<Done> {
    let name = |table: &VmmqTableBody| (of_vnic(table), identity(table));
    let old: HashMap<_, _> = last.tables.iter().map(|table| (name(table), table)).collect();
    let mut steered = Vec::new();
    let mut sums: HashMap<(&str, u8), u64> = HashMap::new();
    for table in &now.tables {
        let Some(old) = old.get(&name(table)) else { continue };
        let place = tables.place(table);
        let frames =
            table.frames.iter().zip(&old.frames).map(|(new, old)| new.saturating_sub(*old));
        for (entry, (queue, frames)) in (0u8..).zip(table.queues.iter().zip(frames)) {
            *sums.entry((&table.uplink, *queue)).or_default() += frames;
            if frames > 0 {
                steered.push(((table, place), entry, *queue, frames));
            }
        }
    }
    let mut of: HashMap<&str, Vec<&Done>> = HashMap::new();
    queues.iter().for_each(|queue| of.entry(&queue.name.vnic).or_default().push(queue));
    let entry = |((table, place), entry, queue, frames): (OfTable<'_>, u8, u8, u64)| {
        let queues = of.get(table.uplink.as_str())?;
        let at = queues.iter().find(|at| at.queue == u16::from(queue))?;
        let sum = sums.get(&(table.uplink.as_str(), queue)).copied().unwrap_or(frames);
        let part = frames as f64 / sum.max(1) as f64;
        Some(Done {
            name: Name {
                uplink: Some(table.uplink.clone()),
                vnic: table.vnic.clone().unwrap_or_else(|| DEFAULT_TABLE.to_owned()),
                table: place,
                entry: Some(entry),
                queue: 0,
            },
            queue: queue.into(),
            worker: at.worker,
            dynamic: table.dynamic,
            reach: Some(queues.iter().map(|queue| queue.worker).collect()),
            busy_ns: at.busy_ns * part,
            frames,
            bytes: (at.bytes as f64 * part) as u64,
        })
    };
    steered.into_iter().filter_map(entry).collect()
}

/// Returns the difference of a counter. Returns 0 if the counter was reset, because its value
/// before the reset is not known.
#[allow(clippy::cast_precision_loss, reason = "seconds")]
pub(super) fn since(new: u64, old: u64) -> f64 {
    new.saturating_sub(old) as f64
}

/// The tables of each vNIC at each uplink, in order of appearance. When a vNIC gets another address
/// or VLAN, it gets another table, with separate counts.
#[derive(Default)]
pub(super) struct Tables(HashMap<OfVnic, Vec<Identity>>);

/// The uplink, and the vNIC at it.
type OfVnic = (String, Option<String>);

/// The number and generation of a vNIC.
type Identity = (u16, u32);

impl Tables {
    pub(super) fn note(&mut self, load: &VmmqLoadBody) {
        for table in &load.tables {
            let known = self.0.entry(of_vnic(table)).or_default();
            if !known.contains(&identity(table)) {
                known.push(identity(table));
            }
        }
    }

    /// Returns the table's position among its vNIC's tables; `None` for the first.
    fn place(&self, table: &VmmqTableBody) -> Option<u32> {
        let known = self.0.get(&of_vnic(table))?;
        let place = known.iter().position(|known| *known == identity(table))?;
        u32::try_from(place + 1).ok().filter(|place| *place > 1)
    }
}

fn of_vnic(table: &VmmqTableBody) -> OfVnic {
    (table.uplink.clone(), table.vnic.clone())
}

fn identity(table: &VmmqTableBody) -> Identity {
    (table.number, table.generation)
}
