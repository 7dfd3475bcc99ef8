//! Entries of memory uplinks, whose counts the tests set.

use super::super::Running;
use super::mover::Together;
use super::*;
use api::body::OrderBody;
use balance::Reason;
use config::Config;
use ports::steering::{EntryMove, Moved, Order, SteeringError, Table};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use test_devices::{Fate, MemoryDevices, MemorySteering};
use wire::Mac;

const UPLINK: &str =
    "[switch]\nworkers=2\n[[port]]\nname='up'\npacket='eth9'\nqueues=2\nvmmq='dynamic'\n";
const INTERVAL: Duration = Duration::from_millis(20);
const LATELY: Duration = Duration::from_secs(2);
/// What share of its worker each queue takes.
const SHARES: [f64; 2] = [0.6, 0.3];

struct Run {
    running: Running,
    devices: MemoryDevices,
    now: Instant,
}

fn config(ports: &str) -> Config {
    Config::from_toml("t", &format!("{UPLINK}{ports}")).unwrap()
}

fn vnic(number: usize, more: &str) -> String {
    let mac = format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256);
    format!("[[port]]\nname='v{number}'\ntap='v{number}'\nmac='{mac}'\n{more}\n")
}

/// The number of a vNIC at an uplink that none has left.
fn nth(number: u16) -> Vnic {
    Vnic { number, generation: 0 }
}

impl Run {
    fn new(ports: &str) -> Run {
        Run::of(config(ports))
    }

    fn of(config: Config) -> Run {
        let (devices, now) = (MemoryDevices::default(), Instant::now());
        let running = Running::start(config, Box::new(devices.clone()), now).unwrap();
        let mut run = Run { running, devices, now };
        assert!(run.measure(&[]).is_empty(), "nothing has come yet");
        run
    }

    fn steering(&self) -> Arc<MemorySteering> {
        self.devices.steering("eth9").unwrap()
    }

    fn queues(&self) -> Vec<QueueInfo> {
        let id = self.running.ports.open_port("up").unwrap().id;
        self.running.switch.queues_of(id)
    }

    /// The items of an interval in which so many frames came by entries of vNICs.
    fn measure(&mut self, frames: &[(Vnic, usize, u64)]) -> Vec<Item> {
        self.now += INTERVAL;
        let steering = self.steering();
        frames.iter().for_each(|(vnic, entry, count)| steering.count(*vnic, *entry, *count));
        let (tables, _) = dynamic_tables(&self.running.ports);
        let loads = self.running.vmmq.entries.measure(&tables, LATELY, self.now);
        items(&loads, &self.queues(), |queue| SHARES[queue.queue])
    }

    fn item(&self, vnic: Vnic, entry: u8) -> ItemId {
        let uplink = self.running.ports.open_port("up").unwrap().id;
        ItemId { vnic: name(uplink, vnic), part: Part::Entry(entry) }
    }

    /// A move of an entry to the worker of a queue.
    fn moving(&self, vnic: Vnic, entry: u8, queue: usize) -> Move {
        let at = |queue: usize| self.queues()[queue].worker;
        assert_ne!(at(0), at(1));
        Move {
            item: self.item(vnic, entry),
            from: at(1 - queue),
            to: at(queue),
            reason: Reason::Relieve,
            threshold: 0.8,
            load: 0.2,
            from_load: (0.9, 0.7),
            to_load: (0.1, 0.3),
        }
    }

    /// A job of one entry.
    fn job(&self, vnic: Vnic, entry: u8, queue: u8) -> Job {
        let steering: Arc<dyn Steering> = self.steering();
        let moved = self.moving(vnic, entry, 1);
        Job {
            name: "up".to_owned(),
            steering: Arc::downgrade(&steering),
            shifts: vec![Shift { vnic, entry, queue, port: None, moved }],
        }
    }

    fn begin(&mut self, job: Job) {
        let uplink = self.queues()[0].port;
        self.running.vmmq.entries.mover.begin(uplink, job).unwrap();
    }

