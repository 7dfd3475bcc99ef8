//! Every key with its description, read from the schemas of the types.

use super::schema::{referred, schemas};
use config::PortConfig;
use config::plan;
use serde_json::{Map, Value, json};

/// A table of the file.
pub(super) struct Section {
    /// The header as written: `[switch]`, `[[port]]`.
    pub(super) header: &'static str,
    pub(super) text: &'static str,
    /// The keys: required ones first, then by name.
    pub(super) keys: Vec<Key>,
}

/// One key.
pub(super) struct Key {
    pub(super) name: String,
    /// The allowed values, in words.
    pub(super) values: String,
    /// The default, as written.
    pub(super) default: Option<String>,
    /// One value, as written in TOML.
    pub(super) example: String,
    pub(super) text: String,
    /// Whether the key must be present.
    pub(super) required: bool,
    /// When a change takes effect.
    pub(super) effect: &'static str,
}

/// Header, schema and description of each table.
const SECTIONS: [(&str, &str, &str); 4] = [
    ("[switch]", "SwitchConfig", "The switch as a whole."),
    ("[metrics]", "MetricsConfig", "Counters and health over TCP, for monitoring."),
    ("[web]", "WebConfig", "The web page."),
    (
        "[[port]]",
        "PortConfig",
        "One port; repeat the table for each port. Each port names one device: `tap`, `veth`, `packet`, `team`, `xdp` or `vhost-user`.",
    ),
];

/// Types that are written as text of a certain form: name, description and example.
const FORMS: [(&str, &str, &str); 5] = [
    ("Rate", "bits per second, such as `1Gbit`, `64kbit` or a number", "1Gbit"),
    ("Size", "bytes, such as `256KiB`, `4GiB` or a number", "256KiB"),
    ("Seconds", "a time, such as `30s`, `5min` or a number of seconds", "5min"),
    ("Account", "name or number of a user or group", "millrace"),
    ("VlanList", "VLANs and ranges, such as `10,20-30`", "10,20-30"),
];

/// Returns all tables, in the order of the file.
pub(super) fn sections() -> Vec<Section> {
    let schemas = schemas();
    let section = |(header, name, text): &(&'static str, &str, &'static str)| {
        let schema = schemas.get(*name).cloned().unwrap_or_default();
        let required = |key: &str| {
            schema["required"].as_array().is_some_and(|keys| keys.iter().any(|one| one == key))
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let mut keys: Vec<Key> = properties
            .map(|(key, property)| Key::of(header, key, property, required(key), &schemas))
            .collect();
        keys.sort_by_key(|key| !key.required);
        Section { header, text, keys }
    };
    SECTIONS.iter().map(section).collect()
}

impl Key {
    fn of(
        header: &str,
        name: &str,
        property: &Value,
        required: bool,
        schemas: &Map<String, Value>,
    ) -> Key {
        let either = property["oneOf"].as_array().into_iter().flatten();
        let one = either.into_iter().find(|one| referred(one).is_some()).unwrap_or(property);
        let kind = referred(one);
        let meant = kind.and_then(|kind| schemas.get(kind)).unwrap_or(one);
        let form = FORMS.iter().find(|(name, ..)| Some(*name) == kind);
        let text = property["description"].as_str().or(one["description"].as_str());
        let default = property.get("default").filter(|value| !value.is_null());
        let example = match form {
            Some((.., example)) => json!(example),
            None => example(property, meant),
        };
        let example = written(default.unwrap_or(&example));
        let values = match values(meant).as_str() {
            "text" => format!("text, such as `{example}`"),
            other => other.to_owned(),
        };
        Key {
            name: name.to_owned(),
            values: form.map_or(values, |(_, words, _)| (*words).to_owned()),
            default: default.map(written),
            example,
            text: text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
            required,
            effect: effect(header, name),
        }
    }
}

/// Returns a value as TOML.
fn written(value: &Value) -> String {
    toml::Value::try_from(value).map(|value| value.to_string()).unwrap_or_default()
}

fn example(property: &Value, meant: &Value) -> Value {
    let word = meant["enum"].get(0).or(property.get("minimum"));
    match property.get("example").or(word) {
        Some(value) => value.clone(),
        None if is(property, "boolean") => json!(true),
        None => Value::Null,
    }
}

fn is(schema: &Value, wanted: &str) -> bool {
    match &schema["type"] {
        Value::Array(types) => types.iter().any(|one| one == wanted),
        one => one == wanted,
    }
}

/// Returns the allowed values, in words.
fn values(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(either) = schema["oneOf"].as_array() {
        return either.iter().map(values).collect::<Vec<_>>().join(", or ");
    }
    let range = |min: &str, max: &str| match (schema[min].as_i64(), schema[max].as_i64()) {
        (Some(min), Some(max)) => format!("{min} to {max} "),
        (None, Some(max)) => format!("at most {max} "),
        _ => String::new(),
    };
    if is(schema, "array") {
        let of = match &schema["items"] {
            items if is(items, "integer") => values(items).replacen("a number", "numbers", 1),
            _ => "words".to_owned(),
        };
        return format!("a list of {}{of}", range("minItems", "maxItems"));
    }
    if is(schema, "integer") {
        return format!("a number, {}", range("minimum", "maximum").trim_end());
    }
    if is(schema, "boolean") { "`true` or `false`" } else { "text" }.to_owned()
}

/// Returns when a change of a key takes effect, as the plan decides.
fn effect(header: &str, name: &str) -> &'static str {
    if header != "[[port]]" {
        return if plan::LIVE.contains(&name) { "at once" } else { "at the next start" };
    }
    let Ok(port) = "p".parse().map(PortConfig::named) else { return "" };
    let guest = PortConfig { vhost_user: "/run/p".parse().ok(), ..port.clone() };
    match (port.reopens(name), guest.reopens(name)) {
        _ if name == "name" => "a different name is a different port",
        (true, _) => "reopens the port",
        (false, true) => "at once; reopens a vhost-user port",
        (false, false) => "at once",
    }
}
