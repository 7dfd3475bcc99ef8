//! Two wires for a switch with a team as its uplink: the outer host's link is a bridge of both,
//! like a physical switch that does not know of the team. Each wire carries [`RATE`] from the
//! switch, so that the wires limit the throughput, and not the machine.

use super::{RECEIVER, Topology, UPLINK, WIRE, address, offloads, wire};
use crate::LabError;

/// The devices of the team.
pub(crate) const MEMBERS: [&str; 2] = [UPLINK, "uplink1"];
/// Their other ends.
const OUTER: [&str; 2] = ["outer0", "outer1"];
/// Rate of a wire, in `tc`'s notation and in megabits per second.
pub(crate) const RATE: (&str, f64) = ("200mbit", 200.0);

/// Returns the other end of a member's wire.
pub(crate) fn other_end(member: &str) -> Option<&'static str> {
    MEMBERS.iter().zip(OUTER).find(|(name, _)| **name == member).map(|(_, outer)| outer)
}

impl Topology {
    /// Connects both wires. The guest sends, and the switch does not run yet.
    pub(super) fn connect_team(&mut self) -> Result<(), LabError> {
        let (mtu, switch) = (self.mtu, self.switch.process());
        let outer = &mut self.receiver;
        outer.run(&format!("ip link set {WIRE} down"))?;
        outer.run(&format!("ip address flush dev {WIRE}"))?;
        outer.run(&format!("ip link set {WIRE} name {}", OUTER[0]))?;
        wire(outer, OUTER[1], MEMBERS[1], switch, mtu)?;
        outer.run(&format!("ip link add {WIRE} type bridge"))?;
        for link in OUTER {
            outer.run(&format!("ip link set {link} mtu {mtu} master {WIRE} up"))?;
            // Without coalescing the bridge counts frames as they were on the wire.
            outer.set_offloads(link, &offloads(false, false))?;
        }
        outer.run(&format!("ip link set {WIRE} mtu {mtu} up"))?;
        address(outer, WIRE, 77, RECEIVER)?;
        for link in MEMBERS {
            self.switch.run(&format!("ip link set {link} mtu {mtu} up"))?;
            self.switch.set_offloads(link, &offloads(false, false))?;
            let rate = RATE.0;
            self.switch.run(&format!(
                "tc qdisc add dev {link} root tbf rate {rate} burst 64kb latency 20ms"
            ))?;
        }
        Ok(())
    }
}
