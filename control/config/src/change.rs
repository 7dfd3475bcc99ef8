//! Changes to a running port: turns `KEY=VALUE` of the command line into values of a JSON merge
//! patch (RFC 7396).

use super::{PortConfig, from_value};
use problem::Problem;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

/// Returns the typed value of a key: a number or a boolean if the key's type is one, otherwise
/// text, so that a port named `007` or `true` and the mode `0660` stay text. Commas separate a list.
/// An empty value is null, which removes the key.
pub fn typed_value(key: &str, word: &str) -> Value {
    let number = || word.parse::<i64>().ok().map(|number| json!(number));
    let boolean = || word.parse::<bool>().ok().map(|boolean| json!(boolean));
    let typed = match word {
        "" => Some(Value::Null),
        _ if has_type(key, "integer") => number(),
        _ if has_type(key, "boolean") => boolean(),
        _ if has_type(key, "array") => Some(word.split(',').map(str::trim).collect()),
        _ => None,
    };
    typed.unwrap_or_else(|| json!(word))
}

/// Returns the port with these keys; null removes one (RFC 7396 on one level, because a port's keys
/// do not nest).
///
/// # Errors
/// A key is unknown, or a value is not one of its key. The problem names the port and the key.
pub fn with_keys(port: &PortConfig, keys: &Map<String, Value>) -> Result<PortConfig, Problem> {
    let merged = |key: &mut dyn Iterator<Item = (&String, &Value)>| {
        let mut merged = serde_json::to_value(port).unwrap_or_default();
        if let Some(merged) = merged.as_object_mut() {
            for (key, value) in key {
                match value {
                    Value::Null => merged.remove(key),
                    _ => merged.insert(key.clone(), value.clone()),
                };
            }
        }
        from_value::<PortConfig>(merged)
    };
    merged(&mut keys.iter()).map_err(|problem| {
        let is_at_fault = |one: &(&String, &Value)| {
            merged(&mut std::iter::once(*one)).is_err_and(|other| other == problem)
        };
        let name = &port.name;
        match keys.iter().find(is_at_fault) {
            Some((key, _)) if problem.seen != *key => problem.at(format!("port {name}: {key}")),
            _ => problem.at(format!("port {name}")),
        }
    })
}

/// Returns the keys of a port, as spelled in the file.
pub fn port_keys() -> Vec<String> {
    let keys = schema();
    let keys = keys["properties"].as_object().into_iter().flatten();
    keys.map(|(key, _)| key.clone()).filter(|key| key != "name").collect()
}

/// Returns whether a key of a port has this type in the schema.
fn has_type(key: &str, wanted: &str) -> bool {
    match schema().pointer(&format!("/properties/{key}/type")) {
        Some(Value::Array(types)) => types.iter().any(|one| one == wanted),
        Some(one) => one == wanted,
        None => false,
    }
}

fn schema() -> Value {
    serde_json::to_value(PortConfig::schema()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `port set a vlan=4099` was answered by: out of range.
    #[test]
    fn what_is_refused_names_port_key_value_and_range() {
        let name = serde_json::from_value(json!("a")).unwrap();
        let port = PortConfig::named(name);
        let refused = |keys: Value| with_keys(&port, keys.as_object().unwrap()).unwrap_err();
        let told = refused(json!({"mtu": 9000, "vlan": 4099, "queues": 2}));
        assert_eq!(
            (&*told.error, &*told.seen, &*told.wanted),
            ("port a: vlan: out of range", "4099", "a number from 0 to 4094")
        );
        let told = refused(json!({"isolated": "maybe"}));
        assert_eq!(
            (&*told.error, &*told.wanted),
            ("port a: isolated: neither true nor false", "true or false")
        );
        let told = refused(json!({"vlna": 5}));
        assert_eq!((&*told.error, &*told.seen), ("port a: unknown key", "vlna"));
        assert!(told.remedy.contains("`vlan`"), "{told}");
        let keys = json!({"mtu": 9000, "vlan": null});
        let with = with_keys(&port, keys.as_object().unwrap()).unwrap();
        assert_eq!(with.mtu.map(|mtu| mtu.0), Some(9000));
    }

    #[test]
    fn a_value_has_the_type_of_its_key() {
        assert_eq!(typed_value("mtu", "9000"), json!(9000));
        assert_eq!(typed_value("mtu", "big"), json!("big"));
        assert_eq!(typed_value("isolated", "true"), json!(true));
        assert_eq!(typed_value("rsc-ipv4", "false"), json!(false));
        assert_eq!(typed_value("ip-guard", "10.0.0.5,fd00::/64"), json!(["10.0.0.5", "fd00::/64"]));
        assert_eq!(typed_value("rate", ""), Value::Null);
        for key in ["mirror-to", "netns", "tap", "socket-mode", "socket-group", "rate", "no-key"] {
            for word in ["007", "0660", "true", "1e3", "7"] {
                assert_eq!(typed_value(key, word), json!(word), "{key}");
            }
        }
    }
}
