//! Two smoltcp stacks talk through the switch, over wires that lose, reorder and duplicate: every
//! byte arrives, with coalescing on and off, on virtual time.

use crate::common::{self, ALL, plain, rsc};
use datapath::{PortCounters, PortSettings, RscPolicy, Switch, SwitchOptions};
use ports::fault::{self, Faults, PerMillion};
use ports::memory::{self, MemoryFrame, Peer};
use ports::{Nanos, Offloads};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use wire::vnet::{Flags, VnetHeader};

/// A guest's network card: the far side of a memory port.
struct Card(Peer);

struct Received(MemoryFrame, Peer);
struct Sending(Peer);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.0.bytes);
        self.1.recycle(self.0);
        result
    }
}

impl TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut bytes = vec![0; len];
        let result = f(&mut bytes);
        self.0.send(VnetHeader::default(), &bytes);
        result
    }
}

impl Device for Card {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending)> {
        let mut frame = self.0.receive()?;
        finish_checksum(&mut frame);
        Some((Received(frame, self.0.clone()), Sending(self.0.clone())))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending> {
        Some(Sending(self.0.clone()))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities.checksum.tcp = Checksum::Both;
        capabilities
    }
}

/// A train's checksum is left to its receiver; smoltcp checks every one, so here it is written.
fn finish_checksum(frame: &mut MemoryFrame) {
    if frame.vnet.flags().contains(Flags::NEEDS_CSUM) {
        let start = usize::from(frame.vnet.csum_start.get());
        let place = start + usize::from(frame.vnet.csum_offset.get());
        let sum = !common::trace::fold(&frame.bytes[start..]);
        frame.bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// A guest: a stack with one TCP socket.
struct Guest {
    card: Card,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Guest {
    fn new(peer: Peer, number: u8, v6: bool) -> Guest {
        let mut card = Card(peer);
        let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, number]).into());
        config.random_seed = number.into();
        let mut interface = Interface::new(config, &mut card, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            list.push(IpCidr::new(address(number, v6), if v6 { 64 } else { 24 })).unwrap()
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 1 << 20]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Guest { card, interface, sockets, socket }
    }

    fn poll(&mut self, now: Nanos) -> &mut tcp::Socket<'static> {
        self.interface.poll(
            Instant::from_micros((now.0 / 1000) as i64),
            &mut self.card,
            &mut self.sockets,
        );
        self.sockets.get_mut(self.socket)
    }
}

fn address(number: u8, v6: bool) -> IpAddress {
    if v6 {
        IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, number.into())
    } else {
        IpAddress::v4(10, 0, 0, number)
    }
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn port(
    switch: &mut Switch,
    name: &str,
    offloads: Offloads,
    policy: RscPolicy,
    faults: Faults,
) -> Peer {
    let (device, peer) = memory::open(1024, offloads, 1500).unwrap();
    let device = fault::wrap(device, faults, Faults { seed: faults.seed + 100, ..faults });
    switch.add_port(name, device, PortSettings { rsc: rsc(policy), ..plain() }).unwrap();
    peer
}

/// Sends `total` bytes from one guest to the other, and gives the counters of the receiver's port.
fn transfer(total: usize, v6: bool, policy: RscPolicy, faults: Faults) -> PortCounters {
    let mut switch = Switch::stepped(SwitchOptions::default());
    let mut sender = Guest::new(port(&mut switch, "sender", ALL, RscPolicy::Off, faults), 1, v6);
    let mut receiver = Guest::new(port(&mut switch, "receiver", ALL, policy, faults), 2, v6);
    receiver.poll(Nanos::SECOND).listen(7).unwrap();
    let socket = sender.sockets.get_mut::<tcp::Socket<'_>>(sender.socket);
    socket.connect(sender.interface.context(), (address(2, v6), 7), 4000).unwrap();

    let (mut now, mut sent, mut received) = (Nanos::SECOND, 0, 0);
    while received < total {
        now = now + Nanos(200_000);
        assert!(
            now.as_secs() < 7200,
            "{received} of {total} bytes after two hours of virtual time"
        );
        let socket = sender.poll(now);
        if socket.can_send() {
            sent += socket
                .send(|room| {
                    let len = room.len().min(total - sent);
                    room[..len]
                        .iter_mut()
                        .enumerate()
                        .for_each(|(at, place)| *place = byte(sent + at));
                    (len, len)
                })
                .unwrap();
        }
        switch.step(now);
        let socket = receiver.poll(now);
        while socket.can_recv() {
            received += socket
                .recv(|bytes| {
                    let wrong =
                        bytes.iter().enumerate().find(|(at, value)| **value != byte(received + at));
                    assert!(wrong.is_none(), "a wrong byte at {}", received + wrong.unwrap().0);
                    (bytes.len(), bytes.len())
                })
                .unwrap();
        }
        switch.step(now);
    }
    let id = switch.ports()[1].id;
    switch.counters(id).unwrap()
}

const MIB: usize = 1 << 20;

/// Loss, reordering and duplication of a bad wire.
fn bad_wire(seed: u64) -> Faults {
    Faults {
        seed,
        loss: PerMillion(1_000),
        duplication: PerMillion(2_000),
        reordering: PerMillion(2_000),
        ..Faults::default()
    }
}

#[test]
fn sixty_four_mib_arrive_over_a_bad_wire_without_coalescing() {
    let counters = transfer(64 * MIB, false, RscPolicy::Off, bad_wire(1));
    assert_eq!(counters.coalesced_packets, 0);
}

#[test]
fn sixty_four_mib_arrive_over_a_bad_wire_with_coalescing() {
    let counters = transfer(64 * MIB, false, RscPolicy::Ndis, bad_wire(2));
    assert!(counters.coalesced_packets > 1000, "{counters:?}");
}

#[test]
fn sixty_four_mib_arrive_by_gro_rules_over_ipv6() {
    let counters = transfer(64 * MIB, true, RscPolicy::Gro, bad_wire(3));
    assert!(counters.coalesced_packets > 1000, "{counters:?}");
}

#[test]
fn corrupted_segments_are_caught_and_sent_again() {
    let faults = Faults { corruption: PerMillion(2_000), ..bad_wire(4) };
    let counters = transfer(8 * MIB, false, RscPolicy::Ndis, faults);
    let caught = counters.rsc_exceptions[datapath::RscException::BadChecksum as usize];
    assert!(caught > 0, "{counters:?}");
}
