//! The load of each entry in uplinks' indirection tables.
//!
//! At an uplink with tables and `vmmq = "dynamic"` the queues stay with their workers, and entries
//! move between them. An entry's share of its queue's busy time is its share of the queue's frames,
//! as the steering program counts them. The flows of a vNIC whose port says `static` stay:
//! together, those of a queue are one item that cannot move.
//!
//! A peer that sends many flows to all vNICs makes a hundred thousand entries active. The balancer
//! gets the busiest dynamic entries of each queue, [`MOST`] in all, and the load of the other
//! dynamic ones is divided among these. So it knows the whole load of a queue, and an entry's error
//! is smaller than the average load of its queue's reported entries.

pub(super) mod mover;
#[cfg(test)]
mod tests;

use super::fair_share::fair_share;
use super::moves::Record;
use super::port::{OpenPort, RunningPort};
use super::ports::Ports;
use balance::{Item, ItemId, Mode, Move, Part, Reach};
use config::PortName;
use datapath::{PortId, QueueInfo};
use mover::{Done, Job, Mover, Shift};
use ports::steering::{ENTRIES, Steering, Vnic};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most entries that the balancer is told of by name: as many as may move in a second.
const MOST: usize = 2048;

/// A vNIC's table at an uplink.
pub(super) struct UplinkTable {
    pub(super) uplink: PortId,
    pub(super) vnic: Vnic,
    pub(super) steering: Arc<dyn Steering>,
    pub(super) mode: Mode,
    /// The NUMA node of its guest's memory, if known.
    pub(super) home: Option<usize>,
}

/// The balancer's name of a queue.
pub(super) fn item_id(queue: &QueueInfo) -> ItemId {
    let number = u16::try_from(queue.queue).unwrap_or(u16::MAX);
    ItemId { vnic: u32::from(queue.port.0), part: Part::Queue(number) }
}

/// The balancer's name of a table. Those of queues are below 2^16.
fn name(uplink: PortId, vnic: Vnic) -> u32 {
    (u32::from(uplink.0) + 1) << 16 | u32::from(vnic.number)
}

impl UplinkTable {
    pub(super) fn name(&self) -> u32 {
        name(self.uplink, self.vnic)
    }
}

/// The entries of an uplink's queue that had frames of late.
pub(super) struct QueueEntries {
    uplink: PortId,
    queue: usize,
    /// Entries that name the queue and had frames of late.
    active: usize,
    /// Frames of the interval by all entries that name the queue.
    frames: u64,
    /// Those by static entries, if there are any.
    fixed: Option<u64>,
    /// The dynamic entries, the busiest of them.
    busiest: Vec<EntryLoad>,
}

/// A dynamic entry that had frames of late.
struct EntryLoad {
    id: ItemId,
    /// Those of the interval.
    frames: u64,
    /// Static while others of its uplink are on the move.
    mode: Mode,
    /// That of its table.
    home: Option<usize>,
}

impl QueueEntries {
    fn keep_busiest(&mut self, most: usize) {
        if self.busiest.len() > most {
            let order = |load: &EntryLoad| (Reverse(load.frames), load.id);
            self.busiest.select_nth_unstable_by_key(most, order);
            self.busiest.truncate(most);
        }
    }
}

/// How many entries that had frames of late name each queue.
///
/// Each connection may fill a ring with a window of frames, whatever its load, so entries that go
/// to a worker are dealt out over its queues by their number.
struct Crowds(HashMap<(PortId, usize), usize>);

impl Crowds {
    fn of(loads: &[QueueEntries]) -> Crowds {
        Crowds(loads.iter().map(|load| ((load.uplink, load.queue), load.active)).collect())
    }

    /// Returns the queue of an uplink that fewest entries name, with one more from now on.
    fn join<'q>(
        &mut self,
        uplink: PortId,
        queues: impl Iterator<Item = &'q QueueInfo>,
    ) -> Option<u8> {
        let count = |queue: usize| self.0.get(&(uplink, queue)).copied().unwrap_or_default();
        let queue = queues.map(|info| info.queue).min_by_key(|queue| (count(*queue), *queue))?;
        *self.0.entry((uplink, queue)).or_default() += 1;
        u8::try_from(queue).ok()
    }
}

/// What the program had counted for a table, and when each entry last had frames.
struct Counts {
    frames: [u64; ENTRIES],
    active: [Option<Instant>; ENTRIES],
}

