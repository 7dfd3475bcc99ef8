//! `[rollout]`: the steps in which a new revision reaches the hosts, and what stops it.

use api::body::Severity;
use config::Seconds;
use problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How a revision is rolled out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Policy {
    /// How many of the hosts that change have the revision after each step: numbers such as `1`,
    /// and percentages such as `10%`. After the last step all have it, even if it names fewer.
    pub steps: Vec<Share>,
    /// How long the hosts of a step may take to apply the revision, such as `60s`.
    #[schemars(with = "String")]
    pub wait: Seconds,
    /// How long all hosts of a step have to be without a new finding before the next step, such as
    /// `5s`.
    #[schemars(with = "String")]
    pub soak: Seconds,
    /// The least severity of a finding that stops the roll-out: `error`, `warning` or `info`. A
    /// finding that a host had before the roll-out does not stop it.
    #[schemars(with = "String")]
    pub gate: Severity,
    /// How many frames a second the switch of a host that has the revision may drop, by reason,
    /// such as `{ too_big = 10 }`. More, for as long as `soak`, stops the roll-out. Other reasons
    /// are not judged: guards drop what they are to drop.
    // Left out if there are none, so that agents of versions that know no limits read the model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            steps: vec![Share::Hosts(1), Share::Percent(10), Share::Percent(100)],
            wait: Seconds(60),
            soak: Seconds(5),
            gate: Severity::Warning,
            drops: BTreeMap::new(),
        }
    }
}

/// A share of the hosts that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Share {
    /// This many.
    Hosts(u32),
    /// This percentage, 1 to 100, rounded up.
    Percent(u8),
}

impl Share {
    /// Returns how many of `all` hosts the share is, at least 1 and at most `all`.
    pub fn of(self, all: usize) -> usize {
        let wanted = match self {
            Share::Hosts(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Share::Percent(percent) => (all * usize::from(percent)).div_ceil(100),
        };
        wanted.clamp(1, all.max(1))
    }
}

impl FromStr for Share {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Share, Problem> {
        let share = match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|it| (1..=100).contains(it)).map(Share::Percent)
            }
            None => text.parse().ok().filter(|count| *count > 0).map(Share::Hosts),
        };
        share.ok_or_else(|| {
            Problem::new("not a step of a roll-out")
                .seen(format!("{text:?}"))
                .wanted("a number of hosts such as \"1\", or a percentage from \"1%\" to \"100%\"")
                .remedy("write steps = [\"1\", \"10%\", \"100%\"]")
        })
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Share, String> {
        text.parse().map_err(|problem: Problem| problem.pack())
    }
}

impl From<Share> for String {
    fn from(share: Share) -> String {
        share.to_string()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Hosts(count) => write!(out, "{count}"),
            Share::Percent(percent) => write!(out, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_at_least_one_host_and_at_most_all() {
        let of = |text: &str, all| text.parse::<Share>().unwrap().of(all);
        assert_eq!((of("1", 30), of("10%", 30), of("100%", 30)), (1, 3, 30));
        assert_eq!((of("10%", 1), of("10%", 11), of("5", 3), of("1", 0)), (1, 2, 3, 1));
        for text in ["", "0", "0%", "101%", "-1", "ten", "10 %"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
