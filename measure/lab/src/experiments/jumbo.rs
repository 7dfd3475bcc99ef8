//! Jumbo frames against MTU 1500: every link of the way is switched under running connections.
//!
//! Connections begin with jumbo frames and keep running: a TCP that began with large segments
//! follows its link's MTU down and up, one that began with small ones never grows. First a full
//! frame of each size is sent end to end, and one byte more must be refused. If a full frame is
//! lost, the error names the hop.
//!
//! Between existing hosts no link is changed: the path is measured at the MTU that it has, against
//! connections that limit their segments to those of MTU 1500 (MSS). That needs no rights on the far
//! host. TCP agrees on the limit when it connects, so connections are opened anew for each arm.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::existing_hosts::bench::SEGMENT_BYTES;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::experiments::two_paths::WhichIsWhich;
use crate::load::Way;
use crate::options::Options;
use crate::plan::{Arm, OFF, ON, on_off};
use crate::report::{Case, Check};
use crate::topology::{
    GUEST, LARGEST_STANDARD_FRAME, Route, STANDARD_MTU, Topology, UPLINK, VNIC, WIRE,
};
use crate::vnic::Vnic;

/// IPv4 and ICMP headers of a ping, in bytes.
const PING_HEADERS: u16 = 28;
/// Hops that count a frame on its way, in order; the last entry is beyond those that count.
const HOPS: [&str; 4] = [
    "wire0 of the sender",
    "uplink0, where the switch receives it",
    "the switch, before vnic0",
    "vnic0 of the receiver, or on the way back",
];

/// `millrace validate jumbo`.
#[derive(Debug)]
pub(crate) struct Jumbo;

impl Experiment for Jumbo {
    fn description(&self) -> Description {
        Description {
            name: "jumbo",
            title: "Jumbo frames: on against off",
            note: Some("RSC has its default in both arms, so this is what jumbo frames add to it."),
            ..Description::PLAIN
        }
    }

    fn arms(&self, mtu: u16) -> Vec<Arm> {
        on_off(format!("Jumbo frames, MTU {mtu}"), format!("No jumbo frames, MTU {STANDARD_MTU}"))
    }

