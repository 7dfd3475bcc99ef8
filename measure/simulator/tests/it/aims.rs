//! Aims of dynamic VMMQ on the two loads that take seconds; `millrace lab vmmq --sim` runs all of
//! them.

use simulator::{Generated, Load, LoadLength, LoadReport, Machine, Recording, simulate};

fn run(kind: Generated, seed: u64) -> LoadReport {
    let machine = Machine::default();
    simulate(&machine, &kind.load(&machine, LoadLength::Quick, seed), seed)
}

#[test]
fn one_vnic_that_takes_all_is_served_within_a_tenth_of_the_oracle_and_better_than_by_others() {
    for seed in [1, 2] {
        let report = run(Generated::One, seed);
        let found = report.algorithms;
        assert!(report.is_near_oracle() && report.ahead().is_empty(), "{found:?}");
        assert_eq!(found.millrace.idle_cores, Some(1.0), "{found:?}");
        assert!(found.round_robin.idle_cores.unwrap() > 60.0, "{found:?}");
    }
}

#[test]
fn ten_thousand_connections_are_spread_within_200_ms() {
    let found = run(Generated::Connections, 1).algorithms;
    assert!(found.millrace.converge_ms.unwrap() <= 200, "{found:?}");
    assert!(found.millrace.throughput_of_oracle > found.round_robin.throughput_of_oracle);
    assert!(found.millrace.moves_per_minute < found.oracle.moves_per_minute, "{found:?}");
}

#[test]
fn the_seed_makes_the_figures() {
    let json = |seed| serde_json::to_string(&run(Generated::One, seed)).unwrap();
    assert_eq!(json(3), json(3));
    assert_ne!(json(3), json(4));
}

/// The load is over before the first measurement.
#[test]
fn a_load_that_takes_no_time_has_no_moves_a_minute() {
    let recording = r#"{"interval_ms": 10, "items": [{"vnic": "a", "busy": [0.5]}]}"#;
    let (machine, recording) = (Machine::default(), Recording::read(recording).unwrap());
    let load = Load::recorded("short", &recording, &machine).unwrap();
    for (name, found) in simulate(&machine, &load, 1).algorithms.with_names() {
        assert_eq!(found.moves_per_minute, None, "{name}");
        assert!(found.throughput_of_oracle.is_finite(), "{name}: {found:?}");
    }
}

/// Two guests on one worker; the other worker is free.
#[test]
fn a_recorded_load_is_replayed() {
    let busy = |level: &str| vec![level; 200].join(",");
    let item = |vnic, level| format!(r#"{{"vnic": "{vnic}", "busy": [0, 0, {}]}}"#, busy(level));
    let json = format!(
        r#"{{"interval_ms": 20, "items": [{}, {}]}}"#,
        item("vm1", "0.9"),
        item("vm2", "0.7")
    );
    let machine = Machine { workers: 2, nodes: 1 };
    let recording = Recording::read(&json).unwrap();
    let load = Load::recorded("two", &recording, &machine).unwrap();
    let found = simulate(&machine, &load, 1).algorithms;
    assert!(found.millrace.throughput_of_oracle > 0.95, "{found:?}");
    assert_eq!((found.oracle.converge_ms, found.millrace.idle_cores), (Some(0), None));
}
