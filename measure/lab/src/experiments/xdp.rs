//! AF_XDP: the same uplink as an xdp port and as a packet port, with RSC on and off, beside a Linux
//! bridge with GRO on and off.

use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment};
use crate::options::Options;
use crate::report::Check;
use crate::topology::{Route, Topology, UPLINK, Wiring};
use crate::{LabError, peers};
use serde_json::json;

/// The arms, of which the first is compared with each other one: name, label, the key that names
/// the device, and whether RSC is on.
const ARMS: [(&str, &str, &str, bool); 4] = [
    ("xdp", "AF_XDP", "xdp", true),
    ("packet", "AF_PACKET", "packet", true),
    ("xdp_rsc_off", "AF_XDP, RSC off", "xdp", false),
    ("packet_rsc_off", "AF_PACKET, RSC off", "packet", false),
];

/// `millrace validate xdp`.
#[derive(Debug)]
pub(crate) struct Xdp;

impl Experiment for Xdp {
    fn description(&self) -> Description {
        Description {
            name: "xdp",
            title: "AF_XDP: the uplink as a packet port or as an xdp port",
            note: Some(
                "The sender's checksum offload is on in all arms. Reopening an uplink loses frames in flight, so each arm runs for a second before \
                 it is measured.",
            ),
            wiring: Wiring { bridge: true, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        switch(daemon, arm)
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        checks(topology, daemon)
    }
}

/// Returns the campaign of `millrace validate xdp`.
pub fn campaign(options: &Options) -> Campaign {
    let own = ARMS.map(|(name, label, ..)| (name, label.to_owned()));
    let mut campaign = Campaign::reopening(&Xdp, options, own.into_iter(), Vec::new());
    for point in &mut campaign.points {
        let bridges =
            peers::arms(false).filter(|arm| peers::setup(&arm.name).route == Route::Bridge);
        point.plan.arms.extend(bridges);
    }
    campaign
}

/// Brings an arm into force.
///
/// # Errors
/// The uplink is not of the arm's kind, for example because AF_XDP is not available.
fn switch(daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
    let known = ARMS.iter().find(|(name, ..)| *name == arm);
    let (kind, rsc) = known.map_or((arm, true), |(.., kind, rsc)| (*kind, *rsc));
    daemon.vnic.set_rsc(rsc)?;
    let device = |key| (kind == key).then_some(UPLINK);
    daemon.reopen(&json!({ "packet": device("packet"), "xdp": device("xdp") }), &json!({}))?;
    let uplink = daemon.uplink()?;
    let is_so = uplink.device.starts_with(kind) && !uplink.device.ends_with("(by packet)");
    let why = || {
        format!(
            "the uplink is {} where {kind} was set: {}",
            uplink.device,
            uplink.degraded.join("; ")
        )
    };
    is_so.then_some(()).ok_or_else(|| LabError::Switch(why()))
}

/// Checks the uplink's device in each arm.
fn checks(_: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    let mut seen = Vec::new();
    let mut passed = true;
    for (arm, _, kind, _) in ARMS.into_iter().take(2).rev() {
        switch(daemon, arm)?;
        let device = daemon.uplink()?.device;
        passed &= device.starts_with(kind);
        seen.push(device);
    }
    Ok(vec![Check { name: "The uplink's device".into(), passed, seen: seen.join(", then ") }])
}
