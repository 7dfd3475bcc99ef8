//! Chooses the directions to probe: all of them, or with many hosts a sample with a known chance of
//! missing a fault.
//!
//! A sample is a ring over the hosts in random order, with chords: host `i` of the ring is paired
//! with `i + 1` and with some more distances, chosen at random, both ways. So each host has the
//! same number of peers, and no set of hosts is without a pair that leaves it: a fault of a host,
//! of its switch port, or of a link between two groups of hosts is never missed, however few the
//! peers. Only faults of single pairs can be missed by chance, such as that of one member of an
//! aggregated link; see [`missed`].

use fastrand::Rng;

/// A direction from one host to another, by their indices.
pub type Direction = (usize, usize);

/// Most hosts of which a fleet checks all pairs. With more it checks a sample.
pub const ALL_PAIRS: usize = 64;
/// Peers of each host in a fleet's sample.
pub const PEERS: usize = 16;

/// Returns the directions to probe. `peers` is the number of peers of each host; `None` for all.
pub fn directions(hosts: usize, peers: Option<usize>, seed: u64) -> Vec<Direction> {
    match peers {
        Some(peers) => sample(hosts, peers, seed),
        None => all(hosts),
    }
}

/// Returns the peers that one host probes, in order. Hosts with the same list, number and seed
/// agree on all directions.
pub fn peers_of(host: usize, hosts: usize, peers: Option<usize>, seed: u64) -> Vec<usize> {
    let own = directions(hosts, peers, seed).into_iter().filter(|it| it.0 == host);
    own.map(|it| it.1).collect()
}

/// Returns how many peers each host has in a sample; `None` if these are all, so that no fault is
/// missed.
pub fn sampled_peers(hosts: usize, peers: usize) -> Option<usize> {
    Some(2 * distances(hosts, peers)).filter(|peers| *peers > 0)
}

/// Returns the directions from every host to every other. Hosts that begin at the same time begin
/// with different peers.
pub fn all(hosts: usize) -> Vec<Direction> {
    around(&(0..hosts).collect::<Vec<_>>(), 1..hosts)
}

/// Returns a sample: the directions to and from at least `peers` peers of each host, or to all if
/// there are no more.
pub fn sample(hosts: usize, peers: usize, seed: u64) -> Vec<Direction> {
    let distances = distances(hosts, peers);
    if distances == 0 {
        return all(hosts);
    }
    let mut random = Rng::with_seed(seed);
    let mut ring: Vec<usize> = (0..hosts).collect();
    random.shuffle(&mut ring);
    let mut chords: Vec<usize> = (2..hosts.div_ceil(2)).collect();
    random.shuffle(&mut chords);
    chords.truncate(distances - 1);
    let forth: Vec<usize> = [1].into_iter().chain(chords).collect();
    let back: Vec<usize> = forth.iter().map(|distance| hosts - distance).collect();
    around(&ring, forth.into_iter().chain(back))
}

/// Returns the probability that a sample contains none of this many failing pairs.
#[allow(clippy::cast_precision_loss, reason = "a probability is shown to three digits")]
pub fn missed(hosts: usize, peers: usize, faulty: usize) -> f64 {
    let distances = distances(hosts, peers);
    let pairs = hosts * hosts.saturating_sub(1) / 2;
    let probed = if distances == 0 { pairs } else { hosts * distances };
    let miss =
        |already: usize| (pairs - probed).saturating_sub(already) as f64 / (pairs - already) as f64;
    (0..faulty.min(pairs)).map(miss).product()
}

/// Returns the number of distances on the ring, each of which gives two peers; 0 if all hosts are
/// peers.
fn distances(hosts: usize, peers: usize) -> usize {
    let distances = peers.max(2).div_ceil(2);
    if 2 * distances < hosts.saturating_sub(1) { distances } else { 0 }
}

fn around(ring: &[usize], distances: impl IntoIterator<Item = usize>) -> Vec<Direction> {
    let place = |at: usize| ring.get(at % ring.len()).copied();
    let step = |distance| (0..ring.len()).map(move |at| Some((place(at)?, place(at + distance)?)));
    distances.into_iter().flat_map(step).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// How many of so many samples have none of these pairs.
    fn share_missed(hosts: usize, peers: usize, faulty: &[Direction], samples: u64) -> f64 {
        let misses = |seed| {
            let sample: BTreeSet<_> = sample(hosts, peers, seed).into_iter().collect();
            !faulty.iter().any(|pair| sample.contains(pair))
        };
        let missed = (0..samples).filter(|seed| misses(*seed)).count();
        missed as f64 / samples as f64
    }

    proptest! {
        #[test]
        fn each_host_has_its_peers_once_and_both_ways(hosts in 2..80usize, peers in 0..90usize, seed: u64) {
            let sample = sample(hosts, peers, seed);
            let set: BTreeSet<_> = sample.iter().copied().collect();
            prop_assert_eq!(set.len(), sample.len());
            prop_assert!(set.iter().all(|(from, to)| from != to && set.contains(&(*to, *from))));
            let of = |host: usize| sample.iter().filter(|(from, _)| *from == host).count();
            let wanted = peers.max(2).next_multiple_of(2).min(hosts - 1);
            prop_assert!((0..hosts).all(|host| of(host) >= wanted.min(hosts - 1)));
        }

        #[test]
        fn what_each_host_derives_is_together_the_whole_plan(
            hosts in 0..70usize, peers in prop::option::of(0..20usize), seed: u64,
        ) {
            let mut own: Vec<Direction> = (0..hosts)
                .flat_map(|host| peers_of(host, hosts, peers, seed).into_iter().map(move |to| (host, to)))
                .collect();
            let mut all = directions(hosts, peers, seed);
            own.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(&own, &all);
            let wanted = peers.and_then(|peers| sampled_peers(hosts, peers));
            let each = wanted.unwrap_or(hosts.saturating_sub(1));
            prop_assert_eq!(all.len(), hosts * each);
        }

        #[test]
        fn no_group_of_hosts_is_without_a_pair_that_leaves_it(
            hosts in 2..200usize, peers in 0..8usize, seed: u64, group: u64,
        ) {
            let is_in = |host: usize| host == 0 || host < hosts - 1 && group >> (host % 64) & 1 != 0;
            let sample = sample(hosts, peers, seed);
            prop_assert!(sample.iter().any(|(from, to)| is_in(*from) && !is_in(*to)));
            prop_assert!(sample.iter().any(|(from, to)| !is_in(*from) && is_in(*to)));
        }
    }

    #[test]
    fn what_is_stated_is_what_samples_miss() {
        let apart: Vec<Direction> = (0..10).map(|pair| (2 * pair, 2 * pair + 1)).collect();
        for (hosts, peers, faulty) in [(100, 20, 1), (100, 20, 5), (60, 8, 10), (20, 4, 3)] {
            let stated = missed(hosts, peers, faulty);
            let seen = share_missed(hosts, peers, &apart[..faulty], 3000);
            // Three standard deviations of 3000 samples are 0.027 at most.
            assert!((stated - seen).abs() < 0.03, "{hosts} {peers} {faulty}: {stated} {seen}");
        }
        assert_eq!(missed(64, 63, 1), 0.0);
        assert!((missed(1000, 16, 1) - (1.0 - 16.0 / 999.0)).abs() < 1e-9);
    }
}
