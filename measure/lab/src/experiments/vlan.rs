//! VLANs: the guest's port as an access port, or as a trunk with the same untagged VLAN.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment};
use crate::measure::NO_WORSE;
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::Check;
use crate::topology::Topology;
use serde_json::{Value, json};

/// VLANs that the trunk allows beside its untagged one.
const ALLOWED: &str = "1-4094";

/// `millrace validate vlan`. Here the arm that should not be worse is the trunk.
#[derive(Debug)]
pub(crate) struct Vlan;

impl Experiment for Vlan {
    fn description(&self) -> Description {
        Description {
            name: "vlan",
            title: "VLANs: a trunk or an access port",
            measures: NO_WORSE,
            note: Some(
                "The load is untagged in both arms. The hoped-for result is no difference above 5 %.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off(format!("A trunk of VLANs {ALLOWED}"), "An access port")
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.vnic.change(&change(arm))
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        checks(topology, daemon)
    }
}

/// Returns the campaign of `millrace validate vlan`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Vlan, options)
}

/// Returns the change that brings an arm into force at the vNIC's port.
fn change(arm: &str) -> Value {
    json!({ "trunk": (arm == ON).then_some(ALLOWED) })
}

/// Checks that the port is a trunk or an access port in each arm.
fn checks(_: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    let mut seen = Vec::new();
    for arm in [OFF, ON] {
        daemon.vnic.change(&change(arm))?;
        seen.push(daemon.vnic.body()?.vlan);
    }
    Ok(vec![Check {
        name: "VLANs of the vNIC's port".into(),
        passed: seen.iter().zip(["untagged", "trunk"]).all(|(seen, kind)| seen.starts_with(kind)),
        seen: seen.join(", then "),
    }])
}
