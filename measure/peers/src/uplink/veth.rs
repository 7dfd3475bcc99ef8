// UNSAFETY: `unshare` can separate threads from what they share; here it separates the main thread
// from the network only.
//! The wire to the uplink: a veth pair in a network namespace of this program, in which the
//! switches of this case run too.
//!
//! The uplink receives frames as from a physical device: of MTU size, with complete checksums. So
//! the kernel segments and computes checksums on the sender's side, in software and on the sender's
//! processor.
#![allow(unsafe_code)]

use crate::peer::UPLINK;
use crate::process::output;
use anyhow::{Context, Result};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::process::Command;

/// The device that the generator sends from.
pub(super) const SENDER: &str = "sender";

/// Moves the calling thread, and every process that it starts, into a network namespace of its own,
/// which ends with them.
pub(super) fn leave_network() -> Result<()> {
    // SAFETY: no descriptor is affected, and the other threads of this program use no network.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context("a network namespace needs root")?;
    // Without IPv6 addresses the kernel sends no frames of its own.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").context("disabling IPv6")
}

/// The veth pair. Dropping it removes both devices.
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
        // Devices that remain end with the namespace.
        let _ = run(&["ip", "link", "del", SENDER]);
    }
}

fn run(line: &[&str]) -> Result<()> {
    output(Command::new(line[0]).args(&line[1..])).map(drop)
}
