//! Tests TAP against the kernel of this host: sockets on the other side, trains both ways, and a
//! device that goes away.

use crate::support::{self, TO_PORT, deliver, in_namespace, ip, take_until, udp_header, udp_vnet};
use crate::veth::OUR_MAC;
use ports::link::Link;
use ports::packet::{self, PacketOptions};
use ports::tap::{self, TapError, TapOptions};
use ports::{Burst, EgressDrop, Nanos, Offloads, Outgoing, PortFault, Slice, namespace};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use wire::Mac;
use wire::vnet::{Flags, GsoType, VnetHeader};

const KERNEL: [u8; 4] = [10, 9, 0, 1];
const OURS: [u8; 4] = [10, 9, 0, 2];

/// Opens a TAP device. A child that another test starts holds a copy of every descriptor of this
/// process until it runs its program, so a device closed just now may be busy for that long.
fn open(options: &TapOptions) -> tap::Opened {
    let start = Instant::now();
    loop {
        match tap::open(options) {
            Err(TapError::Attach { source, .. })
                if source.kind() == ErrorKind::ResourceBusy && start.elapsed().as_secs() < 10 =>
            {
                thread::yield_now();
            }
            result => return result.expect("open"),
        }
    }
}

/// Opens a TAP device with an address, and a socket behind it with us as its peer.
fn tap_and_socket(options: &TapOptions) -> (tap::Opened, UdpSocket) {
    let opened = open(options);
    ip(&format!("addr add 10.9.0.1/24 dev {}", options.name));
    ip(&format!("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev {}", options.name));
    let socket = UdpSocket::bind(("10.9.0.1", TO_PORT)).expect("bind");
    socket.connect(("10.9.0.2", support::FROM_PORT)).expect("connect");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    (opened, socket)
}

fn is_udp(frame: &support::Taken) -> bool {
    frame.bytes.get(12..14) == Some(&[8, 0]) && frame.bytes.get(23) == Some(&17)
}

#[test]
fn udp_goes_both_ways() {
    in_namespace(|| {
        let (mut opened, socket) = tap_and_socket(&TapOptions::new("mill0"));
        assert_eq!(opened.device.mtu, 1500);
        let mac = opened.device.mac.expect("an address").0;
        let payload = b"gathered from two slices".as_slice();
        let header = udp_header(mac, OUR_MAC, [OURS, KERNEL], payload.len());
        let slices = [Slice::from(&payload[..5]), Slice::from(&payload[5..])];
        deliver(&mut opened.device.egress[0], udp_vnet(0), &header, &slices);
        let mut got = [0; 100];
        let count = socket.recv(&mut got).expect("recv");
        assert_eq!(&got[..count], payload);

        socket.send(b"and back").expect("send");
        let frames = take_until(&mut opened.device.ingress[0], 1, is_udp);
        assert_eq!(frames[0].bytes[..12], [OUR_MAC, mac].concat());
        assert_eq!(&frames[0].bytes[42..], b"and back");
        assert_eq!(frames[0].raw.vnet.flags(), Flags::NEEDS_CSUM);
        assert_eq!(frames[0].raw.vnet.csum_start.get(), 34);
    });
}

#[test]
fn trains_pass_whole_both_ways() {
    in_namespace(|| {
        let (mut opened, socket) = tap_and_socket(&TapOptions::new("mill1"));
        if !opened.device.live.offloads().contains(Offloads::USO) || !opened.degraded.is_empty() {
            eprintln!("skipped: needs a kernel with USO: {:?}", opened.degraded);
            return;
        }
        let mac = opened.device.mac.expect("an address").0;
        let payload: Vec<u8> = (0..3000u32).map(|at| (at % 251) as u8).collect();
        let header = udp_header(mac, OUR_MAC, [OURS, KERNEL], payload.len());
        deliver(
            &mut opened.device.egress[0],
            udp_vnet(1200),
            &header,
            &[Slice::from(&payload[..])],
        );
        for wanted in payload.chunks(1200) {
            let mut got = [0; 4000];
            let count = socket.recv(&mut got).expect("recv");
            assert_eq!(&got[..count], wanted);
        }

        support::segment_by(&socket, 1200);
        socket.send(&payload).expect("send");
        let frames = take_until(&mut opened.device.ingress[0], 1, is_udp);
        assert_eq!(frames[0].raw.vnet.gso(), GsoType::UdpL4);
        assert_eq!(frames[0].raw.vnet.gso_size.get(), 1200);
        assert_eq!(frames[0].bytes[42..], payload);
    });
}

