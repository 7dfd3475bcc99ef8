//! Tests of recordings made from counters.

use super::*;
use api::body::{VmmqQueueBody, VmmqTableBody, VmmqWorkerBody};

const MS: u64 = 1_000_000;

/// More intervals than any recording here has.
const MANY: usize = 1000;

/// Returns a reading `at` a time in ms: one worker, and a queue of a port, busy for `busy` ms so
/// far.
fn body(at: u64, busy: u64) -> VmmqLoadBody {
    let queue = VmmqQueueBody {
        port: "vm1".into(),
        queue: 0,
        worker: 0,
        dynamic: true,
        busy_ns: busy * MS,
        frames: 10 * busy,
        bytes: 1000 * busy,
    };
    VmmqLoadBody {
        at_ns: at * MS,
        moves: 0,
        workers: vec![VmmqWorkerBody { core: Some(0), node: 0, busy_ns: busy * MS }],
        queues: vec![queue],
        tables: Vec::new(),
    }
}

fn record(bodies: &[VmmqLoadBody]) -> Recording {
    let mut recorder = Recorder::new(Duration::from_millis(20), bodies[0].clone());
    for body in &bodies[1..] {
        recorder.add(body.clone(), MANY).unwrap();
    }
    recorder.finish()
}

#[test]
fn differences_become_shares_frames_and_bytes() {
    let found = record(&[body(100, 7), body(120, 12), body(140, 32)]);
    let item = &found.items[0];
    assert_eq!(
        (item.busy.as_slice(), item.frames.as_slice()),
        ([0.25, 1.0].as_slice(), [50, 200].as_slice())
    );
    assert_eq!(
        (item.bytes.as_slice(), item.worker.as_slice()),
        ([5000, 20_000].as_slice(), [0, 0].as_slice())
    );
    assert_eq!(found.workers[0].busy, item.busy);
    assert!(item.dynamic && item.name() == "vm1 queue 0");
}

/// The recorder was not scheduled for three intervals; the reading after that came a little early.
#[test]
fn a_late_look_is_as_many_intervals_as_have_passed() {
    let found = record(&[body(0, 0), body(65, 13), body(79, 13)]);
    let item = &found.items[0];
    assert_eq!(item.busy, [0.2, 0.2, 0.2, 0.0]);
    assert_eq!(item.frames, [43, 43, 44, 0]);
    assert_eq!(record(&[body(0, 0), body(9, 9), body(20, 10)]).items[0].busy, [0.5]);
}

#[test]
fn a_turn_longer_than_its_interval_is_counted_in_the_next() {
    let found =
        record(&[body(0, 0), body(20, 0), body(40, 50), body(60, 50), body(80, 50), body(100, 50)]);
    assert_eq!(found.items[0].busy, [0.0, 1.0, 1.0, 0.5, 0.0]);
    assert_eq!(found.workers[0].busy, found.items[0].busy);
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(Recording::read(&json).unwrap(), found);
}

#[test]
fn a_port_that_comes_and_goes_is_idle_before_and_after() {
    let without = |at, busy| VmmqLoadBody { queues: Vec::new(), ..body(at, busy) };
    // What the queue did before its first reading is not known.
    let found =
        record(&[without(0, 0), without(20, 5), body(40, 5), body(60, 15), without(80, 15)]);
    assert_eq!(found.items[0].busy, [0.0, 0.0, 0.5, 0.0]);
    assert_eq!(found.workers[0].busy, [0.25, 0.0, 0.5, 0.0]);
    assert_eq!(found.items[0].worker, [0; 4]);
}

#[test]
fn a_restart_ends_a_recording() {
    let mut recorder = Recorder::new(Duration::from_millis(20), body(100, 7));
    assert!(recorder.add(body(20, 1), MANY).unwrap_err().to_string().contains("restarted"));
}

