//! A team of memory ports on virtual time, and the switch outside.

use ports::memory::{self, Peer};
use ports::team::{self, Algorithm, Condition, Member, MemberError, Team, TeamOptions};
use ports::{Burst, Device, EgressDrop, Nanos, Offloads, Outgoing, Slice};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use wire::Mac;
use wire::vnet::VnetHeader;

pub(crate) const START: Nanos = Nanos(10 * Nanos::SECOND.0);
pub(crate) const SECOND: Nanos = Nanos::SECOND;

/// A team, and the other side of each member.
pub(crate) struct World {
    pub(crate) device: Device,
    pub(crate) team: Team,
    peers: Arc<Mutex<BTreeMap<String, Peer>>>,
    /// Members that fail to open.
    refused: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn own_mac(name: &str) -> Mac {
    Mac([2, 0xaa, 0, 0, 0, name.as_bytes()[name.len() - 1]])
}

impl World {
    pub(crate) fn new(members: &[&str], algorithm: Algorithm, depth: usize) -> World {
        let peers: Arc<Mutex<BTreeMap<String, Peer>>> = Arc::default();
        let refused: Arc<Mutex<Vec<String>>> = Arc::default();
        let (known, closed) = (peers.clone(), refused.clone());
        let opener = move |name: &str| {
            if closed.lock().unwrap().iter().any(|other| other == name) {
                return Err(MemberError { reason: "refused".to_owned(), denied: false });
            }
            let (mut device, peer) = memory::open(depth, Offloads::all(), 1500).unwrap();
            device.mac = Some(own_mac(name));
            known.lock().unwrap().insert(name.to_owned(), peer);
            Ok(Member::new(device, None).unwrap())
        };
        let options = TeamOptions { algorithm, ..TeamOptions::new(members) };
        let (device, team) = team::assemble(&options, Box::new(opener)).unwrap();
        World { device, team, peers, refused }
    }

    /// Makes a member fail to open from now on.
    pub(crate) fn refuse(&self, name: &str) {
        self.refused.lock().unwrap().push(name.to_owned());
    }

    pub(crate) fn send(&self, now: Nanos, frames: &[Vec<u8>]) -> Vec<(usize, EgressDrop)> {
        let outgoing: Vec<Outgoing<'_>> = frames
            .iter()
            .map(|frame| {
                let (header, payload) = (frame.as_slice(), &[] as &[Slice<'_>]);
                Outgoing {
                    vnet: VnetHeader::default(),
                    header,
                    payload,
                    len: frame.len().try_into().unwrap(),
                }
            })
            .collect();
        let mut drops = Vec::new();
        self.device.egress[0].deliver_at(now, &outgoing, &mut drops).unwrap();
        assert!(drops.is_sorted_by_key(|(place, _)| *place));
        drops
    }

    /// Returns the frames that have left, with the member of each.
    pub(crate) fn received(&self) -> Vec<(String, Vec<u8>)> {
        let peers = self.peers.lock().unwrap();
        let of = |(name, peer): (&String, &Peer)| {
            let frames =
                std::iter::from_fn(|| peer.receive()).map(|frame| (name.clone(), frame.bytes));
            frames.collect::<Vec<_>>()
        };
        peers.iter().flat_map(of).collect()
    }

    pub(crate) fn bring(&self, member: &str, frame: &[u8]) {
        assert!(self.peers.lock().unwrap()[member].send(VnetHeader::default(), frame));
    }

    /// Returns the frames that the switch gets.
    pub(crate) fn taken(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        self.taken_in([0, 1, 2, 3], now)
    }

    /// Returns the frames that the switch gets if the workers read members in this order.
    pub(crate) fn taken_in(
        &mut self,
        places: impl IntoIterator<Item = usize>,
        now: Nanos,
    ) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        for place in places {
            let queue = &mut self.device.ingress[place];
            let mut burst = Burst::new();
            queue.take(now, &mut burst).unwrap();
            for frame in burst.frames() {
                let mut bytes = Vec::new();
                burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
                taken.push(bytes);
            }
            drop(burst);
            queue.release();
        }
        taken
    }

    pub(crate) fn set(&self, name: &str, up: bool, now: Nanos) {
        let down = || Condition::Down("pulled".to_owned());
        self.team.note(name, &if up { Condition::Up } else { down() }, now);
    }

    pub(crate) fn current(&self, mac: Mac) -> Option<String> {
        let status = self.team.status();
        let home = status.homes.iter().find(|home| home.mac == mac)?;
        let place = home.current?;
        status.members.iter().find(|member| member.place == place).map(|member| member.name.clone())
    }
}

pub(crate) fn vnic(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

pub(crate) const OUTSIDE: Mac = Mac([2, 0xbb, 0, 0, 0, 1]);

/// Returns a UDP packet of a flow, with a number behind its header.
pub(crate) fn udp(from: Mac, to: Mac, flow: u16, number: u32) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    frame
        .extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from.0[5], 10, 0, 1, 1]);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend([0x13, 0x88, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

pub(crate) fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

pub(crate) fn arp(from: Mac, address: [u8; 4]) -> Vec<u8> {
    let station = wire::announce::Station { mac: from, tci: None };
    wire::announce::gratuitous_arp(&mut [0; 90], station, address).to_vec()
}

pub(crate) const NAMES: [&str; 4] = ["eth0", "eth1", "eth2", "eth3"];

/// Returns the frame with a tag.
pub(crate) fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}
