//! Dynamic VMMQ: measures the queues, asks the balancer, and carries out its moves.

use super::Running;
use super::entries::{self, Entries, MovesDone, QueueEntries, item_id};
use super::journal::Journal;
use super::moves::{Moves, Record};
use super::ports::Ports;
use crate::numa;
use crate::topology;
use api::body::{OrderBody, VmmqMoveBody};
use balance::{Balancer, Item, ItemId, Measurement, Mode, Move, Part, Reach, Settings, Worker};
use datapath::{PortId, QueueInfo, WorkerInfo};
use ports::Nanos;
use std::collections::{HashMap, HashSet};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::Level;

/// Measuring interval while something is busy or moved recently.
const INTERVAL: Duration = Duration::from_millis(20);

/// Measuring interval otherwise: the longest delay before a rising load is noticed.
const QUIET: Duration = Duration::from_millis(100);

/// Measuring interval of a switch that has carried nothing for [`ASLEEP_AFTER`].
const ASLEEP: Duration = Duration::from_secs(1);

/// How long nothing is carried before the switch counts as asleep.
const ASLEEP_AFTER: Duration = Duration::from_secs(10);

/// The least share of an interval that a worker had its processor, as far as loads are concerned.
const LEAST_AVAILABLE: f64 = 0.25;

/// How often guests' memory is located.
const HOMES: Duration = Duration::from_secs(10);

/// Interval while no port is dynamic.
const NOT_USED: Duration = Duration::from_secs(1);

/// What is known between two measurements.
pub(super) struct Vmmq {
    balancer: Balancer,
    settings: Settings,
    begin: Instant,
    /// Core and NUMA node of each worker.
    places: Vec<(usize, usize)>,
    /// When guests' memory was last located.
    homes_at: Option<Instant>,
    /// The thread that reads where all memory is.
    numa_maps: Option<JoinHandle<String>>,
    last: Option<Sums>,
    /// When something was last busy.
    busy_at: Option<Instant>,
    moves: Moves,
    pub(super) entries: Entries,
}

/// What may move.
pub(super) struct Dynamic<'d> {
    ports: &'d [PortId],
    /// Uplinks whose queues stay, because entries move.
    uplinks: &'d [PortId],
    entries: &'d [QueueEntries],
    /// The NUMA node of each guest's memory, where known.
    homes: &'d HashMap<PortId, usize>,
}

/// Sums since the start, when they were read.
struct Sums {
    at: Instant,
    queues: HashMap<ItemId, Nanos>,
    workers: Vec<WorkerInfo>,
}

/// A worker's load in an interval.
#[derive(Clone, Copy, Default)]
struct WorkerLoad {
    /// Share of the time it had its processor that it was busy.
    busy: f64,
    /// Share of the interval for which it waited for its processor.
    waited: f64,
    /// By what its busy time counts: a turn goes on while another program has the processor.
    scale: f64,
}

impl WorkerLoad {
    fn between(old: Option<&WorkerInfo>, new: &WorkerInfo, elapsed: Duration) -> WorkerLoad {
        let busy = share_of(old.map(|old| old.busy), new.busy, elapsed);
        let waited = share_of(old.map(|old| old.waited), new.waited, elapsed);
        // A wait is counted when it ends, and may have begun before the interval.
        let available = if waited < 1.0 { (1.0 - waited).max(LEAST_AVAILABLE) } else { 1.0 };
        let load = (busy - waited).max(0.0) / available;
        WorkerLoad {
            busy: load,
            waited: waited.min(1.0),
            scale: if busy > 0.0 { load / busy } else { 0.0 },
        }
    }
}

/// Returns the share of an interval by which a sum has grown in it; none if it was not known before.
fn share_of(old: Option<Nanos>, new: Nanos, elapsed: Duration) -> f64 {
    let grown = old.map_or(0, |old| new.0.saturating_sub(old.0));
    Duration::from_nanos(grown).as_secs_f64() / elapsed.as_secs_f64()
}

