//! Long round trips: what the outer host sends reaches its wire through a delay line, what it
//! receives comes straight from there. So the route to the guest is through the line, and the guest
//! is a known neighbour there: the line has no answers to a question about it.

use super::{RECEIVER, SENDER, Topology, VNIC, WIRE};
use crate::LabError;
use crate::host::Request;

/// The outer host's device that the line begins with.
const LINE: &str = "delay0";

impl Topology {
    /// Leads what the outer host sends to the guest through a line of so many milliseconds. Both
    /// have their addresses.
    pub(super) fn delay(&mut self, milliseconds: u32) -> Result<(), LabError> {
        let mac = self.guest().run(&format!("cat /sys/class/net/{VNIC}/address"))?;
        let (station, other) =
            if self.way.guest_sends() { (RECEIVER, SENDER) } else { (SENDER, RECEIVER) };
        let algorithm = self.congestion();
        let outer = self.host_of(WIRE);
        let microseconds = 1000 * u64::from(milliseconds);
        let request = Request::Delay { device: LINE.into(), link: WIRE.into(), microseconds };
        outer.order(&request, &format!("(from {LINE} to {WIRE} frames take {milliseconds} ms)"))?;
        // The guest's frames come over another device than the route to it leaves by.
        let lax =
            ["all", WIRE].map(|of| format!("echo 0 > /proc/sys/net/ipv4/conf/{of}/rp_filter"));
        outer.shell(&lax.join(" && "))?;
        let guest = format!("10.77.0.{other}");
        outer.run(&format!(
            "ip neighbour replace {guest} lladdr {} dev {LINE} nud permanent",
            mac.trim()
        ))?;
        let by = algorithm.map_or(String::new(), |name| format!(" congctl {name}"));
        outer.run(&format!(
            "ip route replace {guest}/32 dev {LINE} scope link src 10.77.0.{station}{by}"
        ))?;
        Ok(())
    }
}
