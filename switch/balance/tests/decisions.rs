//! Properties of the decision over whole runs: a switch of fluid loads, where no worker has more
//! than its time.
#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use balance::{
    Balancer, Item, ItemId, Measurement, Mode, Move, Part, Reach, Reason, Settings, Worker,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(20);

/// What one item wants, as a share of a worker at home.
#[derive(Clone, Copy, Debug)]
struct Wish {
    load: f64,
    mode: Mode,
    home: Option<usize>,
    worker: usize,
    reach: Reach,
}

/// A switch where each item wants a constant load.
#[derive(Clone, Debug)]
struct Fluid {
    workers: Vec<Worker>,
    items: Vec<Item>,
    wishes: Vec<f64>,
    now: Duration,
}

impl Fluid {
    fn new(workers: Vec<Worker>, wishes: &[Wish]) -> Fluid {
        let items = wishes.iter().zip(0..).map(|(wish, vnic)| Item {
            id: ItemId { vnic, part: Part::Queue(0) },
            worker: wish.worker % workers.len(),
            busy: 0.0,
            mode: wish.mode,
            home: wish.home,
            reach: wish.reach,
        });
        let items = items.collect();
        let wishes = wishes.iter().map(|wish| wish.load).collect();
        Fluid { workers, items, wishes, now: Duration::ZERO }
    }

    fn stretch(&self, item: &Item) -> f64 {
        let is_remote = item.home.is_some_and(|home| home != self.workers[item.worker].node);
        if is_remote { Settings::default().remote } else { 1.0 }
    }

    /// An interval passes: a worker that is wanted for more than its time serves all in proportion.
    fn pass(&mut self) {
        self.now += INTERVAL;
        let mut wanted = vec![0.0; self.workers.len()];
        for (item, wish) in self.items.iter().zip(&self.wishes) {
            wanted[item.worker] += wish * self.stretch(item);
        }
        for place in 0..self.items.len() {
            let item = self.items[place];
            let squeeze = f64::max(1.0, wanted[item.worker]);
            self.items[place].busy = self.wishes[place] * self.stretch(&item) / squeeze;
        }
        for (worker, wanted) in self.workers.iter_mut().zip(wanted) {
            worker.busy = f64::min(1.0, wanted);
        }
    }

    fn measurement(&self) -> Measurement<'_> {
        Measurement { at: self.now, workers: &self.workers, items: &self.items }
    }

    fn carry_out(&mut self, moves: &[Move]) {
        for moved in moves {
            let item = self.items.iter_mut().find(|item| item.id == moved.item).unwrap();
            assert_eq!(item.worker, moved.from, "it is where the move says");
            item.worker = moved.to;
        }
    }

    /// So many intervals; the moves of each.
    fn run(&mut self, balancer: &mut Balancer, intervals: usize) -> Vec<Vec<Move>> {
        let mut all = Vec::new();
        for _ in 0..intervals {
            self.pass();
            let moves = balancer.decide(&self.measurement());
            self.carry_out(&moves);
            all.push(moves);
        }
        all
    }

    fn in_use(&self) -> BTreeSet<usize> {
        let busy = self.items.iter().filter(|item| item.busy > 0.0);
        busy.map(|item| item.worker).collect()
    }

    fn served(&self) -> f64 {
        self.items.iter().map(|item| item.busy / self.stretch(item)).sum()
    }
}

/// Workers of whole cores, the second half of them on a second node.
fn workers(count: usize, nodes: usize) -> Vec<Worker> {
    let worker =
        |core| Worker { core, node: core * nodes / count, busy: 0.0, waited: 0.0, excluded: false };
    (0..count).map(worker).collect()
}

fn dynamic(load: f64) -> Wish {
    Wish { load, mode: Mode::Dynamic, home: None, worker: 0, reach: Reach::ALL }
}

