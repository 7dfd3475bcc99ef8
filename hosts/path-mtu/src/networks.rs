//! Sorts responders into networks: which of them probe each other. It does no I/O.
//!
//! Addresses of one subnet are probed against each other. So are addresses of different subnets, by
//! routers, unless some host has addresses in both: then they are two networks, such as one for
//! management and one for migrations, and a packet between them would leave by another device than
//! the one that is to be proven. Addresses of one host are never probed: such packets do not leave
//! it.

use crate::attachment::{Attachment, Subnet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Responders that probe each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// The networks, each by the indices of its responders, in order.
    pub networks: Vec<Vec<usize>>,
    /// Responders without any other to probe.
    pub alone: Vec<usize>,
}

/// Where responders are.
pub struct Places {
    places: Vec<Place>,
    /// For each, the hosts with several addresses of which one is in its subnet, in order.
    near: Vec<Vec<u64>>,
}

struct Place {
    ip: IpAddr,
    host: u64,
    subnet: Option<Subnet>,
}

impl Places {
    /// Reads where responders are attached.
    pub fn of<'a>(all: impl IntoIterator<Item = (IpAddr, &'a Attachment)>) -> Places {
        let place = |(ip, it): (IpAddr, &Attachment)| {
            let ip = ip.to_canonical();
            // Any loopback address is as good as a host of its own, as tests have them.
            let host = if ip.is_loopback() { 0 } else { it.host };
            Place { ip, host, subnet: it.subnet(ip) }
        };
        let places: Vec<Place> = all.into_iter().map(place).collect();
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        places.iter().for_each(|it| *counts.entry(it.host).or_default() += 1);
        let several: Vec<&Place> = places
            .iter()
            .filter(|it| it.host != 0 && counts.get(&it.host).is_some_and(|count| *count > 1))
            .collect();
        let near = |it: &Place| {
            let near = several.iter().filter(|other| it.ip == other.ip || it.is_near(other));
            let mut hosts: Vec<u64> = near.map(|other| other.host).collect();
            hosts.sort_unstable();
            hosts
        };
        let near = places.iter().map(near).collect();
        Places { places, near }
    }

    /// Whether two responders probe each other.
    pub fn may_pair(&self, one: usize, other: usize) -> bool {
        let (Some(a), Some(b)) = (self.places.get(one), self.places.get(other)) else {
            return false;
        };
        let is_possible =
            one != other && a.ip.is_ipv4() == b.ip.is_ipv4() && (a.host == 0 || a.host != b.host);
        is_possible && (a.is_near(b) || !self.have_host_in_both(one, other))
    }

    /// Whether some host has an address in the subnets of both.
    fn have_host_in_both(&self, one: usize, other: usize) -> bool {
        let of = |place: usize| self.near.get(place).map_or(&[][..], Vec::as_slice);
        of(one).iter().any(|host| of(other).binary_search(host).is_ok())
    }

    /// Returns the networks.
    pub fn sorted(&self) -> Sorted {
        let mut open: Vec<usize> = (0..self.places.len()).collect();
        let mut sorted = Sorted { networks: Vec::new(), alone: Vec::new() };
        while !open.is_empty() {
            let mut network = vec![open.remove(0)];
            let mut next = 0;
            while let Some(from) = network.get(next).copied() {
                let (found, rest) = open.into_iter().partition(|to| self.may_pair(from, *to));
                (open, next) = (rest, next + 1);
                network.extend::<Vec<usize>>(found);
            }
            network.sort_unstable();
            match network[..] {
                [one] => sorted.alone.push(one),
                _ => sorted.networks.push(network),
            }
        }
        sorted
    }

    /// Returns the name of a network: its subnets.
    pub fn name(&self, network: &[usize]) -> String {
        let mut names: Vec<String> = Vec::new();
        for place in network.iter().filter_map(|at| self.places.get(*at)) {
            let name = place.subnet.map_or(place.ip.to_string(), |subnet| subnet.to_string());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        match names.len() {
            0..=2 => names.join(" and "),
            more => format!("{} and {} more subnets", names[0], more - 1),
        }
    }
}

