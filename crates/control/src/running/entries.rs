//! Entries of uplinks' indirection tables by load: what each takes of its queue, and moves, which a thread of its own makes.
//!
//! At an uplink with tables and `vmmq = "dynamic"` the queues stay at their workers and entries move between them. An entry
//! takes that part of its queue's busy time which its frames are of the queue's, as the steering program counts them. The
//! flows of a vNIC whose port says `static` stay.
//!
//! A move waits for a grace period of the kernel, so a thread makes them. Entries that go to the same queue go together, and an
//! uplink's other entries stay until that is done: a slow kernel means fewer moves, not a queue of them.

use super::{PortDevice, Running, RunningPort};
use crate::config::{PortName, VmmqMode};
use balance::{Item, ItemId, Mode, Move, Part, Reach};
use datapath::{PortId, QueueInfo};
use ports::steering::{ENTRIES, Order, Steering, SteeringError, Vnic};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Longest that a queue is held for a move. A ring of 4096 slots has room for 40,000 frames a second then.
const PATIENCE: Duration = Duration::from_millis(100);

/// A vNIC's table at an uplink whose entries may move.
pub(super) struct UplinkTable {
    uplink: PortId,
    vnic: Vnic,
    steering: Arc<dyn Steering>,
    mode: Mode,
}

impl UplinkTable {
    /// The balancer's name of it. Those of queues are below 2^16.
    fn item(&self) -> u32 {
        (u32::from(self.uplink.0) + 1) << 16 | u32::from(self.vnic.0)
    }
}

/// An entry that had frames of late.
pub(super) struct EntryLoad {
    id: ItemId,
    uplink: PortId,
    queue: usize,
    /// Those of the interval.
    frames: u64,
    mode: Mode,
}

/// What the program had counted for a table, and when each entry last had frames.
struct Counts {
    frames: [u64; ENTRIES],
    active: [Option<Instant>; ENTRIES],
}

/// What is known of entries between two measurements.
#[derive(Default)]
pub(super) struct Entries {
    counts: HashMap<u32, Counts>,
    mover: Mover,
}

impl Entries {
    /// The entries that had frames within `lately`.
    pub(super) fn measure(
        &mut self,
        tables: &[UplinkTable],
        lately: Duration,
        now: Instant,
    ) -> Vec<EntryLoad> {
        let known: HashSet<u32> = tables.iter().map(UplinkTable::item).collect();
        self.counts.retain(|item, _| known.contains(item));
        let mut loads = Vec::new();
        for table in tables {
            let (Ok(queues), Ok(frames)) =
                (table.steering.table(table.vnic), table.steering.frames(table.vnic))
            else {
                continue;
            };
            let new = Counts { frames, active: [None; ENTRIES] };
            let counts = self.counts.entry(table.item()).or_insert(new);
            let mode = if self.mover.is_busy(table.uplink) { Mode::Static } else { table.mode };
            for (entry, (queue, count)) in (0u8..).zip(queues.into_iter().zip(frames)) {
                let place = usize::from(entry);
                let before = std::mem::replace(&mut counts.frames[place], count);
                let frames = count.saturating_sub(before);
                if frames > 0 {
                    counts.active[place] = Some(now);
                }
                let is_active = |at| now.saturating_duration_since(at) <= lately;
                if counts.active[place].is_some_and(is_active) {
                    let id = ItemId { vnic: table.item(), part: Part::Entry(entry) };
                    let (uplink, queue) = (table.uplink, queue.into());
                    loads.push(EntryLoad { id, uplink, queue, frames, mode });
                }
            }
        }
        loads
    }
}

/// The items that entries are, by what share of its worker each queue took.
pub(super) fn items(
    loads: &[EntryLoad],
    queues: &[QueueInfo],
    share: impl Fn(&QueueInfo) -> f64,
) -> Vec<Item> {
    let mut frames: HashMap<(u16, usize), u64> = HashMap::new();
    for load in loads {
        *frames.entry((load.uplink.0, load.queue)).or_default() += load.frames;
    }
    let mut places: HashMap<u16, Vec<&QueueInfo>> = HashMap::new();
    queues.iter().for_each(|queue| places.entry(queue.port.0).or_default().push(queue));
    let item = |load: &EntryLoad| {
        let queues = places.get(&load.uplink.0)?;
        let queue = queues.iter().find(|queue| queue.queue == load.queue)?;
        let all = frames.get(&(load.uplink.0, load.queue)).copied().unwrap_or_default();
        #[allow(clippy::cast_precision_loss, reason = "frames of 20 ms")]
        let part = load.frames as f64 / all.max(1) as f64;
        Some(Item {
            id: load.id,
            worker: queue.worker,
            busy: share(queue) * part,
            mode: load.mode,
            home: None,
            reach: queues.iter().map(|queue| queue.worker).collect::<Reach>(),
        })
    };
    loads.iter().filter_map(item).collect()
}

/// Entries that go to a queue together.
struct Job {
    uplink: PortId,
    name: String,
    steering: Arc<dyn Steering>,
    entries: Vec<(Vnic, usize)>,
    queue: u8,
}