#[test]
fn a_frame_of_more_pieces_than_one_call_takes_arrives_whole() {
    in_namespace(|| {
        let (mut opened, socket) = tap_and_socket(&TapOptions::new("mill2"));
        let mac = opened.device.mac.expect("an address").0;
        let payload: Vec<u8> = (0..1400u32).map(|at| (at % 241) as u8).collect();
        let slices: Vec<Slice<'_>> = payload.chunks(1).map(Slice::from).collect();
        let header = udp_header(mac, OUR_MAC, [OURS, KERNEL], payload.len());
        deliver(&mut opened.device.egress[0], udp_vnet(0), &header, &slices);
        let mut got = [0; 2000];
        let count = socket.recv(&mut got).expect("recv");
        assert_eq!(got[..count], payload);
    });
}

#[test]
fn a_deleted_device_is_gone_and_a_device_that_is_down_says_so() {
    in_namespace(|| {
        let mut opened = tap::open(&TapOptions::new("mill3")).expect("open");
        let (ingress, egress) = (&mut opened.device.ingress[0], &mut opened.device.egress[0]);
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &[0; 60], payload: &[], len: 60 };
        let mut drops = Vec::new();

        opened.link.set_up(false).expect("down");
        egress.deliver(&[frame, frame], &mut drops).expect("deliver");
        assert_eq!(drops, [(0, EgressDrop::Down), (1, EgressDrop::Down)]);
        opened.link.set_up(true).expect("up");
        drops.clear();
        egress.deliver(&[frame], &mut drops).expect("deliver");
        assert_eq!(drops, []);

        ip("link del mill3");
        assert!(opened.link.index().is_err());
        assert!(matches!(egress.deliver(&[frame], &mut drops), Err(PortFault::Gone(_))));
        let taken = ingress.take(Nanos(0), &mut Burst::new());
        assert!(matches!(taken, Err(PortFault::Gone(_))), "{taken:?}");
    });
}

#[test]
fn a_device_is_made_in_the_namespace_asked_for() {
    in_namespace(|| {
        // The namespace of this thread, named so that the opening thread must enter it.
        let path = format!("/proc/self/task/{}/ns/net", rustix::thread::gettid().as_raw_nonzero());
        let other = namespace::fresh(|| {
            let options = TapOptions {
                netns: Some(path.into()),
                mtu: Some(9000),
                ..TapOptions::new("mill4")
            };
            tap::open(&options).expect("open")
        });
        let opened = other.expect("a namespace");
        ip("link show mill4");
        assert_eq!(opened.device.mtu, 9000);
        assert!(opened.link.is_up().expect("flags"));
    });
}

#[test]
fn several_queues_and_an_existing_device_of_several_queues() {
    in_namespace(|| {
        let options = TapOptions { queues: 4, ..TapOptions::new("mill5") };
        let opened = tap::open(&options).expect("open");
        assert_eq!((opened.device.ingress.len(), opened.device.egress.len()), (4, 4));
        ip("tuntap add mill6 mode tap multi_queue");
        assert_eq!(tap::open(&TapOptions::new("mill6")).expect("open").device.ingress.len(), 1);
        ip("link add mill7 type veth peer name mill7b");
        let error = tap::open(&TapOptions::new("mill7")).err().expect("not a TAP device");
        assert!(error.to_string().contains("delete it"), "{error}");
    });
}

/// Each device that was made had a random address, so neighbours lost it at each restart.
#[test]
fn a_device_that_is_made_gets_the_address_and_one_that_exists_keeps_its_own() {
    in_namespace(|| {
        let [ours, other] = [Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10])];
        let options = TapOptions { queues: 2, mac: Some(ours), ..TapOptions::new("mill9") };
        let opened = open(&options);
        assert_eq!(opened.device.mac, Some(ours));
        let again = TapOptions { mac: Some(other), ..options.clone() };
        assert_eq!(open(&again).device.mac, Some(ours), "made by someone else");
        drop(opened);
        assert_eq!(open(&options).device.mac, Some(ours), "made anew");
        ip("tuntap add mill10 mode tap");
        let kept = Link::open("mill10", None).expect("a link").mac().expect("an address");
        let options = TapOptions { mac: Some(ours), ..TapOptions::new("mill10") };
        assert_eq!(open(&options).device.mac, Some(kept));
    });
}

