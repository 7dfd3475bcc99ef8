//! The rules of a port, and a rule to add.

use config::Rule;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The rules of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AclBody {
    /// The port.
    pub port: String,
    /// The rules in order: the first match decides.
    pub rules: Vec<AclRuleBody>,
}

/// A rule and what it matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AclRuleBody {
    /// Its number, from 1.
    pub number: usize,
    /// As in the file.
    #[schema(value_type = String, example = "deny in tcp to 10.0.0.0/8 port 22-23")]
    pub rule: Rule,
    /// Frames that it matched since it was added; a train counts as one.
    pub hits: u64,
}

/// Body of `POST /v1/ports/{name}/acl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclAdd {
    /// As in the file.
    #[schema(value_type = String, example = "deny in tcp to 10.0.0.0/8 port 22-23")]
    pub rule: Rule,
    /// The number to give it, from 1. Default: after the last rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub number: Option<usize>,
}