fn wish(nodes: usize) -> impl Strategy<Value = Wish> {
    let load = prop_oneof![Just(0.0), 0.0..0.05f64, 0.0..0.4f64, 0.5..1.5f64];
    let home = prop_oneof![Just(None), (0..nodes).prop_map(Some)];
    let few = vec(0usize..16, 0..4).prop_map(Reach::from_iter);
    let reach = prop_oneof![3 => Just(Reach::ALL), 1 => few];
    (load, any::<bool>(), home, 0usize..16, reach).prop_map(|(load, moves, home, worker, reach)| {
        let mode = if moves { Mode::Dynamic } else { Mode::Static };
        Wish { load, mode, home, worker, reach }
    })
}

/// Generates a switch of 1 to 16 workers, some of them siblings or excluded.
fn fluid() -> impl Strategy<Value = Fluid> {
    (1usize..=16, 1usize..=2, any::<bool>(), vec(prop::bool::weighted(0.2), 16)).prop_flat_map(
        |(count, nodes, siblings, excluded)| {
            let mut workers = workers(count, nodes);
            for (worker, excluded) in workers.iter_mut().zip(excluded) {
                worker.core /= 1 + usize::from(siblings);
                worker.excluded = excluded;
            }
            vec(wish(nodes), 1..60).prop_map(move |wishes| Fluid::new(workers.clone(), &wishes))
        },
    )
}

