//! Recordings come from files, so they may contain anything: a recording that is read can be
//! simulated and replayed, and any other is refused.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use simulator::{Load, Machine, Recording, replay, simulate};

/// Makes a recording of two workers, a guest's queue, and an entry of an uplink.
fn usual() -> Value {
    let item = json!({
        "vnic": "vm1", "queue": 1, "node": 0, "dynamic": true, "reach": [0, 1],
        "busy": [0.1, 0.9, 0.3], "worker": [0, 1, 1], "frames": [5, 900, 7], "bytes": [300, 9000, 420],
    });
    let entry = json!({
        "vnic": "vm2", "uplink": "up", "entry": 17, "table": 2,
        "busy": [0.0, 0.5, 0.0], "worker": [1, 1, 1], "frames": [0, 3, 0], "bytes": [0, 180, 0],
    });
    let moved =
        json!({"at_ms": 20, "port": "vm1", "item": "queue 1", "from": 0, "to": 1, "why": ""});
    json!({
        "version": 1, "interval_ms": 20, "moves_missed": 0, "moves": [moved],
        "workers": [{"core": 0, "node": 0, "busy": [0.1, 0.0, 0.0]}, {"busy": [0.0, 1.0, 0.3]}],
        "items": [item, entry],
    })
}

const WORDS: [&str; 20] = [
    "version",
    "interval_ms",
    "workers",
    "items",
    "moves",
    "moves_missed",
    "core",
    "node",
    "busy",
    "vnic",
    "uplink",
    "table",
    "queue",
    "entry",
    "dynamic",
    "reach",
    "worker",
    "frames",
    "bytes",
    "at_ms",
];

fn anything() -> impl Strategy<Value = Value> {
    let number = select(vec![0, 1, 2, 10, 63, 64, 128, 255, 65_535, 60_000, u64::MAX]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0.0..1.0).prop_map(Value::from),
        select(&WORDS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let map = prop::collection::vec((select(&WORDS[..]), inner.clone()), 0..8);
        let map = map.prop_map(|pairs| {
            pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>()
        });
        prop_oneof![
            prop::collection::vec(inner, 0..8).prop_map(Value::from),
            map.prop_map(Value::from)
        ]
    })
}

/// Returns the paths of all values of a document, its own first.
fn places(of: &Value) -> Vec<String> {
    let below = |key: String, value: &Value| {
        places(value).into_iter().map(|place| format!("/{key}{place}")).collect::<Vec<_>>()
    };
    let mut found = vec![String::new()];
    match of {
        Value::Array(values) => {
            let values = values.iter().enumerate();
            found.extend(values.flat_map(|(place, value)| below(place.to_string(), value)));
        }
        Value::Object(map) => {
            found.extend(map.iter().flat_map(|(key, value)| below(key.clone(), value)));
        }
        _ => {}
    }
    found
}

/// Generates a usual recording with some values replaced, by anything or by other values of the
/// recording.
fn unusual() -> impl Strategy<Value = Value> {
    let own = any::<Index>().prop_map(|place| {
        let usual = usual();
        usual.pointer(place.get::<String>(&places(&usual))).cloned().unwrap()
    });
    let change = (any::<Index>(), prop_oneof![anything(), own]);
    prop::collection::vec(change, 0..4).prop_map(|changes| {
        let mut recording = usual();
        for (place, value) in changes {
            let places = places(&recording);
            *recording.pointer_mut(place.get::<String>(&places)).unwrap() = value;
        }
        recording
    })
}

/// Reads a recording and uses it. Returns whether it could be read.
fn used(json: &str) -> bool {
    let Ok(recording) = Recording::read(json) else { return false };
    let again = serde_json::to_string(&recording).unwrap();
    assert!(Recording::read(&again).is_ok(), "{again}");
    let machine = Machine { workers: 2, nodes: 2 };
    if let Ok(load) = Load::recorded("any", &recording, &machine) {
        for (name, figures) in simulate(&machine, &load, 1).algorithms.with_names() {
            let moves = figures.moves_per_minute.unwrap_or_default();
            assert!(figures.throughput_of_oracle.is_finite() && moves.is_finite(), "{name}");
        }
    }
    if let Ok(found) = replay(&recording, &recording) {
        let compared = found.as_placed.iter().chain(&found.decided).chain([&found.total]);
        let mut busy = compared.flat_map(|compared| [compared.real, compared.predicted]);
        // A switch has 64 workers at most.
        assert!(busy.all(|busy| (0.0..=64.0).contains(&busy)));
    }
    true
}

#[test]
fn the_usual_recording_can_be_used() {
    assert!(used(&usual().to_string()));
}

proptest! {
    #[test]
    fn a_recording_of_unusual_values_is_used_or_refused(recording in unusual()) {
        used(&recording.to_string());
    }

    #[test]
    fn any_json_is_used_or_refused(json in anything()) {
        used(&json.to_string());
    }

    #[test]
    fn any_bytes_are_used_or_refused(cut in any::<Index>(), byte in any::<u8>()) {
        let mut bytes = usual().to_string().into_bytes();
        let place = cut.index(bytes.len());
        bytes[place] = byte;
        used(&String::from_utf8_lossy(&bytes));
    }
}
