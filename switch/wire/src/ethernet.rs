//! Ethernet II and the VLAN tag (IEEE 802.3, 802.1Q).

use crate::Mac;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

/// EtherTypes, host order.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Reverse ARP (RFC 903).
    pub const RARP: u16 = 0x8035;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// The customer's tag, 802.1Q.
    pub const VLAN: u16 = 0x8100;
    /// The provider's tag, 802.1ad.
    pub const PROVIDER_VLAN: u16 = 0x88a8;
    /// Tags of switches before 802.1ad, which some still read.
    pub const OLD_TAGS: [u16; 3] = [0x9100, 0x9200, 0x9300];
    /// Smallest EtherType. A smaller value is an 802.3 length, before LLC.
    pub const SMALLEST: u16 = 0x0600;
}

/// The 14 bytes in front of every frame.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// What follows: an [`ethertype`], or an 802.3 length.
    pub ethertype: U16,
}

/// The four bytes that follow a tag's EtherType ([`ethertype::VLAN`] or
/// [`ethertype::PROVIDER_VLAN`]).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanHeader {
    /// Priority (3 bits), drop eligible (1 bit), VLAN id (12 bits).
    pub tci: U16,
    /// What follows the tag.
    pub ethertype: U16,
}
