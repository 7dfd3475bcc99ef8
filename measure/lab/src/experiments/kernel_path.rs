//! The kernel path: established flows that the kernel carries by itself, against the same flows
//! through the switch, with RSC or with the kernel's GRO before it, and against a Linux bridge.
//!
//! The guest is a container behind a veth. It receives from the wire, sends to it, and receives
//! from a second container. Each arm has connections of its own: those of an arm without the kernel
//! path would be carried in the next one only after a pause, which bulk connections do not make.

use crate::LabError;
use crate::campaign::{Campaign, Point};
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::load::{BUFFER_BYTES, Bulk, Load, Way};
use crate::measure::{CPU, MACHINE, Measure, RECEIVING, THROUGHPUT};
use crate::options::{Options, Quick};
use crate::plan::{Arm, OFF, ON};
use crate::report::{Case, Check};
use crate::topology::{Setup, Topology, Wiring};
use crate::{peers, round_trips};
use statistics::FEWEST_PAIRS;
use std::path::PathBuf;

/// Columns of the table.
pub(crate) const MEASURES: &[Measure] = &[THROUGHPUT, MACHINE, RECEIVING, CPU];

/// The arm without the kernel path in which the kernel coalesces before the switch.
const OFF_GRO: &str = "off_gro";

/// The experiment's own arms: name, label, and whether the kernel coalesces (GRO) what arrives.
const ARMS: [(&str, &str, bool); 3] = [
    (ON, "Kernel path on, GRO on", true),
    (OFF, "Kernel path off, GRO off (RSC in the switch)", false),
    (OFF_GRO, "Kernel path off, GRO on", true),
];

/// Bulk connections beside round trips.
const BESIDE: u32 = 16;

/// Least percentage of bytes that the kernel has to carry where it may.
const FEWEST: f64 = 90.0;
/// Percentage from which on it has carried some: sockets and rings hold less at the ends of an
/// interval.
const NONE: f64 = 5.0;

const NOTE: &str = "The guest is a container behind a veth, and frames reach the switch at MTU size, as from a NIC without LRO. GRO is that of the interface \
                    by which frames reach the switch. All connections are opened anew for each arm. The Linux bridge shows IP frames to \
                    netfilter (bridge-nf-call-iptables is 1, the kernel's default) where br_netfilter is loaded, except in the arm that says so; \
                    no rule is loaded. What reaches a container is received on the processor that delivers it, as by default: its link is not \
                    steered (RPS).";

/// `millrace validate kernel-path`, one way.
#[derive(Debug)]
pub(crate) struct KernelPath(Way);

const RECEIVES: KernelPath = KernelPath(Way::ToVnic);
const SENDS: KernelPath = KernelPath(Way::FromVnic);
const BETWEEN: KernelPath = KernelPath(Way::BetweenVnics);

