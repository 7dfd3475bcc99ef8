//! Steering as written: `steer = "rss"`, `rss-key = "6d5a56da…"`, `rss-types = "ipv4,tcpv4"`.

use super::scalar::{FromScalar, Scalar, through_scalar};
use super::{PortConfig, PortRole};
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use wire::toeplitz::{HashTypes, Key};

/// Which of a port's queues a frame toward it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SteerMode {
    /// The queue that the guest's driver names, once it has set a table of its own; otherwise as
    /// `follow`.
    Guest,
    /// For TCP and UDP the queue pair from which the guest last sent the flow; otherwise as `rss`.
    Follow,
    /// The queue that the flow's entry in the indirection table names.
    Rss,
}

/// The key of the RSS hash; `None` for a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssKey(pub Option<Key>);

/// What RSS hashes; at least one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssTypes(pub HashTypes);

through_scalar!(RssKey, RssTypes);

impl PortConfig {
    /// Returns which queue a frame toward the port goes to, configured or by default. `rss` is the
    /// default of a TAP, because its kernel steers by itself, and of an uplink, because flows toward
    /// it do not come from it.
    pub fn steer(&self) -> SteerMode {
        let has_driver = self.device().is_guest() && self.role() == PortRole::Vnic;
        self.steer.unwrap_or(if has_driver { SteerMode::Guest } else { SteerMode::Rss })
    }
}

/// Returns the bytes of a key in hex, with or without colons.
fn bytes(text: &str) -> Option<[u8; 40]> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok().filter(|_| rest.is_empty())
}

/// Returns a key in hex, two digits per byte.
pub fn hex(key: &Key) -> String {
    key.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for RssKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => out.write_str("random"),
            Some(Key::MICROSOFT) => out.write_str("microsoft"),
            Some(key) => out.write_str(&hex(&key)),
        }
    }
}

impl FromScalar for RssKey {
    fn read(scalar: &Scalar) -> Result<RssKey, Problem> {
        match scalar {
            Scalar::Text(text) if text == "random" => Some(RssKey(None)),
            Scalar::Text(text) if text == "microsoft" => Some(RssKey(Some(Key::MICROSOFT))),
            Scalar::Text(text) => bytes(text).map(|bytes| RssKey(Some(Key(bytes)))),
            _ => None,
        }
        .ok_or_else(|| {
            let wanted = "40 bytes in hex (80 digits), \"random\", or \"microsoft\" for the key of Microsoft's test vectors";
            scalar.problem("not an RSS key", wanted)
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.to_string())
    }
}

impl fmt::Display for RssTypes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&names(self.0))
    }
}

/// Returns the names of the single types, joined by commas.
fn names(types: HashTypes) -> String {
    let single = (0..HashTypes::all().bits().count_ones()).map(|bit| 1 << bit);
    let set = single.filter_map(|bit| HashTypes::from_bits(bit).filter(|bit| types.contains(*bit)));
    let name = |bit: HashTypes| bit.iter_names().next().map(|(name, _)| spelled(name));
    set.filter_map(name).collect::<Vec<_>>().join(",")
}

fn spelled(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

impl FromScalar for RssTypes {
    fn read(scalar: &Scalar) -> Result<RssTypes, Problem> {
        let one = |word: &str| {
            let all = HashTypes::all().iter();
            all.into_iter().find(|bit| names(*bit) == word.trim())
        };
        let read = match scalar {
            Scalar::Text(text) => text.split(',').map(one).collect::<Option<HashTypes>>(),
            _ => None,
        };
        read.map(RssTypes).ok_or_else(|| {
            let wanted = format!("one or more of {}", names(HashTypes::all()));
            scalar.problem("not RSS types", &wanted)
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_and_types_read_back(key: ([u8; 20], [u8; 20]), types in 1..0x200u16) {
            let key = Key([key.0, key.1].concat().try_into().unwrap());
            prop_assert_eq!(RssKey(Some(key)).to_string().parse(), Ok(RssKey(Some(key))));
            let types = RssTypes(HashTypes::from_bits(types).unwrap());
            prop_assert_eq!(types.to_string().parse(), Ok(types));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = (text.parse::<RssKey>(), text.parse::<RssTypes>());
        }
    }

    #[test]
    fn what_is_refused_names_value_and_remedy() {
        let microsoft = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:\
                         ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa";
        assert_eq!(microsoft.parse::<RssKey>().unwrap().to_string(), "microsoft");
        for key in ["", "6d5a", &"0".repeat(79), &"0".repeat(82), &"0g".repeat(40)] {
            let problem = key.parse::<RssKey>().unwrap_err();
            assert!(
                problem.wanted.contains("80 digits") && problem.seen.contains(key),
                "{problem}"
            );
        }
        for types in ["", "ipv4,", "tcp", "plain", "ipv4;tcpv4"] {
            let problem = types.parse::<RssTypes>().unwrap_err();
            assert!(
                problem.wanted.contains("ipv4,tcpv4,udpv4,ipv6,tcpv6,udpv6,ipv6-ex"),
                "{problem}"
            );
        }
        let plain: RssTypes = "udpv6, ipv4,tcpv4,udpv4,ipv6,tcpv6".parse().unwrap();
        assert_eq!(plain.0, HashTypes::default());
    }
}