    /// What is explained once a move was made.
    fn explained(&mut self) -> Vec<api::body::VmmqMoveBody> {
        let end = Instant::now() + Duration::from_secs(60);
        while self.running.vmmq.entries.is_busy(self.queues()[0].port) {
            assert!(Instant::now() < end, "a move never ends");
            std::thread::sleep(Duration::from_millis(1));
            let Running { vmmq, journal, .. } = &mut self.running;
            vmmq.finish_moves(journal, self.now);
        }
        self.running.vmmq_moves()
    }

    fn events(&self) -> Vec<String> {
        let events = self.running.switch_body(self.now).events;
        events.into_iter().map(|event| event.text).filter(|text| text.contains("entries")).collect()
    }
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

#[test]
fn an_entry_takes_that_part_of_its_queue_which_its_frames_are() {
    let mut run = Run::new(&vnic(1, ""));
    let items = run.measure(&[(nth(1), 0, 30), (nth(1), 2, 10), (Vnic::DEFAULT, 1, 7)]);
    let queues = run.queues();
    assert_eq!(items.len(), 3, "{items:?}");
    let wanted = [(nth(1), 0, 0, 0.45), (nth(1), 2, 0, 0.15), (Vnic::DEFAULT, 1, 1, 0.3)];
    for (vnic, entry, queue, busy) in wanted {
        let id = run.item(vnic, entry);
        let item = items.iter().find(|item| item.id == id).unwrap();
        assert_eq!((item.worker, item.mode), (queues[queue].worker, Mode::Dynamic));
        assert!(is_near(item.busy, busy), "{item:?}");
        assert!(queues.iter().all(|queue| item.reach.has(queue.worker)), "{item:?}");
        assert!(!item.reach.has(2), "{item:?}");
    }
}

#[test]
fn an_entry_is_named_for_as_long_as_its_load_may_come_back() {
    let mut run = Run::new(&vnic(1, ""));
    run.measure(&[(nth(1), 5, 1)]);
    let begin = run.now;
    loop {
        let items = run.measure(&[]);
        if run.now > begin + LATELY {
            break assert!(items.is_empty(), "{items:?}");
        }
        assert!(items.len() == 1 && is_near(items[0].busy, 0.0), "{items:?}");
    }
}

#[test]
fn entries_of_static_vnics_stay_and_all_while_some_move() {
    let ports = [vnic(1, ""), vnic(2, "vmmq='static'"), vnic(3, "vmmq='dynamic'")].concat();
    let mut run = Run::new(&ports);
    let frames = [0, 1, 2, 3].map(|number| (nth(number), 0, 1));
    let check = |run: &mut Run, count: f64, mode: Mode| {
        let named: Vec<ItemId> = [0, 1, 3].map(|number| run.item(nth(number), 0)).into();
        let items = run.measure(&frames);
        let (entries, fixed): (Vec<&Item>, Vec<&Item>) =
            items.iter().partition(|item| named.contains(&item.id));
        assert!(entries.len() == 3 && entries.iter().all(|item| item.mode == mode), "{items:?}");
        // Entry 0 of the static vNIC, of so many that name the queue.
        let [fixed] = fixed[..] else { panic!("{items:?}") };
        assert_eq!((fixed.id.part, fixed.mode), (Part::Queue(0), Mode::Static));
        assert!(is_near(fixed.busy, SHARES[0] / count), "{items:?}");
    };
    check(&mut run, 4.0, Mode::Dynamic);
    let steering = run.steering();
    let moving = steering.hold_moves();
    let job = run.job(nth(1), 0, 1);
    run.begin(job);
    check(&mut run, 4.0, Mode::Static);
    drop(moving);
    run.explained();
    check(&mut run, 3.0, Mode::Dynamic);
}

/// A peer that sprayed flows over many vNICs had the balancer weigh all of their entries, in the
/// thread that owns the switch.
#[test]
fn the_busiest_entries_stand_for_all_where_too_many_are_active() {
    let vnics = 40;
    let mut run = Run::new(&(1..=vnics).map(|number| vnic(number, "")).collect::<String>());
    let all =
        (0..=u16::try_from(vnics).unwrap()).flat_map(|n| (0..128).map(move |e| (nth(n), e, 1)));
    let frames: Vec<_> = all.chain([(nth(7), 6, 999), (nth(8), 9, 499)]).collect();
    assert!(frames.len() > 2 * MOST);
    let items = run.measure(&frames);
    assert!(items.len() <= MOST && items.len() > MOST - 2, "{}", items.len());
    for (queue, (id, frames)) in
        [(run.item(nth(7), 6), 1000.0), (run.item(nth(8), 9), 500.0)].into_iter().enumerate()
    {
        let worker = run.queues()[queue].worker;
        let own = items.iter().filter(|item| item.worker == worker);
        let sum: f64 = own.map(|item| item.busy).sum();
        assert!(is_near(sum, SHARES[queue]), "{sum} of {}", SHARES[queue]);
        let busy = items.iter().find(|item| item.id == id).unwrap().busy;
        let right = SHARES[queue] * frames / (frames + 41.0 * 64.0 - 1.0);
        assert!(busy >= right && busy < right + SHARES[queue] / 1024.0, "{busy}, {right}");
    }
}

/// A vNIC: how many of its entries have frames, and whether all of them name queue 0.
type Sprayed = (usize, bool);

fn sprayed() -> impl Strategy<Value = Vec<Sprayed>> {
    let active = prop_oneof![Just(ENTRIES), 0..=ENTRIES];
    proptest::collection::vec((active, proptest::bool::ANY), 0..40)
}

/// Static vNICs whose entries were all active kept dynamic ones from being named.
#[test]
fn each_queue_s_load_is_whole_and_dynamic_entries_alone_are_named() {
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() };
    let were_in_the_way = Cell::new(0);
    let vnics = (sprayed(), sprayed(), any::<u64>());
    let result = TestRunner::new(config).run(&vnics, |(static_ones, dynamic_ones, seed)| {
        let [held, movable] = check_named(&static_ones, &dynamic_ones, seed)?;
        let is_it = held > MOST && movable > 0 && movable <= MOST;
        were_in_the_way.set(were_in_the_way.get() + u32::from(is_it));
        Ok(())
    });
    result.unwrap();
    assert!(were_in_the_way.get() > 0, "no case has what the test is for");
}

