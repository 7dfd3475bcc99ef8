//! Learns the IP addresses of stations behind a team from ARP and neighbour discovery, so that they
//! can be announced from another member. Source addresses of other packets are not learned, because
//! the station may route for others.

use std::collections::HashMap;
use wire::Mac;
use wire::announce::{self, Station};
use wire::ethernet::ethertype;

/// Largest number of stations.
const MAX_STATIONS: usize = 4096;
/// Largest number of a station's VLANs.
const MAX_VLANS: usize = 16;
/// Largest numbers of a station's addresses in a VLAN; new addresses replace the oldest.
const MAX_V4: usize = 4;
const MAX_V6: usize = 8;

/// Milliseconds after which an address is no longer announced, because another station may have it.
const FRESH_MS: u32 = 300_000;

/// Milliseconds between two searches for silent stations, which are removed to make room.
const SWEEP_MS: u32 = 1000;

/// The VLANs of each station, and its addresses in each VLAN.
#[derive(Default)]
pub(super) struct NeighbourCache {
    known: HashMap<Mac, Vec<Addresses>>,
    /// Time of the last search for silent stations, in milliseconds.
    swept: Option<u32>,
}

/// Addresses of a station in a VLAN, each with the time in milliseconds of its last message.
struct Addresses {
    vlan: Option<u16>,
    /// Time at which the address was last heard outside in the VLAN without having sent through the
    /// team just before, in milliseconds.
    heard: Option<u32>,
    v4: Vec<([u8; 4], u32)>,
    v6: Vec<([u8; 16], u32)>,
}

/// An IP address that a frame states for its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatedAddress {
    V4([u8; 4]),
    V6([u8; 16]),
}

