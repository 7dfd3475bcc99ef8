//! Tests the kernel path between real interfaces: what is carried, that each frame comes out once,
//! and that a decision ends when it is withdrawn.

use crate::support::{deliver, in_namespace, ip, take_until, udp_header, udp_vnet};
use crate::veth::{ADDRESSES, OUR_MAC, THEIR_MAC, is_ours};
use ports::kernel_path::{
    FLOWS, FlowKey, Glance, Hook, KernelPath, Moment, Offer, Start, TcpPhase,
};
use ports::packet::{self, Opened, PacketOptions};
use ports::{IngressQueue, Slice};
use std::time::Duration;

/// Two veth pairs: a machine on one side of each, a port of the switch on the other.
pub(crate) struct Bed {
    pub(crate) path: KernelPath,
    pub(crate) machines: [Opened; 2],
    ports: [Opened; 2],
}

impl Bed {
    /// Makes it, or says why the kernel path cannot be tested.
    pub(crate) fn make() -> Option<Bed> {
        let path = KernelPath::load()
            .inspect_err(|error| eprintln!("skipped: needs CAP_BPF and CAP_NET_ADMIN: {error}"))
            .ok()?;
        for (host, machine) in [("milla0", "milla1"), ("millb0", "millb1")] {
            ip(&format!("link add {host} type veth peer name {machine}"));
            ip(&format!("link set {host} up"));
            ip(&format!("link set {machine} up"));
        }
        let plain = |name| packet::open(&PacketOptions::new(name)).expect("open");
        let machines = [plain("milla1"), plain("millb1")];
        let ports = ["milla0", "millb0"].map(|name| port(&path, name));
        Some(Bed { ports, machines, path })
    }

    /// Sends a frame from the first machine, with this number as its payload.
    fn send(&mut self, number: u16) {
        let payload = number.to_be_bytes();
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        let slices = [Slice::from(&payload[..])];
        deliver(&mut self.machines[0].device.egress[0], udp_vnet(0), &header, &slices);
    }

    /// Has the flow of [`Bed::send`] carried from the first port to the second.
    fn offer(&self, mtu: u16, start: Start) -> bool {
        let [from, to] = self.hooks();
        from.offer(to, Offer { key: flow(), vlan: 1, mtu, moment: from.moment(), start })
    }

    pub(crate) fn hooks(&self) -> [&Hook; 2] {
        self.ports.each_ref().map(|port| port.device.hook.as_deref().expect("a hook"))
    }

    pub(crate) fn at_switch(&mut self) -> &mut IngressQueue {
        &mut self.ports[0].device.ingress[0]
    }

    pub(crate) fn at_receiver(&mut self) -> &mut IngressQueue {
        &mut self.machines[1].device.ingress[0]
    }

    /// Returns what the ports have carried.
    fn count(&self) -> [ports::kernel_path::Carried; 2] {
        while self.path.sweep(64, Duration::from_secs(60), |_| true) > 0 {}
        self.hooks().map(|hook| hook.carried())
    }
}

/// Opens a station's port at an interface, on this kernel path.
pub(crate) fn port(path: &KernelPath, name: &str) -> Opened {
    open(path, name, true)
}

fn open(path: &KernelPath, name: &str, is_station: bool) -> Opened {
    let kernel_path = Some(path.clone());
    let opened =
        packet::open(&PacketOptions { kernel_path, is_station, ..PacketOptions::new(name) });
    let opened = opened.expect("open");
    assert!(opened.device.hook.is_some(), "{:?}", opened.degraded);
    opened
}

/// Returns the flow of [`Bed::send`].
pub(crate) fn flow() -> FlowKey {
    let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 2);
    Glance::read(&header).expect("a flow").key
}

pub(crate) fn numbers(queue: &mut IngressQueue, enough: usize) -> Vec<u16> {
    let frames = take_until(queue, enough, is_ours);
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[42], bytes[43]]);
    frames.iter().map(|frame| number(&frame.bytes)).collect()
}