fn shuffled(items: &[Item], seed: u64) -> Vec<Item> {
    let mut items = items.to_vec();
    items.sort_by_key(|item| u64::from(item.id.vnic + 1).wrapping_mul(seed | 1).rotate_left(17));
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Static items stay, targets exist, are in reach and not excluded, and no item moves twice
    /// within a second.
    #[test]
    fn only_what_may_move_moves_and_only_to_where_it_may(mut fluid in fluid()) {
        let may = |item: &Item| (item.id, (item.mode, item.reach));
        let may: BTreeMap<_, _> = fluid.items.iter().map(may).collect();
        let mut balancer = Balancer::new(Settings::default());
        let mut moved_at = BTreeMap::new();
        for (interval, moves) in fluid.clone().run(&mut balancer, 200).into_iter().enumerate() {
            for moved in moves {
                let (mode, reach) = may[&moved.item];
                prop_assert!(mode == Mode::Dynamic && reach.has(moved.to));
                prop_assert!(moved.from != moved.to && moved.to < fluid.workers.len());
                prop_assert!(!fluid.workers[moved.to].excluded);
                if let Some(before) = moved_at.insert(moved.item, interval) {
                    let rested = INTERVAL * u32::try_from(interval - before).unwrap();
                    prop_assert!(rested >= Settings::default().rest);
                }
            }
        }
        // A caller that carries nothing out is asked again, not more often.
        let mut balancer = Balancer::new(Settings::default());
        let mut asked = 0;
        for _ in 0..50 {
            fluid.pass();
            asked += balancer.decide(&fluid.measurement()).len();
        }
        prop_assert!(asked <= fluid.items.len());
    }

    /// Under constant load the moves come to an end.
    #[test]
    fn constant_load_comes_to_rest(mut fluid in fluid()) {
        let mut balancer = Balancer::new(Settings::default());
        let _ = fluid.run(&mut balancer, 1000);
        let late: Vec<_> = fluid.run(&mut balancer, 500).concat();
        prop_assert!(late.is_empty(), "after 20 s: {:?}", late);
    }

    /// The order in which the caller names the items does not matter.
    #[test]
    fn the_order_of_items_is_of_no_consequence(mut fluid in fluid(), seed: u64) {
        let (mut one, mut other) = (Balancer::new(Settings::default()), Balancer::new(Settings::default()));
        for _ in 0..150 {
            fluid.pass();
            let moves = one.decide(&fluid.measurement());
            let items = shuffled(&fluid.items, seed);
            let again = other.decide(&Measurement { items: &items, ..fluid.measurement() });
            prop_assert_eq!(&moves, &again);
            fluid.carry_out(&moves);
        }
    }

    /// Never more moves than the rate allows, one second's saved moves apart.
    #[test]
    fn the_rate_of_moves_is_bounded(mut fluid in fluid(), moves_a_second in 1u32..40) {
        let mut balancer = Balancer::new(Settings { moves_a_second, ..Settings::default() });
        let moves: usize = fluid.run(&mut balancer, 150).iter().map(Vec::len).sum();
        prop_assert!(moves <= moves_a_second as usize * 4, "{moves} in 3 s");
    }

    /// What no clock and no counter should say, and workers that do not exist.
    #[test]
    fn nonsense_is_survived(
        busy in vec(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -5.0..5.0f64], 1..20),
        worker in vec(0usize..40, 20),
        times in vec(0u64..10_000, 1..20),
    ) {
        let mut workers = workers(4, 2);
        let mut balancer = Balancer::new(Settings::default());
        for time in times {
            let item = |(busy, (worker, vnic)): (&f64, (&usize, u32))| Item {
                id: ItemId { vnic, part: Part::Entry(1) },
                worker: *worker,
                busy: *busy,
                mode: Mode::Dynamic,
                home: Some(7),
                reach: Reach::ALL,
            };
            let items: Vec<_> = busy.iter().zip(worker.iter().zip(0..)).map(item).collect();
            workers[0].busy = busy[0];
            let at = Duration::from_millis(time);
            let moves = balancer.decide(&Measurement { at, workers: &workers, items: &items });
            prop_assert!(moves.iter().all(|moved| moved.to < 4 && moved.from < 4));
        }
    }

    /// Many small items on one worker that want up to all workers are spread within 200 ms, and
    /// none of them is lost for it.
    #[test]
    fn a_load_of_any_size_is_spread_within_200_ms(wanted in 1.5..56.0f64, each in 0.3..1.0f64) {
        let count = 1000;
        let wishes = vec![dynamic(wanted / f64::from(count)); count as usize];
        let mut fluid = Fluid::new(workers(64, 1), &wishes);
        let idle = std::mem::replace(&mut fluid.wishes, vec![1e-6 * each; count as usize]);
        let mut balancer = Balancer::new(Settings::default());
        let _ = fluid.run(&mut balancer, 200);
        fluid.wishes = idle;
        let _ = fluid.run(&mut balancer, 10);
        fluid.pass();
        prop_assert!(fluid.served() > 0.98 * wanted, "{} of {wanted}", fluid.served());
    }

    /// When the load falls, one worker is in use within 2 s.
    #[test]
    fn one_worker_is_left_when_load_falls(wanted in 1.0..50.0f64, idle in 0.0..0.3f64) {
        let mut fluid = Fluid::new(workers(64, 2), &vec![dynamic(wanted / 200.0); 200]);
        let mut balancer = Balancer::new(Settings::default());
        let _ = fluid.run(&mut balancer, 300);
        fluid.wishes = vec![idle / 200.0; 200];
        let _ = fluid.run(&mut balancer, 100);
        fluid.pass();
        prop_assert!(fluid.in_use().len() <= 1, "{:?}", fluid.in_use());
        let places: BTreeSet<_> = fluid.items.iter().map(|item| item.worker).collect();
        prop_assert_eq!(places.len(), 1, "idle items too");
    }
}

/// Two guests on one worker that both want most of it.
#[test]
fn two_busy_queues_get_a_worker_each() {
    let mut fluid = Fluid::new(workers(2, 1), &[dynamic(0.9), dynamic(0.7)]);
    let moves = fluid.run(&mut Balancer::new(Settings::default()), 10).concat();
    assert_eq!(moves.len(), 1, "{moves:?}");
    fluid.pass();
    assert!(fluid.served() > 1.59);
}

/// It has its worker alone: nothing would be won.
#[test]
fn an_item_that_saturates_its_worker_alone_is_left_alone() {
    let mut fluid = Fluid::new(workers(4, 1), &[dynamic(3.0), dynamic(0.0)]);
    let moves = fluid.run(&mut Balancer::new(Settings::default()), 300).concat();
    assert!(moves.iter().all(|moved| moved.item.vnic == 1), "{moves:?}");
}