impl Vmmq {
    pub(super) fn new(now: Instant) -> Vmmq {
        let settings = Settings::default();
        Vmmq {
            balancer: Balancer::new(settings),
            settings,
            begin: now,
            places: Vec::new(),
            homes_at: None,
            numa_maps: None,
            last: None,
            busy_at: None,
            moves: Moves::default(),
            entries: Entries::default(),
        }
    }

    /// Decides moves from the load since the last call.
    fn decide(
        &mut self,
        now: Instant,
        queues: &[QueueInfo],
        workers: &[WorkerInfo],
        dynamic: &Dynamic<'_>,
    ) -> Vec<Move> {
        let sums = Sums {
            at: now,
            queues: queues.iter().map(|queue| (item_id(queue), queue.busy)).collect(),
            workers: workers.to_vec(),
        };
        self.find_places(workers);
        let Some(last) = self.last.replace(sums) else { return Vec::new() };
        let elapsed = now.saturating_duration_since(last.at);
        if elapsed.is_zero() {
            return Vec::new();
        }
        let load = |(number, info)| WorkerLoad::between(last.workers.get(number), info, elapsed);
        let loads: Vec<WorkerLoad> = workers.iter().enumerate().map(load).collect();
        let taken = |queue: &QueueInfo| {
            let before = last.queues.get(&item_id(queue)).copied();
            let load = loads.get(queue.worker).copied().unwrap_or_default();
            share_of(before, queue.busy, elapsed) * load.scale
        };
        let item = |queue: &QueueInfo| Item {
            id: item_id(queue),
            worker: queue.worker,
            busy: taken(queue),
            mode: if dynamic.ports.contains(&queue.port) { Mode::Dynamic } else { Mode::Static },
            home: dynamic.homes.get(&queue.port).copied(),
            reach: Reach::ALL,
        };
        let whole = queues.iter().filter(|queue| !dynamic.uplinks.contains(&queue.port));
        let mut items: Vec<Item> = whole.map(item).collect();
        items.extend(entries::items(dynamic.entries, queues, taken));
        let worker = |(place, load): (&(usize, usize), &WorkerLoad)| Worker {
            core: place.0,
            node: place.1,
            busy: load.busy,
            waited: load.waited,
            excluded: false,
        };
        let workers: Vec<Worker> = self.places.iter().zip(&loads).map(worker).collect();
        if items.iter().any(|item| item.busy > 0.0) {
            self.busy_at = Some(now);
        }
        let at = self.at(now);
        self.balancer.decide(&Measurement { at, workers: &workers, items: &items })
    }

    /// Core and NUMA node of each worker, read once.
    pub(super) fn find_places(&mut self, workers: &[WorkerInfo]) -> &[(usize, usize)] {
        if self.places.len() != workers.len() {
            self.places = workers.iter().enumerate().map(place).collect();
        }
        &self.places
    }

    /// Whether to locate guests' memory, which matters only with workers on several nodes.
    fn wants_homes(&mut self, now: Instant) -> bool {
        let mut nodes = self.places.iter().map(|(_, node)| node);
        let first = nodes.next();
        let is_due = self.homes_at.is_none_or(|at| now.saturating_duration_since(at) >= HOMES);
        let wants = is_due && self.numa_maps.is_none() && nodes.any(|node| Some(node) != first);
        self.homes_at = if wants { Some(now) } else { self.homes_at };
        wants
    }

    /// Finds the node of each guest's memory, if that matters.
    pub(super) fn find_homes(&mut self, ports: &mut Ports, now: Instant) {
        if self.wants_homes(now) {
            // The kernel walks all mappings, which takes seconds for a large guest, so a thread
            // reads the file.
            let read = || std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
            self.numa_maps = std::thread::Builder::new().name("numa".into()).spawn(read).ok();
        }
        if let Some(read) = self.numa_maps.take_if(|read| read.is_finished())
            && let Ok(numa_maps) = read.join()
        {
            for (_, open) in ports.open_mut() {
                let guest = open.watch.guest();
                open.home = guest.and_then(|guest| numa::home(&numa_maps, &guest.mapped));
            }
        }
    }

