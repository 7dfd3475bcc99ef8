//! Requests and answers in the JSON of etcd's gateway: bytes are base64, 64-bit numbers are
//! strings, and zero and empty values are omitted.

use super::Lease;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A 64-bit number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) i64);

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(i64),
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Number, D::Error> {
        match TextOrNumber::deserialize(input)? {
            TextOrNumber::Text(text) => text.parse().map(Number).map_err(serde::de::Error::custom),
            TextOrNumber::Number(number) => Ok(Number(number)),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(&self.0)
    }
}

/// Text as base64.
pub(super) mod text {
    use super::*;

    pub(in crate::etcd) fn serialize<S: Serializer>(
        text: &str,
        output: S,
    ) -> Result<S::Ok, S::Error> {
        output.serialize_str(&STANDARD.encode(text))
    }

    pub(in crate::etcd) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<String, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(input)?);
        let bytes = bytes.map_err(serde::de::Error::custom)?;
        // Any host writes below its own prefix: bytes that are no text must not make the other keys
        // of an answer unreadable.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn number<'de, D: Deserializer<'de>>(input: D) -> Result<i64, D::Error> {
    Number::deserialize(input).map(|number| number.0)
}

/// Reads a cluster ID, which is unsigned.
fn id<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    match serde_json::Value::deserialize(input)? {
        serde_json::Value::String(text) => text.parse().map_err(serde::de::Error::custom),
        value => value.as_u64().ok_or_else(|| serde::de::Error::custom("not a number")),
    }
}

/// The cluster that answers, and its revision.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "id")]
    pub(super) cluster_id: u64,
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: i64,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct KeyValue {
    /// The key.
    #[serde(with = "text")]
    pub key: String,
    /// Its value.
    #[serde(default, with = "text")]
    pub value: String,
    /// etcd's revision at which it was created.
    #[serde(default, deserialize_with = "number")]
    pub create_revision: i64,
    /// etcd's revision at which it was last written.
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: i64,
    /// The ID of its lease; 0 if it has none.
    #[serde(default, deserialize_with = "number")]
    pub lease: i64,
}

#[derive(Serialize)]
pub(super) struct RangeRequest {
    #[serde(with = "text")]
    key: String,
    #[serde(with = "text", skip_serializing_if = "String::is_empty")]
    range_end: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_order: Option<&'static str>,
}

#[derive(Deserialize)]
pub(super) struct RangeAnswer {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
}

impl RangeRequest {
    pub(super) fn key(key: &str) -> RangeRequest {
        let (key, range_end) = (key.to_owned(), String::new());
        RangeRequest { key, range_end, limit: None, sort_order: None }
    }

    pub(super) fn prefix(prefix: &str) -> RangeRequest {
        RangeRequest { range_end: behind(prefix), ..RangeRequest::key(prefix) }
    }

    pub(super) fn between(begin: &str, end: &str) -> RangeRequest {
        RangeRequest { range_end: end.to_owned(), ..RangeRequest::key(begin) }
    }

    pub(super) fn last(prefix: &str, most: u32) -> RangeRequest {
        let (limit, sort_order) = (Some(Number(most.into())), Some("DESCEND"));
        RangeRequest { limit, sort_order, ..RangeRequest::prefix(prefix) }
    }
}

/// Returns the first key after all keys with this prefix. Our prefixes end in `/`, and the next
/// character is `0`.
pub(crate) fn behind(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap_or(prefix))
}

/// A comparison that has to hold for a transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Compare {
    #[serde(with = "text")]
    pub(crate) key: String,
    target: &'static str,
    result: &'static str,
    pub(crate) mod_revision: Number,
}

impl Compare {
    /// Holds if the key was last written at this revision of etcd, or does not exist if that is 0.
    pub fn unchanged(key: &str, mod_revision: i64) -> Compare {
        let mod_revision = Number(mod_revision);
        Compare { key: key.to_owned(), target: "MOD", result: "EQUAL", mod_revision }
    }

    /// Holds if the key does not exist.
    pub fn absent(key: &str) -> Compare {
        Compare::unchanged(key, 0)
    }
}

/// An operation of a transaction.
#[derive(Clone, Debug, Serialize)]
pub enum Operation {
    /// Writes a key.
    #[serde(rename = "request_put")]
    Put(Put),
    /// Deletes a key.
    #[serde(rename = "request_delete_range")]
    Delete(Delete),
}

/// A key to be written.
#[derive(Clone, Debug, Serialize)]
pub struct Put {
    #[serde(with = "text")]
    pub(crate) key: String,
    #[serde(with = "text")]
    pub(crate) value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Number>,
}

/// A key to be deleted.
#[derive(Clone, Debug, Serialize)]
pub struct Delete {
    #[serde(with = "text")]
    pub(crate) key: String,
    #[serde(with = "text", skip_serializing_if = "String::is_empty")]
    range_end: String,
}