/// It takes what others want as well.
#[test]
fn a_noisy_neighbour_gets_a_worker_of_its_own() {
    let mut wishes = vec![dynamic(0.02); 20];
    wishes[7] = dynamic(3.0);
    let mut fluid = Fluid::new(workers(4, 1), &wishes);
    let mut balancer = Balancer::new(Settings::default());
    let _ = fluid.run(&mut balancer, 10);
    fluid.pass();
    let noisy = fluid.items[7].worker;
    let neighbours = fluid.items.iter().filter(|item| item.worker == noisy).count() - 1;
    assert_eq!(neighbours, 0);
    assert!(fluid.served() > 1.37, "{}", fluid.served());
}

/// Entries of one vNIC at an uplink, spread over two workers that both want more than they have.
fn two_full_workers() -> Fluid {
    let wishes: Vec<Wish> = (0..32)
        .map(|place| Wish { worker: place % 2, ..dynamic([0.055, 0.08][place % 2]) })
        .collect();
    let mut fluid = Fluid::new(workers(2, 1), &wishes);
    for (place, item) in fluid.items.iter_mut().enumerate() {
        item.id = ItemId { vnic: 1 << 16, part: Part::Entry(u8::try_from(place).unwrap()) };
    }
    fluid
}

/// With both workers above 80 % entries kept changing places, and each move lost frames.
#[test]
fn no_entry_moves_to_a_worker_without_room() {
    let mut fluid = two_full_workers();
    let moves = fluid.run(&mut Balancer::new(Settings::default()), 3000).concat();
    for moved in &moves {
        assert!(moved.to_load.1 <= Settings::default().high, "{moved}");
    }
    assert!(moves.is_empty(), "{} moves, first {}", moves.len(), moves[0]);
}

/// Two workers whose processors other programs had half of the time gave each other queues and entries
/// for ever. An entry's queue was held for 50 to 100 ms, and its ring overflowed.
#[test]
fn a_worker_that_waits_for_its_processor_counts_with_its_highest_load() {
    for (waited, peak, moves) in [(0.05, 0.8, true), (0.5, 0.8, false), (0.5, 0.4, true)] {
        for part in [Part::Entry, |place: u8| Part::Queue(place.into())] {
            let mut fluid = two_full_workers();
            let mut balancer = Balancer::new(Settings::default());
            fluid.items.iter_mut().zip(0..).for_each(|(item, place)| item.id.part = part(place));
            fluid.workers[1].waited = waited;
            // Worker 0 fills up, worker 1 goes from a high load to a lower one.
            for (own, other, intervals) in [(0.04, peak / 16.0, 40), (0.055, 0.02, 30)] {
                fluid.wishes = (0..32).map(|place| [own, other][place % 2]).collect();
                let all = fluid.run(&mut balancer, intervals).concat();
                let is_end = own > 0.05;
                assert_eq!(!all.is_empty(), moves && is_end, "{waited} {peak}: {all:?}");
            }
        }
    }
}

/// Each lossy move doubles the rest of the vNIC's items, up to about a minute; a move without loss
/// halves it.
#[test]
fn what_a_move_loses_is_charged_against_it() {
    let settings = Settings::default();
    let mut balancer = Balancer::new(settings);
    let at = Duration::from_secs(1);
    let rests = [true, true, false, false, false].map(|lost| balancer.charge(7, lost, at));
    let times = |factor: u32| settings.rest * factor;
    assert_eq!(rests, [times(2), times(4), times(2), times(1), times(1)]);
    let most = (0..20).map(|_| balancer.charge(7, true, at)).max().unwrap();
    assert_eq!(most, times(64));
    // While it is charged it stays, and another vNIC moves.
    for (vnic, stays) in [(7, true), (8, false)] {
        let mut fluid = Fluid::new(workers(2, 1), &[dynamic(0.6), dynamic(0.3)]);
        fluid.items.iter_mut().zip(0..).for_each(|(item, number)| {
            item.id = ItemId { vnic, part: Part::Entry(number) };
        });
        let moves = fluid.run(&mut balancer, 100).concat();
        assert_eq!(moves.is_empty(), stays, "vNIC {vnic}: {moves:?}");
    }
}