    /// Time since the daemon started.
    pub(super) fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begin)
    }

    /// How long past load matters: until its queues have been coalesced.
    fn lately(&self) -> Duration {
        self.settings.settle + self.settings.rest
    }

    /// When to measure again. Idle queues are coalesced before the interval grows.
    fn next(&self, now: Instant) -> Duration {
        let lately = self.lately();
        let idle = self.busy_at.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        match idle {
            _ if idle <= lately => INTERVAL,
            _ if idle <= ASLEEP_AFTER => QUIET,
            _ => ASLEEP,
        }
    }

    /// Queues and single entries moved so far.
    pub(super) fn moved(&self) -> u64 {
        self.moves.count()
    }

    /// Remembers the moves of entries that are done, and tells what went wrong.
    pub(super) fn finish_moves(&mut self, journal: &mut Journal, now: Instant) {
        for MovesDone { uplink, records, stayed, troubles } in self.entries.finished_moves() {
            for mut record in records {
                self.charge(&mut record, now);
                self.remember(record, now);
            }
            self.charge_stayed(&uplink, &stayed, journal, now);
            for trouble in troubles {
                journal.note_of(Level::WARN, &uplink, now, format!("port {uplink}: {trouble}"));
            }
        }
    }

    /// Whether vNICs waited for moves of entries that are done now. They are served before further
    /// moves begin.
    fn lets_vnics_in(&self, ports: &Ports) -> bool {
        ports.open().any(|(_, open)| open.stations.wait() && !self.entries.is_busy(open.id))
    }

    /// Charges a vNIC with moves of its entries that lost frames or gave up their order.
    fn charge(&mut self, record: &mut Record, now: Instant) {
        let held = record.held.as_ref();
        let is_dear = held.is_some_and(|held| held.lost > 0 || held.order == OrderBody::GivenUp);
        let rest = self.balancer.charge(record.moved.item.vnic, is_dear, self.at(now));
        record.rest = is_dear.then_some(rest);
    }

    /// Charges vNICs with moves for which their queues' rings had no room, as with lossy ones: those
    /// would be asked for again at once.
    fn charge_stayed(
        &mut self,
        uplink: &str,
        stayed: &[ItemId],
        journal: &mut Journal,
        now: Instant,
    ) {
        let vnics: HashSet<u32> = stayed.iter().map(|item| item.vnic).collect();
        let at = self.at(now);
        let rests = vnics.into_iter().map(|vnic| self.balancer.charge(vnic, true, at));
        if let Some(rest) = rests.max() {
            let text = format!(
                "port {uplink}: {} of its entries stay for {} s: their queues' rings are too full to move \
                 them without loss",
                stayed.len(),
                rest.as_secs()
            );
            journal.note_of(Level::INFO, uplink, now, text);
        }
    }

    /// Records completed moves.
    fn remember(&mut self, record: Record, now: Instant) {
        let at_s = self.at(now).as_secs_f64();
        self.moves.add(record, at_s);
    }
}

/// A worker that is not pinned counts as its own core.
fn place((number, info): (usize, &WorkerInfo)) -> (usize, usize) {
    let core = info.cpu.map_or(usize::MAX - number, topology::core);
    (core, info.cpu.map_or(0, topology::node))
}