/// Measures one interval; how many static and dynamic entries had frames.
fn check_named(
    static_ones: &[Sprayed],
    dynamic_ones: &[Sprayed],
    seed: u64,
) -> Result<[usize; 2], TestCaseError> {
    let memory = Arc::new(MemorySteering::new(2, MemoryDevices::default()));
    let mut tables = Vec::new();
    let (mut sums, mut active): ([u64; 2], [HashSet<ItemId>; 2]) = Default::default();
    let static_ones = static_ones.iter().map(|vnic| (Mode::Static, vnic));
    let vnics = static_ones.chain(dynamic_ones.iter().map(|vnic| (Mode::Dynamic, vnic)));
    for (number, (mode, &(count, is_skewed))) in (1u8..).zip(vnics) {
        let vnic = memory.add_vnic(Mac([2, 0, 0, 0, 0, number]), 0).unwrap();
        let table =
            UplinkTable { uplink: PortId(5), vnic, steering: memory.clone(), mode, home: None };
        for (entry, place) in (0u8..).zip(0..count) {
            let queue = if is_skewed { 0 } else { entry % 2 };
            memory.set_entry(vnic, place, queue).unwrap();
            let id = ItemId { vnic: table.name(), part: Part::Entry(entry) };
            active[usize::from(mode == Mode::Dynamic)].insert(id);
            sums[usize::from(queue)] += frames_of(seed, id);
        }
        tables.push(table);
    }
    let (mut entries, begin) = (Entries::default(), Instant::now());
    entries.measure(&tables, LATELY, begin);
    for table in &tables {
        let id = |entry| ItemId { vnic: table.name(), part: Part::Entry(entry) };
        let had = (0u8..128).filter(|entry| active.iter().any(|of| of.contains(&id(*entry))));
        had.for_each(|entry| memory.count(table.vnic, entry.into(), frames_of(seed, id(entry))));
    }
    let loads = entries.measure(&tables, LATELY, begin + INTERVAL);
    let items = items(&loads, &[0, 1].map(queue_info), |queue| SHARES[queue.queue]);
    let is_entry = |item: &&Item| matches!(item.id.part, Part::Entry(_));
    let named: HashSet<ItemId> = items.iter().filter(is_entry).map(|item| item.id).collect();
    let [held, movable] = active;
    prop_assert!(named.is_subset(&movable), "a static entry is named");
    prop_assert_eq!(named.len(), movable.len().min(MOST));
    for queue in 0..2 {
        let of_queue = movable.iter().filter(|id| named_queue(&memory, **id) == queue);
        let (kept, left): (Vec<ItemId>, Vec<ItemId>) =
            of_queue.copied().partition(|id| named.contains(id));
        let most = left.iter().map(|id| frames_of(seed, *id)).max().unwrap_or_default();
        prop_assert!(kept.iter().all(|id| frames_of(seed, *id) >= most), "not the busiest");
    }
    for (queue, sum) in sums.into_iter().enumerate() {
        let own = items.iter().filter(|item| item.worker == queue);
        let load: f64 = own.map(|item| item.busy).sum();
        let whole = if sum > 0 { SHARES[queue] } else { 0.0 };
        prop_assert!(is_near(load, whole), "queue {}: {} of {}", queue, load, whole);
    }
    Ok([held.len(), movable.len()])
}

