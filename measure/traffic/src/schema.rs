//! JSON schemas (draft 2020-12), derived from the printed types, so that the two cannot drift
//! apart.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Returns the schema of a printed document with this name and version. An object has the keys it
/// names and no others.
pub fn of<T: JsonSchema>(name: &str, version: u32) -> Value {
    let mut schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    RecursiveTransform(close).transform(&mut schema);
    schema.insert("$id".into(), format!("urn:millrace:schema:{name}:{version}").into());
    schema.to_value()
}

fn close(schema: &mut Schema) {
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
}
