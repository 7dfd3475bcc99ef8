//! AF_XDP: the same uplink by a packet port and by an xdp port.

use super::{Feature, PLAIN};
use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::Check;
use crate::topology::{Topology, UPLINK};
use crate::validate::stepped;
use serde_json::json;

/// The arms, the second on the first; they are called as the keys that name the device.
const ARMS: [&str; 2] = ["packet", "xdp"];

const FEATURE: &Feature = &Feature {
    name: "xdp",
    title: "AF_XDP: the uplink by a packet port or by an xdp port",
    steps: true,
    switch: |_, daemon, arm| switch(daemon, arm),
    checks,
    note: Some(
        "RSC is on in both arms, and so is the sender's checksum offload. Opening an uplink in another way loses what is on its way, so \
         each arm is given a second before it is measured.",
    ),
    ..PLAIN
};

/// `millrace validate xdp`.
pub fn campaign(options: &Options) -> Campaign {
    let labels = ["AF_PACKET", "AF_XDP"].map(str::to_owned);
    stepped(FEATURE, options, ARMS.into_iter().zip(labels), Vec::new())
}

/// An error where the uplink is not what the arm says, as where AF_XDP cannot be had.
fn switch(daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
    let device = |key| (arm == key).then_some(UPLINK);
    daemon.reopen(&json!({ "packet": device("packet"), "xdp": device("xdp") }), &json!({}))?;
    let uplink = daemon.uplink()?;
    let is_so = uplink.device.starts_with(arm) && !uplink.device.ends_with("(by packet)");
    let why = || {
        format!(
            "the uplink is {} where {arm} was set: {}",
            uplink.device,
            uplink.degraded.join("; ")
        )
    };
    is_so.then_some(()).ok_or_else(|| LabError::Switch(why()))
}

/// What the uplink is in each arm.
fn checks(_: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    let mut seen = Vec::new();
    for arm in ARMS.into_iter().rev() {
        switch(daemon, arm)?;
        seen.push(daemon.uplink()?.device);
    }
    Ok(vec![Check { name: "The uplink's device".into(), passed: true, seen: seen.join(", then ") }])
}
