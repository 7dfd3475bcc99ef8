//! Checksums that a peer on this host left unfinished.
//!
//! A sender's stack leaves TCP and UDP checksums to the device, and a veth or a TAP passes them on as they are, with a mark
//! beside the frame that AF_XDP does not hand over. Such a frame has the folded sum of its pseudo-header in the checksum field
//! and nothing else. [`claim`] looks for just that, once a frame and without a look at the payload, and claims what the
//! sender's mark had said (`NEEDS_CSUM`); the switch checks the claim against the headers as it checks any other.
//!
//! **It changes no intact frame.** Let `P` be the folded sum of the pseudo-header and `D` that of the transport header and
//! payload with the field as 0. Intact means that the field is `!(P + D)`. If the field is `P` by chance, then finishing it
//! computes `!(P + D)` again, the field counting as `P`: the same bytes. (In TCP, 0xffff and 0 are the same checksum; of
//! these the field may change to the usual one.) `P` is never 0, for no address is, so a UDP frame without a checksum is not taken
//! for one of these.
//!
//! **What it costs**: one in 65,536 of the frames that arrive damaged gets a checksum that fits its damage, about as many as a
//! checksum of 16 bits lets pass anyway. A peer that wants to send a damaged frame with a good checksum can do so without this.

use wire::vnet::{Flags, VnetHeader};
use wire::{Kind, Traits, checksum, parse};

const IPV6_HEADER: u16 = 40;

/// What to claim about a frame of which AF_XDP said nothing.
pub(super) fn claim(frame: &[u8]) -> VnetHeader {
    unfinished(frame).unwrap_or_default()
}

fn unfinished(frame: &[u8]) -> Option<VnetHeader> {
    let parsed = parse(frame, frame.len())?;
    let offset = match parsed.kind {
        Kind::Tcp => 16u16,
        Kind::Udp => 6,
        _ => return None,
    };
    // What is finished is summed to the end of the frame, and a routing header has another address in the pseudo-header.
    let is_plain = parsed.end as usize == frame.len()
        && !parsed.traits.contains(Traits::SURPLUS)
        && (parsed.traits.contains(Traits::IPV4) || parsed.l4 == parsed.l3 + IPV6_HEADER);
    if !is_plain {
        return None;
    }
    let field = usize::from(parsed.l4 + offset);
    let field = u16::from_be_bytes(*frame.get(field..)?.first_chunk()?);
    let len = parsed.end - u32::from(parsed.l4);
    if checksum::pseudo(frame, &parsed, len)?.0 != field {
        return None;
    }
    let mut vnet = VnetHeader::default();
    vnet.set_flags(Flags::NEEDS_CSUM);
    vnet.csum_start.set(parsed.l4);
    vnet.csum_offset.set(offset);
    Some(vnet)
}
