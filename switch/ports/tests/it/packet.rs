//! Tests the packet port on a veth pair: both ways, tags, trains, a link that goes down, a ring
//! that overflows.

use crate::support::{deliver, in_namespace, ip, take_until, udp_header, udp_vnet};
use crate::veth::{ADDRESSES, OUR_MAC, THEIR_MAC, is_ours, next_fault, pattern};
use ports::link::{Link, LinkOffload};
use ports::packet::{self, PacketOptions};
use ports::tap::{self, TapOptions};
use ports::{Burst, EgressDrop, Nanos, Offloads, Outgoing, PortFault, Slice, VlanTag, namespace};
use wire::vnet::{Flags, GsoType, VnetHeader};

/// Opens both ends of a veth pair as ports.
fn pair() -> (packet::Opened, packet::Opened) {
    ip("link add mill0 type veth peer name mill1");
    ip("link set mill0 up");
    ip("link set mill1 up");
    let open = |name| packet::open(&PacketOptions::new(name)).expect("open");
    (open("mill0"), open("mill1"))
}

#[test]
fn frames_and_tags_arrive_as_sent_and_in_order() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        assert_eq!(here.device.mtu, 1500);
        // A veth pair passes a tag beside the frame only when the kernel made it; ours is in the
        // frame and is taken out.
        for (number, len) in [(0u16, 18usize), (1, 1472), (2, 700)] {
            let payload = pattern(len);
            let mut frame = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, len);
            let mut vnet = udp_vnet(0);
            if number > 0 {
                let tag = [0x81, 0, 0x20, number.to_be_bytes()[1]];
                frame.splice(12..12, tag);
                vnet.csum_start.set(38);
                vnet.hdr_len.set(46);
            }
            let slices = [Slice::from(&payload[..7]), Slice::from(&payload[7..])];
            deliver(&mut here.device.egress[0], vnet, &frame, &slices);
        }
        let frames = take_until(&mut there.device.ingress[0], 3, is_ours);
        for (number, frame) in (0u16..).zip(&frames) {
            let wanted = (number > 0).then_some(VlanTag { tpid: 0x8100, tci: 0x2000 | number });
            assert_eq!(frame.raw.vlan, wanted);
            assert_eq!(frame.raw.vnet.flags(), Flags::NEEDS_CSUM);
            assert_eq!(frame.raw.vnet.csum_start.get(), 34);
            assert_eq!(frame.bytes[42..], pattern(frame.bytes.len() - 42));
        }
        let back = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        deliver(&mut there.device.egress[0], udp_vnet(0), &back, &[]);
        assert_eq!(take_until(&mut here.device.ingress[0], 1, is_ours)[0].bytes, back);
    });
}

#[test]
fn trains_arrive_whole_between_frames_and_in_order() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        if !here.device.live.offloads().contains(Offloads::USO) {
            eprintln!("skipped: needs a kernel with USO: {:?}", here.degraded);
            return;
        }
        let lengths = [1000usize, 60_000, 1400, 2100, 18, 65_000];
        for len in lengths.iter().copied().cycle().take(60) {
            let payload = pattern(len);
            let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, len);
            let gso_size = if len > 1472 { 1400 } else { 0 };
            deliver(
                &mut here.device.egress[0],
                udp_vnet(gso_size),
                &header,
                &[Slice::from(&payload[..])],
            );
        }
        let frames = take_until(&mut there.device.ingress[0], 60, is_ours);
        for (frame, len) in frames.iter().zip(lengths.iter().copied().cycle()) {
            let kind = if len > 1472 { GsoType::UdpL4 } else { GsoType::None };
            assert_eq!((frame.bytes.len(), frame.raw.vnet.gso()), (42 + len, kind));
            assert_eq!(frame.raw.vnet.gso_size.get(), if len > 1472 { 1400 } else { 0 });
            assert_eq!(
                (frame.raw.vnet.csum_start.get(), frame.raw.vnet.csum_offset.get()),
                (34, 6)
            );
            assert_eq!(frame.bytes[42..], pattern(len));
        }
        assert_eq!(there.device.ingress[0].lost(), 0);
    });
}

