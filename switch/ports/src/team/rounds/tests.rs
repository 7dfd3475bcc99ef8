use super::*;
use crate::memory::{self, Peer};
use crate::team::{Member, Team, TeamOptions, assemble};
use crate::{Burst, Device, Offloads};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const STATION: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// Members on memory ports, and the switches behind them.
struct Net {
    device: Device,
    team: Team,
    peers: Vec<Peer>,
    now: Nanos,
}

impl Net {
    fn new(members: usize) -> Net {
        let peers: Arc<Mutex<Vec<Peer>>> = Arc::default();
        let known = peers.clone();
        let opener = move |_: &str| {
            let (mut device, peer) = memory::open(64, Offloads::empty(), 1500).unwrap();
            let mut known = known.lock().unwrap();
            device.mac = Some(Mac([2, 0, 0, 0, 0, u8::try_from(known.len()).unwrap()]));
            known.push(peer);
            Ok(Member::new(device, None).unwrap())
        };
        let names: Vec<String> = (0..members).map(|member| format!("e{member}")).collect();
        // One by one, so that the peers are in the order of the members.
        let first = TeamOptions::new(&[&names[0]]);
        let (device, team) = assemble(&first, Box::new(opener)).unwrap();
        team.try_members(&names).unwrap();
        let peers = std::mem::take(&mut *peers.lock().unwrap());
        let mut net = Net { device, team, peers, now: Nanos(0) };
        net.take();
        net
    }

    /// Returns the number of frames that the switch gets.
    fn take(&mut self) -> usize {
        let queues = self.device.ingress.iter_mut();
        let taken = queues.map(|queue| {
            let mut burst = Burst::new();
            queue.take(self.now, &mut burst).unwrap();
            let count = burst.frames().len();
            drop(burst);
            queue.release();
            count
        });
        taken.sum()
    }

    /// A broadcast of a station outside arrives at a member.
    fn broadcast(&mut self, at: usize, tag: &[u8]) {
        let mut frame = [[0xff; 6], STATION].concat();
        frame.extend(tag);
        frame.resize(60, 0);
        assert!(self.peers[at].send(VnetHeader::default(), &frame));
        self.take();
    }

    /// Runs a round: `carries` says whether the network carries a frame between two members.
    fn round(&mut self, carries: impl Fn(usize, usize, &[u8]) -> bool) -> usize {
        self.now = self.now + PERIOD;
        self.team.inner.probe(self.now);
        let mut sent = 0;
        for (from, peer) in self.peers.iter().enumerate() {
            while let Some(frame) = peer.receive() {
                sent += 1;
                let others = self.peers.iter().enumerate().filter(|(to, _)| *to != from);
                for (_, other) in others.filter(|(to, _)| carries(from, *to, &frame.bytes)) {
                    assert!(other.send(VnetHeader::default(), &frame.bytes));
                }
            }
        }
        assert_eq!(self.take(), 0, "no probe is taken into the switch");
        sent
    }

    fn apart(&self, member: usize) -> Vec<Apart> {
        self.team.status().members[member].apart.clone()
    }
}

fn everywhere(_: usize, _: usize, _: &[u8]) -> bool {
    true
}

fn nowhere(_: usize, _: usize, _: &[u8]) -> bool {
    false
}

const TAG_7: [u8; 4] = [0x81, 0, 0, 7];

fn is_tagged(frame: &[u8]) -> bool {
    frame[12..14] == [0x81, 0]
}

/// Neither member heard the other, and nothing was found.
#[test]
fn members_in_different_access_vlans_are_apart_after_three_rounds() {
    let mut net = Net::new(2);
    assert_eq!(net.round(everywhere), 0, "in a VLAN of which nothing is known nothing is sent");
    net.broadcast(0, &[]);
    net.broadcast(1, &[]);
    for _ in 0..3 {
        assert_eq!(net.round(nowhere), 4);
        assert_eq!(net.apart(1), []);
    }
    net.round(everywhere);
    assert_eq!(net.apart(0), []);
    assert_eq!(net.apart(1), [Apart { vlan: 0, from: vec![Place(0)], bytes: None }]);
    net.round(everywhere);
    assert_eq!(net.apart(1), [], "it ends with its cause");
}

#[test]
fn a_vlan_that_one_switch_lacks_is_named() {
    let mut net = Net::new(3);
    net.broadcast(0, &[]);
    net.broadcast(0, &TAG_7);
    (0..4).for_each(|_| {
        net.round(|from, to, frame| !is_tagged(frame) || (from != 1 && to != 1));
    });
    let apart = Apart { vlan: 7, from: vec![Place(0), Place(2)], bytes: None };
    assert_eq!([0, 1, 2].map(|member| net.apart(member)), [vec![], vec![apart], vec![]]);
}

