//! What RSC is held against beside itself: the kernel's own coalescing before our switch, and other
//! switches. Each is an arm like the others, under the same load in the same order; one that cannot
//! run is named and the others go on.

use crate::plan::Arm;
use crate::topology::{Route, Setup};

/// Of every arm that is a feature's own.
const OWN: Setup = Setup { route: Route::Switch, coalesces: false };

/// Key, words and setup.
const PEERS: [(&str, &str, Setup); 4] = [
    ("uplink_gro", "RSC Enabled, kernel's GRO at the uplink", Setup { coalesces: true, ..OWN }),
    ("linux_bridge", "Linux bridge, GRO on", Setup { route: Route::Bridge, coalesces: true }),
    (
        "linux_bridge_no_gro",
        "Linux bridge, GRO off",
        Setup { route: Route::Bridge, coalesces: false },
    ),
    ("open_vswitch", "Open vSwitch, netdev data path", Setup { route: Route::OpenVswitch, ..OWN }),
];

/// All of them.
pub(crate) fn arms() -> impl Iterator<Item = Arm> {
    PEERS.iter().map(|(name, label, _)| Arm { name: (*name).into(), label: (*label).into() })
}

/// The setup of a peer; `None` of a feature's own arm.
pub(crate) fn of(arm: &str) -> Option<Setup> {
    PEERS.iter().find(|(name, ..)| *name == arm).map(|(.., setup)| *setup)
}

/// The setup of any arm.
pub(crate) fn setup(arm: &str) -> Setup {
    of(arm).unwrap_or(OWN)
}