impl Operation {
    /// Writes a key, which is deleted with its lease if it has one.
    pub fn put(key: &str, value: String, lease: Option<Lease>) -> Operation {
        let lease = lease.map(|lease| Number(lease.0));
        Operation::Put(Put { key: key.to_owned(), value, lease })
    }

    /// Deletes a key.
    pub fn delete(key: &str) -> Operation {
        Operation::Delete(Delete { key: key.to_owned(), range_end: String::new() })
    }

    /// Deletes all keys with this prefix.
    pub fn delete_prefix(prefix: &str) -> Operation {
        Operation::Delete(Delete { key: prefix.to_owned(), range_end: behind(prefix) })
    }
}

/// Operations that are all carried out if all comparisons hold, and otherwise none.
#[derive(Clone, Debug, Serialize)]
pub struct Transaction {
    /// The comparisons.
    pub compare: Vec<Compare>,
    /// The operations.
    pub success: Vec<Operation>,
}

#[derive(Deserialize)]
pub(super) struct TxnAnswer {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
}

/// A request to watch keys.
#[derive(Serialize)]
pub(super) struct WatchRequest {
    pub(super) create_request: WatchCreate,
}

#[derive(Serialize)]
pub(super) struct WatchCreate {
    #[serde(with = "text")]
    pub(super) key: String,
    #[serde(with = "text")]
    pub(super) range_end: String,
    pub(super) start_revision: Number,
}

/// A line of a watch's answer.
#[derive(Deserialize)]
pub(super) struct WatchLine {
    pub(super) result: Option<WatchResult>,
    pub(super) error: Option<super::error::Refusal>,
}

#[derive(Deserialize)]
pub(super) struct WatchResult {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) created: bool,
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) compact_revision: Number,
    #[serde(default)]
    pub(super) cancel_reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, json, to_value};

    #[test]
    fn requests_have_the_gateway_s_form() {
        assert_eq!(to_value(RangeRequest::key("foo")).unwrap(), json!({"key": "Zm9v"}));
        let last = to_value(RangeRequest::last("foo/", 2)).unwrap();
        let wanted = json!({"key": "Zm9vLw==", "range_end": "Zm9vMA==", "limit": "2", "sort_order": "DESCEND"});
        assert_eq!(last, wanted);
        let request = Transaction {
            compare: vec![Compare::absent("foo")],
            success: vec![
                Operation::put("foo", "bar".into(), Some(Lease(7))),
                Operation::delete("foo"),
                Operation::delete_prefix("foo/"),
            ],
        };
        let wanted = json!({
            "compare": [{"key": "Zm9v", "target": "MOD", "result": "EQUAL", "mod_revision": "0"}],
            "success": [
                {"request_put": {"key": "Zm9v", "value": "YmFy", "lease": "7"}},
                {"request_delete_range": {"key": "Zm9v"}},
                {"request_delete_range": {"key": "Zm9vLw==", "range_end": "Zm9vMA=="}},
            ],
        });
        assert_eq!(to_value(request).unwrap(), wanted);
    }

    /// Answers as etcd 3.4 writes them.
    #[test]
    fn answers_are_read_whatever_they_omit() {
        let answer: RangeAnswer = from_str(
            r#"{"header":{"cluster_id":"14841639068965178418","member_id":"1","revision":"6","raft_term":"3"},
                "kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"6","version":"4"}],"count":"1"}"#,
        )
        .unwrap();
        assert_eq!(
            (answer.header.cluster_id, answer.header.revision),
            (14_841_639_068_965_178_418, 6)
        );
        let key = &answer.kvs[0];
        assert_eq!((key.key.as_str(), key.value.as_str(), key.mod_revision), ("foo", "", 6));
        let none: RangeAnswer = from_str(r#"{"header":{"revision":"6"}}"#).unwrap();
        assert!(none.kvs.is_empty());
        let failed: TxnAnswer = from_str(r#"{"header":{"revision":"6"},"responses":[]}"#).unwrap();
        assert!(!failed.succeeded);
        let line: WatchLine = from_str(
            r#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"7"}}"#,
        )
        .unwrap();
        let result = line.result.unwrap();
        assert_eq!((result.canceled, result.compact_revision.0, result.created), (true, 7, false));
        assert!(from_str::<RangeAnswer>(r#"{"kvs":[{"key":"?"}]}"#).is_err());
    }

    #[test]
    fn a_value_that_is_no_text_leaves_the_others_readable() {
        let answer: RangeAnswer =
            from_str(r#"{"kvs":[{"key":"Zm9v","value":"//4="},{"key":"Zm9w","value":"YmFy"}]}"#)
                .unwrap();
        assert_eq!(answer.kvs[1].value, "bar");
    }
}