#[test]
fn a_carried_frame_arrives_once_and_the_switch_gets_all_others() {
    in_namespace(|| {
        let Some(mut bed) = Bed::make() else { return };
        bed.send(0);
        assert_eq!(numbers(bed.at_switch(), 1), [0]);
        assert!(bed.offer(1500, Start::Now));
        (1..5).for_each(|number| bed.send(number));
        assert_eq!(numbers(bed.at_receiver(), 4), [1, 2, 3, 4]);
        let [from, to] = bed.hooks();
        let before = from.moment();
        to.withdraw();
        bed.path.settle();
        bed.send(5);
        assert_eq!(numbers(bed.at_switch(), 1), [5], "and none of those that were carried");
        let [from, to] = bed.hooks();
        let late =
            Offer { key: flow().reversed(), vlan: 1, mtu: 1500, moment: before, start: Start::Now };
        assert!(!to.offer(from, late), "it was decided before");
        let [from, to] = bed.count();
        assert_eq!((from.ingress.frames, from.ingress.trains, from.ingress.bytes), (4, 0, 4 * 44));
        assert_eq!((to.egress, from.egress.frames), (from.ingress, 0));
        assert_eq!((bed.path.flows(), bed.path.unmatched()), (0, 0), "a withdrawn flow is removed");
    });
}

#[test]
fn a_pending_flow_is_carried_once_it_was_quiet_at_an_empty_ring() {
    in_namespace(|| {
        let Some(mut bed) = Bed::make() else { return };
        assert!(bed.offer(1500, Start::Quiet));
        assert!(!bed.offer(1500, Start::Now), "it is there");
        bed.send(1);
        // A look from before the frame says nothing.
        let early = bed.hooks()[0].begin_look().expect("a pending flow");
        bed.send(2);
        bed.hooks()[0].found_empty(early);
        bed.send(3);
        assert_eq!(numbers(bed.at_switch(), 3), [1, 2, 3]);
        std::thread::sleep(Duration::from_millis(1));
        let look = bed.hooks()[0].begin_look().expect("a pending flow");
        bed.hooks()[0].found_empty(look);
        assert!(bed.hooks()[0].begin_look().is_none());
        bed.send(4);
        assert_eq!(numbers(bed.at_receiver(), 1), [4]);
    });
}

#[test]
fn without_a_lease_and_above_the_mtu_frames_are_the_switch_s() {
    in_namespace(|| {
        let Some(mut bed) = Bed::make() else { return };
        assert!(bed.offer(29, Start::Now), "IP, UDP and one byte");
        bed.send(1);
        assert_eq!(numbers(bed.at_switch(), 1), [1]);
        let [from, _] = bed.hooks();
        from.end(flow());
        assert!(bed.offer(30, Start::Now));
        bed.send(2);
        assert_eq!(numbers(bed.at_receiver(), 1), [2]);
        std::thread::sleep(ports::kernel_path::LEASE);
        bed.send(3);
        assert_eq!(numbers(bed.at_switch(), 1), [3]);
        bed.path.extend_lease();
        bed.send(4);
        assert_eq!(numbers(bed.at_receiver(), 1), [4]);
    });
}

#[test]
fn a_station_that_is_forgotten_is_the_switch_s() {
    in_namespace(|| {
        let Some(mut bed) = Bed::make() else { return };
        assert!(bed.offer(1500, Start::Now));
        bed.path.forget_station([2, 0, 0, 0, 0, 99]);
        bed.send(1);
        assert_eq!(numbers(bed.at_receiver(), 1), [1]);
        bed.path.forget_station(THEIR_MAC);
        bed.send(2);
        assert_eq!(numbers(bed.at_switch(), 1), [2]);
    });
}

