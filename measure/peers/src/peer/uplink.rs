//! The uplink of a switch under test: one end of a veth pair in our network namespace.

use serde::Serialize;

/// Name of the device that the switch takes frames from.
pub(crate) const UPLINK: &str = "uplink";

/// How a switch takes frames from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Driver {
    /// A packet socket with a mapped ring.
    Packet,
    /// AF_XDP in native mode; a veth copies.
    Xdp,
}

/// An uplink, and what coalesces the frames that arrive on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Uplink {
    pub(crate) driver: Driver,
    /// Whether Millrace coalesces toward its guests; Open vSwitch cannot.
    pub(crate) rsc: bool,
    /// Whether the kernel coalesces before the switch; only Millrace accepts such frames.
    pub(crate) gro: bool,
}
