//! The flows that a port has recently sent, and the queue of each.
//!
//! Only the port's own flows are noted, so a guest that sends many flows evicts only its own. Which
//! flows share a set depends on a secret of the port. A flow is stored at most once per [`Tick`],
//! and a slot changes its flow at most once a second.

use crate::frame::Frame;
use crate::frame::hash::mix;
use ports::Nanos;
use ports::capture::Direction;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of sets. With four places each they hold 4096 flows in 32 KiB.
const SETS: usize = 1024;

/// The places of the flows that share a set; two sets fill a cache line.
#[derive(Default)]
#[repr(align(32))]
struct Set([AtomicU64; 4]);

/// The table of one port, for all workers. A place is one word, so that it is read and written
/// whole.
pub(crate) struct Followed(Box<[Set]>);

/// Time in steps of 2^22 ns, 4.2 ms.
///
/// A guest's scheduler hardly moves a thread more often (its tick is 1 to 10 ms), so following a
/// step later costs nothing. A guest that sends each frame of a flow from another queue can change
/// the flow's queue 239 times a second and no more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick(u32);

impl Tick {
    /// The age after which a flow goes by the table: after 30 s of silence no frame of it can be
    /// overtaken.
    const MOST_AGE: u32 = 7152;
    /// The age up to which a flow keeps its place, one second. With more flows at once than places,
    /// new ones go by the table, and none changes its queue with each frame.
    const KEPT: u32 = 256;
    /// How far another worker's clock may be ahead of this one's.
    const LEAD: u32 = 256;

    #[allow(clippy::cast_possible_truncation, reason = "ticks wrap after 208 days")]
    pub(crate) fn of(now: Nanos) -> Tick {
        Tick((now.0 >> 22) as u32)
    }

    fn since(self, earlier: Tick) -> u32 {
        let age = self.0.wrapping_sub(earlier.0);
        if age > u32::MAX - Tick::LEAD { 0 } else { age }
    }
}

/// A flow's tag (24 bits), the tick when it was noted (32), and its queue (8).
#[derive(Clone, Copy)]
struct Place(u64);

impl Place {
    fn new(flow: u64, tick: Tick, queue: u8) -> Place {
        Place(flow >> 40 << 40 | u64::from(tick.0) << 8 | u64::from(queue))
    }

    #[inline]
    fn is_of(self, flow: u64) -> bool {
        (self.0 ^ flow) >> 40 == 0
    }

    #[allow(clippy::cast_possible_truncation, reason = "taking the word apart again")]
    fn tick(self) -> Tick {
        Tick((self.0 >> 8) as u32)
    }
}

impl Followed {
    pub(crate) fn new() -> Followed {
        Followed((0..SETS).map(|_| Set::default()).collect())
    }

    #[allow(clippy::cast_possible_truncation, reason = "any part of a hash is a hash")]
    fn set(&self, flow: u64) -> &[AtomicU64] {
        self.0.get(flow as usize % SETS).map_or(&[], |set| &set.0)
    }

    /// Returns the queue that the flow was last sent from.
    pub(crate) fn find(&self, flow: u64, now: Tick) -> Option<usize> {
        let places = self.set(flow).iter().map(|place| Place(place.load(Relaxed)));
        let found = places.filter(|place| place.is_of(flow));
        let mut young = found.filter(|place| now.since(place.tick()) <= Tick::MOST_AGE);
        young.next().map(|place| (place.0 & 0xff) as usize)
    }

    /// Records that the flow was sent from this queue. Within a tick the first queue stands. A new
    /// flow takes the place of its set that was noted longest ago, unless all were noted within the
    /// last second. If two workers write a place at once, one of the two flows is not noted until
    /// its next frame.
    pub(crate) fn note(&self, flow: u64, queue: u8, now: Tick) {
        let (mut oldest, mut most) = (None, Tick::KEPT - 1);
        for place in self.set(flow) {
            let noted = Place(place.load(Relaxed));
            let age = if noted.0 == 0 { u32::MAX } else { now.since(noted.tick()) };
            if noted.is_of(flow) && noted.0 != 0 {
                if age > 0 {
                    place.store(Place::new(flow, now, queue).0, Relaxed);
                }
                return;
            }
            if age > most {
                (oldest, most) = (Some(place), age);
            }
        }
        oldest.into_iter().for_each(|place| place.store(Place::new(flow, now, queue).0, Relaxed));
    }
}

/// A secret drawn at random for each port.
pub(crate) type Seed = [u64; 3];

