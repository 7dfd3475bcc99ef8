//! `millrace sweep`: throughput by block size and number of connections, for a guest that sends and
//! for one that receives, with all offloads at their defaults. If numbers of queues are given, each
//! is an arm, for which ports are reopened while the connections go on. Between existing hosts
//! nothing is changed, and the load runs one way: from the sender to the receiver.

use crate::LabError;
use crate::campaign::{Campaign, Point, REOPENING};
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::load::{Bulk, Load, Way};
use crate::measure::{CPU, CYCLES, Measure, THROUGHPUT};
use crate::options::{Options, Quick, SweepOptions};
use crate::plan::{Arm, Plan};
use crate::report::{Case, Check, plural};
use crate::topology::{Topology, Wiring};
use config::VmmqMode;
use serde_json::json;
use std::path::PathBuf;

/// Throughput, and its cost.
pub(super) const MEASURES: &[Measure] =
    &[THROUGHPUT, Measure { decimals: 1, ..CPU }, Measure { decimals: 2, ..CYCLES }];

/// Connections of a whole sweep.
pub const CONNECTIONS: &[u32] = &[1, 2, 4, 8, 16];
/// Blocks of a whole sweep, in bytes: 512 B to 512 KiB.
pub const BLOCKS: &[u32] =
    &[512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288];
/// Connections with `--quick`.
pub const QUICK_CONNECTIONS: &[u32] = &[1, 4, 16];
/// Blocks with `--quick`, in bytes.
pub const QUICK_BLOCKS: &[u32] = &[512, 4096, 32_768, 524_288];

/// `millrace sweep`.
#[derive(Debug)]
struct Sweep {
    /// The way of the load.
    way: Way,
    /// Whether it is measured between existing hosts.
    between: bool,
}

/// The two ways of the load over hosts of its own.
const WAYS: [&Sweep; 2] =
    [&Sweep { way: Way::FromVnic, between: false }, &Sweep { way: Way::ToVnic, between: false }];
/// The way between existing hosts.
const BETWEEN: [&Sweep; 1] = [&Sweep { way: Way::ToVnic, between: true }];

impl Experiment for Sweep {
    fn description(&self) -> Description {
        Description {
            name: "sweep",
            title: "Throughput by block size and connections",
            measures: MEASURES,
            note: Some(match self.between {
                false => {
                    "All offloads have their defaults. Both ends send and receive in blocks of the given size."
                }
                true => {
                    "Hosts and switch have the settings they had. Both ends send and receive in blocks of the given size."
                }
            }),
            wiring: Wiring { way: self.way, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        vec![measured()]
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        switch(daemon, arm)
    }

    fn changes_nothing(&self) -> bool {
        self.between
    }

    fn proof(&self) -> Option<Proof> {
        // Between existing hosts there is one arm, the switch as it is.
        (!self.between).then_some(proof)
    }
}

impl Options {
    /// Returns the defaults of `millrace sweep`: 1 to 16 connections, 512 B to 512 KiB, three
    /// seconds a point.
    pub fn sweep(program: PathBuf) -> Options {
        Options {
            connections: CONNECTIONS.to_vec(),
            sweep: SweepOptions { blocks: BLOCKS.to_vec(), ..SweepOptions::default() },
            repetitions: 3,
            quick: Quick {
                repetitions: 2,
                connections: QUICK_CONNECTIONS,
                blocks: QUICK_BLOCKS,
                ..Quick::default()
            },
            ..Options::new(program)
        }
    }
}

/// Returns the only arm of an experiment that switches nothing.
pub(super) fn measured() -> Arm {
    Arm { name: "measured".into(), label: "Measured".into() }
}

/// Prefix of the names of arms that differ in their queues; the number follows.
const QUEUES: &str = "queues_";

/// Infix of the names of arms that differ in `vmmq`; the value follows.
const VMMQ: &str = "_vmmq_";

/// Returns an arm for each number of queues, the largest first, and for each value of `vmmq`; or
/// the only arm.
fn arms(queues: &[u32], vmmq: &[VmmqMode]) -> Vec<Arm> {
    let mut arms = Vec::new();
    for count in queues.iter().rev() {
        let (name, label) = (format!("{QUEUES}{count}"), plural(*count, "queue"));
        let of = |mode: &VmmqMode| Arm {
            name: format!("{name}{VMMQ}{}", mode.name()),
            label: format!("{label}, {}", mode.name()),
        };
        arms.extend(vmmq.iter().map(of));
        if vmmq.is_empty() {
            arms.push(Arm { name, label });
        }
    }
    if arms.is_empty() { vec![measured()] } else { arms }
}

/// Returns the queues of an arm's ports; `None` for the only arm.
fn queues(arm: &str) -> Option<u32> {
    let count = arm.strip_prefix(QUEUES)?;
    count.split_once(VMMQ).map_or(count, |(count, _)| count).parse().ok()
}

/// Reopens the uplink and the vNIC with the arm's number of queues and its value of `vmmq`.
fn switch(daemon: &Daemon, arm: &str) -> Result<(), LabError> {
    let Some(count) = queues(arm) else { return Ok(()) };
    let change = match arm.split_once(VMMQ) {
        Some((_, mode)) => json!({ "queues": count, "vmmq": mode }),
        None => json!({ "queues": count }),
    };
    daemon.reopen(&change, &change)
}

/// Proves the arms by the queues that the switch had.
fn proof(case: &Case) -> Option<Check> {
    let had = |arm: &String| {
        let [uplink, vnic] = ["uplink_queues", "vnic_queues"].map(|key| case.median(arm, key));
        Some((queues(arm), uplink?, vnic?))
    };
    let had = case.order.iter().map(had).collect::<Option<Vec<_>>>()?;
    let as_said = |(queues, uplink, vnic): &(Option<u32>, f64, f64)| {
        let wanted = f64::from(queues.unwrap_or(1));
        *uplink == wanted && *vnic == wanted
    };
    let seen = had.iter().map(|(_, uplink, vnic)| format!("{uplink} and {vnic}"));
    let seen = format!("queues of uplink and vNIC: {}", seen.collect::<Vec<_>>().join(", then "));
    proven(had.iter().all(as_said), seen)
}

/// Returns the plan that is measured under each load.
fn plan(experiment: &Sweep, options: &Options) -> Plan {
    let plain = experiment.plan(options.mtu, options.interval, options.stop());
    let queues = if experiment.between { &[][..] } else { &options.queues };
    let arms = arms(queues, &options.sweep.vmmq);
    let settle = if arms.len() > 1 { REOPENING.max(plain.settle) } else { plain.settle };
    Plan { arms, settle, ..plain }
}

/// Returns the campaign of `millrace sweep`: first the guest sends, then it receives. Between
/// existing hosts the receiver only receives.
pub fn campaign(options: &Options) -> Campaign {
    let mut points = Vec::new();
    let ways = if options.existing_hosts.is_some() { &BETWEEN[..] } else { &WAYS };
    for experiment in ways.iter().copied() {
        for connections in options.connections.iter().copied() {
            for buffer_bytes in options.sweep.blocks.iter().copied() {
                let sockets = options.sweep.sockets;
                let load = Load::Bulk(Bulk { sockets, ..Bulk::new(connections, buffer_bytes) });
                points.push(Point { experiment, load, plan: plan(experiment, options) });
            }
        }
    }
    Campaign::new(WAYS[0], points)
}
