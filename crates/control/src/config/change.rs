//! Changes of a running port: `KEY=VALUE` of the command line as values of the JSON merge patch (RFC 7396).

use super::PortConfig;
use serde_json::{Value, json};
use utoipa::PartialSchema;

/// The value of a key as typed: a number or a boolean where the key's type is one, else text, so that a port named `007`
/// or `true` and the mode `0660` stay as they are; a list is parted by commas. No value is null, which removes the key.
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

/// The keys of a port, as in the file.
pub fn port_keys() -> Vec<String> {
    let keys = schema();
    let keys = keys["properties"].as_object().into_iter().flatten();
    keys.map(|(key, _)| key.clone()).filter(|key| key != "name").collect()
}

/// Whether the schema gives a key of a port this type.
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