#[test]
fn a_path_of_a_smaller_mtu_is_named_by_its_size() {
    let mut net = Net::new(2);
    net.broadcast(0, &[]);
    (0..4).for_each(|_| {
        net.round(|_, _, frame| frame.len() < 1000);
    });
    assert_eq!(net.apart(1), [Apart { vlan: 0, from: vec![Place(0)], bytes: Some(1500) }]);
}

/// What a station says in the team's name has no effect without its token, nor in another round,
/// nor in another VLAN than it was sent in.
#[test]
fn a_forged_a_repeated_and_a_moved_probe_are_not_believed() {
    let mut net = Net::new(2);
    net.broadcast(0, &[]);
    net.round(everywhere);
    let forged =
        Probe { token: 1, round: 2, sender: Place(0), index: 0, vlan: 0, size: Size::Small };
    let mut last: Vec<Vec<u8>> = Vec::new();
    for _ in 0..4 {
        net.now = net.now + PERIOD;
        net.team.inner.probe(net.now);
        let frames = |peer: &Peer| std::iter::from_fn(|| peer.receive()).collect::<Vec<_>>();
        let sent = [0, 1].map(|member| frames(&net.peers[member]));
        let old = std::mem::take(&mut last);
        let moved = sent.iter().flatten().map(|frame| {
            let mut moved = frame.bytes.clone();
            moved.splice(12..12, TAG_7);
            moved
        });
        let foreign = [forged.frame(Mac(STATION), 1500)].into_iter().chain(old).chain(moved);
        for frame in foreign.collect::<Vec<_>>() {
            net.peers.iter().for_each(|peer| assert!(peer.send(VnetHeader::default(), &frame)));
        }
        last = sent.into_iter().flatten().map(|frame| frame.bytes).collect();
        assert_eq!(net.take(), 0);
    }
    assert_eq!(net.apart(1).len(), 1);
}

/// Probes are no traffic: not a frame of the switch, no claim, and no VLAN that was heard.
#[test]
fn probes_count_as_nothing_but_probes() {
    let mut net = Net::new(2);
    net.broadcast(0, &[]);
    let before = net.team.status().members;
    (0..3).for_each(|_| {
        net.round(everywhere);
    });
    for (now, before) in net.team.status().members.into_iter().zip(before) {
        assert_eq!(now.counters.probes, 6);
        let counters = crate::team::MemberCounters { probes: 0, ..now.counters };
        assert_eq!((counters, now.vlans), (before.counters, before.vlans));
    }
}

/// A physical switch would see the address at two ports.
#[test]
fn members_of_one_address_are_not_probed() {
    let mut net = Net::new(2);
    net.broadcast(0, &[]);
    net.team.inner.shared.state.set_mac(Place(1), Mac([2, 0, 0, 0, 0, 0]));
    assert_eq!(net.round(everywhere), 0);
}

proptest! {
    /// Of members in any networks, exactly those outside of the largest network are apart, and from
    /// all that are in it.
    #[test]
    fn members_outside_of_the_largest_network_are_apart(networks in prop::array::uniform8(0u8..3)) {
        let of = |network| {
            let members = (0..).zip(networks).filter(|(_, other)| *other == network);
            members.fold(Mask::default(), |mask, (place, _)| mask.with(Place(place)))
        };
        let heard = networks.map(of);
        let found = apart(Mask(u8::MAX), &heard);
        let most = heard.iter().map(|mask| mask.0.count_ones()).max().unwrap();
        let apart = found.iter().fold(Mask::default(), |mask, (place, _)| mask.with(*place));
        let rest = Mask(!apart.0);
        prop_assert_eq!(rest.0.count_ones(), most);
        prop_assert!(heard.contains(&rest));
        prop_assert!(found.iter().all(|(_, from)| *from == rest));
    }

    /// A VLAN that many stations use does not displace those of the team's own guests, and there is
    /// an end to them.
    #[test]
    fn at_most_sixteen_vlans_are_probed(heard in 1usize..40) {
        let mut net = Net::new(2);
        let tags = (100u16..).take(heard).map(|vlan| [[0x81, 0], vlan.to_be_bytes()].concat());
        tags.for_each(|tag| net.broadcast(0, &tag));
        prop_assert_eq!(net.round(everywhere), 4 * heard.min(VLANS));
    }
}
