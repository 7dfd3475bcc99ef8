//! Errors as the specification defines them: a number, a message, details.

use api::client::ClientError;
use problem::Problem;
use serde_json::{Value, json};
use std::fmt::Display;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// One of the numbers below, or one of the IPAM plugin's.
    pub code: u64,
    /// What failed.
    pub message: String,
    /// Values and remedy. May be empty.
    pub details: String,
}

impl CniError {
    /// Incompatible version of the specification.
    pub const VERSION: u64 = 1;
    /// Variables of the environment are missing or wrong.
    pub const ENVIRONMENT: u64 = 4;
    /// Input or output failed.
    pub const IO: u64 = 5;
    /// The configuration cannot be read as JSON of the right shape.
    pub const DECODING: u64 = 6;
    /// The configuration can be read and is wrong.
    pub const NETWORK: u64 = 7;
    /// The runtime should try again later.
    pub const LATER: u64 = 11;
    /// No ADD can be served, and existing containers may have lost their connection.
    pub const UNAVAILABLE: u64 = 51;
    /// Ours: the switch refused.
    pub const REFUSED: u64 = 100;
    /// Ours: the interface cannot be made or set up in the pod's namespace.
    pub const POD: u64 = 101;
    /// Ours: CHECK found a difference.
    pub const DIFFERENT: u64 = 102;
    /// Ours: the IPAM plugin cannot be run, or its answer cannot be used.
    pub const IPAM: u64 = 103;

    /// Makes an error with the value seen as details.
    pub(crate) fn new(code: u64, message: impl Into<String>, seen: impl Display) -> CniError {
        CniError { code, message: message.into(), details: seen.to_string() }
    }

    /// Adds a later error of clearing up.
    pub(crate) fn and(mut self, other: &CniError) -> CniError {
        let separator = if self.details.is_empty() { "" } else { "; " };
        self.details.push_str(&format!("{separator}cleaning up failed too: {}", other.line()));
        self
    }

    /// Returns message and details in one line.
    pub(crate) fn line(&self) -> String {
        let separator = if self.details.is_empty() { "" } else { ": " };
        format!("{}{separator}{}", self.message, self.details)
    }

    /// Returns the error as the plugin prints it.
    pub(crate) fn to_json(&self, version: &str) -> Value {
        json!({
            "cniVersion": version, "code": self.code, "msg": self.message, "details": self.details,
        })
    }

    /// Makes an error from a problem of the switch.
    pub(crate) fn of(code: u64, problem: &Problem) -> CniError {
        let parts = [("seen", &problem.seen), ("wanted", &problem.wanted)];
        let mut told: Vec<_> = parts
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(label, text)| format!("{label} {text}"))
            .collect();
        told.extend(Some(problem.remedy.clone()).filter(|remedy| !remedy.is_empty()));
        CniError::new(code, problem.error.clone(), told.join("; "))
    }
}

impl From<ClientError> for CniError {
    fn from(error: ClientError) -> CniError {
        match error {
            ClientError::Unreachable(problem) => CniError::of(CniError::LATER, &problem),
            ClientError::Refused(problem) => CniError::of(CniError::REFUSED, &problem),
        }
    }
}
