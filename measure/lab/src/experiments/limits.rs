//! Coalescing limits: trains as long as IP allows, against trains of at most four segments.
//!
//! FreeBSD's hn(4) has such limits per connection, because very long trains mean few
//! acknowledgements.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::{Case, Check};
use crate::running::Toggle;
use crate::topology::Topology;
use serde_json::{Value, json};

/// Payload of a limited train, in multiples of the MTU.
const SEGMENTS: u8 = 4;

/// `millrace validate limits`.
#[derive(Debug)]
pub(crate) struct Limits;

impl Experiment for Limits {
    fn description(&self) -> Description {
        Description {
            name: "limits",
            title: "RSC: unlimited trains or short ones",
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off("RSC without limits", format!("RSC with length-limit {SEGMENTS}"))
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.vnic.change(&change(arm))
    }

    fn toggle(&self) -> Option<Toggle> {
        Some(|port, arm| {
            port.set_rsc(true)?;
            port.change(&change(arm))
        })
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate limits`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Limits, options)
}

/// Returns the change that brings an arm into force at the vNIC's port.
fn change(arm: &str) -> Value {
    json!({ "length-limit": (arm == OFF).then_some(SEGMENTS) })
}

fn proof(case: &Case) -> Option<Check> {
    let depth = |arm| case.median(arm, "segments_per_train");
    let (on, off) = (depth(ON)?, depth(OFF)?);
    let seen = format!(
        "{on:.2} segments per frame to the receiver without limits, {off:.2} with length-limit {SEGMENTS}"
    );
    // Four MTUs are a little more payload than four segments have.
    proven(on > off && off <= f64::from(SEGMENTS) + 0.5, seen)
}