/// Moves of an uplink's entries that are done.
pub(super) struct MovesDone {
    /// The port of the uplink.
    pub(super) uplink: String,
    pub(super) records: Vec<Record>,
    /// The entries that stayed, because their queues' rings were too full.
    pub(super) stayed: Vec<ItemId>,
    /// What went wrong, for people.
    pub(super) troubles: Vec<String>,
}

/// What is known of entries between two measurements.
#[derive(Default)]
pub(super) struct Entries {
    counts: HashMap<u32, Counts>,
    mover: Mover,
}

impl Entries {
    /// Whether entries of an uplink are on the move.
    pub(super) fn is_busy(&self, uplink: PortId) -> bool {
        self.mover.is_busy(uplink)
    }

    /// Has entries moved to the queues of their new workers. Returns why an uplink's could not be.
    pub(super) fn begin_moves(
        &mut self,
        moves: &[Move],
        ports: &Ports,
        tables: &[UplinkTable],
        queues: &[QueueInfo],
        loads: &[QueueEntries],
    ) -> Vec<io::Error> {
        if !moves.iter().any(|moved| matches!(moved.item.part, Part::Entry(_))) {
            return Vec::new();
        }
        let tables: HashMap<u32, &UplinkTable> =
            tables.iter().map(|table| (table.name(), table)).collect();
        let owners = ports_of_tables(ports);
        let mut crowds = Crowds::of(loads);
        let mut jobs: BTreeMap<PortId, Job> = BTreeMap::new();
        for moved in moves {
            let Part::Entry(entry) = moved.item.part else { continue };
            let Some(table) = tables.get(&moved.item.vnic) else { continue };
            let serves =
                |queue: &&QueueInfo| queue.port == table.uplink && queue.worker == moved.to;
            let queue = crowds.join(table.uplink, queues.iter().filter(serves));
            let Some(queue) = queue else { continue };
            let new = || Job {
                name: ports.name_of(table.uplink),
                steering: Arc::downgrade(&table.steering),
                shifts: Vec::new(),
            };
            let job = jobs.entry(table.uplink).or_insert_with(new);
            let port = owners.get(&moved.item.vnic).cloned();
            job.shifts.push(Shift { vnic: table.vnic, entry, queue, port, moved: *moved });
        }
        let begun = jobs.into_iter().map(|(uplink, job)| self.mover.begin(uplink, job));
        begun.filter_map(Result::err).collect()
    }

    /// Returns the moves that are done, by uplink.
    pub(super) fn finished_moves(&mut self) -> Vec<MovesDone> {
        let finished = self.mover.finished().into_iter().map(|done| {
            let Done { name, moved, stayed, troubles } = done;
            let records = moved.into_iter().flat_map(|together| together.records(&name)).collect();
            let stayed = stayed.into_iter().map(|shift| shift.moved.item).collect();
            MovesDone { records, stayed, troubles, uplink: name }
        });
        finished.collect()
    }

    /// The entries that had frames within `lately`, by queue.
    pub(super) fn measure(
        &mut self,
        tables: &[UplinkTable],
        lately: Duration,
        now: Instant,
    ) -> Vec<QueueEntries> {
        let known: HashSet<u32> = tables.iter().map(UplinkTable::name).collect();
        self.counts.retain(|name, _| known.contains(name));
        let mut uplinks: BTreeMap<u16, Vec<QueueEntries>> = BTreeMap::new();
        for table in tables {
            let queue = |queue: u8| QueueEntries {
                uplink: table.uplink,
                queue: queue.into(),
                active: 0,
                frames: 0,
                fixed: None,
                busiest: Vec::new(),
            };
            let new = || (0..table.steering.queues()).map(queue).collect();
            let queues = uplinks.entry(table.uplink.0).or_insert_with(new);
            self.measure_table(table, queues, lately, now);
        }
        let mut queues: Vec<QueueEntries> = uplinks.into_values().flatten().collect();
        queues.retain(|queue| !queue.busiest.is_empty() || queue.fixed.is_some());
        let most = fair_share(queues.iter().map(|queue| queue.busiest.len()), MOST);
        queues.iter_mut().for_each(|queue| queue.keep_busiest(most));
        queues
    }

