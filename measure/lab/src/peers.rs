//! Arms that RSC is compared with: the kernel's own coalescing (GRO) at our uplink, and other
//! switches. They run under the same load in the same order. An arm that cannot run is named in the
//! report, and the others go on.

use crate::plan::Arm;
use crate::topology::{Route, Setup};

/// Setup of an experiment's own arms.
const OWN: Setup = Setup { route: Route::Switch, coalesces: false };

/// Key of the Linux bridge with GRO, which most hosts would use in our place.
const BRIDGE: &str = "linux_bridge";

/// Key, label and setup of each.
const PEERS: [(&str, &str, Setup); 4] = [
    ("uplink_gro", "RSC Enabled, kernel's GRO at the uplink", Setup { coalesces: true, ..OWN }),
    (BRIDGE, "Linux bridge, GRO on", Setup { route: Route::Bridge, coalesces: true }),
    (
        "linux_bridge_no_gro",
        "Linux bridge, GRO off",
        Setup { route: Route::Bridge, coalesces: false },
    ),
    ("open_vswitch", "Open vSwitch, netdev data path", Setup { route: Route::OpenVswitch, ..OWN }),
];

/// Returns all of them as arms, or only the Linux bridge with GRO if `brief`.
pub(crate) fn arms(brief: bool) -> impl Iterator<Item = Arm> {
    PEERS
        .iter()
        .filter(move |(name, ..)| !brief || *name == BRIDGE)
        .map(|(name, label, _)| Arm { name: (*name).into(), label: (*label).into() })
}

/// Returns the setup of a peer by its arm's name; `None` for an experiment's own arm.
pub(crate) fn of(arm: &str) -> Option<Setup> {
    PEERS.iter().find(|(name, ..)| *name == arm).map(|(.., setup)| *setup)
}

/// Returns the setup of any arm.
pub(crate) fn setup(arm: &str) -> Setup {
    of(arm).unwrap_or(OWN)
}
