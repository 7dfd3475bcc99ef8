//! The header words by which the fast path recognises the next segment of a train.

use wire::Header;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The headers of untagged IPv4 without options, up to the ports of TCP, in words. The fast path
/// compares no other frames.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Words {
    /// MAC addresses, EtherType, version and header length, type of service.
    front: [U64; 2],
    length_and_identification: U32,
    /// Don't Fragment, fragment offset and more-fragments flag.
    fragment: U16,
    hops_protocol_checksum: U32,
    addresses: U64,
    ports: U32,
}

/// The header words that every fast-path segment of a train shares. All are 0 for a header that is
/// too short; no IPv4 header is all 0.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fingerprint {
    front: (u64, u64),
    addresses: u64,
    ports: u32,
    fragment: u16,
}

impl Fingerprint {
    #[inline]
    pub(super) fn of(header: &[u8]) -> Fingerprint {
        Words::at(header, 0).map_or_else(Fingerprint::default, |words| Fingerprint {
            front: (words.front[0].get(), words.front[1].get()),
            addresses: words.addresses.get(),
            ports: words.ports.get(),
            fragment: words.fragment.get(),
        })
    }
}
