//! `millrace ladder`: what each offload adds to the one before it, for a guest that sends and for
//! one that receives.
//!
//! The steps are those by which FreeBSD's driver for Hyper-V grew: nothing, checksum offload,
//! segmentation (LSO), coalescing (RSC), limits of coalescing. All run in turn under the same
//! connections, so a step's gain is its own.

use crate::LabError;
use crate::campaign::{Campaign, Point};
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::load::{Load, Way};
use crate::options::Options;
use crate::plan::Arm;
use crate::report::{Case, Check};
use crate::topology::{Topology, VNIC, WIRE, Wiring};
use ports::link::LinkOffload;
use serde_json::json;

/// Names and labels of the steps, the baseline first.
const STEPS: [(&str, &str); 5] = [
    ("base", "No offloads"),
    ("checksum", "+ checksum offload"),
    ("lso", "+ LSO"),
    ("rsc", "+ RSC"),
    ("limits", "+ RSC limits"),
];

/// Limits at the last step: payload of a train in MTUs, and acknowledged segments that end one.
const LIMITS: (u8, u16) = (25, 2);

/// `millrace ladder`, by the way of the load.
#[derive(Debug)]
struct Ladder(Way);

impl Experiment for Ladder {
    fn description(&self) -> Description {
        Description {
            name: "ladder",
            title: "The ladder of offloads: what each step adds",
            steps: true,
            note: Some(
                "Checksum offload is switched at both ends; without it the receiving guest verifies checksums itself. The guest \
                 does LSO, and RSC works toward the guest, so LSO has an effect when the guest sends and RSC when it receives. The \
                 limits are length-limit 25 and ack-limit 2.",
            ),
            wiring: Wiring { way: self.0, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        STEPS.map(|(name, label)| Arm { name: name.into(), label: label.into() }).into()
    }

    fn switch(
        &self,
        topology: &mut Topology,
        daemon: &mut Daemon,
        arm: &str,
    ) -> Result<(), LabError> {
        let height = STEPS.iter().position(|(name, _)| *name == arm).unwrap_or(0);
        let has = |step| height >= step;
        for link in [WIRE, VNIC] {
            topology.host_of(link).set_offloads(link, &[(LinkOffload::TxCsum, has(1))])?;
        }
        topology.guest().set_offloads(VNIC, &[(LinkOffload::Tso, has(2))])?;
        daemon.vnic.set_rsc(has(3))?;
        let (length, ack) = LIMITS;
        daemon.vnic.change(&json!({
            "length-limit": has(4).then_some(length),
            "ack-limit": has(4).then_some(ack),
        }))
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace ladder`: first the guest sends, then it receives.
pub fn campaign(options: &Options) -> Campaign {
    let of = |experiment: &'static Ladder| {
        let plan = experiment.plan(options.mtu, options.interval, options.stop());
        let counts = options.connections.iter();
        let load = counts.map(|count| Load::bulk(*count));
        load.map(move |load| Point { experiment, load, plan: plan.clone() })
    };
    let points = [&Ladder(Way::FromVnic), &Ladder(Way::ToVnic)].into_iter().flat_map(of).collect();
    Campaign::new(&Ladder(Way::ToVnic), points)
}

/// Proves the steps: a sending guest's frames must grow at the step of LSO and not before, a
/// receiving guest's at that of RSC.
fn proof(case: &Case) -> Option<Check> {
    let (key, before, after) = match case.setting.way? {
        Way::FromVnic => ("ingress_frame_bytes", "checksum", "lso"),
        Way::ToVnic => ("segments_per_train", "lso", "rsc"),
    };
    let (low, high) = (case.median(before, key)?, case.median(after, key)?);
    let seen = format!("{key} is {low:.2} at the step before and {high:.2} with {after}");
    proven(high > 1.3 * low, seen)
}
