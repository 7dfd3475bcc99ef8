//! Rate limits: what TCP gets of a port's `rate` and `rate-to`.
//!
//! First the guest sends: frames above `rate` wait in its own queue. Then it receives: frames above
//! `rate-to` wait in the switch.

use crate::LabError;
use crate::campaign::{Campaign, Point};
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::load::Way;
use crate::measure::{CPU, Measure, THROUGHPUT};
use crate::options::Options;
use crate::plan::{Arm, Plan};
use crate::report::{Case, Check};
use crate::topology::{Topology, Wiring};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Columns of the table.
pub(crate) const MEASURES: &[Measure] =
    &[Measure { label: "Throughput (Mb/s)", scale: 1e-6, ..THROUGHPUT }, CPU];

/// The arms: the limit as the configuration has it, and in bits per second.
const RATES: [(&str, f64); 3] = [("50Mbit", 50e6), ("200Mbit", 200e6), ("1Gbit", 1e9)];

/// Time after a change of the rate in which connections find it.
const SETTLE: Duration = Duration::from_secs(1);

/// `millrace validate rate`, one way.
#[derive(Debug)]
pub(crate) struct Rate {
    /// The key of the vNIC's port that is changed.
    key: &'static str,
    way: Way,
}

const SENDING: Rate = Rate { key: "rate", way: Way::FromVnic };
const RECEIVING: Rate = Rate { key: "rate-to", way: Way::ToVnic };

impl Experiment for Rate {
    fn description(&self) -> Description {
        Description {
            name: "rate",
            title: "Rate limits: what TCP gets of them",
            steps: true,
            measures: MEASURES,
            note: Some(
                "While the guest sends, `rate` of its port is in force, while it receives, `rate-to`. Throughput is payload, so at MTU \
                 1500 a limit on single frames leaves 95.6 % of it, and one on trains 99.9 %.",
            ),
            wiring: Wiring { way: self.way, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        let arm = |(name, _): (&str, f64)| Arm { name: name.into(), label: name.into() };
        RATES.map(arm).to_vec()
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.vnic.change(&json!({ self.key: arm }))
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        RATES.first().map_or(Ok(()), |(arm, _)| self.switch(topology, daemon, arm))?;
        Ok(Vec::new())
    }

    fn proof(&self) -> Option<Proof> {
        Some(reached)
    }
}

impl Options {
    /// Returns the defaults of `validate rate`: 1 and 64 connections.
    pub fn rate(program: PathBuf) -> Options {
        Options { connections: vec![1, 64], ..Options::new(program) }
    }
}

/// Returns the campaign of `millrace validate rate`.
pub fn campaign(options: &Options) -> Campaign {
    let points = |experiment: &'static Rate| {
        let plan = experiment.plan(options.mtu, options.interval, options.stop());
        let plan = Plan { settle: SETTLE.max(plan.settle), ..plan };
        let counts = options.connections.iter();
        counts.map(|count| Point::bulk(experiment, &plan, *count)).collect::<Vec<_>>()
    };
    let mut all = points(&SENDING);
    all.extend(points(&RECEIVING));
    Campaign::new(&SENDING, all)
}

/// Checks that each arm had its rate: at least 95 % of it, and at most 102 %.
fn reached(case: &Case) -> Option<Check> {
    let mut shares = Vec::new();
    for (arm, rate) in RATES {
        shares.push((arm, case.median(arm, THROUGHPUT.key)? / rate));
    }
    let words: Vec<_> =
        shares.iter().map(|(arm, share)| format!("{:.1} % of {arm}", share * 100.0)).collect();
    let passed = shares.iter().all(|(_, share)| (0.95..=1.02).contains(share));
    proven(passed, format!("TCP got {}", words.join(", ")))
}
