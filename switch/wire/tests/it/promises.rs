//! What the crate promises about any bytes at all, well-formed or not.

use std::sync::LazyLock;
use wire::checksum::{self, Sum};
use wire::toeplitz::{HashTypes, Key, Toeplitz};
use wire::udp::UdpHeader;
use wire::upper::Upper;
use wire::{Header, Kind, Malformed, Parsed, TcpOptions, Traits, parse};

static TOEPLITZ: LazyLock<Toeplitz> = LazyLock::new(|| Toeplitz::new(&Key::MICROSOFT));

/// Panics where a promise is broken.
pub(crate) fn check(frame: &[u8]) {
    let Some(parsed) = parse(frame, frame.len()) else {
        assert!(frame.len() < 14, "an Ethernet header always parses");
        return;
    };
    assert_ne!(parsed.kind, Kind::Malformed(Malformed::BeyondHeaders), "all bytes were there");
    offsets_are_in_order(&parsed, frame);
    a_prefix_says_the_same_or_asks_for_more(&parsed, frame);
    readers_take_what_was_parsed(&parsed, frame);
}

fn offsets_are_in_order(parsed: &Parsed, frame: &[u8]) {
    let (l3, l4, payload) = (parsed.l3, parsed.l4, u32::from(parsed.payload));
    let tags = parsed.traits & (Traits::VLAN | Traits::QINQ);
    assert_eq!(u32::from(l3), 14 + 4 * tags.bits().count_ones());
    assert!(u32::from(l3) <= payload && payload <= parsed.end);
    assert!(parsed.end as usize <= frame.len());
    match parsed.kind {
        Kind::Tcp => {
            assert!((20..=60).contains(&(parsed.payload - l4)) && l4 >= l3 + 20);
            if let TcpOptions::Timestamp(at) = parsed.tcp_options {
                assert!(at >= l4 + 20 && at + 10 <= parsed.payload);
                assert_eq!(frame[usize::from(at)..][..2], [8, 10]);
            }
        }
        Kind::Udp => assert!(parsed.payload == l4 + 8 && l4 >= l3 + 20),
        Kind::OtherIp => assert!(l4 == 0 || l4 == parsed.payload),
        Kind::Fragment | Kind::Malformed(_) => assert_eq!(l4, 0),
        Kind::NotIp => {
            assert_eq!((l4, parsed.payload, parsed.end as usize), (0, l3, frame.len()));
        }
    }
}

fn a_prefix_says_the_same_or_asks_for_more(parsed: &Parsed, frame: &[u8]) {
    let mut enough = false;
    for length in 14..frame.len().min(400) {
        let prefix = parse(&frame[..length], frame.len());
        let asks =
            prefix.is_some_and(|prefix| prefix.kind == Kind::Malformed(Malformed::BeyondHeaders));
        assert!(!(enough && asks), "{length} bytes were one too many");
        enough |= !asks;
        assert!(
            asks || prefix == Some(*parsed),
            "{length} bytes say {prefix:?}, all say {parsed:?}"
        );
    }
}

fn readers_take_what_was_parsed(parsed: &Parsed, frame: &[u8]) {
    for headers in [frame, &frame[..usize::from(parsed.payload)], &frame[..14]] {
        let _ = Upper::of(headers, parsed);
        let _ = TOEPLITZ.hash_types(headers, parsed, HashTypes::all());
    }
    let payload = &frame[usize::from(parsed.payload)..];
    let whole = transport_sum(frame, parsed, [payload]);
    let (first, second) = payload.split_at(payload.len() / 2);
    assert_eq!(transport_sum(frame, parsed, [first, second]), whole);
}

/// Returns the sum of pseudo-header, transport header and payload of a TCP or UDP frame, the
/// checksum field included as it stands. The pieces start at `parsed.payload`; what they hold
/// behind the payload (padding) is left out. `None`: neither TCP nor UDP, or less payload than the
/// frame says.
pub(crate) fn transport_sum<'p>(
    headers: &[u8],
    parsed: &Parsed,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Option<Sum> {
    let transport_len = match parsed.kind {
        Kind::Tcp => parsed.end - u32::from(parsed.l4),
        Kind::Udp => UdpHeader::at(headers, parsed.l4)?.length.get().into(),
        _ => return None,
    };
    let header = headers.get(usize::from(parsed.l4)..usize::from(parsed.payload))?;
    let mut sum = checksum::pseudo(headers, parsed, transport_len)? + Sum::of(header);
    let mut missing = (transport_len as usize).checked_sub(header.len())?;
    let mut offset = 0;
    for piece in pieces {
        let piece = piece.get(..missing).unwrap_or(piece);
        sum = sum.add_at(offset, Sum::of(piece));
        offset += piece.len();
        missing -= piece.len();
    }
    (missing == 0).then_some(sum)
}
