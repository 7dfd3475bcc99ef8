//! Recognises checksums that a peer on this host left unfinished.
//!
//! A sender's stack leaves TCP and UDP checksums to the device. A veth or a TAP passes them on
//! unfinished, with a mark beside the frame that AF_XDP does not pass on. The checksum field of
//! such a frame holds only the folded sum of its pseudo-header. [`claim`] checks for exactly that,
//! once a frame and without reading the payload, and claims what the sender's mark said
//! (`NEEDS_CSUM`). The switch checks the claim against the headers like any other.
//!
//! **It changes no intact frame.** Only frames that end with their datagram are looked at. Let `P`
//! be the folded sum of the pseudo-header and `D` that of the transport header and payload with the
//! field as 0. Intact means that the field is `!(P + D)`. If the field is `P` by chance, then
//! finishing it computes `!(P + D)` again, the field counting as `P`: the same bytes. (In TCP,
//! 0xffff and 0 are the same checksum; of these the field may change to the usual one.) `P` is
//! never 0, for no address is, so a UDP frame without a checksum is not taken for one of these.
//!
//! An SCTP checksum is left unfinished as 0. Finishing an intact packet whose checksum is 0 by
//! chance gives 0 again.
//!
//! **Its cost**: one in 65,536 of the frames that arrive damaged gets a checksum that fits its
//! damage, about as many as a 16-bit checksum lets pass anyway. A peer that wants to send a damaged
//! frame with a good checksum can do so without this.

use wire::tunnel::SCTP;
use wire::vnet::{Flags, VnetHeader};
use wire::{Kind, Traits, checksum, parse};

const IPV6_HEADER: u16 = 40;

/// Returns the header to claim for a frame that AF_XDP gave no metadata for.
pub(super) fn claim(frame: &[u8]) -> VnetHeader {
    unfinished(frame).unwrap_or_default()
}

fn unfinished(frame: &[u8]) -> Option<VnetHeader> {
    let parsed = parse(frame, frame.len())?;
    let offset = match parsed.kind {
        Kind::Tcp => 16u16,
        Kind::Udp => 6,
        Kind::OtherIp if parsed.protocol == SCTP => 8,
        _ => return None,
    };
    // What is finished is summed to the end of the frame, and a routing header has another address
    // in the pseudo-header.
    let is_plain = parsed.end as usize == frame.len()
        && !parsed.traits.contains(Traits::SURPLUS)
        && (parsed.traits.contains(Traits::IPV4) || parsed.l4 == parsed.l3 + IPV6_HEADER);
    if !is_plain {
        return None;
    }
    let field = usize::from(parsed.l4 + offset);
    if parsed.protocol == SCTP {
        let is_open = frame.get(field..)?.starts_with(&[0; 4]);
        return is_open.then(|| needs(parsed.l4, offset));
    }
    let field = u16::from_be_bytes(*frame.get(field..)?.first_chunk()?);
    let len = parsed.end - u32::from(parsed.l4);
    if checksum::pseudo(frame, &parsed, len)?.0 != field {
        return None;
    }
    Some(needs(parsed.l4, offset))
}

fn needs(start: u16, offset: u16) -> VnetHeader {
    let mut vnet = VnetHeader::default();
    vnet.set_flags(Flags::NEEDS_CSUM);
    vnet.csum_start.set(start);
    vnet.csum_offset.set(offset);
    vnet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use wire::checksum::Sum;

    /// A frame with a transport checksum that is the folded sum of its pseudo-header, and the
    /// field's place.
    #[derive(Debug)]
    struct Made {
        frame: Vec<u8>,
        l4: usize,
        field: usize,
    }

    impl Made {
        fn new(v6: bool, tcp: bool, tagged: bool, addresses: &[u8], payload: &[u8]) -> Made {
            let (header, protocol) = if tcp { (20, 6u8) } else { (8, 17) };
            let len = u16::try_from(header + payload.len()).unwrap().to_be_bytes();
            let addresses = &addresses[..if v6 { 32 } else { 8 }];
            let mut frame = vec![2; 12];
            frame.extend_from_slice(if tagged { &[0x81, 0, 0, 7] } else { &[] });
            if v6 {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, len[0], len[1], protocol, 64]);
            } else {
                let total = u16::try_from(20 + header + payload.len()).unwrap().to_be_bytes();
                frame.extend_from_slice(&[
                    8, 0, 0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, protocol, 0, 0,
                ]);
            }
            frame.extend_from_slice(addresses);
            let l4 = frame.len();
            frame.extend_from_slice(&[0x10, 0, 0x20, 0]);
            frame.extend_from_slice(&if tcp { vec![0; 8] } else { len.to_vec() });
            frame.extend_from_slice(if tcp { &[0x50, 0x10, 1, 0] } else { &[] });
            let field = frame.len();
            let sum = Sum::of(addresses) + Sum::of(&len);
            frame.extend_from_slice(&sum.add_u16(protocol.into()).0.to_be_bytes());
            frame.extend_from_slice(if tcp { &[0, 0] } else { &[] });
            frame.extend_from_slice(payload);
            Made { frame, l4, field }
        }

        /// Finishes the checksum as the switch and the kernel do.
        fn finish(&mut self) {
            let sum = Sum::of(&self.frame[self.l4..]);
            let is_udp = self.field - self.l4 == 6;
            let finished = if is_udp { sum.finish_udp() } else { sum.finish() };
            self.frame[self.field..self.field + 2].copy_from_slice(&finished.to_be_bytes());
        }

        fn claimed(&self) -> Option<(usize, usize)> {
            let claim = claim(&self.frame);
            let place = (claim.csum_start.get().into(), claim.csum_offset.get().into());
            claim.flags().contains(Flags::NEEDS_CSUM).then_some(place)
        }
    }

    prop_compose! {
        fn made()(
            v6: bool, tcp: bool, tagged: bool,
            addresses in vec(1u8.., 32),
            payload in vec(any::<u8>(), 2..200),
        ) -> Made {
            Made::new(v6, tcp, tagged, &addresses, &payload)
        }
    }

    proptest! {
        #[test]
        fn what_is_unfinished_is_claimed_and_what_is_finished_is_as_good_as_never(mut made in made()) {
            prop_assert_eq!(made.claimed(), Some((made.l4, made.field - made.l4)));
            let unfinished = made.frame.clone();
            made.finish();
            prop_assert_eq!(made.claimed().is_some(), made.frame == unfinished);
        }

        /// An intact frame with a checksum that equals the pseudo-header's sum by chance, here
        /// because of its last word.
        #[test]
        fn an_intact_frame_that_looks_unfinished_stays_as_it_is(mut made in made()) {
            // In TCP 0xffff would become 0, which is the same checksum.
            prop_assume!(made.frame[made.field..made.field + 2] != [0xff; 2]);
            let len = made.frame.len();
            let at = len - 2 - (len - made.l4) % 2;
            made.frame[at..at + 2].fill(0);
            // Makes the sum come to -0.
            let rest = Sum::of(&made.frame[made.l4..]) + Sum::of(&made.frame[made.field..made.field + 2]);
            made.frame[at..at + 2].copy_from_slice(&rest.finish().to_be_bytes());
            let intact = made.frame.clone();
            prop_assert!(made.claimed().is_some());
            made.finish();
            prop_assert_eq!(&made.frame, &intact);
        }

        /// Bytes behind the packet would be added to its checksum.
        #[test]
        fn a_frame_with_more_than_its_packet_is_left_alone(mut made in made(), padding in vec(any::<u8>(), 1..20)) {
            made.frame.extend(padding);
            prop_assert_eq!(made.claimed(), None);
        }
    }
}
