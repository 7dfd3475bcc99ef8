//! Replays of small recordings.

use super::*;
use crate::recording::{RecordedMove, RecordedWorker, VERSION};

const INTERVALS: usize = 500;

/// Makes a run of 10 s on two workers; `items` are wanted shares and workers.
fn recording(items: &[(f64, usize)], dynamic: bool) -> Recording {
    let item = |(place, (busy, worker)): (usize, &(f64, usize))| RecordedItem {
        vnic: format!("vm{place}"),
        dynamic,
        busy: vec![*busy; INTERVALS],
        worker: vec![*worker; INTERVALS],
        frames: vec![200; INTERVALS],
        ..RecordedItem::default()
    };
    let on = |worker| items.iter().filter(move |item| item.1 == worker).map(|item| item.0);
    let worker = |worker| RecordedWorker {
        core: Some(worker),
        node: 0,
        busy: vec![on(worker).sum(); INTERVALS],
    };
    Recording {
        version: VERSION,
        interval_ms: 20,
        workers: [0, 1].map(worker).into(),
        items: items.iter().enumerate().map(item).collect(),
        moves: Vec::new(),
        moves_missed: 0,
    }
}

/// Moves an item of a recording to another worker from an interval on.
fn moved(mut of: Recording, place: usize, to: usize, from: usize) -> Recording {
    let item = &mut of.items[place];
    let old = std::mem::replace(&mut item.worker[from], to);
    item.worker[from..].fill(to);
    for interval in from..INTERVALS {
        of.workers[old].busy[interval] -= item.busy[interval];
        of.workers[to].busy[interval] += item.busy[interval];
    }
    of.moves.push(RecordedMove {
        at_ms: 20 * from as u64,
        port: item.vnic.clone(),
        item: "queue 0".into(),
        from: old,
        to,
        why: String::new(),
    });
    of
}

/// Two items of 0.2 on two workers: the balancer puts both on one after the settling time, as the
/// real one did.
#[test]
fn what_the_balancer_does_is_predicted_from_a_run_in_which_nothing_moved() {
    let load = recording(&[(0.2, 0), (0.1, 1)], false);
    let real = moved(recording(&[(0.2, 0), (0.1, 1)], true), 1, 0, 85);
    let found = replay(&load, &real).unwrap();
    assert!(found.is_within, "{found:?}");
    assert_eq!((found.predicted_moves, found.real_moves), (1, 1));
    assert!((found.total.real - 0.3).abs() < 1e-9 && (found.seconds - 10.0).abs() < 1e-9);
    assert_eq!(found.as_placed[0].difference_percent.map(f64::round), Some(0.0));
    assert!(found.saturated_percent.abs() < 1e-9);
    let frame = found.items[0].ns_per_frame.map(|ns| ns.map(f64::round));
    assert_eq!((found.items[0].frames_per_s[0], frame), (Some(1e4), [Some(2e4); 2]));
}

/// The real balancer decided otherwise: the total work is equal, on another worker.
#[test]
fn work_that_is_elsewhere_is_found() {
    let load = recording(&[(0.2, 0), (0.1, 1)], false);
    let found = replay(&load, &recording(&[(0.2, 0), (0.1, 1)], true)).unwrap();
    assert!(found.total.is_within() && !found.is_within, "{found:?}");
    assert!(found.as_placed.iter().all(Compared::is_within), "costs are right: {found:?}");
    let percent: Vec<_> = found.decided.iter().map(|worker| worker.difference_percent).collect();
    assert!(percent[0].unwrap() > 30.0 && percent[1].unwrap() < -70.0, "{percent:?}");
}

/// The real balancer put both items on the other worker.
#[test]
fn which_of_two_alike_workers_is_used_does_not_matter() {
    let load = recording(&[(0.2, 0), (0.1, 1)], false);
    let real = moved(recording(&[(0.2, 0), (0.1, 1)], true), 0, 1, 85);
    let found = replay(&load, &real).unwrap();
    assert!(found.is_within && found.as_placed[1].real > 0.25, "{found:?}");
}

#[test]
fn a_cost_that_is_off_by_30_percent_fails_either_way() {
    let real = recording(&[(0.2, 0), (0.3, 1)], false);
    let off_by = |factor: f64| {
        let load = recording(&[(0.2 * factor, 0), (0.3 * factor, 1)], false);
        replay(&load, &real).unwrap()
    };
    let found = [0.7, 0.86, 1.0, 1.14, 1.3].map(|factor| off_by(factor).is_within);
    assert_eq!(found, [false, true, true, true, false]);
    let percent = off_by(1.3).as_placed[1].difference_percent.unwrap();
    assert!((percent - 30.0).abs() < 1e-6, "{percent}");
}

