//! The report of a campaign: one model, shown as terminal text, Markdown, JSON and a self-contained
//! HTML page.
//!
//! [`Report`] is what `--json` prints, field by field. A case is a load: its connections, its
//! blocks and its way. Everything shown is in the JSON, and no number is there twice.

mod account;
mod answer;
mod case;
mod csv;
mod date;
mod figure;
mod html;
mod junit;
mod table;
mod text;
mod threshold;
mod verdict;
mod write;

pub use account::Account;
pub(crate) use account::{checks as account_checks, difference};
pub(crate) use answer::{Row, disturbance};
#[cfg(test)]
pub(crate) use case::case_of;
pub use case::{ArmFigures, Case, Setting};
pub(crate) use case::{hold_together, plural};
pub use date::now_utc;
pub(crate) use html::comparison;
pub(crate) use text::WIDTH;
pub use text::{markdown, terminal};
pub use threshold::{Held, Threshold};
pub(crate) use threshold::{check as check_thresholds, hold as hold_thresholds};
pub use traffic::measure::Machine;
pub(crate) use verdict::level;
pub use write::write;
pub(crate) use write::{put, read};

use crate::measure::Measure;
use crate::placement::Placement;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the JSON's fields.
pub const SCHEMA: u32 = 2;

/// Returns the JSON schema of a [`Report`].
pub fn json_schema() -> serde_json::Value {
    traffic::schema::of::<Report>("report", SCHEMA)
}

/// The whole result of `millrace validate`, `ladder`, `sweep` or `connections`.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `rsc`.
    pub experiment: String,
    /// What people read above it.
    pub title: String,
    /// Version that measured.
    pub millrace: String,
    /// When it began, UTC.
    pub date: String,
    /// Where it ran.
    pub bench: BenchFacts,
    /// The machine.
    pub machine: Machine,
    /// The loads, in the order they were measured.
    pub cases: Vec<Case>,
    /// Round trips of one byte, arm against arm: idle first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Case>,
    /// What was looked at before measuring.
    pub checks: Vec<Check>,
    /// The thresholds of `--fail-if`, each held against each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<Held>,
    /// Every command, once however often it ran, so that anyone can do it again by hand.
    pub commands: Vec<Command>,
    /// What a reader should know before believing the numbers.
    pub notes: Vec<String>,
    /// The columns of the table.
    #[serde(skip)]
    pub measures: &'static [Measure],
    /// The columns of the latency table.
    #[serde(skip)]
    pub latency_measures: &'static [Measure],
}

/// Where an experiment ran.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct BenchFacts {
    /// All in one process, with user-space TCP stacks as guests.
    pub in_process: bool,
    /// Who is who, in a sentence or two.
    pub description: String,
    /// MTU of the links, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Kind of the guest's port: `tap`, `packet` (a veth), `vhost-user`, `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<String>,
    /// What emulates the processors of the guest that receives: `tcg`, QEMU's; absent where none
    /// are emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<String>,
    /// TCP's congestion control over the links: `cubic`; absent where the hosts were there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Which processors each side had to itself; absent where none had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Hosts that were there before, where it ran between such; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
}

impl BenchFacts {
    /// Returns the kind of the site.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.in_process, self.hosts.is_empty()) {
            (true, _) => "in process",
            (false, true) => "namespaces",
            (false, false) => "between hosts",
        }
    }
}

/// One of the hosts between which an experiment ran.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct HostFacts {
    /// `sender` or `receiver`.
    pub role: String,
    /// It is on the switch's machine.
    pub same_machine: bool,
    /// Its machine.
    pub machine: Machine,
}

/// One thing looked at before measuring.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// As it should be.
    pub passed: bool,
    /// What was seen.
    pub seen: String,
}

/// One command and where it ran.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Command {
    /// The host of the topology.
    pub host: String,
    /// As typed.
    pub command: String,
}

#[cfg(test)]
mod tests;