    fn measure_table(
        &mut self,
        table: &UplinkTable,
        queues: &mut [QueueEntries],
        lately: Duration,
        now: Instant,
    ) {
        let (Ok(named), Ok(frames)) =
            (table.steering.table(table.vnic), table.steering.frames(table.vnic))
        else {
            return;
        };
        let mode = if self.is_busy(table.uplink) { Mode::Static } else { table.mode };
        let new = Counts { frames, active: [None; ENTRIES] };
        let counts = self.counts.entry(table.name()).or_insert(new);
        let places = counts.frames.iter_mut().zip(&mut counts.active);
        for (entry, ((queue, count), (before, active))) in
            (0u8..).zip(named.into_iter().zip(frames).zip(places))
        {
            let frames = count.saturating_sub(std::mem::replace(before, count));
            if frames > 0 {
                *active = Some(now);
            }
            let is_active = active.is_some_and(|at| now.saturating_duration_since(at) <= lately);
            if let Some(queue) = queues.get_mut(usize::from(queue)).filter(|_| is_active) {
                queue.frames += frames;
                queue.active += 1;
                if table.mode == Mode::Static {
                    *queue.fixed.get_or_insert(0) += frames;
                    continue;
                }
                let id = ItemId { vnic: table.name(), part: Part::Entry(entry) };
                queue.busiest.push(EntryLoad { id, frames, mode, home: table.home });
            }
        }
    }
}

/// The items that entries are, and one for the static ones of each queue, by what share of its
/// worker each queue took.
#[allow(clippy::cast_precision_loss, reason = "frames of 20 ms, and entries")]
pub(super) fn items(
    loads: &[QueueEntries],
    queues: &[QueueInfo],
    share: impl Fn(&QueueInfo) -> f64,
) -> Vec<Item> {
    let mut items = Vec::new();
    for load in loads {
        let of_uplink = || queues.iter().filter(|queue| queue.port == load.uplink);
        let Some(queue) = of_uplink().find(|queue| queue.queue == load.queue) else { continue };
        let reach: Reach = of_uplink().map(|queue| queue.worker).collect();
        let named: u64 = load.busiest.iter().map(|entry| entry.frames).sum();
        let others = load.frames - named - load.fixed.unwrap_or_default();
        let others = others as f64 / load.busiest.len() as f64;
        let item = |id, frames: f64, mode, home| Item {
            id,
            worker: queue.worker,
            busy: share(queue) * frames / load.frames.max(1) as f64,
            mode,
            home,
            reach,
        };
        let entry = |entry: &EntryLoad| {
            item(entry.id, entry.frames as f64 + others, entry.mode, entry.home)
        };
        items.extend(load.busiest.iter().map(entry));
        // By the name of the queue, which no other item of an uplink with tables has.
        let fixed = |fixed: u64| item(item_id(queue), fixed as f64, Mode::Static, None);
        items.extend(load.fixed.map(fixed));
    }
    items
}

/// Returns the tables of all uplinks that are dynamic, and the ports of these.
pub(super) fn dynamic_tables(ports: &Ports) -> (Vec<UplinkTable>, Vec<PortId>) {
    let tables = tables(ports, RunningPort::is_dynamic);
    // Each uplink has a default table at least, and its tables follow one another.
    let mut uplinks: Vec<PortId> = tables.iter().map(|table| table.uplink).collect();
    uplinks.dedup();
    (tables, uplinks)
}

/// Returns the tables of the uplinks that are wanted.
pub(super) fn tables(ports: &Ports, wanted: impl Fn(&RunningPort) -> bool) -> Vec<UplinkTable> {
    let mut tables = Vec::new();
    for (_, port) in ports.iter().filter(|(_, port)| wanted(port)) {
        let Some(open) = port.open() else { continue };
        let Some(steering) = open.steering() else { continue };
        for (vnic, of) in open.stations.vnics() {
            let of = of.and_then(|(name, _)| ports.get(name));
            let moves = port.is_dynamic() && of.is_none_or(RunningPort::is_dynamic);
            let mode = if moves { Mode::Dynamic } else { Mode::Static };
            let home = of.and_then(RunningPort::open).and_then(|open| open.home);
            let steering = steering.clone();
            tables.push(UplinkTable { uplink: open.id, vnic, steering, mode, home });
        }
    }
    tables
}

/// Returns the port of each table, by the table's name.
pub(super) fn ports_of_tables(ports: &Ports) -> HashMap<u32, String> {
    let of = |(_, open): (_, &OpenPort)| {
        let vnics = open.stations.vnics();
        let of = |(vnic, of): (Vnic, Option<(&PortName, _)>)| {
            Some((name(open.id, vnic), of?.0.to_string()))
        };
        vnics.filter_map(of).collect::<Vec<_>>()
    };
    ports.open().flat_map(of).collect()
}
