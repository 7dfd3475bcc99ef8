//! A number that may be missing, with its source or the reason why it is missing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number with its source, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The number; `None` if it could not be measured.
    pub value: Option<T>,
    /// The file, call or counter it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl<T> Figure<T> {
    /// Makes a figure of a measured number and its source.
    pub fn measured(value: T, source: &str) -> Figure<T> {
        Figure { value: Some(value), source: Some(source.to_string()), reason: None }
    }

    /// Makes a figure without a number, with the reason.
    pub fn absent(reason: impl Into<String>) -> Figure<T> {
        Figure { value: None, source: None, reason: Some(reason.into()) }
    }

    /// Makes a figure without a number, with the reason of another figure.
    pub fn absent_as<U>(other: &Figure<U>) -> Figure<T> {
        Figure { value: None, source: None, reason: other.reason.clone() }
    }

    /// Derives a figure from this one by `f`, which returns `None` if there was nothing to divide
    /// by.
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
