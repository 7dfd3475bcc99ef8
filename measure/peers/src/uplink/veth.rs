// UNSAFETY: `unshare` can part threads from what they share; here it parts the main thread from the
// network only.
//! The wire to the uplink: a pair of devices in a network namespace of ours, in which the switches
//! of these cases run too.
//!
//! The uplink sees what a network device would bring it: frames of MTU size with finished
//! checksums. So the kernel segments and sums on the sender's side, in software and on the sender's
//! processor.
#![allow(unsafe_code)]

use crate::process::output;
use anyhow::{Context, Result};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::process::Command;

/// The device that the generator sends from.
pub(super) const SENDER: &str = "sender";
/// The device that the switch takes from.
pub(crate) const UPLINK: &str = "uplink";

/// Moves the calling thread, and every process that it starts, into a network namespace of its own,
/// which ends with them.
pub(super) fn leave_network() -> Result<()> {
    // SAFETY: no descriptor is affected, and the other threads of this program use no network.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context("a network namespace needs root")?;
    // Without addresses of IPv6 the kernel sends nothing of its own.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").context("disabling IPv6")
}

/// The pair. Dropping it removes both devices.
pub(super) struct Veth;

impl Veth {
    /// Creates both devices. With `gro` the kernel coalesces at the uplink before any switch sees a
    /// frame.
    pub(super) fn new(gro: bool) -> Result<Veth> {
        let gro = if gro { "on" } else { "off" };
        run(&["ip", "link", "add", SENDER, "type", "veth", "peer", "name", UPLINK])?;
        let veth = Veth;
        run(&["ethtool", "-K", SENDER, "tx", "off", "tso", "off"])?;
        run(&["ethtool", "-K", UPLINK, "gro", gro])?;
        run(&["ip", "link", "set", SENDER, "up"])?;
        run(&["ip", "link", "set", UPLINK, "up"])?;
        Ok(veth)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // Devices that stay end with the namespace.
        let _ = run(&["ip", "link", "del", SENDER]);
    }
}

fn run(line: &[&str]) -> Result<()> {
    output(Command::new(line[0]).args(&line[1..])).map(drop)
}
