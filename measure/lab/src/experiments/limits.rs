//! Coalescing limits: trains as long as IP allows, against trains of at most four segments, and
//! against the limits of FreeBSD's driver for Hyper-V.
//!
//! FreeBSD's hn(4) has such limits per connection, because very long trains mean few
//! acknowledgements. Four segments show what a limit costs at most.

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

/// Limits of FreeBSD's hn(4), by the slides of its authors: payload of a train in multiples of the
/// MTU, and acknowledgements that end one.
pub(super) const SLIDES: (u8, u16) = (25, 2);

/// Name of the arm with [`SLIDES`].
const SLIDES_ARM: &str = "slides";

/// `millrace validate limits`.
#[derive(Debug)]
pub(crate) struct Limits;

impl Experiment for Limits {
    fn description(&self) -> Description {
        Description {
            name: "limits",
            title: "RSC: unlimited trains or short ones",
            note: Some(
                "25 x MTU and 2 acknowledgements are what FreeBSD's driver for Hyper-V allows by default, by the slides of its authors. No \
                 document has the limit of 4 segments: it shows what short trains cost.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        let (length, ack) = SLIDES;
        let mut arms = on_off("RSC without limits", format!("RSC with length-limit {SEGMENTS}"));
        arms.push(Arm {
            name: SLIDES_ARM.into(),
            label: format!("RSC with the slides' limits, {length} x MTU and {ack} ACKs"),
        });
        arms
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
    let (length, ack) = match arm {
        OFF => (Some(SEGMENTS), None),
        SLIDES_ARM => (Some(SLIDES.0), Some(SLIDES.1)),
        _ => (None, None),
    };
    json!({ "length-limit": length, "ack-limit": ack })
}

fn proof(case: &Case) -> Option<Check> {
    let depth = |arm| case.median(arm, "segments_per_train");
    let (on, off, slides) = (depth(ON)?, depth(OFF)?, depth(SLIDES_ARM)?);
    let seen = format!(
        "{on:.2} segments per frame to the receiver without limits, {off:.2} with length-limit {SEGMENTS}, {slides:.2} with \
         length-limit {} and ack-limit {}",
        SLIDES.0, SLIDES.1
    );
    proven(on > off && slides > off && off <= most(SEGMENTS) && slides <= most(SLIDES.0), seen)
}

/// Returns the most segments of a train with a length limit: so many MTUs are a little more payload
/// than as many segments have.
fn most(mtus: u8) -> f64 {
    f64::from(mtus) * 1500.0 / 1428.0 + 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    #[test]
    fn each_arm_proves_its_own_limit() {
        let stop = StopRule { repetitions: 2, narrow: None, least: 1 };
        let plan = Limits.plan(1500, Duration::from_secs(1), stop);
        let passes = |depths: [f64; 3]| {
            let figures =
                |_, place: usize| Values::from([("segments_per_train".to_owned(), depths[place])]);
            proof(&case_of(&plan, 2, figures)).unwrap().passed
        };
        assert!(passes([40.0, 4.1, 25.9]));
        assert!(passes([20.0, 4.1, 20.0]), "trains may stay below 25 MTUs by themselves");
        assert!(!passes([40.0, 40.0, 25.9]) && !passes([40.0, 4.1, 40.0]));
        assert!(!passes([4.0, 4.1, 4.1]) && !passes([40.0, 4.1, 4.1]));
    }

    #[test]
    fn an_arm_says_both_keys_so_that_the_one_before_leaves_nothing() {
        let all = Limits.arms(1500).into_iter().map(|arm| change(&arm.name));
        let wanted = [
            json!({ "length-limit": null, "ack-limit": null }),
            json!({ "length-limit": 4, "ack-limit": null }),
            json!({ "length-limit": 25, "ack-limit": 2 }),
        ];
        assert_eq!(all.collect::<Vec<_>>(), wanted);
    }
}
