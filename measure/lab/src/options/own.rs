//! Options that only one experiment has. Each type is a part of [`Options`](super::Options), with
//! its keys among those of the state file.

use crate::load::Sockets;
use crate::vnic::Receivers;
use config::VmmqMode;
use serde::{Deserialize, Serialize};

/// Options of `validate rsc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RscOptions {
    /// Whether two stacks in this process take the place of hosts in namespaces.
    pub in_process: bool,
    /// Receivers to measure toward; `None` if there is no choice.
    pub receivers: Option<Receivers>,
    /// Whether the receiver was named on the command line, so that no other may take its place.
    pub receiver_named: bool,
    /// Whether only the verdict is wanted, in less than a minute: of the other switches the Linux
    /// bridge with GRO, and no round trips on idle links.
    pub brief: bool,
}

/// Options of `validate jumbo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JumboOptions {
    /// Whether the load runs over two paths at the same time, of which one has jumbo frames.
    pub two_paths: bool,
}

/// Options of `sweep`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepOptions {
    /// Bytes of one send or receive call, in the order of measuring. At least one.
    pub blocks: Vec<u32>,
    /// Values of `vmmq`, one arm each; empty if it is no arm.
    pub vmmq: Vec<VmmqMode>,
    /// The sockets' buffers.
    pub sockets: Sockets,
}

/// Options of `validate rate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateOptions {
    /// The kernel's name of TCP's congestion control; `None` for that of all experiments.
    pub congestion: Option<String>,
    /// Milliseconds by which each round trip takes longer than the links do.
    pub round_trip_ms: Option<u32>,
}

/// Options of `validate self`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelfTestOptions {
    /// Tries of each kind. At least one.
    pub tries: usize,
}

/// Options of `validate team`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TeamOptions {
    /// Number of times that a member is pulled with each algorithm.
    pub pulls: usize,
}
