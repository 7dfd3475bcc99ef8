//! Tests the AF_XDP port on a veth pair: both ways, checksums, tags, trains, several queues, a link
//! that goes down, and reopening.

use crate::support::{deliver, in_namespace, ip, take_until, udp_header, udp_vnet};
use crate::veth::{ADDRESSES, OUR_MAC, THEIR_MAC, is_ours, next_fault, pattern};
use ports::link::Link;
use ports::packet::{self, PacketOptions};
use ports::xdp::{self, Opened, XdpError, XdpOptions};
use ports::{Burst, EgressDrop, Offloads, Outgoing, PortFault, Slice, namespace};
use std::process::Command;
use wire::vnet::{Flags, VnetHeader};

/// Runs a test with a veth pair, mill0 and mill1, in its own namespace. Skips it if programs cannot
/// be loaded, which is tried on another pair.
fn on_veth(test: impl FnOnce() + Send) {
    on_veth_of(1, test);
}

fn on_veth_of(queues: u32, test: impl FnOnce() + Send) {
    in_namespace(|| {
        // The stack's own frames would take chunks, and count where they are lost.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("no IPv6");
        ip("link add mill8 type veth peer name mill9");
        let refused = xdp::open(&XdpOptions::new("mill8")).err();
        if let Some(XdpError::Program { source, .. }) = refused {
            return eprintln!("skipped: needs the right to load eBPF programs: {source}");
        }
        let shape = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add mill0 {shape} type veth peer name mill1 {shape}"));
        ip("link set mill0 up");
        ip("link set mill1 up");
        test();
    });
}

fn open(name: &str) -> Opened {
    xdp::open(&XdpOptions::new(name)).expect("open")
}

/// Waits until the program is gone: a child of another test has copies of all descriptors,
/// including that of a closed link, until it runs its program.
fn until_closed(name: &str) {
    waiting::until("the program is gone", || {
        let shown = shown(name);
        if shown.contains("prog/xdp") { Err(shown) } else { Ok(()) }
    });
}

/// Runs `ethtool -K`. Returns `false` if there is no such program; then the test is skipped.
fn ethtool(words: &str) -> bool {
    let Ok(output) = Command::new("ethtool").args(words.split(' ')).output() else {
        eprintln!("skipped: needs ethtool");
        return false;
    };
    assert!(output.status.success(), "ethtool {words}: {output:?}");
    true
}

/// Returns the output of `ip -d link` for a device.
fn shown(name: &str) -> String {
    let output = Command::new("ip").args(["-d", "link", "show", name]).output().expect("ip");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn frames_arrive_as_sent_and_in_order_both_ways() {
    on_veth(|| {
        let (mut here, mut there) = (open("mill0"), open("mill1"));
        assert!(there.mode.native && !there.mode.zero_copy, "{:?}", there.mode);
        assert_eq!((here.device.mtu, here.device.ingress.len()), (1500, 1));
        let lengths = [18usize, 1472, 700];
        for len in lengths.iter().copied().cycle().take(900) {
            let payload = pattern(len);
            let frame = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, len);
            let slices = [Slice::from(&payload[..7]), Slice::from(&payload[7..])];
            deliver(&mut here.device.egress[0], VnetHeader::default(), &frame, &slices);
        }
        let frames = take_until(&mut there.device.ingress[0], 900, is_ours);
        for (frame, len) in frames.iter().zip(lengths.iter().copied().cycle()) {
            assert_eq!(frame.bytes[42..], pattern(len));
        }
        let back = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        deliver(&mut there.device.egress[0], VnetHeader::default(), &back, &[]);
        assert_eq!(take_until(&mut here.device.ingress[0], 1, is_ours)[0].bytes, back);
        assert_eq!(there.device.ingress[0].lost(), 0);
    });
}

/// Sends more frames than there are chunks, and reads at the other end only after all are sent.
#[test]
fn chunks_come_back_and_what_overflows_the_ring_is_counted() {
    on_veth(|| {
        let here = open("mill0");
        let small = XdpOptions { ring_bytes: 1 << 17, ..XdpOptions::new("mill1") };
        let mut there = xdp::open(&small).expect("open");
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        let mut drops = Vec::new();
        for _ in 0..20 {
            here.device.egress[0].deliver(&[frame; Burst::FRAMES], &mut drops).expect("deliver");
        }
        assert_eq!(drops, []);
        let frames = take_until(&mut there.device.ingress[0], 64, is_ours);
        assert!(frames.len() >= 64, "{}", frames.len());
        let lost = there.device.ingress[0].lost();
        assert!((4900..=5120 - 64).contains(&lost), "{lost}");
    });
}