impl Running {
    /// Measures, moves queues of dynamic ports, and says when to call again.
    pub fn balance(&mut self, now: Instant) -> Duration {
        self.vmmq.finish_moves(&mut self.journal, now);
        if self.vmmq.lets_vnics_in(&self.ports) {
            self.settle_vnics(now);
        }
        let dynamic = self.ports.iter().filter(|(_, port)| port.is_dynamic());
        let dynamic: Vec<PortId> =
            dynamic.filter_map(|(_, port)| port.open()).map(|open| open.id).collect();
        let workers = self.switch.workers();
        if dynamic.is_empty() || workers.len() < 2 || self.all_answer().is_err() {
            self.vmmq.last = None;
            return NOT_USED;
        }
        let queues = self.switch.queues();
        let (tables, uplinks) = entries::dynamic_tables(&self.ports);
        let lately = self.vmmq.lately();
        let entries = self.vmmq.entries.measure(&tables, lately, now);
        let homes = self.ports.open().filter_map(|(_, open)| Some((open.id, open.home?))).collect();
        let dynamic =
            Dynamic { ports: &dynamic, uplinks: &uplinks, entries: &entries, homes: &homes };
        let moves = self.vmmq.decide(now, &queues, &workers, &dynamic);
        for error in self.vmmq.entries.begin_moves(&moves, &self.ports, &tables, &queues, &entries)
        {
            self.journal.note(Level::WARN, now, format!("moving entries: {error}"));
        }
        for moved in moves {
            let Part::Queue(queue) = moved.item.part else { continue };
            let Ok(port) = u16::try_from(moved.item.vnic).map(PortId) else { continue };
            match self.switch.move_queue(port, usize::from(queue), moved.to) {
                Ok(_) => {
                    let (port, entries) = (self.ports.name_of(port), Vec::new());
                    let record =
                        Record { port, vnic: None, entries, moved, held: None, rest: None };
                    self.vmmq.remember(record, now);
                }
                Err(error) => {
                    self.journal.note(Level::WARN, now, format!("moving a queue: {error}"));
                }
            }
        }
        self.vmmq.next(now)
    }