    fn switch(
        &self,
        topology: &mut Topology,
        daemon: &mut Daemon,
        arm: &str,
    ) -> Result<(), LabError> {
        switch(topology, daemon, arm == ON)
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        checks(topology, daemon)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// `millrace validate jumbo` between existing hosts.
#[derive(Debug)]
pub(crate) struct PathAsItIs;

impl Experiment for PathAsItIs {
    fn description(&self) -> Description {
        Description {
            title: "Jumbo frames between hosts: the path's MTU against segments for MTU 1500",
            note: Some(
                "No link was changed. In the second arm the sender's connections limit their segments (MSS), as if the path had MTU 1500; \
                 connections are opened anew for each arm.",
            ),
            ..Jumbo.description()
        }
    }

    fn arms(&self, _mtu: u16) -> Vec<Arm> {
        on_off("The path's own MTU", format!("Segments for MTU {STANDARD_MTU}"))
    }

    fn changes_nothing(&self) -> bool {
        true
    }

    fn segments_for(&self, arm: &str) -> Option<u16> {
        (arm == OFF).then_some(STANDARD_MTU)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof_of_segments)
    }
}

/// Returns the campaign of `millrace validate jumbo`.
pub fn campaign(options: &Options) -> Campaign {
    match options.existing_hosts {
        Some(_) => Campaign::by_connections(&PathAsItIs, options),
        None if options.jumbo.two_paths => Campaign::by_connections(&WhichIsWhich, options),
        None => Campaign::by_connections(&Jumbo, options),
    }
}

/// Most bytes per segment with the limit: those of MTU 1500, and a tenth for what the receiver's
/// count, which is read after the sender's, is ahead.
const LIMITED: f64 = 1.1 * STANDARD_MTU as f64;

/// Proves that the path carried larger segments than those of MTU 1500, which says what its MTU is.
fn proof_of_segments(case: &Case) -> Option<Check> {
    let (on, off) = (case.median(ON, SEGMENT_BYTES)?, case.median(OFF, SEGMENT_BYTES)?);
    let passed = on > 1.1 * off && off <= LIMITED;
    let remedy = match passed {
        true => "",
        false => {
            "; if the path has no jumbo frames, there is nothing to compare: `millrace mtu check` names the hop that limits it"
        }
    };
    let seen =
        format!("{on:.0} bytes per TCP segment at the path's MTU, {off:.0} with the limit{remedy}");
    proven(passed, seen)
}

/// Switches every link's MTU. The sender changes last on the way up and first on the way down, so
/// that no link receives a frame too large for it.
fn switch(topology: &mut Topology, daemon: &Daemon, on: bool) -> Result<(), LabError> {
    let mtu = if on { topology.mtu } else { STANDARD_MTU };
    if !on {
        topology.sender.set_mtu(WIRE, mtu)?;
    }
    topology.switch.set_mtu(UPLINK, mtu)?;
    daemon.set_mtu(mtu)?;
    if topology.vnic == Vnic::Veth {
        topology.switch.set_mtu(GUEST, mtu)?;
        topology.receiver.set_mtu(VNIC, mtu)?;
    }
    if on {
        topology.sender.set_mtu(WIRE, mtu)?;
    }
    Ok(())
}

fn checks(topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    switch(topology, daemon, false)?;
    let small = passes(topology, daemon, STANDARD_MTU)?;
    switch(topology, daemon, true)?;
    let large = passes(topology, daemon, topology.mtu)?;
    Ok(vec![small, large])
}

/// Checks that a packet of the MTU passes and a larger one does not, both unfragmented.
fn passes(topology: &mut Topology, daemon: &Daemon, mtu: u16) -> Result<Check, LabError> {
    let before = bytes_by_hop(topology, daemon)?;
    if !answered(topology, mtu)? {
        let hop = lost_at(before, bytes_by_hop(topology, daemon)?, mtu);
        return Err(LabError::FrameLost { mtu, hop });
    }
    let larger = answered(topology, mtu + 1)?;
    let (above, fate) = (mtu + 1, if larger { "passes too" } else { "is refused" });
    let seen = format!(
        "an IP packet of {mtu} bytes passes end to end unfragmented, one of {above} {fate}"
    );
    Ok(Check { name: format!("A full frame of MTU {mtu}"), passed: !larger, seen })
}

/// Whether the receiver answers packets of this size that must not be fragmented.
fn answered(topology: &mut Topology, bytes: u16) -> Result<bool, LabError> {
    let to = topology.address(Route::Switch);
    let payload = bytes.saturating_sub(PING_HEADERS);
    let line = format!("ping -n -M do -c 3 -i 0.2 -W 1 -s {payload} {to}");
    match topology.sender.run(&line) {
        Ok(_) => Ok(true),
        Err(LabError::Command { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the bytes counted so far at each hop.
fn bytes_by_hop(topology: &mut Topology, daemon: &Daemon) -> Result<[u64; 3], LabError> {
    let passed = daemon.switch_counters(Way::ToVnic)?;
    let sent = topology.sender.read(WIRE)?.sent_bytes;
    Ok([sent, passed.ingress.ingress_bytes, passed.egress.egress_bytes])
}

/// Returns the first hop that did not count a frame of this size.
fn lost_at(before: [u64; 3], after: [u64; 3], mtu: u16) -> &'static str {
    let counted = |(before, after): (u64, u64)| after.saturating_sub(before) >= u64::from(mtu);
    let hops = before.into_iter().zip(after).take_while(|hop| counted(*hop)).count();
    HOPS.get(hops).copied().unwrap_or_default()
}

fn proof(case: &Case) -> Option<Check> {
    let size = |arm| case.median(arm, "frame_bytes_on_the_wire");
    let (on, off) = (size(ON)?, size(OFF)?);
    let seen = format!("{on:.0} bytes per frame on the wire with jumbo frames, {off:.0} without");
    proven(on > LARGEST_STANDARD_FRAME && off <= LARGEST_STANDARD_FRAME, seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{StopRule, Values};
    use crate::report::case_of;
    use std::time::Duration;

    #[test]
    fn a_path_without_jumbo_frames_is_no_comparison() {
        let stop = StopRule { repetitions: 2, narrow: None, least: 1 };
        let plan = PathAsItIs.plan(9000, Duration::from_secs(1), stop);
        let check = |bytes: [f64; 2]| {
            let figures =
                |_, place: usize| Values::from([(SEGMENT_BYTES.to_owned(), bytes[place])]);
            proof_of_segments(&case_of(&plan, 2, figures)).unwrap()
        };
        assert!(check([8900.0, 1440.0]).passed);
        let null = check([1446.0, 1440.0]);
        assert!(!null.passed && null.seen.contains("millrace mtu check"), "{null:?}");
        assert!(!check([8900.0, 8900.0]).passed, "an older agent knows no limit");
    }

    #[test]
    fn a_frame_is_lost_at_the_first_hop_that_does_not_count_it() {
        let passed = [9014, 18_028, 9014];
        for (place, hop) in HOPS.iter().enumerate() {
            let mut after = passed;
            // What else runs over a link is small.
            after.iter_mut().skip(place).for_each(|bytes| *bytes = 90);
            assert_eq!(lost_at([0; 3], after, 9000), *hop);
        }
    }
}
