//! Names of networks, host classes and hosts.

use problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A name, which is used in etcd's keys and in tables: 1 to 64 letters, digits, `.`, `_` or `-`, a
/// letter or digit first.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    const LONGEST: usize = 64;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Name, Problem> {
        let is_good = (1..=Name::LONGEST).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if is_good {
            return Ok(Name(text.to_owned()));
        }
        Err(Problem::new("not a name")
            .seen(format!("{text:?}"))
            .wanted("1 to 64 letters, digits, `.`, `_` or `-`, a letter or digit first")
            .remedy("choose another name"))
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Name, String> {
        text.parse().map_err(|problem: Problem| problem.pack())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_an_etcd_key() {
        for good in ["a", "rack-1.example", "0", "A_b"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a/b", "a b", "ä", ".", &"a".repeat(65)] {
            let problem = bad.parse::<Name>().unwrap_err();
            assert!(problem.seen.contains(bad) && !problem.remedy.is_empty(), "{problem}");
        }
    }
}