#[test]
fn a_tagged_train_passes_whole_with_its_tag_beside_it() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        if !here.device.live.offloads().contains(Offloads::USO) {
            eprintln!("skipped: needs a kernel with USO: {:?}", here.degraded);
            return;
        }
        let payload = pattern(30_000);
        let mut header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        header.splice(12..12, [0x81, 0, 0x20, 5]);
        let mut vnet = udp_vnet(1400);
        vnet.csum_start.set(38);
        vnet.hdr_len.set(46);
        deliver(&mut here.device.egress[0], vnet, &header, &[Slice::from(&payload[..])]);
        let frames = take_until(&mut there.device.ingress[0], 1, is_ours);
        assert_eq!(frames[0].raw.vlan, Some(VlanTag { tpid: 0x8100, tci: 0x2005 }));
        assert_eq!((frames[0].raw.vnet.gso(), frames[0].bytes.len()), (GsoType::UdpL4, 30_042));
        assert_eq!(frames[0].bytes[42..], payload);
    });
}

#[test]
fn a_frame_of_more_slices_than_a_message_takes_arrives_whole() {
    in_namespace(|| {
        let (here, mut there) = pair();
        let payload = pattern(1400);
        let slices: Vec<Slice<'_>> = payload.chunks(1).map(Slice::from).collect();
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        let frame = Outgoing { vnet: udp_vnet(0), header: &header, payload: &slices, len: 1442 };
        let whole = [Slice::from(&payload[..])];
        let plain = Outgoing { payload: &whole, ..frame };
        let mut drops = Vec::new();
        here.device.egress[0].deliver(&[frame, plain, frame], &mut drops).expect("deliver");
        assert_eq!(drops, []);
        for taken in take_until(&mut there.device.ingress[0], 3, is_ours) {
            assert_eq!(taken.bytes[42..], payload);
        }
    });
}

#[test]
fn a_frame_that_is_refused_does_not_stop_the_others() {
    in_namespace(|| {
        let (here, mut there) = pair();
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let long = pattern(3000);
        let long = [Slice::from(&long[..])];
        let good = Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        let too_long = Outgoing { payload: &long, len: 3042, ..good };
        let mut frames = vec![good; 150];
        frames[3] = too_long;
        frames[149] = too_long;
        let mut drops = Vec::new();
        here.device.egress[0].deliver(&frames, &mut drops).expect("deliver");
        assert_eq!(drops, [(3, EgressDrop::Refused), (149, EgressDrop::Refused)]);
        assert_eq!(take_until(&mut there.device.ingress[0], 148, is_ours).len(), 148);
    });
}

#[test]
fn a_link_that_was_down_works_again_and_one_that_is_deleted_is_gone() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let frame =
            Outgoing { vnet: VnetHeader::default(), header: &header, payload: &[], len: 42 };
        assert!(there.link.has_carrier().expect("flags"));

        there.link.set_up(false).expect("down");
        here.link.set_up(false).expect("down");
        assert!(matches!(next_fault(&mut there.device.ingress[0]), PortFault::Down));
        let mut drops = Vec::new();
        here.device.egress[0].deliver(&[frame; 70], &mut drops).expect("deliver");
        let all: Vec<_> = (0..70).map(|place| (place, EgressDrop::Down)).collect();
        assert_eq!(drops, all);

        there.link.set_up(true).expect("up");
        here.link.set_up(true).expect("up");
        deliver(&mut here.device.egress[0], VnetHeader::default(), &header, &[]);
        assert_eq!(take_until(&mut there.device.ingress[0], 1, is_ours).len(), 1);

        ip("link del mill0");
        drops.clear();
        let delivered = here.device.egress[0].deliver(&[frame], &mut drops);
        assert!(matches!(delivered, Err(PortFault::Gone(_))), "{delivered:?}");
        assert!(matches!(next_fault(&mut there.device.ingress[0]), PortFault::Gone(_)));
    });
}

