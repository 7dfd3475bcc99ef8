//! An attachment of a container's interface to a network. The port's name and MAC address are made
//! from the three names.

use config::{HostName, MacAddress, PortName};
use sha2::{Digest, Sha256};
use wire::Mac;

/// The base32 alphabet of RFC 4648 in lower case: five bits a letter.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Number of letters in a port's name for the network, and for the attachment. With `cni-` and `-`
/// they make the 32 that a name may have.
const OF_NETWORK: usize = 8;
const OF_ATTACHMENT: usize = 19;

/// An interface of a container in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    network: String,
    container: String,
    interface: HostName,
}

impl Attachment {
    /// Returns the attachment of these names, which [`is_identifier`] has checked.
    pub(crate) fn new(network: &str, container: &str, interface: HostName) -> Attachment {
        Attachment { network: network.to_owned(), container: container.to_owned(), interface }
    }

    /// Returns the interface's name in the pod.
    pub fn interface(&self) -> &HostName {
        &self.interface
    }

    /// Returns the container's id.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Returns the port's name: 40 bits of a hash of the network, and 95 of a hash of all three
    /// names. It is made of hashes because ids of containers are longer than a port's name may be.
    pub fn port_name(&self) -> String {
        let name =
            format!("{}{}", beginning(&self.network), letters(&self.hash("port"), OF_ATTACHMENT));
        debug_assert!(name.parse::<PortName>().is_ok(), "{name}");
        name
    }

    /// Returns the interface's MAC address if the runtime asks for none: locally administered, and
    /// always the same.
    pub fn mac(&self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = self.hash("mac");
        MacAddress(Mac::local([a, b, c, d, e, f]))
    }

    /// Returns a hash of the names for a purpose. No name contains the byte that separates them.
    fn hash(&self, purpose: &str) -> [u8; 32] {
        let parts = [purpose, &self.network, &self.container, self.interface.as_str()];
        Sha256::digest(parts.join("\0")).into()
    }
}

/// Returns the prefix of the names of all ports of a network. No other name begins with it.
pub(crate) fn beginning(network: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(format!("network\0{network}")).into();
    format!("cni-{}-", letters(&hash, OF_NETWORK))
}

/// Returns the first bits of a hash as letters, five bits a letter.
fn letters(hash: &[u8; 32], count: usize) -> String {
    let bit =
        |place: usize| hash.get(place / 8).is_some_and(|byte| byte >> (7 - place % 8) & 1 == 1);
    let letter = |place: usize| {
        let five = (0..5).fold(0, |value, next| value << 1 | usize::from(bit(place * 5 + next)));
        char::from(LETTERS[five])
    };
    (0..count).map(letter).collect()
}

/// Whether a text is a name of a network or an id of a container by the specification: a letter or
/// digit, then letters, digits, `.`, `_` and `-`.
pub(crate) fn is_identifier(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const NAME: &str = "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,80}";

    fn attachment(network: &str, container: &str, interface: &str) -> Attachment {
        Attachment::new(network, container, interface.parse().unwrap())
    }

    proptest! {
        #[test]
        fn every_attachment_has_a_good_name_of_its_own(
            names in proptest::collection::hash_set((NAME, NAME, "[a-z0-9]{1,15}"), 2..40)
        ) {
            let attachments: Vec<_> =
                names.iter().map(|(network, container, name)| attachment(network, container, name)).collect();
            let ports: HashSet<_> = attachments.iter().map(Attachment::port_name).collect();
            prop_assert_eq!(ports.len(), names.len());
            for (at, port) in attachments.iter().map(|at| (at, at.port_name())) {
                prop_assert!(port.parse::<PortName>().is_ok() && port.len() == 32);
                for other in &attachments {
                    let is_of = port.starts_with(&beginning(&other.network));
                    prop_assert_eq!(is_of, at.network == other.network);
                }
                let mac = at.mac();
                prop_assert!(mac.0.to_string().parse::<MacAddress>().is_ok());
            }
        }
    }

    /// Ports that an earlier version made are found by their names.
    #[test]
    fn names_stay_what_they_are() {
        let at = attachment("pods", "0123456789abcdef", "eth0");
        assert_eq!(at.port_name(), "cni-gv6ey7mu-lq7a4ouc4yvp4lypzup");
        assert_eq!(at.mac().0.to_string(), "9e:24:16:c1:8e:29");
    }

    #[test]
    fn names_that_read_alike_side_by_side_differ() {
        let one = attachment("a", "bc", "eth0");
        for other in [attachment("ab", "c", "eth0"), attachment("a", "bceth", "0")] {
            assert_ne!(one.port_name(), other.port_name());
        }
    }
}
