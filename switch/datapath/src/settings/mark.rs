//! Marks frames from a port: sets the DSCP of an IP packet (RFC 2474) and the priority (PCP) of an
//! 802.1Q tag.
//!
//! It writes only private header bytes, before the lookup, so all copies of the frame leave with
//! the same mark. The ECN bits beside the DSCP stay.

use wire::checksum::Sum;
use wire::{Kind, Parsed, Traits};

/// The mark that a rule writes; a field that is `None` stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AclMark {
    /// Differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
    /// Priority (PCP), 0 to 7, for the frame's 802.1Q tag; if it has none, for a tag added at
    /// egress.
    pub pcp: Option<u8>,
}

/// Bits of the priority in a tag.
const PRIORITY: u16 = 0xe000;
/// Bytes from the start of a frame to its tag's priority.
const TAG: usize = 14;

impl AclMark {
    /// Writes the mark into a frame's headers, as far as they have a place for it.
    pub(crate) fn set(self, headers: &mut [u8], parsed: &mut Parsed) {
        if let Some(pcp) = self.pcp {
            set_priority(u16::from(pcp) << 13 & PRIORITY, headers, parsed);
        }
        if let Some(dscp) = self.dscp {
            set_dscp(u16::from(dscp & 63), headers, parsed);
        }
    }
}

fn set_priority(priority: u16, headers: &mut [u8], parsed: &mut Parsed) {
    let is_tagged = parsed.traits.contains(Traits::VLAN);
    if !is_tagged && parsed.vlan_tci != 0 {
        // The frame ends within its tag, or has one that is not read.
        return;
    }
    parsed.vlan_tci = parsed.vlan_tci & !PRIORITY | priority;
    let tag = headers.get_mut(TAG..).and_then(<[u8]>::first_chunk_mut::<2>);
    if let Some(tag) = tag.filter(|_| is_tagged) {
        *tag = parsed.vlan_tci.to_be_bytes();
    }
}

/// In the first 16 bits of either header: of IPv4 the second byte, of IPv6 the bits behind the
/// version.
fn set_dscp(dscp: u16, headers: &mut [u8], parsed: &Parsed) {
    let packet = headers.get_mut(parsed.l3.into()..).unwrap_or_default();
    if matches!(parsed.kind, Kind::Malformed(_)) {
        return;
    }
    if parsed.traits.contains(Traits::IPV4) {
        let Some(header) = packet.first_chunk_mut::<20>() else { return };
        let [first, class, .., checksum_high, checksum_low, _, _, _, _, _, _, _, _] = header;
        let old = u16::from_be_bytes([*first, *class]);
        let new = old & !(63 << 2) | dscp << 2;
        let checksum = u16::from_be_bytes([*checksum_high, *checksum_low]);
        // RFC 1624, equation 3: a checksum that was wrong stays so.
        let checksum = Sum(!checksum).add_u16(!old).add_u16(new).finish();
        [*first, *class] = new.to_be_bytes();
        [*checksum_high, *checksum_low] = checksum.to_be_bytes();
    } else if parsed.traits.contains(Traits::IPV6)
        && let Some(first) = packet.first_chunk_mut::<2>()
    {
        let old = u16::from_be_bytes(*first);
        *first = (old & !(63 << 6) | dscp << 6).to_be_bytes();
    }
}