impl Place {
    fn is_near(&self, other: &Place) -> bool {
        let both = self.subnet.zip(other.subnet);
        both.is_some_and(|(own, other)| own.is_same(&other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sorts responders, each a host's number and its address with prefix.
    fn places(all: &[(u64, &str)]) -> Places {
        let attached: Vec<(IpAddr, Attachment)> = all
            .iter()
            .map(|(host, text)| {
                let (ip, prefix) = text.split_once('/').unwrap_or((text, ""));
                let prefix = prefix.parse().ok();
                (ip.parse().unwrap(), Attachment { host: *host, prefix, ..Attachment::default() })
            })
            .collect();
        Places::of(attached.iter().map(|(ip, attachment)| (*ip, attachment)))
    }

    fn networks(all: &[(u64, &str)]) -> (Vec<Vec<usize>>, Vec<usize>) {
        let Sorted { networks, alone } = places(all).sorted();
        (networks, alone)
    }

    /// `mtu check` blamed a healthy device: it paired the management address of one host with the
    /// migration address of the other.
    #[test]
    fn management_and_migration_are_two_networks() {
        let all =
            [(1, "10.66.0.1/24"), (1, "10.67.0.1/24"), (2, "10.66.0.2/24"), (2, "10.67.0.2/24")];
        assert_eq!(networks(&all), (vec![vec![0, 2], vec![1, 3]], vec![]));
        assert_eq!(places(&all).name(&[1, 3]), "10.67.0.0/24");
        // An address without a partner in its subnet is paired with nothing of the other network.
        assert_eq!(networks(&all[..3]), (vec![vec![0, 2]], vec![1]));
    }

    #[test]
    fn subnets_that_only_routers_connect_are_one_network() {
        let all = [(1, "10.1.0.1/24"), (2, "10.1.0.2/24"), (3, "10.2.0.1/24"), (4, "10.2.0.2/24")];
        assert_eq!(networks(&all), (vec![vec![0, 1, 2, 3]], vec![]));
        assert_eq!(places(&all).name(&[0, 1, 2, 3]), "10.1.0.0/24 and 10.2.0.0/24");
    }

    #[test]
    fn responders_of_other_versions_are_paired_with_all() {
        let all = [(0, "10.1.0.1"), (0, "10.2.0.1"), (3, "10.3.0.1/24")];
        assert_eq!(networks(&all), (vec![vec![0, 1, 2]], vec![]));
    }

    #[test]
    fn a_host_does_not_probe_itself_and_a_family_not_the_other() {
        let all = [(1, "10.1.0.1/24"), (1, "10.1.0.2/24")];
        assert_eq!(networks(&all), (vec![], vec![0, 1]));
        let all = [(1, "10.1.0.1/24"), (2, "fd00::2/64"), (2, "10.1.0.2/24"), (1, "fd00::1/64")];
        assert_eq!(networks(&all), (vec![vec![0, 2], vec![1, 3]], vec![]));
    }

    #[test]
    fn prefixes_of_both_ends_count() {
        let both = [(1, "10.1.0.1/16"), (2, "10.1.9.1/24"), (1, "10.1.9.9/24"), (2, "10.2.0.1/24")];
        let places = places(&both);
        // The second does not see the first in its subnet, and host 1 is in both.
        assert!(!places.may_pair(0, 1) && places.may_pair(1, 2));
    }

    proptest! {
        #[test]
        fn every_responder_is_in_one_place_and_pairs_are_mutual(
            all in prop::collection::vec((0..5u64, 0..4u8, 1..9u8, prop::sample::select(vec![8, 16, 24, 32])), 0..12),
        ) {
            let attached: Vec<(IpAddr, Attachment)> = all.iter().map(|(host, net, last, prefix)| {
                let attachment = Attachment { host: *host, prefix: Some(*prefix), ..Attachment::default() };
                (IpAddr::from([10, *net, 0, *last]), attachment)
            }).collect();
            let places = Places::of(attached.iter().map(|(ip, attachment)| (*ip, attachment)));
            let Sorted { networks, alone } = places.sorted();
            let mut found: Vec<usize> = networks.iter().flatten().chain(&alone).copied().collect();
            found.sort_unstable();
            prop_assert_eq!(found, (0..all.len()).collect::<Vec<_>>());
            for one in 0..all.len() {
                for other in 0..all.len() {
                    let may = places.may_pair(one, other);
                    prop_assert_eq!(may, places.may_pair(other, one));
                    let together = networks.iter().any(|it| it.contains(&one) && it.contains(&other));
                    prop_assert!(!may || together);
                    prop_assert!(!may || all[one].0 == 0 || all[one].0 != all[other].0);
                }
            }
        }
    }
}
