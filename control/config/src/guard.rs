//! `ip-guard`: the addresses a port may use, as a list of `10.0.0.5` and `fd00::/64`.

use super::scalar::Scalar;
use problem::Problem;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use wire::Prefix;

/// An IP prefix as written; a bare address is a prefix of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPrefix {
    address: IpAddr,
    length: u8,
}

/// The addresses that a port may use. An empty list is refused, because nothing would pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpGuard(Vec<IpPrefix>);

impl IpPrefix {
    /// Returns the prefix that the text names; `None` if the text is not a prefix, or bits after the
    /// prefix length are set.
    pub(super) fn parse(text: &str) -> Option<IpPrefix> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address.parse().ok()?, length.parse().ok()?),
            None => {
                let address: IpAddr = text.parse().ok()?;
                (address, if address.is_ipv4() { 32 } else { 128 })
            }
        };
        let prefix = Prefix::new(address, length)?;
        (prefix.first == address).then_some(IpPrefix { address, length })
    }

    /// Returns the range of addresses that the prefix stands for.
    pub fn prefix(&self) -> Prefix {
        let own = Prefix { first: self.address, last: self.address };
        Prefix::new(self.address, self.length).unwrap_or(own)
    }

    /// Returns whether the addresses are of IPv4.
    pub(super) fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.address.is_ipv4() { 32 } else { 128 };
        self.address.fmt(out)?;
        if self.length == all { Ok(()) } else { write!(out, "/{}", self.length) }
    }
}

impl IpGuard {
    /// Returns the ranges of addresses that the list stands for.
    pub fn prefixes(&self) -> Vec<Prefix> {
        self.0.iter().map(IpPrefix::prefix).collect()
    }

    fn read<'t>(texts: impl Iterator<Item = &'t str>, seen: &Scalar) -> Result<IpGuard, Problem> {
        let prefixes: Option<Vec<_>> = texts.map(|text| IpPrefix::parse(text.trim())).collect();
        prefixes.filter(|prefixes| !prefixes.is_empty()).map(IpGuard).ok_or_else(|| {
            seen.problem(
                "not a list of addresses",
                "addresses and prefixes without bits after the prefix length, such as [\"10.0.0.5\", \"fd00::/64\"]",
            )
        })
    }
}

/// A list; on the command line a text with commas.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    List(Vec<String>),
    One(Scalar),
}

impl<'de> Deserialize<'de> for IpGuard {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<IpGuard, D::Error> {
        let (texts, seen) = match Written::deserialize(input)? {
            Written::List(texts) => (texts.clone(), Scalar::Text(texts.join(","))),
            Written::One(scalar) => {
                let text = match &scalar {
                    Scalar::Text(text) => text.clone(),
                    other => other.to_string(),
                };
                (text.split(',').map(str::to_owned).collect(), scalar)
            }
        };
        IpGuard::read(texts.iter().map(String::as_str), &seen)
            .map_err(|problem| serde::de::Error::custom(problem.pack()))
    }
}

impl Serialize for IpGuard {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<IpGuard, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_list_and_a_text_with_commas_say_the_same() {
        let list = read("[\"10.0.0.5\", \"fd00::/64\"]").unwrap();
        assert_eq!(read("\"10.0.0.5, fd00::/64\"").unwrap(), list);
        assert_eq!(serde_json::to_string(&list).unwrap(), "[\"10.0.0.5\",\"fd00::/64\"]");
        let [v4, v6] = list.prefixes()[..] else { panic!("two") };
        assert!(
            v4.contains("10.0.0.5".parse().unwrap()) && !v4.contains("10.0.0.4".parse().unwrap())
        );
        assert!(
            v6.contains("fd00::77".parse().unwrap()) && !v6.contains("fd01::".parse().unwrap())
        );
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_the_value() {
        for text in
            ["[]", "\"\"", "5", "true", "[\"10.0.0.5/24\"]", "[\"10.0.0.0/33\"]", "[\"vm\"]"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        let error = read("[\"10.0.0.5/24\"]").unwrap_err().to_string();
        assert!(error.contains("10.0.0.5/24") && error.contains("fd00::/64"), "{error}");
    }
}
