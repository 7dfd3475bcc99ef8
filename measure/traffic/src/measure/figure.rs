//! A number that may be missing, with where it came from or why it is missing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Figure<T> {
    /// The number, `None` where it could not be measured.
    pub value: Option<T>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl<T> Figure<T> {
    /// A measured number and where it was read.
    pub fn measured(value: T, source: &str) -> Figure<T> {
        Figure { value: Some(value), source: Some(source.to_string()), reason: None }
    }

    /// No number, and why.
    pub fn absent(reason: impl Into<String>) -> Figure<T> {
        Figure { value: None, source: None, reason: Some(reason.into()) }
    }

    /// No number, for the same reason as another figure has none.
    pub fn absent_as<U>(other: &Figure<U>) -> Figure<T> {
        Figure { value: None, source: None, reason: other.reason.clone() }
    }

    /// The number made into another one, as `f` says; `None` of `f` means that nothing was counted
    /// to divide by.
    pub fn then<U>(&self, f: impl FnOnce(&T) -> Option<U>) -> Figure<U> {
        let value = self.value.as_ref().map(f);
        match value {
            None => Figure::absent_as(self),
            Some(None) => Figure::absent("nothing was counted to divide by"),
            Some(Some(value)) => {
                Figure { value: Some(value), source: self.source.clone(), reason: None }
            }
        }
    }
}
