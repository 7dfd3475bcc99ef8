//! Two wires in place of one, for a switch whose uplink is a team: the outer host's link is a
//! bridge of both, as a switch outside is that knows nothing of the team. Either carries [`RATE`]
//! from the switch, so that it is the wires that limit and not the machine.

use super::{RECEIVER, Topology, UPLINK, WIRE, address, offloads, wire};
use crate::LabError;

/// The devices of the team.
pub(crate) const MEMBERS: [&str; 2] = [UPLINK, "uplink1"];
/// Their other ends.
const OUTER: [&str; 2] = ["outer0", "outer1"];
/// What a wire carries, as `tc` has it and in megabits a second.
pub(crate) const RATE: (&str, f64) = ("200mbit", 200.0);

/// The other end of a member's wire.
pub(crate) fn other_end(member: &str) -> Option<&'static str> {
    MEMBERS.iter().zip(OUTER).find(|(name, _)| **name == member).map(|(_, outer)| outer)
}

impl Topology {
    /// The guest sends, and the switch host does not run the switch yet.
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
            // The bridge counts frames, not what was coalesced of them.
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
