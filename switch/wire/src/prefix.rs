//! IP prefixes, as ranges of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of IP addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// The lowest.
    pub first: IpAddr,
    /// The highest.
    pub last: IpAddr,
}

impl Prefix {
    /// Returns all addresses that share the first `length` bits with `address`; `None` if the
    /// family has fewer bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Prefix> {
        let (first, last) = match address {
            IpAddr::V4(address) if length <= 32 => {
                let rest = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                let bits = address.to_bits();
                (Ipv4Addr::from(bits & !rest).into(), Ipv4Addr::from(bits | rest).into())
            }
            IpAddr::V6(address) if length <= 128 => {
                let rest = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                let bits = address.to_bits();
                (Ipv6Addr::from(bits & !rest).into(), Ipv6Addr::from(bits | rest).into())
            }
            _ => return None,
        };
        Some(Prefix { first, last })
    }

    /// Returns whether the address is in the range.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        // Every IPv4 address is ordered before every IPv6 address.
        (self.first..=self.last).contains(&address)
    }
}