/// A train or a frame longer than a chunk: the switch sends none, and one that slips through does
/// not stop others.
#[test]
fn a_frame_that_is_refused_does_not_stop_the_others() {
    on_veth(|| {
        let (here, mut there) = (open("mill0"), open("mill1"));
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let long = pattern(3000);
        let long = [Slice::from(&long[..])];
        let good = Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        let mut frames = vec![good; 150];
        frames[3] = Outgoing { payload: &long, len: 3042, ..good };
        frames[149] = Outgoing { vnet: udp_vnet(1400), ..good };
        let mut drops = Vec::new();
        here.device.egress[0].deliver(&frames, &mut drops).expect("deliver");
        assert_eq!(drops, [(3, EgressDrop::Refused), (149, EgressDrop::Refused)]);
        assert_eq!(take_until(&mut there.device.ingress[0], 148, is_ours).len(), 148);
    });
}

/// A peer's stack leaves checksums to the device, and no metadata of the frame says so.
#[test]
fn a_checksum_that_a_peer_left_unfinished_is_claimed() {
    on_veth(|| {
        let mut there = open("mill1");
        let mut peer = packet::open(&PacketOptions::new("mill0")).expect("open");
        let payload = pattern(100);
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        let tagged = [&header[..12], &[0x81, 0, 0, 7], &header[12..]].concat();
        let mut vnet = udp_vnet(0);
        deliver(&mut peer.device.egress[0], vnet, &header, &[Slice::from(&payload[..])]);
        vnet.csum_start.set(38);
        vnet.hdr_len.set(46);
        deliver(&mut peer.device.egress[0], vnet, &tagged, &[Slice::from(&payload[..])]);
        // Another sum is not an unfinished one.
        let mut other = header.clone();
        other[41] ^= 1;
        let finished = VnetHeader::default();
        deliver(&mut peer.device.egress[0], finished, &other, &[Slice::from(&payload[..])]);
        let frames = take_until(&mut there.device.ingress[0], 3, is_ours);
        let claims: Vec<_> = frames
            .iter()
            .map(|frame| &frame.raw.vnet)
            .map(|vnet| (vnet.flags(), vnet.csum_start.get(), vnet.csum_offset.get()))
            .collect();
        let claimed = |start| (Flags::NEEDS_CSUM, start, 6);
        assert_eq!(claims, [claimed(34), claimed(38), (Flags::empty(), 0, 0)]);
        assert_eq!(frames[1].bytes[..46], tagged);
    });
}

/// The kernel finishes the checksum, or passes the offer on to a peer on this host.
#[test]
fn an_unfinished_checksum_may_be_sent() {
    on_veth(|| {
        let mut here = open("mill0");
        if !here.device.live.offloads().contains(Offloads::CSUM) {
            eprintln!("skipped: needs Linux 6.8");
            return;
        }
        let mut peer = packet::open(&PacketOptions::new("mill1")).expect("open");
        let payload = pattern(101);
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        deliver(&mut here.device.egress[0], udp_vnet(0), &header, &[Slice::from(&payload[..])]);
        let frame = &take_until(&mut peer.device.ingress[0], 1, is_ours)[0];
        assert_eq!(
            (frame.raw.vnet.flags(), frame.raw.vnet.csum_start.get()),
            (Flags::NEEDS_CSUM, 34)
        );
        assert_eq!(frame.bytes, [header, payload].concat());
    });
}

/// On other devices the kernel may copy a frame without its metadata, and the receiver drops it.
#[test]
fn checksums_are_left_to_the_kernel_at_a_veth_alone() {
    on_veth(|| {
        ip("link add mill7 type bridge");
        assert!(!open("mill7").device.live.offloads().contains(Offloads::CSUM));
    });
}

#[test]
fn the_program_is_there_while_the_port_is_and_it_opens_again_at_once() {
    on_veth(|| {
        for _ in 0..20 {
            let mut there = open("mill1");
            assert!(shown("mill1").contains("prog/xdp"), "{}", shown("mill1"));
            // One queue is dropped before its port, and one after it.
            drop(there.device.ingress.pop());
            until_closed("mill1");
        }
        let _first = open("mill1");
        let second = xdp::open(&XdpOptions::new("mill1")).err().expect("refused");
        let text = second.to_string();
        // A packet port would not receive any of its frames.
        assert!(text.contains("cannot attach") && !second.leaves_packet(), "{text}");
    });
}

