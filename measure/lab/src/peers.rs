//! Arms that RSC is compared with: the kernel's own coalescing (GRO) at our uplink, and other
//! switches. They run under the same load in the same order. An arm that cannot run is named in the
//! report, and the others go on.

use crate::plan::Arm;
use crate::topology::{Route, Setup};

/// Key of the Linux bridge with GRO, which most hosts would use in our place.
const BRIDGE: &str = "linux_bridge";

/// Key of the Linux bridge with GRO that shows no frames to netfilter.
const UNFILTERED: &str = "linux_bridge_no_netfilter";

const OWN: Setup = Setup::OWN;
const WITH_GRO: Setup = Setup { route: Route::Bridge, coalesces: true, ..OWN };

/// Key, label and setup of each.
const PEERS: [(&str, &str, Setup); 5] = [
    ("uplink_gro", "RSC Enabled, kernel's GRO at the uplink", Setup { coalesces: true, ..OWN }),
    (BRIDGE, "Linux bridge, GRO on", WITH_GRO),
    ("linux_bridge_no_gro", "Linux bridge, GRO off", Setup { coalesces: false, ..WITH_GRO }),
    (UNFILTERED, "Linux bridge, GRO on, without netfilter", Setup { filters: false, ..WITH_GRO }),
    ("open_vswitch", "Open vSwitch, netdev data path", Setup { route: Route::OpenVswitch, ..OWN }),
];

/// Returns those that RSC is compared with as arms, or only the Linux bridge with GRO if `brief`.
pub(crate) fn arms(brief: bool) -> impl Iterator<Item = Arm> {
    named(move |name, _| if brief { name == BRIDGE } else { name != UNFILTERED })
}

/// Returns the Linux bridge as arms: with GRO, without, and with GRO but without netfilter.
pub(crate) fn bridges() -> impl Iterator<Item = Arm> {
    named(|_, setup| setup.route == Route::Bridge)
}

fn named(wanted: impl Fn(&str, Setup) -> bool) -> impl Iterator<Item = Arm> {
    PEERS
        .iter()
        .filter(move |(name, _, setup)| wanted(name, *setup))
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
