//! What all usual segments of a train have alike, as it stands in their headers: compared without looking at what it says.

use wire::Header;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Untagged IPv4 without options up to the ports of TCP, in words. Of other frames it is bytes that are alike by chance.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Words {
    /// MAC addresses, EtherType, version and header length, type of service.
    front: [U64; 2],
    length_and_identification: U32,
    /// Don't Fragment, and no fragment.
    fragment: U16,
    hops_protocol_checksum: U32,
    addresses: U64,
    ports: U32,
}

impl Header for Words {}

/// The words that have to be the same. Of bytes too few for them, all 0, which no IPv4 header is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Likeness {
    front: (u64, u64),
    addresses: u64,
    ports: u32,
    fragment: u16,
}

impl Likeness {
    #[inline]
    pub(super) fn of(header: &[u8]) -> Likeness {
        Words::at(header, 0).map_or_else(Likeness::default, |words| Likeness {
            front: (words.front[0].get(), words.front[1].get()),
            addresses: words.addresses.get(),
            ports: words.ports.get(),
            fragment: words.fragment.get(),
        })
    }
}