#[test]
fn every_receive_queue_has_a_socket_and_no_other_number_will_do() {
    on_veth_of(3, || {
        let wanted = XdpOptions { queues: Some(2), ..XdpOptions::new("mill1") };
        let text = xdp::open(&wanted).err().expect("refused").to_string();
        assert!(text.contains("2 queues are wanted and the device has 3"), "{text}");
        let (here, mut there) = (open("mill0"), open("mill1"));
        assert_eq!(there.device.ingress.len(), 3);
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        // A veth passes frames of a transmit queue to the receive queue with the same number.
        for (egress, count) in here.device.egress.iter().zip([10, 20, 30]) {
            egress.deliver(&vec![frame; count], &mut Vec::new()).expect("deliver");
        }
        for (ingress, count) in there.device.ingress.iter_mut().zip([10, 20, 30]) {
            assert_eq!(take_until(ingress, count, is_ours).len(), count);
        }
    });
}

/// Frames of a queue without a socket would go to the host's stack, and never to the switch.
#[test]
fn a_device_that_gets_another_queue_is_to_be_opened_anew() {
    on_veth_of(3, || {
        if !ethtool("-L mill0 tx 2 rx 2") || !ethtool("-L mill1 rx 2 tx 2") {
            return;
        }
        let there = open("mill1");
        assert_eq!((there.device.ingress.len(), there.fit.fault(&there.link)), (2, None));
        ethtool("-L mill1 rx 3");
        let fault = there.fit.fault(&there.link).expect("a fault");
        assert!(fault.contains("has 3 receive queues now, it was opened with 2"), "{fault}");
        drop(there);
        until_closed("mill1");
        assert_eq!(open("mill1").device.ingress.len(), 3);
    });
}

/// The kernel accepts frames sent on a queue that the device does not transmit by, drops them, and
/// reports nothing.
#[test]
fn frames_leave_by_no_more_queues_than_the_device_transmits_by() {
    on_veth_of(3, || {
        if !ethtool("-L mill0 tx 1") {
            return;
        }
        let (mut here, mut there) = (open("mill0"), open("mill1"));
        assert_eq!((here.device.ingress.len(), here.device.egress.len()), (3, 1));
        assert_eq!((there.device.ingress.len(), there.device.egress.len()), (3, 3));
        assert_eq!(here.device.live.queues(), 1);
        let told = |limit: &String| limit.contains("3 receive queues and 1 to transmit");
        assert!(here.limits.iter().any(told), "{:?}", here.limits);
        assert!(!there.limits.iter().any(|limit| limit.contains("to transmit")));
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        for egress in &mut here.device.egress {
            deliver(egress, VnetHeader::default(), &header, &[]);
        }
        assert_eq!(take_until(&mut there.device.ingress[0], 1, is_ours).len(), 1);
        assert_eq!(here.fit.fault(&here.link), None);
        ethtool("-L mill0 tx 3");
        let fault = here.fit.fault(&here.link).expect("a fault");
        assert!(fault.contains("has 3 transmit queues now, it was opened for 1"), "{fault}");
    });
}

#[test]
fn a_driver_that_takes_no_program_at_this_mtu_says_so_with_both_values() {
    on_veth(|| {
        ip("link set mill0 mtu 3507");
        ip("link set mill1 mtu 3507");
        let refused = xdp::open(&XdpOptions::new("mill1")).err().expect("refused");
        let text = refused.to_string();
        assert!(text.contains("3507") && text.contains("3506"), "{text}");
        assert!(refused.leaves_packet());
        ip("link set mill0 mtu 3819");
        ip("link set mill1 mtu 3819");
        let text = xdp::open(&XdpOptions::new("mill1")).err().expect("refused").to_string();
        assert!(text.contains("3819") && text.contains("3818"), "{text}");
        ip("link set mill0 mtu 3506");
        ip("link set mill1 mtu 3506");
        let there = open("mill1");
        assert_eq!(there.device.mtu, 3506);
    });
}

#[test]
fn a_link_that_was_down_works_again_and_one_that_is_deleted_is_gone() {
    on_veth(|| {
        let (mut here, mut there) = (open("mill0"), open("mill1"));
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        here.link.set_up(false).expect("down");
        let all: Vec<_> = (0..70).map(|place| (place, EgressDrop::Down)).collect();
        for _ in 0..3 {
            let mut drops = Vec::new();
            here.device.egress[0].deliver(&[frame; 70], &mut drops).expect("deliver");
            assert_eq!(drops, all);
        }
        here.link.set_up(true).expect("up");
        deliver(&mut here.device.egress[0], VnetHeader::default(), &header, &[]);
        // Frames in the ring when the link went down may arrive as well.
        assert!(!take_until(&mut there.device.ingress[0], 1, is_ours).is_empty());

        // Waiting frames do not hide the fault.
        deliver(&mut here.device.egress[0], VnetHeader::default(), &header, &[]);
        ip("link del mill0");
        let delivered = here.device.egress[0].deliver(&[frame], &mut Vec::new());
        assert!(matches!(delivered, Err(PortFault::Gone(_))), "{delivered:?}");
        assert!(matches!(next_fault(&mut there.device.ingress[0]), PortFault::Gone(_)));
        assert!(matches!(next_fault(&mut here.device.ingress[0]), PortFault::Gone(_)));
    });
}

