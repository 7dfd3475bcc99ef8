//! An offload of the guest's own link, on against off, as `lso` and `checksum` measure it. The
//! guest sends.

use crate::LabError;
use crate::plan::ON;
use crate::report::Check;
use crate::topology::{Topology, VNIC};
use ports::link::LinkOffload;

/// An offload and its name.
pub(super) struct GuestOffload {
    pub(super) which: LinkOffload,
    /// Name in the report.
    pub(super) words: &'static str,
}

impl GuestOffload {
    /// Brings an arm into force.
    pub(super) fn switch(&self, topology: &mut Topology, arm: &str) -> Result<(), LabError> {
        topology.guest().set_offloads(VNIC, &[(self.which, arm == ON)])
    }

    /// Checks that the vNIC turns the offload off and on.
    pub(super) fn check(&self, topology: &mut Topology) -> Result<Vec<Check>, LabError> {
        let mut states = [true, false];
        for (on, seen) in [false, true].into_iter().zip(&mut states) {
            topology.guest().set_offloads(VNIC, &[(self.which, on)])?;
            *seen = topology.guest().offload(VNIC, self.which)?;
        }
        let word = |on| if on { "on" } else { "off" };
        let [off, on] = states.map(word);
        let name = format!("{} of the guest's vNIC", self.words);
        let seen = format!("turned off it is {off}, turned on it is {on}");
        Ok(vec![Check { name, passed: states == [false, true], seen }])
    }
}
