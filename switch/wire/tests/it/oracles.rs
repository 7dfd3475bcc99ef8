//! The parser and the checksums against etherparse, smoltcp and the maker of the frames; and what
//! is promised about frames that were well-formed once.

use crate::made::{self, Made};
use crate::promises;
use etherparse::{SlicedPacket, TransportSlice};
use proptest::prelude::*;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpOption, TcpPacket, UdpPacket,
};
use wire::checksum::{self, Sum};
use wire::{Kind, Parsed, TcpOptions, Traits, parse};

proptest! {
    #[test]
    fn the_parser_finds_what_the_maker_put_there(made in made::frames()) {
        let parsed = parse(&made.bytes, made.bytes.len()).unwrap();
        prop_assert_eq!(parsed.kind, made.kind);
        let offsets = [parsed.l3, parsed.l4, parsed.payload].map(usize::from);
        prop_assert_eq!(offsets, [made.l3, made.l4, made.payload]);
        prop_assert_eq!(parsed.end as usize, made.end);
        prop_assert_eq!(parsed.traits.contains(Traits::IP_OPTIONS), made.ip_options);
        let expected = match made.tcp_options {
            TcpOptions::Timestamp(at) => TcpOptions::Timestamp(at + parsed.l4 + 20),
            other => other,
        };
        prop_assert_eq!(parsed.tcp_options, expected);
    }

    #[test]
    fn etherparse_agrees(made in made::frames()) {
        let parsed = parse(&made.bytes, made.bytes.len()).unwrap();
        let theirs = SlicedPacket::from_ethernet(&made.bytes).unwrap();
        let Some((kind, offsets)) = transport_of(&made.bytes, &theirs) else {
            return Err(TestCaseError::fail("etherparse found no transport"));
        };
        prop_assert_eq!(parsed.kind, kind);
        prop_assert_eq!([parsed.l4.into(), parsed.payload.into(), parsed.end as usize], offsets);
        let outer = theirs.vlan().map_or(0, |_| u16::from_be_bytes([made.bytes[14], made.bytes[15]]));
        prop_assert_eq!(parsed.vlan_tci, outer);
    }

    #[test]
    fn smoltcp_agrees(made in made::frames()) {
        let parsed = parse(&made.bytes, made.bytes.len()).unwrap();
        let packet = &made.bytes[usize::from(parsed.l3)..];
        if parsed.traits.contains(Traits::IPV4) {
            let ip = Ipv4Packet::new_checked(packet).unwrap();
            prop_assert_eq!(ip.next_header(), IpProtocol::from(parsed.protocol));
            let addresses = (ip.src_addr().into(), ip.dst_addr().into());
            smoltcp_takes_the_transport(&parsed, ip.payload(), addresses)?;
        } else if !made.ip_options {
            let ip = Ipv6Packet::new_checked(packet).unwrap();
            let addresses = (ip.src_addr().into(), ip.dst_addr().into());
            smoltcp_takes_the_transport(&parsed, ip.payload(), addresses)?;
        }
    }

    #[test]
    fn a_checksum_of_smoltcp_is_good_in_any_pieces_and_a_flipped_bit_is_seen(
        made in made::frames(), cut: prop::sample::Index, flip: prop::sample::Index,
    ) {
        let parsed = parse(&made.bytes, made.bytes.len()).unwrap();
        let (headers, payload) = made.bytes.split_at(made.payload);
        let (first, second) = payload.split_at(cut.index(payload.len() + 1));
        prop_assert!(is_good(headers, &parsed, [first, second]));
        // Without the last byte there is nothing to check.
        if parsed.payload_len() > 0 {
            let short = &payload[..parsed.payload_len() as usize - 1];
            prop_assert!(!is_good(headers, &parsed, [short]));
            let mut flipped = payload.to_vec();
            flipped[flip.index(parsed.payload_len() as usize)] ^= 0x40;
            prop_assert!(!is_good(headers, &parsed, [&flipped[..]]));
        }
    }

    #[test]
    fn a_checksum_of_ours_is_theirs(made in made::frames()) {
        let parsed = parse(&made.bytes, made.bytes.len()).unwrap();
        let field = made.l4 + if made.kind == Kind::Tcp { 16 } else { 6 };
        let theirs = u16::from_be_bytes([made.bytes[field], made.bytes[field + 1]]);
        let mut bytes = made.bytes.clone();
        bytes[field..field + 2].fill(0);
        let length = u32::try_from(made.end - made.l4).unwrap();
        let sum = checksum::pseudo(&bytes, &parsed, length).unwrap()
            + Sum::of(&bytes[made.l4..made.end]);
        let ours = if made.kind == Kind::Tcp { sum.finish() } else { sum.finish_udp() };
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn promises_hold_for_well_formed_frames(made in made::frames()) {
        promises::check(&made.bytes);
    }

    #[test]
    fn promises_hold_for_damaged_frames_and_etherparse_finds_no_other_transport(
        made in made::frames(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut: Option<prop::sample::Index>,
    ) {
        let Made { mut bytes, payload, .. } = made;
        for (place, value) in damage {
            bytes[place.index(payload)] = value;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        promises::check(&bytes);
        let ours = parse(&bytes, bytes.len());
        let theirs = SlicedPacket::from_ethernet(&bytes);
        if let (Some(ours @ Parsed { kind: Kind::Tcp | Kind::Udp, .. }), Ok(theirs)) = (ours, theirs)
            && let Some((kind, [l4, payload, _])) = transport_of(&bytes, &theirs)
        {
            prop_assert_eq!((ours.kind, ours.l4.into(), ours.payload.into()), (kind, l4, payload));
        }
    }

    #[test]
    fn promises_hold_for_noise(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        promises::check(&bytes);
    }
}

/// The transport checksum fits.
fn is_good<'p>(
    headers: &[u8],
    parsed: &Parsed,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> bool {
    promises::transport_sum(headers, parsed, pieces).is_some_and(Sum::is_valid)
}

/// Returns what etherparse says about the transport: kind, start, payload and end.
fn transport_of(frame: &[u8], theirs: &SlicedPacket<'_>) -> Option<(Kind, [usize; 3])> {
    let offset = |part: &[u8]| part.as_ptr() as usize - frame.as_ptr() as usize;
    let (kind, whole, payload) = match theirs.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => (Kind::Tcp, tcp.slice(), tcp.payload()),
        TransportSlice::Udp(udp) => (Kind::Udp, udp.slice(), udp.payload()),
        _ => return None,
    };
    Some((kind, [offset(whole), offset(payload), offset(whole) + whole.len()]))
}

fn smoltcp_takes_the_transport(
    parsed: &Parsed,
    datagram: &[u8],
    (source, destination): (IpAddress, IpAddress),
) -> Result<(), TestCaseError> {
    prop_assert_eq!(datagram.len(), parsed.end as usize - usize::from(parsed.l4));
    if parsed.kind == Kind::Udp {
        let udp = UdpPacket::new_checked(datagram).unwrap();
        prop_assert_eq!(udp.payload().len(), parsed.payload_len() as usize);
        return Ok(());
    }
    let tcp = TcpPacket::new_checked(datagram).unwrap();
    prop_assert!(tcp.verify_checksum(&source, &destination));
    prop_assert_eq!(tcp.payload().len(), parsed.payload_len() as usize);
    if let TcpOptions::Timestamp(at) = parsed.tcp_options {
        let option = &datagram[usize::from(at - parsed.l4)..];
        let (_, option) = TcpOption::parse(option).unwrap();
        prop_assert!(matches!(option, TcpOption::TimeStamp { .. }), "{option:?}");
    }
    Ok(())
}