/// Two entries of queue 0 had 30 and 10 frames, one of queue 1 none. Entry 1 has moved meanwhile.
#[test]
fn entries_share_their_queues_time_by_frames() {
    let with = |at, busy, frames: [u64; 3], queue| {
        let mut body = body(at, busy);
        let table = |vnic: Option<&str>| VmmqTableBody {
            uplink: "vm1".into(),
            vnic: vnic.map(str::to_owned),
            number: vnic.map_or(0, |_| 1),
            generation: 0,
            dynamic: vnic.is_some(),
            queues: vec![0, queue, 1],
            frames: if vnic.is_some() { frames.into() } else { vec![0; 3] },
        };
        let other = VmmqQueueBody { queue: 1, worker: 1, busy_ns: 0, ..body.queues[0].clone() };
        body.queues.push(other);
        body.tables = vec![table(None), table(Some("a"))];
        body
    };
    let found =
        record(&[with(0, 0, [0; 3], 0), with(20, 8, [30, 10, 0], 0), with(40, 8, [30, 11, 0], 1)]);
    let names: Vec<String> = found.items.iter().map(RecordedItem::name).collect();
    assert_eq!(names, ["a entry 0 at vm1", "a entry 1 at vm1"]);
    assert_eq!([&found.items[0].busy, &found.items[1].busy], [&[0.3, 0.0], &[0.1, 0.0]]);
    assert_eq!([&found.items[0].worker, &found.items[1].worker], [&[0, 0], &[0, 1]]);
    assert_eq!(found.items[1].reach, Some(vec![0, 1]));
    assert_eq!((found.items[0].queue, found.items[1].frames.as_slice()), (0, [10, 1].as_slice()));
}

/// A vNIC was removed and added again, so its entries have new counters: first higher ones, then
/// lower ones.
#[test]
fn a_table_of_a_vnic_that_came_back_is_another_item() {
    let with = |at, identity: (u16, u32), frames| {
        let table = VmmqTableBody {
            uplink: "vm1".into(),
            vnic: Some("a".into()),
            number: identity.0,
            generation: identity.1,
            dynamic: true,
            queues: vec![0],
            frames: vec![frames],
        };
        VmmqLoadBody { tables: vec![table], ..body(at, at) }
    };
    let found = record(&[
        with(0, (1, 0), 100),
        with(20, (1, 0), 107),
        with(40, (2, 1), 1_000_000_000),
        with(60, (2, 1), 1_000_000_009),
        with(80, (1, 2), 107),
        with(100, (1, 2), 108),
    ]);
    let frames: Vec<&[u64]> = found.items.iter().map(|item| item.frames.as_slice()).collect();
    assert_eq!(frames, [[7, 0, 0, 0, 0], [0, 0, 9, 0, 0], [0, 0, 0, 0, 1]]);
    let names: Vec<String> = found.items.iter().map(RecordedItem::name).collect();
    let a = "a entry 0 at vm1";
    assert_eq!(names, [a.into(), format!("{a}, table 2"), format!("{a}, table 3")]);
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(Recording::read(&json).unwrap(), found);
}

/// A port was removed and added again between two readings.
#[test]
fn a_queue_whose_counters_began_anew_did_nothing_that_is_known() {
    let anew = |at, busy: u64, all| {
        let mut body = body(at, busy);
        body.workers[0].busy_ns = all * MS;
        body
    };
    let found =
        record(&[anew(0, 500, 500), anew(20, 510, 510), anew(40, 3, 520), anew(60, 4, 521)]);
    assert_eq!(found.items[0].busy, [0.5, 0.0, 0.05]);
    assert_eq!(found.items[0].frames, [100, 0, 10]);
    assert_eq!(found.items[0].bytes, [10_000, 0, 1000]);
    assert_eq!(found.workers[0].busy, [0.5, 0.5, 0.05]);
}