#[test]
fn an_interface_of_another_namespace_is_opened_and_asked_there() {
    in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        let path = format!("/proc/self/task/{}/ns/net", rustix::thread::gettid().as_raw_nonzero());
        let there = PacketOptions { netns: Some(path.into()), ..PacketOptions::new("mill0") };
        let elsewhere = namespace::fresh(|| {
            let nowhere = packet::open(&PacketOptions::new("mill0")).err().expect("not here");
            assert!(nowhere.to_string().contains("there is no network device mill0"), "{nowhere}");
            packet::open(&there).expect("open")
        });
        let opened = elsewhere.expect("a namespace");
        assert!(!opened.link.is_up().expect("flags"));
        ip("link set mill0 up");
        assert!(opened.link.is_up().expect("flags"));
    });
}

#[test]
fn what_overflows_the_ring_is_counted() {
    in_namespace(|| {
        let (mut here, there) = pair();
        drop(there);
        let small = PacketOptions { ring_bytes: 0, ..PacketOptions::new("mill1") };
        let mut there = packet::open(&small).expect("open");
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        for _ in 0..100 {
            deliver(&mut here.device.egress[0], VnetHeader::default(), &header, &[]);
        }
        // The kernel's own frames may be among them, so at least the test's frames beyond 32 slots
        // are lost.
        let lost = there.device.ingress[0].lost();
        assert!(lost >= 68, "{lost}");
        assert_eq!(there.device.ingress[0].lost(), lost);
        // Without a release in between, a wholly lent ring does not start again.
        let mut burst = Burst::new();
        there.device.ingress[0].take(Nanos(1), &mut burst).expect("take");
        assert_eq!(burst.frames().len(), 32);
        drop(burst);
        let mut burst = Burst::new();
        there.device.ingress[0].take(Nanos(1), &mut burst).expect("take");
        assert_eq!(burst.frames().len(), 0);
    });
}

#[test]
fn offloads_of_a_link_can_be_switched() {
    in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        let link = Link::open("mill0", None).expect("open");
        for offload in [LinkOffload::Tso, LinkOffload::Gso, LinkOffload::Gro, LinkOffload::TxCsum] {
            for on in [false, true] {
                link.set_offload(offload, on).expect("set");
                assert_eq!(link.offload(offload).expect("get"), on, "{offload:?}");
            }
        }
    });
}

/// A train without a virtio-net header in the kernel (UDP to be fragmented, which a TAP accepts)
/// stops a ring for good: it was never read again.
#[test]
fn a_ring_that_the_kernel_fills_no_more_is_found() {
    in_namespace(|| {
        let mut guest = tap::open(&TapOptions::new("mill0")).expect("open");
        let mut uplink = packet::open(&PacketOptions::new("mill0")).expect("open");
        let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, 0);
        let mut send = || deliver(&mut guest.device.egress[0], VnetHeader::default(), &header, &[]);
        let two_looks = |send: &mut dyn FnMut(), uplink: &packet::Opened| {
            [(); 2].map(|()| {
                send();
                uplink.stalls.stalled()
            })
        };
        // Frames that are read, and frames that overflow an unread ring.
        for _ in 0..2 {
            send();
            take_until(&mut uplink.device.ingress[0], 1, is_ours);
            assert_eq!(uplink.stalls.stalled(), None);
        }
        assert_eq!(two_looks(&mut || (0..5000).for_each(|_| send()), &uplink), [None; 2]);
        take_until(&mut uplink.device.ingress[0], 4096, is_ours);
        assert_eq!(two_looks(&mut send, &uplink), [None; 2]);
        take_until(&mut uplink.device.ingress[0], 2, is_ours);

        let payload = pattern(4000);
        let long = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
        let mut vnet = udp_vnet(1400);
        vnet.set_gso(GsoType::Unknown(3), false);
        deliver(&mut guest.device.egress[0], vnet, &long, &[Slice::from(&payload[..])]);
        let mut send = || deliver(&mut guest.device.egress[0], VnetHeader::default(), &header, &[]);
        send();
        if uplink.device.ingress[0].arm() {
            eprintln!("skipped: this kernel does not leave its mark on the slot");
            return;
        }
        assert_eq!(two_looks(&mut send, &uplink), [None, Some(0)]);
        assert_eq!(uplink.stalls.stalled(), Some(0), "it stays so");

        drop(uplink);
        let mut anew = packet::open(&PacketOptions::new("mill0")).expect("open");
        send();
        assert_eq!(take_until(&mut anew.device.ingress[0], 1, is_ours).len(), 1);
    });
}
