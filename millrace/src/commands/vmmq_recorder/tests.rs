//! Recordings of counters.

use super::*;
use control::body::VmmqWorkerBody;

const MS: u64 = 1_000_000;

/// At a time in ms: one worker, and a queue of a port, busy for so many ms so far.
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
        recorder.add(body).unwrap();
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

/// The recorder was not scheduled for three intervals; the look after it came a little early.
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
    // What it did before its first look is not known.
    let found =
        record(&[without(0, 0), without(20, 5), body(40, 5), body(60, 15), without(80, 15)]);
    assert_eq!(found.items[0].busy, [0.0, 0.0, 0.5, 0.0]);
    assert_eq!(found.workers[0].busy, [0.25, 0.0, 0.5, 0.0]);
    assert_eq!(found.items[0].worker, [0; 4]);
}

#[test]
fn a_restart_ends_a_recording() {
    let mut recorder = Recorder::new(Duration::from_millis(20), body(100, 7));
    assert!(recorder.add(&body(20, 1)).unwrap_err().to_string().contains("restarted"));
}

/// Two entries of queue 0 had 30 and 10 frames, one of queue 1 none; entry 1 has moved meanwhile.
#[test]
fn entries_share_their_queues_time_by_frames() {
    let with = |at, busy, frames: [u64; 3], queue| {
        let mut body = body(at, busy);
        let table = |vnic: Option<&str>| VmmqTableBody {
            uplink: "vm1".into(),
            vnic: vnic.map(str::to_owned),
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
    assert_eq!(recorder.add(&look(1020, 9)).unwrap(), 2);
    // The last one came between the two questions.
    let remembered = [moved(7, 900, &[1]), moved(9, 1010, &[5, 6]), moved(10, 1021, &[3])];
    recorder.add_moves(2, &remembered);
    assert_eq!(recorder.add(&look(1040, 12)).unwrap(), 3);
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