/// Reads the Ethernet header and an 802.1Q tag. Returns the source, the tag's VLAN, the EtherType,
/// and the offset of the packet.
fn read(header: &[u8]) -> Option<(Mac, Option<u16>, u16, usize)> {
    let word =
        |at: usize| header.get(at..at + 2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let source = Mac(*header.get(6..)?.first_chunk()?);
    match word(12)? {
        ethertype::VLAN => Some((source, Some(word(14)? & 0xfff), word(16)?, 18)),
        other => Some((source, None, other, 14)),
    }
}

/// Returns the address that ARP or neighbour discovery states for the sender; `None` for all other
/// frames.
#[inline]
pub(super) fn told(header: &[u8]) -> Option<StatedAddress> {
    let kind = header.get(12..14)?;
    // Most frames are IPv4.
    if kind == ethertype::IPV4.to_be_bytes() {
        return None;
    }
    let (source, _, kind, start) = read(header)?;
    let packet = header.get(start..)?;
    match kind {
        ethertype::ARP => arp(packet, source),
        ethertype::IPV6 => neighbour(packet),
        _ => None,
    }
}

fn arp(packet: &[u8], source: Mac) -> Option<StatedAddress> {
    let is_ethernet = packet.get(..6)? == [0, 1, 8, 0, 6, 4];
    let sender: [u8; 4] = *packet.get(14..)?.first_chunk()?;
    let is_own = packet.get(8..14)? == source.0;
    (is_ethernet && is_own && sender != [0; 4]).then_some(StatedAddress::V4(sender))
}

/// Returns the address in a message of neighbour discovery: the source of a solicitation, the
/// target of an advertisement.
fn neighbour(packet: &[u8]) -> Option<StatedAddress> {
    const ICMPV6: u8 = wire::upper::ICMPV6;
    if *packet.get(6)? != ICMPV6 {
        return None;
    }
    let at = match *packet.get(40)? {
        135 => 8,
        136 => 48,
        _ => return None,
    };
    let address: [u8; 16] = *packet.get(at..)?.first_chunk()?;
    let is_station = address != [0; 16] && address[0] != 0xff;
    is_station.then_some(StatedAddress::V6(address))
}

impl Addresses {
    fn is_fresh(&self, now_ms: u32) -> bool {
        let last = self.v4.last().map(|(_, told)| *told).into_iter();
        let mut last = last.chain(self.v6.last().map(|(_, told)| *told));
        last.any(|told| is_fresh(told, now_ms))
    }
}

fn is_fresh(told: u32, now_ms: u32) -> bool {
    now_ms.wrapping_sub(told) < FRESH_MS
}

impl NeighbourCache {
    /// Forgets a station that is no longer here.
    pub(super) fn forget(&mut self, mac: Mac) {
        self.known.remove(&mac);
    }

    /// Returns the VLANs of all stations (0: untagged), in order.
    pub(super) fn vlans(&self) -> Vec<u16> {
        let mut is_known = [false; 4096];
        for station in self.known.values().flatten() {
            let vlan = usize::from(station.vlan.unwrap_or(0));
            is_known.get_mut(vlan).into_iter().for_each(|known| *known = true);
        }
        (0..4096).zip(is_known).filter_map(|(vlan, is_known)| is_known.then_some(vlan)).collect()
    }

    /// Removes the station from this VLAN (0: untagged). Returns whether it is left in no VLAN.
    pub(super) fn leave(&mut self, mac: Mac, vlan: u16) -> bool {
        let Some(vlans) = self.known.get_mut(&mac) else { return true };
        vlans.retain(|known| known.vlan.unwrap_or(0) != vlan);
        let is_empty = vlans.is_empty();
        if is_empty {
            self.known.remove(&mac);
        }
        is_empty
    }

    /// Notes that the address of a station was heard outside in this VLAN.
    pub(super) fn hear(&mut self, mac: Mac, vlan: u16, now_ms: u32) {
        let known = self.known.get_mut(&mac).into_iter().flatten();
        let here = known.filter(|known| known.vlan.unwrap_or(0) == vlan);
        here.for_each(|known| known.heard = Some(now_ms));
    }

    /// Stores the sender of a frame, with the IP address that the frame stated.
    pub(super) fn note(&mut self, header: &[u8], told: Option<StatedAddress>, now_ms: u32) {
        let Some((mac, vlan, ..)) = read(header) else { return };
        if self.known.len() >= MAX_STATIONS && !self.known.contains_key(&mac) {
            self.sweep(now_ms);
            if self.known.len() >= MAX_STATIONS {
                return;
            }
        }
        let vlans = self.known.entry(mac).or_default();
        if vlans.len() < MAX_VLANS && !vlans.iter().any(|known| known.vlan == vlan) {
            vlans.push(Addresses { vlan, heard: None, v4: Vec::new(), v6: Vec::new() });
        }
        let Some(addresses) = vlans.iter_mut().find(|known| known.vlan == vlan) else { return };
        addresses.heard = None;
        match told {
            Some(StatedAddress::V4(address)) => keep(&mut addresses.v4, address, MAX_V4, now_ms),
            Some(StatedAddress::V6(address)) => keep(&mut addresses.v6, address, MAX_V6, now_ms),
            None => {}
        }
    }

    /// Forgets stations that stated no address lately. They are announced nevertheless, by RARP.
    fn sweep(&mut self, now_ms: u32) {
        if self.swept.is_none_or(|swept| now_ms.wrapping_sub(swept) >= SWEEP_MS) {
            self.swept = Some(now_ms);
            self.known.retain(|_, vlans| vlans.iter().any(|vlan| vlan.is_fresh(now_ms)));
        }
    }

    /// Calls `send` with each frame that announces a station that last sent at `seen_ms`. Skips a
    /// VLAN in which it was heard outside since then: there it is on another host.
    pub(super) fn announce(
        &self,
        (mac, seen_ms): (Mac, u32),
        now_ms: u32,
        mut send: impl FnMut(&[u8]),
    ) {
        let mut buffer = [0; 90];
        let is_here = |known: &&Addresses| {
            known.heard.is_none_or(|heard| heard.wrapping_sub(seen_ms).cast_signed() <= 0)
        };
        let known = self.known.get(&mac).into_iter().flatten();
        for Addresses { vlan, v4, v6, .. } in known.filter(is_here) {
            let station = Station { mac, tci: *vlan };
            let mut known = false;
            for (address, _) in v4.iter().filter(|(_, told)| is_fresh(*told, now_ms)) {
                send(announce::gratuitous_arp(&mut buffer, station, *address));
                known = true;
            }
            for (address, _) in v6.iter().filter(|(_, told)| is_fresh(*told, now_ms)) {
                send(announce::unsolicited_advertisement(&mut buffer, station, *address));
                known = true;
            }
            if !known {
                send(announce::rarp(&mut buffer, station));
            }
        }
        if !self.known.contains_key(&mac) {
            send(announce::rarp(&mut buffer, Station { mac, tci: None }));
        }
    }
}

/// Moves or adds an address to the end of a list, and removes the first if the list exceeds `most`.
fn keep<Address: PartialEq>(list: &mut Vec<(Address, u32)>, told: Address, most: usize, now: u32) {
    list.retain(|(known, _)| *known != told);
    list.push((told, now));
    if list.len() > most {
        list.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn announced(stations: &NeighbourCache, mac: Mac) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        stations.announce((mac, 5), 6, |frame| frames.push(frame.to_vec()));
        frames.sort();
        frames
    }

    proptest! {
        /// An announcement has the address that the station stated, in the station's VLAN.
        #[test]
        fn what_a_station_told_is_announced(v4: [u8; 4], last: [u8; 8], vlan in proptest::option::of(0u16..4095)) {
            prop_assume!(v4 != [0; 4]);
            let v6 = [[0xfe, 0x80, 0, 0, 0, 0, 0, 1], last].concat().try_into().unwrap();
            let (station, mut buffer) = (Station { mac: MAC, tci: vlan }, [0; 90]);
            let mut stations = NeighbourCache::default();
            let mut frames = vec![
                announce::gratuitous_arp(&mut buffer, station, v4).to_vec(),
                announce::unsolicited_advertisement(&mut buffer, station, v6).to_vec(),
            ];
            for (frame, is) in frames.iter().zip([StatedAddress::V4(v4), StatedAddress::V6(v6)]) {
                prop_assert_eq!(told(frame), Some(is));
                stations.note(frame, told(frame), 5);
            }
            frames.sort();
            prop_assert_eq!(announced(&stations, MAC), frames);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            NeighbourCache::default().note(&bytes, told(&bytes), 5);
        }
    }

    #[test]
    fn a_station_that_told_nothing_is_announced_by_rarp() {
        let mut stations = NeighbourCache::default();
        let frame = announce::rarp(&mut [0; 90], Station { mac: MAC, tci: Some(7) }).to_vec();
        stations.note(&frame, None, 5);
        assert_eq!(announced(&stations, MAC), [frame]);
        assert_eq!(announced(&NeighbourCache::default(), MAC).len(), 1);
    }

    /// An old announcement would take the address from the station that has it now.
    #[test]
    fn an_address_told_long_ago_is_not_announced() {
        let (mut stations, station) = (NeighbourCache::default(), Station { mac: MAC, tci: None });
        let frame = announce::gratuitous_arp(&mut [0; 90], station, [10, 0, 0, 1]).to_vec();
        stations.note(&frame, told(&frame), 5);
        for (now, kind) in [(FRESH_MS + 4, 0x06), (FRESH_MS + 5, 0x35)] {
            stations.announce((MAC, now), now, |frame| assert_eq!(frame[13], kind));
        }
    }

    /// Otherwise a guest could make the switch announce its gateway's address.
    #[test]
    fn an_address_of_another_sender_is_not_taken() {
        let station = Station { mac: MAC, tci: None };
        let mut frame = announce::gratuitous_arp(&mut [0; 90], station, [10, 0, 0, 1]).to_vec();
        frame[6] = 4;
        assert_eq!(told(&frame), None);
    }

    #[test]
    fn a_guest_that_tells_many_addresses_keeps_the_newest() {
        let mut stations = NeighbourCache::default();
        let station = Station { mac: MAC, tci: None };
        for last in 0..100 {
            let frame = announce::gratuitous_arp(&mut [0; 90], station, [10, 0, 0, last]).to_vec();
            stations.note(&frame, told(&frame), 5);
        }
        let frames = announced(&stations, MAC);
        assert_eq!(frames.iter().map(|frame| frame[31]).collect::<Vec<_>>(), [96, 97, 98, 99]);
    }
}
