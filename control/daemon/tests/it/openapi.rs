//! The OpenAPI document, as far as it can be checked without a validator, which `scripts/openapi`
//! runs.

use crate::reference::hold;
use crate::test_daemon::Daemon;
use api::client::ClientError;
use config::{Config, PortConfig, from_value};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn document() -> Value {
    serde_json::to_value(daemon::handlers::document()).unwrap()
}

/// Returns path, method and operation of each endpoint.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item)| {
        let item: &Value = item;
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (path, method.as_str(), operation))
    };
    paths.iter().map(|(path, item)| (path.as_str(), item)).flat_map(of_path).collect()
}

/// Returns the text of `docs/api.md`.
fn page() -> String {
    let mut text = API_PAGE.to_owned();
    for (path, method, operation) in operations(&document()) {
        let summary = operation["summary"].as_str().unwrap().replace('\n', " ").replace('|', "\\|");
        text.push_str(&format!("| {} | `{path}` | {summary} |\n", method.to_uppercase()));
    }
    text
}

const API_PAGE: &str = "\
# The API

What the REST API of a running switch has: each request, with what it does. `millrace openapi` prints
the OpenAPI document, with every body and answer, from which clients are generated.

This file is generated from that document.

```
curl --unix-socket /run/millrace/api.sock http://localhost/v1/ports
curl --unix-socket /run/millrace/api.sock -X PATCH -d '{\"rate\": \"1Gbit\"}' http://localhost/v1/ports/web
```

A member of `socket-group` may send every GET and `POST /v1/trace`; everything else is for admins
([who is one](security.md#what-admin-amounts-to)). An error is a problem document (RFC 9457) with the
value seen, the value wanted and the remedy. With `If-Match` a change is refused if someone else changed
the same meanwhile.

| method | path | what it does |
| --- | --- | --- |
";

/// Returns all references of a value.
fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(members) => {
            let own = members.get("$ref").and_then(Value::as_str);
            own.into_iter().chain(members.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// The resolution of a history was a parameter whose schema the document did not have.
#[test]
fn each_reference_leads_to_something() {
    let document = document();
    let references = references(&document);
    assert!(references.len() > 100, "{}", references.len());
    let lost = |it: &&&str| document.pointer(it.trim_start_matches('#')).is_none();
    assert_eq!(references.iter().filter(lost).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn the_page_of_the_api_is_that_of_the_document() {
    hold("docs/api.md", &page());
}

/// `POST /v1/ports` with `["x1", "t9"]` added a port, by position.
#[test]
fn no_body_is_taken_from_a_list_of_values() {
    let daemon = Daemon::start("[[port]]\nname = 'vm1'\ntap = 'tap1'\n");
    let document = document();
    let bodies: Vec<_> = operations(&document)
        .into_iter()
        .filter(|(.., operation)| operation["requestBody"].is_object())
        .collect();
    assert!(bodies.len() > 9);
    for (path, method, operation) in bodies {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let is_list = schema["type"] == "array";
        let path = path.replace("{name}", "vm1").replace("{queue}", "0");
        for values in [json!([]), json!(["vm1"]), json!(["x1", "t9"]), json!([[]]), json!([{}])] {
            let body = if is_list { json!([values]) } else { values };
            let answer = match method {
                "put" => daemon.client.put::<Value>(&path, &body),
                "patch" => daemon.client.patch::<Value>(&path, &body),
                _ => daemon.client.post::<Value>(&path, &body),
            };
            let place = format!("{method} {path} {body}");
            let Err(ClientError::Refused(problem)) = answer else { panic!("{place}: {answer:?}") };
            assert!(problem.wanted.contains("keys"), "{place}: {problem}");
        }
    }
}

#[test]
fn each_operation_has_an_id_of_its_own_and_describes_what_it_answers() {
    let document = document();
    let operations = operations(&document);
    let ids: BTreeSet<&str> = operations
        .iter()
        .map(|(.., operation)| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), operations.len());
    assert!(operations.iter().any(|(path, ..)| *path == "/metrics"));
    for (path, method, operation) in operations {
        assert!(operation["summary"].is_string(), "{method} {path}");
        let responses = operation["responses"].as_object().unwrap();
        for (status, response) in responses {
            let place = format!("{method} {path}: {status}");
            assert!(!response["description"].as_str().unwrap().is_empty(), "{place}");
            let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
            let problem = schema.as_str() == Some("#/components/schemas/Problem");
            assert_eq!(problem, status.starts_with(['4', '5']), "{place}");
        }
        let takes = |status: &str| responses.contains_key(status);
        assert!(
            operation["requestBody"].is_null() || ["400", "413", "422"].into_iter().all(takes),
            "{path}"
        );
        for parameter in operation["parameters"].as_array().unwrap_or(&Vec::new()) {
            let name = parameter["name"].as_str().unwrap();
            let within = match name {
                "If-Match" => "header",
                _ if path.contains(&format!("{{{name}}}")) => "path",
                _ => "query",
            };
            assert_eq!(parameter["in"], within, "{path}: {name}");
        }
    }
}

#[test]
fn a_range_of_the_schema_is_the_range_of_the_daemon() {
    let document = document();
    let accepts = |schema, key: &str, value: i64| match schema {
        "PortConfig" => {
            from_value::<PortConfig>(json!({"name": "vm1", "tap": "t", key: value})).is_ok()
        }
        _ => from_value::<Config>(json!({"switch": {key: value}})).is_ok(),
    };
    let mut ranges = 0;
    for schema in ["PortConfig", "SwitchConfig"] {
        let keys = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        for (key, value) in keys {
            let [min, max] = ["minimum", "maximum"].map(|limit| value[limit].as_i64());
            let has_type = value["type"].to_string().contains("integer");
            assert_eq!(has_type, min.is_some() && max.is_some(), "{schema}.{key}");
            if let Some((min, max)) = min.zip(max) {
                ranges += 1;
                let taken = [min - 1, min, max, max + 1].map(|n| accepts(schema, key, n));
                assert_eq!(taken, [false, true, true, false], "{schema}.{key}");
            }
        }
    }
    assert!(ranges >= 8, "{ranges} keys with a range");
}

#[test]
fn workers_are_a_number_or_a_list() {
    let schema = &document()["components"]["schemas"]["Workers"]["oneOf"];
    assert_eq!((&schema[0]["type"], &schema[1]["type"]), (&json!("integer"), &json!("array")));
    for (workers, taken) in
        [(json!(1), true), (json!(257), false), (json!([0, 4095]), true), (json!([4096]), false)]
    {
        let config = json!({"switch": {"workers": workers}});
        assert_eq!(from_value::<Config>(config).is_ok(), taken, "{workers}");
    }
}
