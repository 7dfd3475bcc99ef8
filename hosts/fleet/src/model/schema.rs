//! The JSON Schema (draft 2020-12) of a file, generated from the types that read it.

use super::{Model, VERSION};
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Returns the schema, for editors.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let mut schema = settings.into_generator().into_root_schema_for::<Model>();
    schema.insert("$id".into(), format!("urn:millrace:schema:fleet:{VERSION}").into());
    schema.to_value()
}
