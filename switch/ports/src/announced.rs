//! The VLANs and addresses with which a port announces its guest.
//!
//! The switch writes them from the port's settings; a port reads them when its guest starts to run.
//! The announcement tells the network where the guest is; the guest itself may send late, or never.

use std::net::IpAddr;
use wire::Mac;
use wire::announce::{Buffer, Station, gratuitous_arp, rarp, unsolicited_advertisement};

/// What the switch knows of a port's guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// VLANs of tagged frames, beside the one of untagged frames.
    pub tagged: Vec<u16>,
    /// The guest's known IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl Announced {
    /// Most frames of an announcement: storm control would hold back more from a vNIC.
    pub const FRAMES: usize = 1000;

    /// Returns the frames that announce an address: first those for the switches in each VLAN, then
    /// those for the neighbours.
    pub fn frames(&self, mac: Mac) -> Vec<Vec<u8>> {
        let vlans = || std::iter::once(None).chain(self.tagged.iter().copied().map(Some));
        let stations = || vlans().map(|tci| Station { mac, tci });
        let mut buffer: Buffer = [0; _];
        let for_switches = stations().map(|station| (station, None));
        let for_neighbours = self
            .addresses
            .iter()
            .flat_map(|address| stations().map(move |station| (station, Some(*address))));
        let frame = |(station, address)| {
            match address {
                None => rarp(&mut buffer, station),
                Some(IpAddr::V4(address)) => gratuitous_arp(&mut buffer, station, address.octets()),
                Some(IpAddr::V6(address)) => {
                    unsolicited_advertisement(&mut buffer, station, address.octets())
                }
            }
            .to_vec()
        };
        for_switches.chain(for_neighbours).take(Self::FRAMES).map(frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    proptest! {
        /// One frame for each VLAN and address; those for the switches come first.
        #[test]
        fn each_vlan_hears_of_the_guest_and_each_of_its_addresses(
            tagged in prop::collection::vec(1..4095u16, 0..20),
            v4 in prop::collection::vec(any::<[u8; 4]>(), 0..4),
            v6 in prop::collection::vec(any::<[u8; 16]>(), 0..4),
        ) {
            let v4 = v4.into_iter().map(|address| Ipv4Addr::from(address).into());
            let v6 = v6.into_iter().map(|address| Ipv6Addr::from(address).into());
            let announced = Announced { tagged: tagged.clone(), addresses: v4.chain(v6).collect() };
            let frames = announced.frames(Mac([2, 0, 0, 0, 0, 1]));
            prop_assert_eq!(frames.len(), (1 + tagged.len()) * (1 + announced.addresses.len()));
            let kinds = frames.iter().map(|frame| {
                let parsed = wire::parse(frame, frame.len()).unwrap();
                (parsed.ethertype, parsed.vlan_id())
            });
            let mut wanted = vec![(0x8035, 0)];
            wanted.extend(tagged.iter().map(|vlan| (0x8035, *vlan)));
            for address in &announced.addresses {
                let ethertype = if address.is_ipv4() { 0x0806 } else { 0x86dd };
                wanted.push((ethertype, 0));
                wanted.extend(tagged.iter().map(|vlan| (ethertype, *vlan)));
            }
            prop_assert!(kinds.eq(wanted));
        }
    }

    /// 4094 VLANs and 256 addresses would cause a million frames for one message of a front end.
    #[test]
    fn an_announcement_has_an_end() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let announced = Announced { tagged: (1..4095).collect(), addresses: vec![address; 256] };
        assert_eq!(announced.frames(Mac::default()).len(), Announced::FRAMES);
    }
}
