//! Removes secrets from a report.

use serde_json::{Value, json};

/// Words in the names of secret keys. RSS keys tell which flows meet in a queue; tokens grant
/// access.
const SECRETS: [&str; 4] = ["key", "token", "secret", "password"];

/// Replaces the value of each secret, at any depth.
pub(crate) fn secrets(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if is_secret(key) && !value.is_null() {
                    *value = json!("(left out)");
                } else {
                    secrets(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(secrets),
        _ => {}
    }
}

fn is_secret(key: &str) -> bool {
    key.split(['-', '_']).any(|word| SECRETS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tokens_are_left_out_wherever_they_stand() {
        let mut value = json!([{"rss-key": "6d5a", "key_in_force": "6d5a", "keys": 2, "name": "a",
            "web": {"token": "t", "read-token": null, "monkey": 1}}]);
        secrets(&mut value);
        let out = "(left out)";
        let wanted = json!([{"rss-key": out, "key_in_force": out, "keys": 2, "name": "a",
            "web": {"token": out, "read-token": null, "monkey": 1}}]);
        assert_eq!(value, wanted);
    }
}
