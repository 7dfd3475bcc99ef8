//! Whether the kernel may carry flows between two ports (`ports::kernel_path`): by their settings,
//! here; by the frame, in [`stage::carry`](crate::stage::carry).
//!
//! A setting that is new is in neither list below, and does not compile: whoever adds it decides.

use crate::port::view::Port;
use crate::settings::acl::AclAction;
use crate::settings::{PortRole, PortSettings, Rsc, RscPolicy};
use std::fmt;

/// Why the switch itself has to forward the frames of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slow {
    /// The port's device has no attachment to the kernel path.
    NoHook,
    /// `kernel-path` is off.
    Off,
    /// What its guest says about checksums cannot be checked on this host.
    Unchecked,
    /// A capture or a mirror sees the port's frames.
    Watched,
    /// The port has a `rate` or `rate-to`.
    Rate,
    /// Ports share an uplink by weights, or the port's frames wait for room.
    Shared,
    /// A rule marks frames.
    Marks,
    /// Trains above 64 KiB came from it lately, which the kernel's programs leave to the switch.
    BigTrains,
    /// Coalescing toward the port is off or limited: the kernel would deliver trains as they are.
    Coalescing,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Slow::NoHook => "its device is not on the kernel path",
            Slow::Off => "`kernel-path` of the port is off",
            Slow::Unchecked => {
                "the kernel cannot check here what its guest says about checksums: see `millrace check`"
            }
            Slow::Watched => "a capture or mirror sees its frames",
            Slow::Rate => "it has a rate",
            Slow::Shared => "its frames are weighted or wait for room",
            Slow::Marks => "one of its rules marks frames",
            Slow::BigTrains => {
                "trains above 64 KiB come from it: set its device's `gso_max_size` or `gro_max_size` to 65536"
            }
            Slow::Coalescing => "RSC toward it is off or limited",
        })
    }
}

/// What applies to both directions.
fn why_slow(port: &Port) -> Option<Slow> {
    let is_watched = port.capture.is_some() || port.settings.mirror_to.is_some();
    let off = (!port.settings.kernel_path).then_some(Slow::Off);
    off.or_else(|| is_watched.then_some(Slow::Watched))
}

/// Returns why flows from a port are the switch's. `None`: the kernel may carry them.
pub(crate) fn why_slow_from(port: &Port) -> Option<Slow> {
    let PortSettings {
        rate,
        acl,
        back_pressure,
        role,
        // These decide by what is in a flow's key, or about frames that are never carried.
        mtu: _,
        path_mtu: _,
        vlan: _,
        mac: _,
        mac_guard: _,
        mac_limit: _,
        storm: _,
        isolated: _,
        transit: _,
        guards: _,
        // These are part of `why_slow` and `waits`, or apply to the other direction.
        kernel_path: _,
        mirror_to: _,
        weight: _,
        rate_to: _,
        rsc: _,
        rss: _,
    } = &port.settings;
    let marks = || acl.iter().any(|rule| matches!(rule.action, AclAction::Mark(_)));
    let hook = port.shared.hook.as_ref();
    let unchecked = *role == PortRole::Vnic && hook.is_some_and(|hook| !hook.is_checked());
    let makes_big = || hook.is_some_and(|hook| hook.makes_big_trains());
    why_slow(port)
        .or_else(|| unchecked.then_some(Slow::Unchecked))
        .or_else(|| rate.is_some().then_some(Slow::Rate))
        .or_else(|| (*back_pressure || port.waits).then_some(Slow::Shared))
        .or_else(|| marks().then_some(Slow::Marks))
        .or_else(|| makes_big().then_some(Slow::BigTrains))
}

/// Returns why flows to a port are the switch's. `None`: the kernel may carry them.
pub(crate) fn why_slow_to(port: &Port) -> Option<Slow> {
    let PortSettings { rate_to, rsc, role, .. } = &port.settings;
    let coalesces = *role == PortRole::Uplink || is_whole(rsc);
    why_slow(port)
        .or_else(|| rate_to.is_some().then_some(Slow::Rate))
        .or_else(|| port.is_weighted.then_some(Slow::Shared))
        .or_else(|| (!coalesces).then_some(Slow::Coalescing))
}

/// Returns whether coalescing has no limit that the kernel's trains could exceed.
fn is_whole(rsc: &Rsc) -> bool {
    let Rsc { policy, ipv4, ipv6, length_limit_mtus, ack_limit, flows: _ } = *rsc;
    policy != RscPolicy::Off && ipv4 && ipv6 && length_limit_mtus == 0 && ack_limit == 0
}