/// Waits until the kernel has noticed that a device has a carrier, or has none.
fn wait_for_carrier(link: &Link, wanted: bool) {
    waiting::until("the carrier is noticed", || link.has_carrier().expect("flags") == wanted);
}

/// The driver drops such frames one a call, and reports each alone.
#[test]
fn without_a_carrier_each_frame_counts_as_down_and_the_call_is_given_up() {
    on_veth(|| {
        let (mut here, mut there) = (open("mill0"), open("mill1"));
        there.link.set_up(false).expect("down");
        wait_for_carrier(&here.link, false);
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        let all: Vec<_> = (0..70).map(|place| (place, EgressDrop::Down)).collect();
        for _ in 0..3 {
            let mut drops = Vec::new();
            here.device.egress[0].deliver(&[frame; 70], &mut drops).expect("deliver");
            assert_eq!(drops, all);
        }
        there.link.set_up(true).expect("up");
        deliver(&mut here.device.egress[0], VnetHeader::default(), &header, &[]);
        // The three calls gave up after a frame each: the rest of the first burst arrives, and the
        // one above.
        let left = take_until(&mut there.device.ingress[0], 70 - 3 + 1, is_ours);
        assert_eq!(left.len(), 70 - 3 + 1);
        assert_eq!(here.device.ingress[0].lost(), 0, "each frame is counted once");
    });
}

/// A veth reports a frame that its peer does not take as it reports a missing carrier. The port
/// counted as down then, and frames behind such a frame were reported lost: one guest turned off
/// the egress of all.
#[test]
fn what_a_peer_has_no_room_for_takes_nothing_else_with_it() {
    on_veth(|| {
        let (here, mut there) = (open("mill0"), open("mill1"));
        there.link.set_mtu(1400).expect("a smaller MTU");
        let payload = pattern(1458);
        let payload = [Slice::from(&payload[..])];
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let good = Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        let long = Outgoing { payload: &payload, len: 1500, ..good };
        let frames = [&[long; 20][..], &[good; 200], &[long; 10], &[good; 26]].concat();
        for _ in 0..3 {
            let mut drops = Vec::new();
            here.device.egress[0].deliver(&frames, &mut drops).expect("deliver");
            assert_eq!(drops.len(), 30);
            assert!(drops.iter().all(|(_, drop)| *drop == EgressDrop::Full), "{drops:?}");
            assert_eq!(take_until(&mut there.device.ingress[0], 226, is_ours).len(), 226);
        }
        assert_eq!(here.device.ingress[0].lost(), 0, "each frame is counted once");
    });
}

/// In the stack a train of a peer arrives as one long frame, and does not fit a chunk.
#[test]
fn a_train_in_generic_mode_is_counted_as_lost() {
    on_veth(|| {
        let generic = XdpOptions { native: false, ..XdpOptions::new("mill1") };
        let mut there = xdp::open(&generic).expect("open");
        assert!(!there.mode.native);
        assert!(there.limits.iter().any(|limit| limit.contains("trains")), "{:?}", there.limits);
        let mut peer = packet::open(&PacketOptions::new("mill0")).expect("open");
        let payload = pattern(10_000);
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        deliver(&mut peer.device.egress[0], udp_vnet(1400), &header, &[Slice::from(&payload[..])]);
        let short = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        deliver(&mut peer.device.egress[0], udp_vnet(0), &short, &[]);
        assert_eq!(take_until(&mut there.device.ingress[0], 1, is_ours)[0].bytes, short);
        assert_eq!(there.device.ingress[0].lost(), 1);
    });
}

#[test]
fn an_interface_of_another_namespace_is_opened_and_asked_there() {
    on_veth(|| {
        let path = format!("/proc/self/task/{}/ns/net", rustix::thread::gettid().as_raw_nonzero());
        let there = XdpOptions { netns: Some(path.into()), ..XdpOptions::new("mill0") };
        let elsewhere = namespace::fresh(|| {
            let nowhere = xdp::open(&XdpOptions::new("mill0")).err().expect("not here");
            assert!(nowhere.to_string().contains("there is no network device mill0"), "{nowhere}");
            assert!(!nowhere.leaves_packet());
            xdp::open(&there).expect("open")
        });
        let opened = elsewhere.expect("a namespace");
        assert!(opened.link.is_up().expect("flags"));
        assert!(Link::open("mill0", None).expect("open").is_up().expect("flags"));
        assert!(shown("mill0").contains("prog/xdp"));
    });
}
