//! The JSON Schema of the file, taken from the API's OpenAPI document, which describes the same
//! types.

use serde_json::{Map, Value, json};

/// Returns the schema of the whole file, draft 2020-12, with everything it refers to.
pub fn schema() -> Value {
    let all = schemas();
    let mut needed = vec!["Config".to_owned()];
    let mut definitions = Map::new();
    while let Some(name) = needed.pop() {
        if definitions.contains_key(&name) {
            continue;
        }
        let mut definition = all.get(&name).cloned().unwrap_or_default();
        refer(&mut definition, &mut needed);
        definitions.insert(name, definition);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "millrace.toml",
        "$ref": "#/$defs/Config",
        "$defs": definitions,
    })
}

/// Returns all schemas of the API's document, by name.
pub(super) fn schemas() -> Map<String, Value> {
    let document = serde_json::to_value(crate::handlers::document()).unwrap_or_default();
    match document.pointer("/components/schemas") {
        Some(Value::Object(schemas)) => schemas.clone(),
        _ => Map::new(),
    }
}

/// Returns the name that a reference points to.
pub(super) fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

/// Redirects references to `$defs`, and lists them.
fn refer(value: &mut Value, needed: &mut Vec<String>) {
    if let Some(name) = referred(value).map(str::to_owned) {
        value["$ref"] = json!(format!("#/$defs/{name}"));
        needed.push(name);
    }
    match value {
        Value::Object(map) => map.values_mut().for_each(|inner| refer(inner, needed)),
        Value::Array(list) => list.iter_mut().for_each(|inner| refer(inner, needed)),
        _ => {}
    }
}