    /// The last moves, oldest first.
    pub fn vmmq_moves(&self) -> Vec<VmmqMoveBody> {
        self.vmmq.moves.bodies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use balance::Reason;
    use datapath::Waits;

    /// Two queues of two ports, and the busy times of a run in which each wants so much of a
    /// worker.
    struct Run {
        vmmq: Vmmq,
        now: Instant,
        queues: Vec<QueueInfo>,
        workers: Vec<WorkerInfo>,
        homes: HashMap<PortId, usize>,
    }

    impl Run {
        fn new() -> Run {
            let queue = |port| QueueInfo {
                port: PortId(port),
                queue: 0,
                worker: 0,
                busy: Nanos::default(),
                frames: 0,
                bytes: 0,
                waits: Waits::default(),
                entries: 128,
                movable: true,
            };
            let now = Instant::now();
            Run {
                vmmq: Vmmq::new(now),
                now,
                queues: vec![queue(0), queue(1)],
                workers: vec![WorkerInfo::default(); 2],
                homes: HashMap::new(),
            }
        }

        fn pass(&mut self, wants: [u64; 2], is_dynamic: bool) -> Vec<Move> {
            self.now += INTERVAL;
            for worker in 0..2 {
                let at = |place: &usize| self.queues[*place].worker == worker;
                let here: Vec<usize> = (0..2).filter(at).collect();
                let wanted: u64 = here.iter().map(|place| wants[*place]).sum();
                for place in here {
                    let busy = wants[place] * 20_000_000 / wanted.max(100);
                    self.queues[place].busy.0 += busy;
                    self.workers[worker].busy.0 += busy;
                }
            }
            let all = [PortId(0), PortId(1)];
            let ports = if is_dynamic { &all[..] } else { &[] };
            let dynamic = Dynamic { ports, uplinks: &[], entries: &[], homes: &self.homes };
            let moves = self.vmmq.decide(self.now, &self.queues, &self.workers, &dynamic);
            for moved in &moves {
                self.queues[moved.item.vnic as usize].worker = moved.to;
            }
            moves
        }
    }

    #[test]
    fn two_busy_queues_are_spread_within_200_ms_and_coalesced_within_2_s() {
        let mut run = Run::new();
        let moves: Vec<Move> = (0..10).flat_map(|_| run.pass([70, 60], true)).collect();
        assert_eq!(moves.len(), 1, "{moves:?}");
        assert_ne!(run.queues[0].worker, run.queues[1].worker);
        assert_eq!(run.vmmq.next(run.now), INTERVAL);
        (0..100).for_each(|_| drop(run.pass([0, 0], true)));
        assert_eq!(run.queues[0].worker, run.queues[1].worker);
        (0..100).for_each(|_| drop(run.pass([0, 0], true)));
        assert_eq!(run.vmmq.next(run.now), QUIET);
        (0..500).for_each(|_| drop(run.pass([0, 0], true)));
        assert_eq!(run.vmmq.next(run.now), ASLEEP, "ten seconds later");
    }

    /// Where programs share the workers' processors, a worker that another program had interrupted
    /// read as 700 % busy. It gave its queues away, and soon after got them back.
    #[test]
    fn an_interrupted_turn_moves_nothing() {
        let mut run = Run::new();
        run.pass([0, 0], true);
        run.queues.iter_mut().for_each(|queue| queue.busy.0 += 70_000_000);
        run.workers[0].busy.0 += 140_000_000;
        run.workers[0].waited.0 += 140_000_000;
        assert_eq!(run.pass([30, 20], true), []);
        let moves: Vec<Move> = (0..10).flat_map(|_| run.pass([70, 60], true)).collect();
        assert_eq!(moves.len(), 1, "what is measured is decided on");
    }

    #[test]
    fn a_load_is_a_share_of_the_time_with_a_processor() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let load = |busy: u64, waited: u64| {
            let sums = |busy, waited| WorkerInfo { busy, waited, ..WorkerInfo::default() };
            let (old, new) = (sums(ms(7), ms(9)), sums(ms(7 + busy), ms(9 + waited)));
            let load = WorkerLoad::between(Some(&old), &new, INTERVAL);
            [load.busy, load.waited, load.scale].map(|share| (share * 100.0).round())
        };
        assert_eq!(load(12, 0), [60.0, 0.0, 100.0]);
        assert_eq!(load(14, 10), [40.0, 50.0, 57.0]);
        assert_eq!(load(20, 10), [100.0, 50.0, 100.0]);
        assert_eq!(load(0, 0), [0.0, 0.0, 0.0]);
        assert_eq!(load(150, 140), [50.0, 100.0, 7.0], "it waited for longer than the interval");
    }

    #[test]
    fn a_queue_goes_to_the_node_of_its_guest_s_memory() {
        let mut run = Run::new();
        run.vmmq.places = vec![(0, 0), (1, 1)];
        (0..200).for_each(|_| drop(run.pass([35, 35], true)));
        assert_eq!([0, 1].map(|queue| run.queues[queue].worker), [0, 0], "no home is known");
        run.homes = [(PortId(0), 0), (PortId(1), 1)].into();
        let moves: Vec<Move> = (0..200).flat_map(|_| run.pass([35, 35], true)).collect();
        assert_eq!([0, 1].map(|queue| run.queues[queue].worker), [0, 1]);
        assert_eq!(moves.iter().map(|moved| moved.reason).collect::<Vec<_>>(), [Reason::Home]);
    }

    #[test]
    fn memory_is_looked_for_every_ten_seconds_and_where_there_are_several_nodes_only() {
        let mut run = Run::new();
        let seconds = |seconds| run.now + Duration::from_secs(seconds);
        let at = [0, 9, 10, 19, 20].map(seconds);
        let mut looks = |places: [(usize, usize); 2]| {
            run.vmmq.places = places.into();
            at.map(|now| run.vmmq.wants_homes(now))
        };
        assert_eq!(looks([(0, 0), (1, 0)]), [false; 5]);
        assert_eq!(looks([(0, 0), (1, 1)]), [true, false, true, false, true]);
    }

    #[test]
    fn static_queues_stay() {
        let mut run = Run::new();
        assert!((0..100).all(|_| run.pass([70, 60], false).is_empty()));
    }
}