/// Returns the flow of a whole TCP or UDP packet at a port, which is the same number for both
/// directions. It is made of VLAN, protocol, and the address and port of either side.
///
/// Returns `None` for packets without ports (fragments, ICMP, ESP, GRE): they do not show which
/// connection they belong to.
#[inline]
pub(crate) fn flow(seed: &Seed, frame: &Frame, header: &[u8], way: Direction) -> Option<u64> {
    let parsed = &frame.parsed;
    if !parsed.kind.has_ports() {
        return None;
    }
    let leaves = way == Direction::Egress;
    let l4 = usize::from(parsed.l4);
    let ports = header.get(l4..l4 + 4)?.first_chunk().map(|ports| u32::from_ne_bytes(*ports))?;
    let ports = if leaves { ports.rotate_left(16) } else { ports };
    let [first, second, third] = *seed;
    let rest = u64::from(ports) << 32 | u64::from(frame.vlan) << 8 | u64::from(parsed.protocol);
    let rest = mix(rest ^ first, second);
    let mixed = match parsed.addresses(header)?.as_chunks().0 {
        [both] => {
            let both = u64::from_ne_bytes(*both);
            mix(if leaves { both.rotate_left(32) } else { both } ^ rest, third)
        }
        [a, b, c, d] => {
            let [a, b, c, d] = [a, b, c, d].map(|word| u64::from_ne_bytes(*word));
            let [a, b, c, d] = if leaves { [c, d, a, b] } else { [a, b, c, d] };
            mix(c ^ mix(a ^ rest, b ^ third), d ^ third)
        }
        _ => return None,
    };
    // Multiplied twice: after one multiplication addresses in sequence stay a sequence, which with
    // some seeds falls into few sets.
    Some(mix(mixed, second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use wire::{Kind, Parsed, Traits};

    const SEED: Seed = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

    /// Returns the flow of a packet from 10.0.0.`host` and a port to 10.0.0.9 port 0.
    fn of(seed: &Seed, host: u8, port: u8, (protocol, vlan): (u8, u16)) -> u64 {
        let header = [10, 0, 0, host, 10, 0, 0, 9, 0, port, 0, 0];
        let mut parsed =
            Parsed { kind: Kind::Tcp, traits: Traits::IPV4, l4: 8, ..Parsed::default() };
        parsed.protocol = protocol;
        // Addresses stand 12 bytes behind the IP header's start.
        let header = [&[0; 26][..], &header].concat();
        parsed.l4 += 26;
        let mut frame = Frame::at(0);
        (frame.parsed, frame.vlan) = (parsed, vlan);
        flow(seed, &frame, &header, Direction::Ingress).unwrap()
    }

    /// A host's next port is not the next host's port.
    #[test]
    fn flows_of_neighbouring_hosts_and_ports_differ() {
        let all = (0..64).flat_map(|host| (0..64).map(move |port| (host, port)));
        let ids = all.flat_map(|(host, port)| {
            [(6, 0), (17, 0), (6, 6), (6, 17)].map(|more| of(&SEED, host, port, more))
        });
        let places = |id| (id, (id >> 40, id % SETS as u64));
        let (ids, places): (HashSet<u64>, HashSet<_>) = ids.map(places).unzip();
        assert_eq!((ids.len(), places.len()), (4 * 64 * 64, 4 * 64 * 64));
    }

    /// Flows that share a set by one seed do not by another: a guest cannot aim at a set without
    /// the seed.
    #[test]
    fn who_shares_a_set_depends_on_the_seed() {
        let of_set = |seed: &Seed, host, port| of(seed, host, port, (6, 0)) % SETS as u64;
        let all = || (0..=255u8).flat_map(|host| (0..=255u8).map(move |port| (host, port)));
        let first = of_set(&SEED, 0, 0);
        let aimed: Vec<_> =
            all().filter(|(host, port)| of_set(&SEED, *host, *port) == first).collect();
        assert!((32..128).contains(&aimed.len()), "65,536 flows, 1024 sets: {}", aimed.len());
        let other = [SEED[0] ^ 1, SEED[1], SEED[2]];
        let sets: HashSet<_> =
            aimed.iter().map(|(host, port)| of_set(&other, *host, *port)).collect();
        assert!(sets.len() > aimed.len() / 2, "{} of {}", sets.len(), aimed.len());
    }

    /// With five flows for four places each took another's place in turn, and each answer went to
    /// another queue.
    #[test]
    fn flows_that_are_sent_all_the_time_keep_their_places() {
        let followed = Followed::new();
        let flows = [1, 2, 3, 4, 5].map(|tag| tag << 40);
        let found = |now| flows.map(|flow| followed.find(flow, now));
        for tick in 1000..2000 {
            flows.iter().for_each(|flow| followed.note(*flow, 3, Tick(tick)));
            assert_eq!(found(Tick(tick)), [Some(3), Some(3), Some(3), Some(3), None]);
        }
        // The second falls silent.
        for tick in 2000..2000 + Tick::KEPT {
            for place in [0, 2, 3, 4] {
                followed.note(flows[place], 3, Tick(tick));
            }
        }
        assert_eq!(found(Tick(2000 + Tick::KEPT)), [Some(3), None, Some(3), Some(3), Some(3)]);
    }

    /// With some seeds neighbouring addresses shared a fraction of the sets.
    #[test]
    fn addresses_in_sequence_are_spread_over_the_sets_by_any_seed() {
        for number in 1..200 {
            let seed = [3, 5, 7].map(|odd| mix(number * odd, SEED[0]) | 1);
            let sets = |host| (0..4u8).map(move |port| of(&seed, host, port, (6, 0)) % SETS as u64);
            let sets: HashSet<u64> = (0..=255).flat_map(sets).collect();
            // 1,024 throws at as many sets hit 647 of them on average, give or take 13.
            assert!(sets.len() > 570, "{} sets by seed {seed:x?}", sets.len());
        }
    }

    #[test]
    fn what_a_worker_ahead_has_noted_is_young_to_one_behind() {
        let followed = Followed::new();
        let (behind, ahead) = (Tick(1000), Tick(1001));
        followed.note(7 << 40, 3, ahead);
        assert_eq!(followed.find(7 << 40, behind), Some(3));
        followed.note(7 << 40, 1, behind);
        assert_eq!(followed.find(7 << 40, ahead), Some(3));
    }

    #[test]
    fn ages_are_right_where_ticks_wrap() {
        let followed = Followed::new();
        followed.note(7 << 40, 3, Tick(u32::MAX));
        assert_eq!(followed.find(7 << 40, Tick(Tick::MOST_AGE - 1)), Some(3));
        assert_eq!(followed.find(7 << 40, Tick(Tick::MOST_AGE)), None);
    }
}