#[test]
fn a_recording_ends_before_it_is_too_large() {
    let mut recorder = Recorder::new(Duration::from_millis(20), body(0, 0));
    recorder.most_values = 6;
    let looks = [20, 40, 60, 80].map(|at| recorder.add(body(at, at / 2), MANY).unwrap());
    assert_eq!(looks, [Added::Moves(0), Added::Moves(0), Added::Moves(0), Added::Full]);
    assert!(recorder.fullness().contains("are 6 at most"));
    // A new queue would need room for the earlier intervals too.
    let mut recorder = Recorder::new(Duration::from_millis(20), body(0, 0));
    recorder.most_values = 5;
    assert_eq!(recorder.add(body(20, 5), MANY).unwrap(), Added::Moves(0));
    let mut wide = body(40, 5);
    wide.queues.push(VmmqQueueBody { queue: 1, ..wide.queues[0].clone() });
    assert_eq!(recorder.add(wide, MANY).unwrap(), Added::Full);
    let found = recorder.finish();
    assert_eq!((found.items.len(), found.items[0].busy.as_slice()), (1, [0.25].as_slice()));
    assert_eq!(found.workers[0].busy, [0.25]);
}

/// The recorder was stopped for a minute; 3 intervals were wanted.
#[test]
fn a_recording_is_not_longer_than_wanted() {
    let mut recorder = Recorder::new(Duration::from_millis(20), body(0, 0));
    assert_eq!(recorder.add(body(20, 10), 3).unwrap(), Added::Moves(0));
    let late = VmmqLoadBody { moves: 2, ..body(60_020, 30_010) };
    assert_eq!(recorder.add(late, 3).unwrap(), Added::Moves(2));
    let after = VmmqLoadBody { moves: 2, ..body(60_040, 30_020) };
    assert_eq!(recorder.add(after, 3).unwrap(), Added::Moves(0));
    let found = recorder.finish();
    assert_eq!(found.items[0].busy, [0.5; 3]);
    assert_eq!(found.items[0].frames, [100; 3]);
}

#[test]
fn moves_are_noted_once_and_those_that_are_forgotten_are_counted() {
    let begin = VmmqLoadBody { moves: 7, ..body(1000, 0) };
    let mut recorder = Recorder::new(Duration::from_millis(20), begin);
    let moved = |number: u64, at_ms: u32, entries: &[u8]| VmmqMoveBody {
        number,
        at_s: f64::from(at_ms) / 1e3,
        port: "up".into(),
        vnic: Some("vm1".into()),
        item: "entries".into(),
        entries: entries.into(),
        from: 0,
        to: 1,
        reason: "expand".into(),
        threshold: 0.8,
        load: 0.5,
        from_load: [0.9, 0.4],
        to_load: [0.0, 0.5],
        held: None,
        text: "why".into(),
    };
    let look = |at, moves| VmmqLoadBody { moves, ..body(at, 0) };
    assert_eq!(recorder.add(look(1020, 9), MANY).unwrap(), Added::Moves(2));
    // The last move happened between the two requests.
    let remembered = [moved(7, 900, &[1]), moved(9, 1010, &[5, 6]), moved(10, 1021, &[3])];
    recorder.add_moves(2, &remembered);
    assert_eq!(recorder.add(look(1040, 12), MANY).unwrap(), Added::Moves(3));
    recorder.add_moves(3, &[moved(9, 1010, &[5, 6]), moved(10, 1021, &[3]), moved(12, 1030, &[4])]);
    let found = recorder.finish();
    let at: Vec<(u64, &str)> =
        found.moves.iter().map(|moved| (moved.at_ms, moved.item.as_str())).collect();
    let wanted = [
        (10, "entry 5 of vm1"),
        (10, "entry 6 of vm1"),
        (21, "entry 3 of vm1"),
        (30, "entry 4 of vm1"),
    ];
    assert_eq!((at.as_slice(), found.moves_missed), (wanted.as_slice(), 1));
}