impl Job {
    /// What went wrong, for people.
    fn run(&self) -> Option<String> {
        let count = self.entries.len();
        let trouble = match self.steering.move_entries(&self.entries, self.queue, PATIENCE) {
            Ok(moved) if moved.order == Order::GivenUp => {
                format!(
                    "did not wait for a queue that was not read for {PATIENCE:?}: flows may be out of order"
                )
            }
            // The vNIC went meanwhile.
            Ok(_) | Err(SteeringError::NoSuchVnic(_)) => return None,
            Err(error) => format!("was refused: {error}"),
        };
        Some(format!(
            "port {}: moving {count} entries to queue {} {trouble}",
            self.name, self.queue
        ))
    }
}

/// An uplink whose job is done, and what went wrong.
type Done = (PortId, Option<String>);

/// The thread that moves entries, started by the first move. It ends with this.
#[derive(Default)]
struct Mover {
    thread: Option<(Sender<Job>, Receiver<Done>)>,
    /// Jobs of each uplink that are not done.
    under_way: HashMap<u16, usize>,
}

impl Mover {
    fn is_busy(&self, uplink: PortId) -> bool {
        self.under_way.contains_key(&uplink.0)
    }

    fn begin(&mut self, job: Job) -> io::Result<()> {
        let (jobs, _) = match &mut self.thread {
            Some(thread) => thread,
            none => none.insert(start()?),
        };
        let uplink = job.uplink.0;
        jobs.send(job).map_err(|_| io::Error::other("its thread has ended"))?;
        *self.under_way.entry(uplink).or_default() += 1;
        Ok(())
    }

    /// What went wrong in jobs that are done.
    fn finished(&mut self) -> Vec<String> {
        let Some((_, done)) = &self.thread else { return Vec::new() };
        let mut troubles = Vec::new();
        for (uplink, trouble) in done.try_iter() {
            if let Some(count) = self.under_way.get_mut(&uplink.0) {
                *count -= 1;
                if *count == 0 {
                    self.under_way.remove(&uplink.0);
                }
            }
            troubles.extend(trouble);
        }
        troubles
    }
}

fn start() -> io::Result<(Sender<Job>, Receiver<Done>)> {
    let (jobs, to_do) = channel::<Job>();
    let (tell, done) = channel();
    std::thread::Builder::new().name("entries".to_owned()).spawn(move || {
        for job in to_do {
            let trouble = job.run();
            if tell.send((job.uplink, trouble)).is_err() {
                return;
            }
        }
    })?;
    Ok((jobs, done))
}

impl Running {
    /// The tables of all uplinks that are dynamic, and the ports of these.
    pub(super) fn dynamic_tables(&self) -> (Vec<UplinkTable>, Vec<PortId>) {
        let (mut tables, mut uplinks) = (Vec::new(), Vec::new());
        let is_dynamic = |port: &&RunningPort| port.config.vmmq == Some(VmmqMode::Dynamic);
        for port in self.ports.values().filter(is_dynamic) {
            let PortDevice::Open(open) = &port.device else { continue };
            let Some(steering) = open.steering() else { continue };
            uplinks.push(open.id);
            for (vnic, of) in open.stations.vnics() {
                let of = of.and_then(|(name, _)| self.ports.get(name));
                let mode = match of.and_then(|port| port.config.vmmq) {
                    Some(VmmqMode::Static) => Mode::Static,
                    _ => Mode::Dynamic,
                };
                let steering = steering.clone();
                tables.push(UplinkTable { uplink: open.id, vnic, steering, mode });
            }
        }
        (tables, uplinks)
    }

    /// Has entries moved to the queues of their new workers, and tells what went wrong with earlier ones.
    pub(super) fn move_entries(
        &mut self,
        moves: &[Move],
        tables: &[UplinkTable],
        queues: &[QueueInfo],
        now: Instant,
    ) {
        let mut jobs: BTreeMap<(u16, u8), Job> = BTreeMap::new();
        for moved in moves {
            let Part::Entry(entry) = moved.item.part else { continue };
            let Some(table) = tables.iter().find(|table| table.item() == moved.item.vnic) else {
                continue;
            };
            let serves =
                |queue: &&QueueInfo| queue.port == table.uplink && queue.worker == moved.to;
            let queue = queues.iter().find(serves).and_then(|info| u8::try_from(info.queue).ok());
            let Some(queue) = queue else { continue };
            let name = self.name_of(table.uplink);
            let of = self.port_of(table).map(|port| format!(" of {port}")).unwrap_or_default();
            self.vmmq.remember(name.clone(), format!("{}{of}", moved.item.part), moved, now);
            let new = || Job {
                uplink: table.uplink,
                name,
                steering: table.steering.clone(),
                entries: Vec::new(),
                queue,
            };
            let job = jobs.entry((table.uplink.0, queue)).or_insert_with(new);
            job.entries.push((table.vnic, entry.into()));
        }
        let mover = &mut self.vmmq.entries.mover;
        let failed = jobs.into_values().filter_map(|job| mover.begin(job).err());
        let mut troubles: Vec<String> =
            failed.map(|error| format!("moving entries: {error}")).collect();
        troubles.extend(mover.finished());
        for text in troubles {
            self.note(now, text);
        }
    }

    /// The port of a table's vNIC.
    fn port_of(&self, table: &UplinkTable) -> Option<&PortName> {
        let open = self.ports.values().filter_map(RunningPort::open);
        let open = open.into_iter().find(|open| open.id == table.uplink)?;
        open.stations.vnics().find(|(vnic, _)| *vnic == table.vnic)?.1.map(|(port, _)| port)
    }
}