/// The queue that an entry names.
fn named_queue(memory: &MemorySteering, id: ItemId) -> u8 {
    let Part::Entry(entry) = id.part else { return u8::MAX };
    memory.table(nth((id.vnic & 0xffff) as u16)).unwrap()[usize::from(entry)]
}

/// How many come by an entry.
fn frames_of(seed: u64, id: ItemId) -> u64 {
    let Part::Entry(entry) = id.part else { return 0 };
    let place = u64::from(id.vnic) << 8 | u64::from(entry);
    1 + ((seed ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54)
}

/// A queue of the uplink, at the worker of the same number.
fn queue_info(queue: usize) -> QueueInfo {
    QueueInfo {
        port: PortId(5),
        queue,
        worker: queue,
        busy: ports::Nanos::default(),
        frames: 0,
        bytes: 0,
        waits: datapath::Waits::default(),
        entries: 0,
        movable: false,
    }
}

/// It was explained when it was decided, done or not.
#[test]
fn a_move_is_explained_once_it_is_done() {
    let mut run = Run::new(&vnic(1, ""));
    let (tables, _) = dynamic_tables(&run.running.ports);
    let moving = |entry, from_load, to_load| {
        let moved = run.moving(nth(1), entry, 1);
        Move { from_load, to_load, ..moved }
    };
    let moves = [
        moving(4, (0.9, 0.7), (0.1, 0.3)),
        run.moving(Vnic::DEFAULT, 6, 1),
        moving(8, (0.5, 0.3), (0.5, 0.7)),
    ];
    let queues = run.queues();
    let Running { vmmq, ports, .. } = &mut run.running;
    let failed = vmmq.entries.begin_moves(&moves, ports, &tables, &queues, &[]);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(run.running.vmmq_moves(), []);
    let moves = run.explained();
    let told: Vec<_> =
        moves.iter().map(|moved| (moved.port.as_str(), moved.item.as_str())).collect();
    assert_eq!(told, [("up", "entry 6"), ("up", "2 entries of v1")]);
    let of_v1 = &moves[1];
    assert_eq!((of_v1.vnic.as_deref(), of_v1.entries.as_slice()), (Some("v1"), [4, 8].as_slice()));
    // What the other one moved is not among it.
    let figures = [of_v1.from_load, of_v1.to_load, [of_v1.load, 0.0]].concat();
    let wanted = [0.9, 0.5, 0.1, 0.5, 0.4, 0.0];
    assert!(figures.iter().zip(wanted).all(|(it, wanted)| is_near(*it, wanted)), "{of_v1:?}");
    assert!(moves.iter().all(|moved| moved.held.as_ref().unwrap().order == OrderBody::Kept));
    let named = [nth(1), Vnic::DEFAULT].map(|vnic| run.steering().table(vnic).unwrap());
    let [of_v1, default] = named.map(|table| [4, 6, 8].map(|entry| table[entry]));
    assert_eq!((of_v1, default), ([1, 0, 1], [0, 1, 0]));
}

/// It waited until a look, one a second, happened to find no entry on the move.
#[test]
fn a_vnic_that_comes_while_entries_move_has_its_table_at_the_next_decision() {
    let mut run = Run::new(&vnic(1, ""));
    let steering = run.steering();
    let moving = steering.hold_moves();
    run.begin(run.job(nth(1), 4, 1));
    run.running.reload(config(&[vnic(1, ""), vnic(2, "")].concat()), run.now).unwrap();
    for _ in 0..5 {
        assert_eq!(run.events(), [""; 0]);
        run.now += Duration::from_millis(200);
        run.running.balance(run.now);
        run.running.poll(run.now);
    }
    run.now += INTERVAL;
    (0..2).for_each(|_| run.running.poll(run.now));
    let told = "port up: the default table steers flows to v2: entries have been moving for more than a second";
    assert!(run.events().len() == 1 && run.events()[0].starts_with(told), "{:?}", run.events());
    assert!(steering.table(nth(2)).is_err());
    drop(moving);
    run.explained();
    run.running.balance(run.now);
    assert!(steering.table(nth(2)).is_ok());
}

/// All went to the first queue of the worker. Its ring overflowed beside empty ones.
#[test]
fn entries_are_dealt_out_over_the_queues_of_their_new_worker() {
    let uplink = format!("{UPLINK}{}", vnic(1, "")).replace("queues=2", "queues=4");
    let mut run = Run::of(Config::from_toml("t", &uplink).unwrap());
    let queues = run.queues();
    let here = queues.iter().filter(|queue| queue.worker == queues[1].worker);
    let here: Vec<usize> = here.map(|queue| queue.queue).collect();
    assert_eq!(here.len(), 2);
    // One of these queues has two entries with frames already.
    let active: Vec<_> = (0..2).map(|entry| (nth(1), here[0] + 4 * entry, 1)).collect();
    run.measure(&active);
    let moves: Vec<Move> = (0..6).map(|entry| run.moving(nth(1), 4 * entry, 1)).collect();
    let (tables, _) = dynamic_tables(&run.running.ports);
    let loads = run.running.vmmq.entries.measure(&tables, LATELY, run.now);
    let Running { vmmq, ports, .. } = &mut run.running;
    let failed = vmmq.entries.begin_moves(&moves, ports, &tables, &queues, &loads);
    assert!(failed.is_empty(), "{failed:?}");
    run.explained();
    let table = run.steering().table(nth(1)).unwrap();
    let of = |queue| (0..6).filter(|entry| usize::from(table[4 * entry]) == queue).count();
    assert_eq!([of(here[0]), of(here[1])], [2, 4]);
}

#[test]
fn a_move_that_is_refused_is_an_event_and_not_explained() {
    let mut run = Run::new(&vnic(1, ""));
    run.begin(run.job(nth(1), 4, 9));
    assert_eq!(run.explained(), []);
    let events = run.events();
    assert!(events.len() == 1 && events[0].contains("port up: cannot move entries"), "{events:?}");
}

/// Each queue's moves waited for those to the queue before it. What is explained is what went to
/// one queue at one time.
#[test]
fn moves_of_a_decision_are_one_call_in_its_order() {
    let run = Run::new(&vnic(1, ""));
    let shift = |entry, queue| run.job(nth(1), entry, queue).shifts.remove(0);
    let shifts = vec![shift(4, 1), shift(0, 1), shift(5, 0), shift(6, 1)];
    let steering: Arc<dyn Steering> = Arc::new(Ends(Order::GivenUp));
    let job = Job { steering: Arc::downgrade(&steering), shifts, ..run.job(nth(1), 0, 0) };
    let done = job.run();
    let entries = |together: &Together| -> Vec<u8> {
        together.shifts.iter().map(|shift| shift.entry).collect()
    };
    let moved: Vec<Vec<u8>> = done.moved.iter().map(entries).collect();
    assert_eq!(moved, [vec![4, 0], vec![5], vec![6]]);
}

/// A vNIC went between two jobs of a decision, and the next one got its number and its moves.
#[test]
fn a_move_of_a_vnic_that_went_does_not_move_the_next_one_of_its_number() {
    let mut run = Run::new(&vnic(1, ""));
    let job = run.job(nth(1), 4, 1);
    run.running.reload(config(&vnic(2, "")), run.now).unwrap();
    let next = Vnic { number: 1, generation: 1 };
    assert_eq!(run.steering().table(next).unwrap()[4], 0);
    let done = job.run();
    assert!(done.troubles.is_empty(), "{:?}", done.troubles);
    assert!(done.moved.iter().all(|together| together.shifts.is_empty()));
    assert_eq!(run.steering().table(next).unwrap()[4], 0);
}

/// It waited for queues that nobody reads any more, and said that they were not read.
#[test]
fn a_move_at_an_uplink_that_was_closed_does_nothing() {
    let mut run = Run::new(&vnic(1, ""));
    let job = run.job(nth(1), 4, 1);
    for fate in [Fate::Gone, Fate::Up] {
        run.devices.set("eth9", fate);
        run.now += Duration::from_secs(1);
        run.running.poll(run.now);
    }
    let done = job.run();
    assert!(done.moved.is_empty() && done.troubles.is_empty(), "{:?}", done.troubles);
    assert_eq!(run.steering().table(nth(1)).unwrap()[4], 0);
}

/// An uplink whose old queue is not read while its entries move, those to one queue together as
/// long as they follow one another.
struct Ends(Order);

impl Steering for Ends {
    fn queues(&self) -> u8 {
        2
    }

    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError> {
        Err(SteeringError::InUse { mac, vlan })
    }

    fn remove_vnic(&self, _: Vnic) -> Result<(), SteeringError> {
        Ok(())
    }

    fn table(&self, _: Vnic) -> Result<Table, SteeringError> {
        Ok([1; ENTRIES])
    }

    fn frames(&self, _: Vnic) -> Result<[u64; ENTRIES], SteeringError> {
        Ok([0; ENTRIES])
    }

    fn set_entry(&self, _: Vnic, _: usize, _: u8) -> Result<(), SteeringError> {
        Ok(())
    }

    fn move_entries(
        &self,
        moves: &[EntryMove],
        held: Duration,
    ) -> Result<Vec<Moved>, SteeringError> {
        let moved = |moves: &[EntryMove]| {
            let entries = moves.iter().map(|moving| (moving.vnic, moving.entry)).collect();
            Moved { entries, order: self.0, held_frames: 9, lost_frames: 5, held }
        };
        Ok(moves.chunk_by(|one, other| one.queue == other.queue).map(moved).collect())
    }
}

#[test]
fn a_move_that_did_not_wait_is_an_event_and_explained_as_such() {
    let mut run = Run::new(&vnic(1, ""));
    let steering: Arc<dyn Steering> = Arc::new(Ends(Order::GivenUp));
    let job = Job { steering: Arc::downgrade(&steering), ..run.job(nth(1), 4, 1) };
    run.begin(job);
    let moves = run.explained();
    let held = moves[0].held.as_ref().unwrap();
    assert_eq!((held.frames, held.lost, held.order), (9, 5, OrderBody::GivenUp));
    assert!(moves[0].text.contains("lost 5 frames"), "{}", moves[0].text);
    let events = run.events();
    assert!(events.len() == 1 && events[0].contains("may be out of order"), "{events:?}");
}

/// It would have been asked for again with the next measurement, twenty milliseconds later.
#[test]
fn entries_that_stay_rest_and_are_no_moves() {
    let mut run = Run::new(&vnic(1, ""));
    let steering: Arc<dyn Steering> = Arc::new(Ends(Order::Stayed));
    for rest in [2, 4] {
        let job = Job { steering: Arc::downgrade(&steering), ..run.job(nth(1), 4, 1) };
        run.begin(job);
        assert_eq!((run.explained(), run.running.vmmq.moved()), (Vec::new(), 0));
        let told = format!("port up: 1 of its entries stay for {rest} s");
        let events = run.events();
        assert!(events.iter().any(|event| event.starts_with(&told)), "{events:?}");
    }
}