#[test]
fn a_mtu_out_of_range_is_said_with_the_value_seen_and_the_remedy() {
    in_namespace(|| {
        let opened = tap::open(&TapOptions::new("mill8")).expect("open");
        let error = opened.link.set_mtu(70_000).unwrap_err().to_string();
        for word in ["mill8", "1500", "70000", "ip -d link show"] {
            assert!(error.contains(word), "{error}");
        }
    });
}

#[test]
fn offloads_set_by_an_earlier_opener_do_not_survive() {
    in_namespace(|| {
        ip("tuntap add mill9 mode tap");
        drop(tap::open(&TapOptions::new("mill9")).expect("with all offloads"));
        let none = TapOptions { ingress_offloads: Offloads::empty(), ..TapOptions::new("mill9") };
        let (mut opened, socket) = tap_and_socket(&none);
        socket.send(b"sum me").expect("send");
        let frames = take_until(&mut opened.device.ingress[0], 1, is_udp);
        assert_eq!(frames[0].raw.vnet.flags(), Flags::empty());
    });
}

/// Returns a TCP segment of `len` zero bytes with an unfinished checksum.
fn segment(to: [u8; 6], sequence: u32, len: usize) -> (VnetHeader, Vec<u8>) {
    let mut frame = udp_header(to, OUR_MAC, [OURS, KERNEL], len + 12);
    // Makes the IPv4 header one of TCP: protocol 6 in place of 17.
    let sum = u16::from_be_bytes([frame[24], frame[25]]) + (17 - 6);
    frame[23] = 6;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.truncate(38);
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0]);
    let total = u16::try_from(20 + len).expect("a length");
    let words = OURS.chunks(2).chain(KERNEL.chunks(2));
    let words = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let pseudo = words.sum::<u32>() + 6 + u32::from(total);
    let pseudo = u16::try_from(pseudo % 0xffff).expect("folded");
    frame.extend(pseudo.to_be_bytes());
    frame.extend([0, 0]);
    let mut vnet = VnetHeader::default();
    vnet.set_flags(Flags::NEEDS_CSUM);
    vnet.csum_start.set(34);
    vnet.csum_offset.set(16);
    (vnet, frame)
}

/// Returns the largest frame that segments of 1,000 bytes become at a TAP that may hold them a minute
/// for coalescing. The kernel lets go earlier of those that are older than its clock's tick, so a
/// hundred are sent until as many came together as fit, twenty times at most.
fn largest_of_many(name: &str, napi: bool) -> usize {
    let (mut opened, _socket) = tap_and_socket(&TapOptions { napi, ..TapOptions::new(name) });
    let hold = format!(
        "mount -t sysfs sysfs /sys && echo 60000000000 > /sys/class/net/{name}/gro_flush_timeout"
    );
    let held = Command::new("unshare").args(["--mount", "sh", "-c", &hold]).status().expect("sh");
    assert!(held.success());
    let mut seen = packet::open(&PacketOptions::new(name)).expect("open");
    let mac = opened.device.mac.expect("an address").0;
    let payload = [0; 1000];
    let is_tcp = |frame: &support::Taken| frame.bytes.get(23) == Some(&6);
    let lengths = (0..20).map(|round| {
        for number in 100 * round..100 * (round + 1) {
            let (vnet, header) = segment(mac, number * 1000, payload.len());
            deliver(&mut opened.device.egress[0], vnet, &header, &[Slice::from(&payload[..])]);
        }
        let taken = take_until(&mut seen.device.ingress[0], 1, is_tcp);
        taken.iter().map(|frame| frame.bytes.len()).max().unwrap_or_default()
    });
    let mut largest = 0;
    for len in lengths {
        largest = largest.max(len);
        if largest > COALESCED {
            break;
        }
    }
    largest
}

/// A frame of more bytes was coalesced as far as it can be.
const COALESCED: usize = 60_000;

#[test]
fn the_kernel_coalesces_what_it_takes_by_napi_and_nothing_else() {
    in_namespace(|| {
        assert_eq!(largest_of_many("mill8", false), 1054);
        assert!(largest_of_many("mill9", true) > COALESCED);
    });
}