/// The worker is at 85 %: nothing has been lost yet.
#[test]
fn a_worker_gives_items_away_before_it_saturates() {
    let mut fluid = Fluid::new(workers(4, 1), &vec![dynamic(0.0); 10]);
    let mut balancer = Balancer::new(Settings::default());
    for step in 1..=60 {
        fluid.wishes = vec![0.002 * f64::from(step); 10];
        let _ = fluid.run(&mut balancer, 2);
        assert!(fluid.served() > 0.999 * 0.02 * f64::from(step), "step {step}");
    }
    assert!(fluid.in_use().len() > 1);
}

#[test]
fn whole_cores_come_before_siblings_and_the_own_node_before_another() {
    let mut siblings = workers(8, 2);
    for (place, worker) in siblings.iter_mut().enumerate() {
        (worker.core, worker.node) = (place % 4, place % 2);
    }
    let wishes = [0.6; 4].map(|load| Wish { home: Some(0), ..dynamic(load) });
    let mut fluid = Fluid::new(siblings, &wishes);
    let mut balancer = Balancer::new(Settings::default());
    let _ = fluid.run(&mut balancer, 20);
    fluid.pass();
    let cores: BTreeSet<_> = fluid.in_use().iter().map(|worker| worker % 4).collect();
    assert_eq!(cores.len(), 4, "{:?}", fluid.in_use());
}

#[test]
fn items_come_home_to_the_node_of_their_memory() {
    let stray = Wish { home: Some(1), ..dynamic(0.3) };
    let mut fluid = Fluid::new(workers(4, 2), &[stray, stray, stray]);
    let mut balancer = Balancer::new(Settings::default());
    let moves = fluid.run(&mut balancer, 200).concat();
    assert!(fluid.items.iter().all(|item| item.worker >= 2), "{moves:?}");
}

#[test]
fn an_excluded_worker_is_left() {
    let mut workers = workers(3, 1);
    workers[0].excluded = true;
    let mut fluid = Fluid::new(workers, &[dynamic(0.1), dynamic(0.1)]);
    let moves = fluid.run(&mut Balancer::new(Settings::default()), 10).concat();
    assert!(fluid.items.iter().all(|item| item.worker != 0));
    assert!(moves.iter().all(|moved| moved.reason == Reason::Leave), "{moves:?}");
}

#[test]
fn a_move_says_which_figures_caused_it() {
    let mut fluid = Fluid::new(workers(2, 1), &[dynamic(0.5), dynamic(0.4)]);
    let moves = fluid.run(&mut Balancer::new(Settings::default()), 10).concat();
    assert_eq!(
        moves[0].to_string(),
        "isolate: worker 0 at 90 %, above 80 %; 40 % without it, and worker 1 from 0 % to 50 %"
    );
}

/// What all static flows of a queue took was taken for one flow that could get more, so that this
/// one could want no more.
#[test]
fn what_static_items_take_says_nothing_about_what_others_want() {
    let fixed = |load, worker| Wish { load, mode: Mode::Static, worker, ..dynamic(load) };
    let mut fluid = Fluid::new(workers(2, 1), &[dynamic(0.6), fixed(0.0, 0), fixed(0.15, 1)]);
    let mut balancer = Balancer::new(Settings::default());
    assert!(fluid.run(&mut balancer, 50).concat().is_empty());
    fluid.wishes[1] = 1.7;
    let moves = fluid.run(&mut balancer, 3).concat();
    assert_eq!(moves.iter().map(|moved| moved.item.vnic).collect::<Vec<_>>(), [0], "{moves:?}");
    assert!(moves[0].load > 0.5, "{moves:?}");
}
