//! What the crate promises about any bytes at all, well-formed or not.

use std::sync::LazyLock;
use wire::toeplitz::{Key, Toeplitz};
use wire::upper::Upper;
use wire::{Kind, Malformed, Parsed, TcpOptions, Traits, checksum, parse};

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
        let _ = TOEPLITZ.hash_flow(headers, parsed);
    }
    let payload = &frame[usize::from(parsed.payload)..];
    let whole = checksum::transport_sum(frame, parsed, [payload]);
    let (first, second) = payload.split_at(payload.len() / 2);
    assert_eq!(checksum::transport_sum(frame, parsed, [first, second]), whole);
}
