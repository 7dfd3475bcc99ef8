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
use crate::round_trips;
use crate::topology::{ROUND_TRIP_PORT, Route, Topology, Wiring};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Columns of the table.
pub(crate) const MEASURES: &[Measure] =
    &[Measure { label: "Throughput (Mb/s)", scale: 1e-6, ..THROUGHPUT }, CPU];

/// The arms: the limit as the configuration has it, and in bits per second.
const RATES: [(&str, f64); 3] = [("50Mbit", 50e6), ("200Mbit", 200e6), ("1Gbit", 1e9)];

/// Time after a change of the rate in which connections find it, and round trips that it takes.
const SETTLE: Duration = Duration::from_secs(1);
const SETTLING_TRIPS: u32 = 100;

/// `millrace validate rate`, one way.
#[derive(Debug)]
pub(crate) struct Rate {
    /// The key of the vNIC's port that is changed.
    key: &'static str,
    way: Way,
    /// Whether round trips are long: then connections would take too many of them to find a higher
    /// rate after a lower one.
    is_far: bool,
}

const SENDING: Rate = Rate { key: "rate", way: Way::FromVnic, is_far: false };
const RECEIVING: Rate = Rate { key: "rate-to", way: Way::ToVnic, is_far: false };
const FAR_SENDING: Rate = Rate { is_far: true, ..SENDING };
const FAR_RECEIVING: Rate = Rate { is_far: true, ..RECEIVING };

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

    fn opens_anew(&self) -> bool {
        self.is_far
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        RATES.first().map_or(Ok(()), |(arm, _)| self.switch(topology, daemon, arm))?;
        let delayed = topology.round_trip_ms.map(|least| delayed(topology, least)).transpose()?;
        Ok(delayed.into_iter().collect())
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
    let trip = Duration::from_millis(options.rate.round_trip_ms.unwrap_or_default().into());
    let settle = SETTLE + SETTLING_TRIPS * trip;
    let points = |experiment: &'static Rate| {
        let plan = experiment.plan(options.mtu, options.interval, options.stop());
        let plan = Plan { settle: settle.max(plan.settle), ..plan };
        let counts = options.connections.iter();
        counts.map(|count| Point::bulk(experiment, &plan, *count)).collect::<Vec<_>>()
    };
    let (sending, receiving) = match options.rate.round_trip_ms {
        None => (&SENDING, &RECEIVING),
        Some(_) => (&FAR_SENDING, &FAR_RECEIVING),
    };
    let mut all = points(sending);
    all.extend(points(receiving));
    Campaign::new(sending, all)
}

/// Checks that a round trip of one byte takes at least so many milliseconds.
fn delayed(topology: &mut Topology, least: u32) -> Result<Check, LabError> {
    let to = (topology.address(Route::Switch), ROUND_TRIP_PORT).into();
    let trips = topology.sender.round_trips(to, Duration::from_secs(1))?;
    let median = trips.get(round_trips::MEDIAN.key).copied().unwrap_or_default() / 1e6;
    Ok(Check {
        name: format!("A round trip takes at least {least} ms"),
        passed: median >= f64::from(least),
        seen: format!("{median:.1} ms at the median of a second"),
    })
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
