//! Fuzz target: whatever stands at standard input, reading it neither panics nor yields a name that
//! leads out of a directory, a key of a port that is the plugin's own, or an attachment without a
//! good name of a port.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use cni::{Attachment, Network};
use config::PortName;
use serde_json::{Map, Value, json};

/// Keys that the reader knows, with values of the fuzzer's.
const KEYS: [&str; 11] = [
    "cniVersion",
    "name",
    "type",
    "socket",
    "mtu",
    "port",
    "ipam",
    "runtimeConfig",
    "prevResult",
    "cni.dev/valid-attachments",
    "dns",
];

/// Returns a valid configuration with some keys changed.
fn written(changes: &[(u8, u8, String)]) -> Vec<u8> {
    let mut network = Map::new();
    network.insert("cniVersion".into(), "1.1.0".into());
    network.insert("name".into(), "pods".into());
    for (key, kind, text) in changes {
        let key = KEYS[usize::from(*key) % KEYS.len()];
        let value = match kind % 8 {
            0 => text.as_str().into(),
            1 => json!({"type": text}),
            2 => json!({"mac": text}),
            3 => json!([{"containerID": text, "ifname": text}]),
            4 => {
                json!({"interfaces": [{"name": text}], "ips": [{"address": text, "interface": 7}]})
            }
            5 => json!({text.as_str(): 1}),
            6 => serde_json::from_str(text).unwrap_or_default(),
            _ => Value::from(text.len()),
        };
        network.insert(key.into(), value);
    }
    serde_json::to_vec(&network).unwrap()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0', '\n', ' '])
}

fn hold(text: Vec<u8>) {
    let Ok(network) = Network::read(text) else { return };
    assert!(is_name(&network.name), "FINDING {:?}", network.name);
    assert!(network.ipam.as_deref().is_none_or(is_name), "FINDING {:?}", network.ipam);
    for key in ["name", "tap", "netns", "mac", "packet", "vhost-user"] {
        assert!(!network.port.contains_key(key), "FINDING {key}");
    }
    for port in network.valid.iter().flatten().map(Attachment::port_name) {
        assert!(port.parse::<PortName>().is_ok(), "FINDING {port}");
    }
}

#[test]
fn fuzz_network() {
    bolero::check!().with_type::<(Vec<u8>, Vec<(u8, u8, String)>)>().for_each(
        |(bytes, changes)| {
            hold(bytes.clone());
            hold(written(changes));
        },
    );
}

/// Without it the target above could refuse everything.
#[test]
fn a_usual_configuration_is_read() {
    let network = Network::read(written(&[
        (6, 1, "host-local".into()),
        (7, 2, "02:00:00:00:00:07".into()),
        (9, 3, "pod1".into()),
        (5, 6, r#"{"vlan": 10}"#.into()),
        (4, 6, "1400".into()),
    ]));
    let network = network.unwrap();
    assert_eq!(network.ipam.as_deref(), Some("host-local"));
    assert_eq!((&network.port["vlan"], &network.port["mtu"]), (&json!(10), &json!(1400)));
    assert_eq!(network.valid.unwrap().len(), 1);
    assert_eq!(network.mac.unwrap().0.to_string(), "02:00:00:00:00:07");
}

#[test]
fn limits_of_a_pod_become_keys_of_its_port() {
    let port = |limits: &str| {
        let limits = format!(r#"{{"bandwidth": {limits}}}"#);
        let own = r#"{"rate": "1Gbit", "burst": "1MB"}"#;
        Network::read(written(&[(7, 6, limits), (5, 6, own.into())])).map(|network| network.port)
    };
    let own = Value::Object(port("null").unwrap());
    for none in [r"{}", r#"{"egressRate": 0, "egressBurst": 0, "ingressRate": 0}"#] {
        assert_eq!(Value::Object(port(none).unwrap()), own);
    }
    // Bits become bytes, at least enough of them.
    let limited = port(r#"{"egressRate": 1000, "egressBurst": 801}"#).unwrap();
    assert_eq!((&limited["rate"], &limited["burst"]), (&json!(1000), &json!(101)));
    // What runtimes pass that have no burst; the network's own is for its own rate.
    for any in [0, (1_u64 << 31) - 1, u32::MAX.into()] {
        let limited = port(&format!(r#"{{"egressRate": 1000, "egressBurst": {any}}}"#)).unwrap();
        assert_eq!((&limited["rate"], limited.get("burst")), (&json!(1000), None));
    }
    let limited = port(r#"{"ingressRate": 5000, "ingressBurst": 1}"#).unwrap();
    assert_eq!((&limited["rate-to"], &limited["rate"]), (&json!(5000), &json!("1Gbit")));
}

/// Taken for an absent list, GC refused where the last attachment was gone.
#[test]
fn a_list_of_attachments_that_is_null_is_an_empty_one() {
    let valid = |changes: &[(u8, u8, String)]| Network::read(written(changes)).unwrap().valid;
    assert_eq!(valid(&[(9, 6, "null".into())]), Some(Vec::new()));
    assert_eq!(valid(&[]), None);
}

#[test]
fn what_is_no_name_is_refused_with_its_code() {
    for (change, code) in [
        ((0, 0, "0.2.0"), 1),
        ((1, 0, "../pods"), 7),
        ((6, 1, "../../bin/sh"), 7),
        ((6, 1, ""), 7),
        ((5, 6, r#"{"tap": "eth0"}"#), 7),
        ((7, 2, "01:00:5e:00:00:01"), 6),
        ((9, 3, "a b"), 6),
        ((6, 0, "host-local"), 6),
    ] {
        let (key, kind, text) = change;
        let error = Network::read(written(&[(key, kind, text.into())])).unwrap_err();
        assert_eq!(error.code, code, "{change:?}: {error:?}");
    }
}