impl Experiment for KernelPath {
    fn description(&self) -> Description {
        Description {
            name: "kernel-path",
            title: "The kernel path: on against off",
            measures: MEASURES,
            note: Some(NOTE),
            wiring: Wiring { way: self.0, bridge: true, container: true, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        let own = ARMS.map(|(name, label, _)| Arm { name: name.into(), label: label.into() });
        own.into_iter().chain(peers::bridges()).collect()
    }

    fn setup(&self, arm: &str) -> Setup {
        let coalesces = ARMS.iter().any(|(name, _, coalesces)| *name == arm && *coalesces);
        Setup { coalesces, ..Setup::OWN }
    }

    fn opens_anew(&self) -> bool {
        true
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.set_kernel_path(arm == ON)
    }

    fn checks(&self, _: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        daemon.set_kernel_path(true)?;
        let name = format!("The kernel may carry flows of both ports, {}", self.0.words());
        Ok(vec![Check { name, passed: true, seen: "by what both ports say of themselves".into() }])
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

impl Options {
    /// Returns the defaults of `validate kernel-path`: 1, 16, 64 and 1,000 connections.
    pub fn kernel_path(program: PathBuf) -> Options {
        Options {
            connections: vec![1, 16, 64, 1000],
            repetitions: 12,
            quick: Quick { repetitions: FEWEST_PAIRS, ..Quick::default() },
            ..Options::new(program)
        }
    }
}

/// Returns the campaign of `millrace validate kernel-path`.
pub fn campaign(options: &Options) -> Campaign {
    let points = |experiment: &'static KernelPath| {
        let plan = experiment.plan(options.mtu, options.interval, options.stop());
        let counts = options.connections.iter();
        counts.map(|count| Point::bulk(experiment, &plan, *count)).collect::<Vec<_>>()
    };
    let mut all = points(&RECEIVES);
    let load = Load::RoundTrips(Some(Bulk::new(BESIDE, BUFFER_BYTES)));
    let bulk = RECEIVES.plan(options.mtu, options.interval, options.stop());
    all.push(Point { experiment: &RECEIVES, load, plan: round_trips::plan(&bulk) });
    all.extend(points(&SENDS));
    all.extend(points(&BETWEEN));
    Campaign::new(&RECEIVES, all)
}

/// Proves that nearly all bytes toward the receiver passed by the switch with the kernel path on, and
/// none with it off. The daemon counts once a second what the kernel carried, so the share is that
/// of what the switch itself did not deliver, which it counts at once.
fn proof(case: &Case) -> Option<Check> {
    let mut shares = Vec::new();
    for (arm, ..) in ARMS {
        let [own, all] =
            ["bytes_by_switch", "received_bytes"].map(|figure| case.total(arm, figure));
        shares.push((100.0 * (1.0 - own? / all?)).max(0.0));
    }
    let [on, off, off_gro] = shares[..] else { return None };
    let mut seen = format!(
        "the kernel carried {on:.1} % of the bytes toward the receiver with the kernel path on (at least {FEWEST:.0} wanted), \
         {off:.1} and {off_gro:.1} % with it off (less than {NONE:.0} wanted)"
    );
    if on < FEWEST {
        seen.push_str(
            ": both ports said that it may, so frames that it leaves to the switch, or a lease that ran out, are the reason",
        );
    }
    proven(on >= FEWEST && off.max(off_gro) < NONE, seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    fn seen(carried: [f64; 3]) -> Check {
        let stop = StopRule { repetitions: 4, narrow: None, least: 2 };
        let plan = RECEIVES.plan(1500, Duration::from_secs(1), stop);
        let case = case_of(&plan, 4, |_, place| {
            let share = carried.get(place).copied().unwrap_or_default();
            // Frames have headers, which the receiver's application does not see.
            Values::from([
                ("received_bytes".into(), 1448.0),
                ("bytes_by_switch".into(), (1.0 - share) * 1514.0),
            ])
        });
        proof(&case).unwrap()
    }

    #[test]
    fn each_arm_is_proven_by_what_the_kernel_carried() {
        assert!(seen([0.97, 0.0, 0.0]).passed);
        let slow = seen([0.5, 0.0, 0.0]);
        assert!(!slow.passed && slow.seen.contains("lease"), "{slow:?}");
        assert!(!seen([0.97, 0.2, 0.0]).passed && !seen([0.97, 0.0, 0.5]).passed);
    }

    #[test]
    fn three_ways_are_measured_with_round_trips_beside_the_first() {
        let points = campaign(&Options::kernel_path("".into())).points;
        let ways: Vec<Way> = points.iter().map(|p| p.experiment.description().wiring.way).collect();
        assert_eq!(ways[..5], [Way::ToVnic; 5]);
        assert_eq!(
            (ways[5..9].to_vec(), ways[9..].to_vec()),
            (vec![Way::FromVnic; 4], vec![Way::BetweenVnics; 4])
        );
        assert_eq!(points[4].load, Load::RoundTrips(Some(Bulk::new(16, BUFFER_BYTES))));
        let arms: Vec<&str> = points[0].plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        let bridges = ["linux_bridge", "linux_bridge_no_gro", "linux_bridge_no_netfilter"];
        assert_eq!(arms, [[ON, OFF, OFF_GRO], bridges].concat());
        let gro: Vec<bool> = arms[..3].iter().map(|arm| RECEIVES.setup(arm).coalesces).collect();
        assert_eq!(gro, [true, false, true]);
    }
}
