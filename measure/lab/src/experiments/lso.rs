//! LSO: the guest sends, and passes whole trains to the switch, or one frame at a time.
//!
//! With LSO off the guest's own stack cuts every send into frames of its MTU, each of which goes to
//! the switch by itself. At the uplink both arms are alike: it takes trains if the kernel behind it
//! does, and otherwise the switch segments them.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::experiments::guest_offload::GuestOffload;
use crate::load::Way;
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::{Case, Check};
use crate::topology::{Topology, Wiring};
use ports::link::LinkOffload;

const LSO: GuestOffload = GuestOffload { which: LinkOffload::Tso, words: "LSO" };

/// `millrace validate lso`.
#[derive(Debug)]
pub(crate) struct Lso;

impl Experiment for Lso {
    fn description(&self) -> Description {
        Description {
            name: "lso",
            title: "LSO of the guest: on against off",
            note: Some("The guest is the sender here: its processor time is what LSO saves first."),
            wiring: Wiring { way: Way::FromVnic, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off("LSO Enabled", "LSO Disabled")
    }

    fn switch(&self, topology: &mut Topology, _: &mut Daemon, arm: &str) -> Result<(), LabError> {
        LSO.switch(topology, arm)
    }

    fn checks(&self, topology: &mut Topology, _: &mut Daemon) -> Result<Vec<Check>, LabError> {
        LSO.check(topology)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate lso`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Lso, options)
}

fn proof(case: &Case) -> Option<Check> {
    let size = |arm| case.median(arm, "ingress_frame_bytes");
    let (on, off) = (size(ON)?, size(OFF)?);
    let seen = format!("{on:.0} bytes per frame from the guest with LSO on, {off:.0} with LSO off");
    proven(on > 2.0 * off, seen)
}
