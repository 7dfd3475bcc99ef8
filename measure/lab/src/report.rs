//! The report of a campaign: one model, shown as terminal text, Markdown, JSON and a self-contained
//! HTML page.
//!
//! `--json` prints [`Report`] field by field. A case is a load: a number of connections, a block
//! size and a direction. The JSON has everything that is shown, and each number once.

mod account;
mod answer;
mod case;
mod csv;
mod date;
mod figure;
mod headline;
mod html;
mod junit;
mod quantity;
mod table;
mod text;
mod threshold;
mod tiles;
mod trust;
mod verdict;
mod write;

pub use account::Account;
pub(crate) use account::{checks as account_checks, difference};
pub(crate) use answer::Row;
#[cfg(test)]
pub(crate) use case::case_of;
pub use case::{ArmFigures, Case, Setting};
pub(crate) use case::{adjust_confidence, capital, plural};
pub use date::now_utc;
pub use headline::verdict;
pub(crate) use html::{Screen, comparison};
pub(crate) use text::WIDTH;
pub use text::{markdown, terminal};
pub use threshold::{Held, Threshold};
pub(crate) use threshold::{check as check_thresholds, evaluate as evaluate_thresholds};
pub(crate) use tiles::Tile;
pub use traffic::measure::Machine;
pub(crate) use trust::{Grade, Light, disturbance};
pub(crate) use verdict::level;
pub use write::write;
pub(crate) use write::{read, write_file};

use crate::host::Command;
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
    /// Version of the fields: [`SCHEMA`].
    pub schema: u32,
    /// Name of the experiment, such as `rsc`.
    pub experiment: String,
    /// Title above the report.
    pub title: String,
    /// Version of Millrace that measured.
    pub millrace: String,
    /// Beginning of the experiment, UTC.
    pub date: String,
    /// Bench on which the experiment ran.
    pub bench: BenchFacts,
    /// Machine on which the lab ran.
    pub machine: Machine,
    /// The loads, in the order they were measured.
    pub cases: Vec<Case>,
    /// Round trips of one byte: on idle links first, then beside bulk connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Case>,
    /// Checks of the setup and of the counts.
    pub checks: Vec<Check>,
    /// Results of the thresholds of `--fail-if`, for each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<Held>,
    /// Every command that ran, listed once, so that the experiment can be repeated by hand.
    pub commands: Vec<Command>,
    /// Caveats about the numbers.
    pub notes: Vec<String>,
    /// The columns of the table.
    #[serde(skip)]
    pub measures: &'static [Measure],
    /// The columns of the latency table.
    #[serde(skip)]
    pub latency_measures: &'static [Measure],
}

/// Bench on which an experiment ran.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct BenchFacts {
    /// Whether everything ran in one process, with user-space TCP stacks as guests.
    pub in_process: bool,
    /// Description of the hosts and their links, in a sentence or two.
    pub description: String,
    /// MTU of the links, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Kind of the guest's port: `tap`, `packet` (a veth), `vhost-user`, `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnic: Option<String>,
    /// Emulator of the receiving guest's processors, such as QEMU's `tcg`; absent without
    /// emulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<String>,
    /// TCP's congestion control on the hosts, such as `cubic`; absent for existing hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Processors to which each side was pinned; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Existing hosts of the experiment; empty if the lab created its hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
}

impl BenchFacts {
    /// Returns the kind of the site: `in process`, `namespaces` or `between hosts`.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.in_process, self.hosts.is_empty()) {
            (true, _) => "in process",
            (false, true) => "namespaces",
            (false, false) => "between hosts",
        }
    }
}

/// An existing host of an experiment.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct HostFacts {
    /// Role of the host: `sender` or `receiver`.
    pub role: String,
    /// Whether the host is on the switch's machine.
    pub same_machine: bool,
    /// The host's machine.
    pub machine: Machine,
}

/// Result of a check of the setup or of the counts.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Check {
    /// Statement that was checked.
    pub name: String,
    /// Whether the statement holds.
    pub passed: bool,
    /// Observation, in words.
    pub seen: String,
}

#[cfg(test)]
mod tests;