/// A flood at one port leaves room for a neighbour's flows, and pushes none out.
#[test]
fn a_port_has_at_most_four_times_what_is_free() {
    in_namespace(|| {
        let Some(mut bed) = Bed::make() else { return };
        assert!(bed.offer(1500, Start::Now));
        let [neighbour, flooder] = bed.hooks();
        let moment = flooder.moment();
        let offer = |hook: &Hook, to: &Hook, number| hook.offer(to, numbered(number, moment));
        let start = std::time::Instant::now();
        let taken = (0..200_000).take_while(|number| offer(flooder, neighbour, *number)).count();
        println!("measured: {taken} flows in {:?}", start.elapsed());
        assert!((100_000..FLOWS * 4 / 5 + 2).contains(&taken), "{taken}");
        assert!((0..1000).all(|number| offer(neighbour, flooder, number)));
        // The flood may have taken longer than the lease.
        bed.path.extend_lease();
        bed.send(7);
        assert_eq!(numbers(bed.at_receiver(), 1), [7]);
    });
}

/// Returns the offer of one of many flows.
fn numbered(number: u32, moment: Moment) -> Offer {
    let [_, a, b, c] = number.to_be_bytes();
    let header = udp_header(OUR_MAC, THEIR_MAC, [[10, a, b, c], [10, 9, 0, 2]], 2);
    let key = Glance::read(&header).expect("a flow").key;
    Offer { key, vlan: 1, mtu: 1500, moment, start: Start::Now }
}

/// A flood of connections to one guest kept the flows of all others from the uplink.
#[test]
fn a_flood_from_an_uplink_leaves_room_for_its_other_receivers() {
    in_namespace(|| {
        let Some(bed) = Bed::make() else { return };
        ip("link add millc0 type veth peer name millc1");
        ip("link set millc0 up");
        let opened = open(&bed.path, "millc0", false);
        let uplink = opened.device.hook.as_deref().expect("a hook");
        let [flooded, neighbour] = bed.hooks();
        let moment = uplink.moment();
        let taken =
            (0..200_000).take_while(|n| uplink.offer(flooded, numbered(*n, moment))).count();
        // Four fifths of what is not kept for others than uplinks.
        assert!((80_000..FLOWS * 16 / 25 + 2).contains(&taken), "{taken}");
        assert!((200_000..201_000).all(|n| uplink.offer(neighbour, numbered(n, moment))));
    });
}

/// Shorter trains overtook those that are too long for the programs.
#[test]
fn a_train_that_is_too_big_leaves_its_port_s_flows_to_the_switch() {
    in_namespace(|| {
        let Some(mut bed) = Bed::make() else { return };
        assert!(bed.offer(1500, Start::Now));
        bed.send(1);
        assert_eq!(numbers(bed.at_receiver(), 1), [1]);
        let [from, to] = bed.hooks();
        from.note_big_train();
        assert_eq!([from, to].map(Hook::makes_big_trains), [true, false]);
        bed.path.settle();
        bed.send(2);
        assert_eq!(numbers(bed.at_switch(), 1), [2]);
    });
}

#[test]
fn a_connection_s_phases_are_read() {
    let tcp = |flags: u8| {
        let mut header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 12);
        header.resize(54, 0);
        (header[23], header[46]) = (6, 0x50);
        header[47] = flags;
        Glance::read(&header).map(|glance| glance.phase)
    };
    assert_eq!([0x02, 0x12].map(tcp), [Some(TcpPhase::Opens), Some(TcpPhase::Accepts)]);
    assert_eq!(flow().reversed().reversed(), flow());
    assert_eq!(flow().reversed().ports(), [0x2000, 0x1000]);
    assert_eq!([0x10, 0x18, 0xd0].map(tcp), [Some(TcpPhase::Goes); 3]);
    assert_eq!([0x11, 0x04, 0x14, 0x01].map(tcp), [Some(TcpPhase::Ends); 4]);
    assert_eq!([0x00, 0x03, 0x06, 0x08].map(tcp), [None; 4]);
    assert_eq!(flow().addresses().map(|address| address.to_string()), ["10.9.0.2", "10.9.0.1"]);
    assert_eq!((flow().ports(), flow().protocol()), ([0x1000, 0x2000], 17));
}
