//! An IP address with the length of its network's prefix, as in `10.1.0.5/16`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address with the length of its network prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) ip: IpAddr,
    /// At most 32 or 128.
    pub(crate) len: u8,
}

impl Cidr {
    /// Returns the network with its host bits cleared.
    pub(crate) fn network(self) -> Cidr {
        let masked = |bits: u128, width: u8| {
            let host = u32::from(width - self.len);
            bits.checked_shr(host).and_then(|bits| bits.checked_shl(host)).unwrap_or(0)
        };
        let ip = match self.ip {
            IpAddr::V4(ip) => {
                let bits = masked(u32::from(ip).into(), 32);
                IpAddr::V4(u32::try_from(bits).unwrap_or_default().into())
            }
            IpAddr::V6(ip) => IpAddr::V6(masked(ip.into(), 128).into()),
        };
        Cidr { ip, len: self.len }
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let refused = || format!("{text:?} is not an address with a prefix, such as 10.1.0.5/16");
        let (ip, len) = text.split_once('/').ok_or_else(refused)?;
        let ip: IpAddr = ip.parse().map_err(|_| refused())?;
        let len: u8 = len.parse().map_err(|_| refused())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        if len <= most { Ok(Cidr { ip, len }) } else { Err(refused()) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.ip, self.len)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Cidr, D::Error> {
        String::deserialize(input)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(ip: IpAddr, len in 0u8..=32) {
            let cidr = Cidr { ip, len };
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
            prop_assert_eq!(cidr.network().network(), cidr.network());
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Cidr>();
        }
    }

    #[test]
    fn networks_have_no_bits_of_a_host() {
        for (address, network) in [
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("fd00::5/64", "fd00::/64"),
            ("fd00::5/0", "::/0"),
        ] {
            assert_eq!(address.parse::<Cidr>().unwrap().network().to_string(), network);
        }
        for text in ["10.1.2.3", "10.1.2.3/33", "fd00::/129", "/8", "10.1.2.3/-1", "a/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
