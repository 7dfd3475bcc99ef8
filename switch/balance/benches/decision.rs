//! Instructions of one decision with 1,000 queues on 64 workers.
//! `cargo bench -p millrace-balance --bench decision`
#![allow(missing_docs, reason = "the macros of the bench harness make public items")]

use balance::{Balancer, Item, ItemId, Measurement, Mode, Move, Part, Reach, Settings, Worker};
use gungraun::{library_benchmark, library_benchmark_group, main};
use std::hint::black_box;
use std::time::Duration;

struct Case {
    balancer: Balancer,
    workers: Vec<Worker>,
    items: Vec<Item>,
    at: Duration,
}

impl Case {
    fn decide(&mut self) -> Vec<Move> {
        self.at += Duration::from_millis(20);
        let Case { balancer, workers, items, at } = self;
        balancer.decide(&Measurement { at: *at, workers, items })
    }
}

/// 1,000 queues, each with so much of a worker, dealt out among so many workers; measured a few
/// times already.
fn case(load: f64, dealt: usize) -> Case {
    let item = |vnic: u32| Item {
        id: ItemId { vnic, part: Part::Queue(0) },
        worker: vnic as usize % dealt,
        busy: load,
        mode: Mode::Dynamic,
        home: Some(vnic as usize % 2),
        reach: Reach::ALL,
    };
    let items: Vec<Item> = (0..1000).map(item).collect();
    let worker = |core: usize| Worker {
        core,
        node: core % 2,
        busy: items.iter().filter(|item| item.worker == core).map(|item| item.busy).sum(),
        waited: 0.0,
        excluded: false,
    };
    let workers = (0..64).map(worker).collect();
    let balancer = Balancer::new(Settings::default());
    let mut case = Case { balancer, workers, items, at: Duration::ZERO };
    // 100 ms of a fixed load; coalescing is looked at much later.
    (0..5).for_each(|_| drop(case.decide()));
    case
}

/// Returns the usual case, in which nothing moves.
fn settled() -> Case {
    case(0.04, 64)
}

/// Returns the most expensive case: all are on one worker, which has been saturated for so long
/// that all have to be placed.
fn all_on_one() -> Case {
    let mut case = case(0.0001, 1);
    case.workers[0].busy = 1.0;
    case.items.iter_mut().for_each(|item| item.busy = 0.001);
    for moved in case.decide() {
        if let Some(item) = case.items.iter_mut().find(|item| item.id == moved.item) {
            (item.worker, item.busy) = (moved.to, 0.04);
        }
    }
    case
}

#[library_benchmark]
#[bench::nothing_moves(settled())]
#[bench::a_thousand_moves(all_on_one())]
fn decide(mut case: Case) -> (Vec<Move>, Case) {
    (black_box(case.decide()), case)
}

library_benchmark_group!(name = decisions, benchmarks = [decide]);
main!(library_benchmark_groups = [decisions]);
