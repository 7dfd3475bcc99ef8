//! The network of most stories: a host far away behind an uplink, and a guest with a TAP device.
//!
//! ```text
//! far [10.9.0.1] veth uplink ── millrace ── tap0 [10.9.0.2] guest
//! ```

use crate::host::Host;
use crate::sandbox::run;
use crate::switch::Switch;
use std::net::IpAddr;

/// Two hosts and the switch between them.
pub(crate) struct Topology {
    pub(crate) switch: Switch,
    pub(crate) far: Host,
    pub(crate) guest: Host,
}

impl Topology {
    /// Starts everything and waits until it is up. The far host sends segments one by one, as over
    /// a wire. `more` is added to the configuration.
    pub(crate) fn new(more: &str) -> Topology {
        Topology::with("", more)
    }

    /// Starts the network with further keys of the uplink, a line each.
    pub(crate) fn with(uplink: &str, more: &str) -> Topology {
        Topology::by("packet", uplink, more)
    }

    /// Starts the network with an uplink of this kind.
    pub(crate) fn by(kind: &str, uplink: &str, more: &str) -> Topology {
        Topology::started(kind, uplink, more, Switch::start)
    }

    /// Starts the network with a switch that `start` starts.
    pub(crate) fn started(
        kind: &str,
        uplink: &str,
        more: &str,
        start: impl FnOnce(&str) -> Switch,
    ) -> Topology {
        let (far, guest) = (Host::new("far"), Host::new("guest"));
        run("ip link add uplink type veth peer name veth netns far");
        run("ip link set uplink up");
        far.assign_addresses("veth", FAR);
        far.run("ethtool -K veth tso off gso off");
        let switch = start(&format!(
            "[[port]]\nname = 'uplink'\n{kind} = 'uplink'\n{uplink}\
             [[port]]\nname = 'guest'\ntap = 'tap0'\nnetns = 'guest'\n{more}"
        ));
        guest.assign_addresses("tap0", GUEST);
        let topology = Topology { switch, far, guest };
        topology.wait();
        topology
    }

    /// Waits until both ports carry frames.
    pub(crate) fn wait(&self) {
        self.switch.wait_for("uplink", "up");
        self.switch.wait_for("guest", "up");
    }
}

const FAR: u8 = 1;
const GUEST: u8 = 2;

/// Which of the two protocols a story speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn far(self) -> IpAddr {
        self.address(FAR)
    }

    pub(crate) fn guest(self) -> IpAddr {
        self.address(GUEST)
    }

    fn address(self, number: u8) -> IpAddr {
        match self {
            Family::V4 => IpAddr::from([10, 9, 0, number]),
            Family::V6 => IpAddr::from([0xfd09, 0, 0, 0, 0, 0, 0, u16::from(number)]),
        }
    }
}
