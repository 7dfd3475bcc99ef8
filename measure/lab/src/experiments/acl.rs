//! Port ACLs: a hundred rules toward the guest, of which the last decides, against none.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment};
use crate::measure::NO_WORSE;
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::Check;
use crate::topology::{Route, Topology};
use serde_json::{Value, json};

/// Rules of the arm with rules.
const RULES: usize = 100;
/// The last rule, which decides about every frame because no other matches.
const LAST: &str = "allow out";

/// `millrace validate acl`. Here the arm that should not be worse is the one with rules.
#[derive(Debug)]
pub(crate) struct Acl;

impl Experiment for Acl {
    fn description(&self) -> Description {
        Description {
            name: "acl",
            title: "Port ACLs: a hundred rules or none",
            measures: NO_WORSE,
            note: Some(
                "Measures the cost of rules. The hoped-for result is no difference above 5 %.",
            ),
            ..Description::PLAIN
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off(format!("{RULES} ACL rules"), "No ACL")
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        daemon.vnic.change(&change(arm))
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        checks(topology, daemon)
    }
}

/// Returns the campaign of `millrace validate acl`.
pub fn campaign(options: &Options) -> Campaign {
    Campaign::by_connections(&Acl, options)
}

/// Returns the change that brings an arm into force at the vNIC's port. The addresses are for
/// documentation (RFC 5737), so no frame has them.
fn change(arm: &str) -> Value {
    let deny = |number| {
        format!(
            "deny out tcp from 198.51.100.{number} to 192.0.2.{number} port 1-{}",
            1000 + number
        )
    };
    let rules = (1..RULES).map(deny).chain([LAST.to_owned()]);
    json!({ "acl": (arm == ON).then(|| rules.collect::<Vec<_>>()) })
}

/// Checks that the last rule decides about a ping, and that no rule is left in the arm without.
fn checks(topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    daemon.vnic.change(&change(OFF))?;
    let without = daemon.vnic.acl()?.rules.len();
    daemon.vnic.change(&change(ON))?;
    let to = topology.address(Route::Switch);
    topology.sender.run(&format!("ping -n -c 1 -W 1 {to}"))?;
    let rules = daemon.vnic.acl()?.rules;
    let decided = rules.last().map_or(0, |rule| rule.hits);
    let rules = rules.len();
    let passed = without == 0 && rules == RULES && decided > 0;
    let seen = format!(
        "{rules} rules, the last of which decided {decided} frames of a ping; {without} rules without an ACL"
    );
    Ok(vec![Check { name: "Rules of the vNIC's port".into(), passed, seen }])
}