/// Turns of both items that began earlier ended in one interval: together they take more than the
/// interval.
#[test]
fn work_that_does_not_fit_into_its_interval_is_done_in_the_next() {
    let mut run = recording(&[(0.2, 0), (0.0, 0)], false);
    for interval in (0..INTERVALS).step_by(10) {
        (run.items[0].busy[interval], run.items[1].busy[interval]) = (1.0, 0.8);
        run.workers[0].busy[interval] = 1.0;
        run.workers[0].busy[interval + 1] = 1.0;
    }
    let found = replay(&run, &run).unwrap();
    assert!((found.total.predicted - found.total.real).abs() < 1e-3, "{found:?}");
}

#[test]
fn an_idle_worker_counts_only_if_it_is_predicted_to_be_busy() {
    let real = recording(&[(0.2, 0), (0.0, 1)], false);
    let found = replay(&recording(&[(0.2, 0), (0.009, 1)], false), &real).unwrap();
    assert!(found.is_within && found.as_placed[1].difference_percent.is_none(), "{found:?}");
    let found = replay(&recording(&[(0.2, 0), (0.02, 1)], false), &real).unwrap();
    assert_eq!(found.as_placed[1].difference_percent.map(f64::round), Some(200.0));
}

#[test]
fn recordings_of_different_things_are_not_compared() {
    let (one, two) = (recording(&[(0.2, 0)], false), recording(&[(0.2, 0), (0.2, 1)], false));
    for (load, real) in [(&one, &two), (&two, &one)] {
        let error = replay(load, real).unwrap_err().to_string();
        assert!(error.contains("50 % of its busy time") && error.contains("vm1 queue 0"));
    }
    let mut by_hand = two.clone();
    by_hand.workers.clear();
    assert!(replay(&two, &by_hand).unwrap_err().to_string().contains("no workers"));
}

/// Shares that the queues want in each phase of 4 s, as in millrace/tests/stories/replay.rs.
const PHASES: [[f64; 4]; 6] = [[0.05; 4], [0.3; 4], [0.175; 4], [0.05; 4], [0.3; 4], [0.175; 4]];

/// Makes a noisy run of four queues. Each load is off by up to a tenth in each interval, and in one
/// of a hundred a turn was interrupted for 2 ms. In a dynamic run all begin on one worker, and the
/// balancer moves them.
fn noisy(phases: &[[f64; 4]], seed: u64, dynamic: bool) -> Recording {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut run = recording(&[(0.0, 0), (0.0, 1), (0.0, 0), (0.0, 1)], dynamic);
    for (place, item) in run.items.iter_mut().enumerate() {
        let wants = phases.iter().flat_map(|wants| [wants[place]; 200]);
        let measured = |wants: f64| {
            let interrupted = if random.f64() < 0.01 { 0.1 } else { 0.0 };
            wants * (0.9 + 0.2 * random.f64()) + interrupted
        };
        item.busy = wants.map(measured).collect();
        let worker = if dynamic { 0 } else { item.worker[0] };
        item.worker = vec![worker; item.busy.len()];
        item.frames = vec![200; item.busy.len()];
    }
    carried_out(&run)
}

/// Returns the recording with the placement that the balancer decides.
fn carried_out(wanted: &Recording) -> Recording {
    let mut real = wanted.clone();
    real.workers.iter_mut().for_each(|worker| worker.busy = vec![0.0; wanted.intervals()]);
    real.items.iter_mut().for_each(|item| item.busy.fill(0.0));
    let items: Vec<&RecordedItem> = wanted.items.iter().collect();
    let mut run = Run::new(wanted, wanted, (items.clone(), items));
    for step in 0..2 * wanted.intervals() {
        let row = step / 2;
        let busy: Vec<f64> = wanted.items.iter().map(|item| item.busy[row]).collect();
        let served = serve(&run.machine, &run.units, &run.placed, &busy, &mut run.backlog[0]);
        for (place, item) in real.items.iter_mut().enumerate() {
            item.busy[row] += served.busy[place] / 2.0;
            item.worker[row] = run.placed[place];
        }
        for (worker, busy) in real.workers.iter_mut().zip(&served.workers) {
            worker.busy[row] += busy / 2.0;
        }
        run.decide(STEP * u32::try_from(step + 1).unwrap(), &served);
    }
    real
}

/// Equal queues, with sums far from the thresholds: with any noise, each worker ends up with an
/// equal number.
#[test]
fn noise_does_not_change_what_is_predicted_of_a_load_with_one_stable_placement() {
    for seed in 0..20 {
        let (load, real) = (noisy(&PHASES, seed, false), noisy(&PHASES, 100 + seed, true));
        let found = replay(&load, &real).unwrap();
        assert!(found.is_within && found.predicted_moves > 0, "seed {seed}: {found:#?}");
    }
}
