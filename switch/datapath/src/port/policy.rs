//! The coalescing policy of a port: what [the coalescer](crate::stage::coalesce) may merge toward
//! it.

use crate::frame::Frame;
use crate::settings::{PortSettings, Rsc, RscPolicy};
use ports::Offloads;
use wire::Traits;

/// The largest IP packet: the total length of IPv4. For simplicity it is the same for IPv6 with its
/// header.
const LARGEST_PACKET: u32 = 65535;

/// The limits of coalescing toward one port.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) rsc: Rsc,
    /// Largest payload of a train, from the port's MTU and its length limit.
    pub(crate) length_limit: u32,
    /// Whether the other side takes trains with ECE or CWR.
    pub(crate) ecn: bool,
}

impl Policy {
    /// Returns the policy of the settings; `None` if coalescing is off.
    pub(crate) fn of(settings: &PortSettings) -> Option<Policy> {
        let (rsc, mtu) = (settings.rsc, u32::from(settings.mtu));
        let length_limit = match rsc.length_limit_mtus {
            0 => LARGEST_PACKET,
            mtus => (u32::from(mtus) * mtu).max(2 * mtu).min(LARGEST_PACKET),
        };
        (rsc.policy != RscPolicy::Off).then_some(Policy { rsc, length_limit, ecn: false })
    }

    /// Restricts the policy to what a port with these offloads can take; `None` if nothing is left.
    pub(crate) fn toward(mut self, offloads: Offloads) -> Option<Policy> {
        self.rsc.ipv4 &= offloads.contains(Offloads::TSO4 | Offloads::CSUM);
        self.rsc.ipv6 &= offloads.contains(Offloads::TSO6 | Offloads::CSUM);
        self.ecn = offloads.contains(Offloads::ECN);
        (self.rsc.ipv4 || self.rsc.ipv6).then_some(self)
    }

    /// Returns whether the policy covers the frame's IP version.
    #[inline]
    pub(crate) fn applies(&self, frame: &Frame) -> bool {
        let traits = frame.parsed.traits;
        traits.contains(Traits::IPV4) && self.rsc.ipv4
            || traits.contains(Traits::IPV6) && self.rsc.ipv6
    }

    /// Returns the most payload bytes of a train with headers of `header_len` bytes.
    #[inline]
    pub(crate) fn limit(&self, header_len: u16) -> u32 {
        // The headers that count toward the IP packet: all but the Ethernet header and tags, at
        // least.
        self.length_limit.min(LARGEST_PACKET - u32::from(header_len.saturating_sub(14)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice the MTU may be more than an IP packet holds, and a TAP device says its MTU itself.
    #[test]
    fn no_mtu_and_length_limit_stop_the_worker() {
        for (mtu, length_limit_mtus) in
            (0..=u16::MAX).flat_map(|mtu| [0, 1, 2, 255].map(|limit| (mtu, limit)))
        {
            let rsc = Rsc { policy: RscPolicy::Ndis, length_limit_mtus, ..Rsc::default() };
            let policy = Policy::of(&PortSettings { rsc, mtu, ..PortSettings::default() }).unwrap();
            assert!(policy.length_limit <= LARGEST_PACKET);
            assert!(policy.length_limit >= u32::from(mtu), "MTU {mtu}, limit {length_limit_mtus}");
        }
    }
}
