//! Tests a packet port of several queues on a veth pair: at which queue a frame arrives, and what
//! changes it.

use crate::support::{deliver, in_namespace, ip, udp_header, udp_vnet};
use crate::veth::{OUR_MAC, THEIR_MAC};
use ports::packet::{self, Opened, PacketError, PacketOptions, Spread};
use ports::steering::{Steering, Vnic};
use ports::{Burst, Device, Nanos, PortFault, Slice, VlanTag};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Mac;
use wire::toeplitz::{Key, Toeplitz};
use wire::vnet::{GsoType, VnetHeader};

/// A source address that is not counted.
const PROBE: [u8; 6] = [2, 0, 0, 0, 0, 9];
const QUEUES: u8 = 3;
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens one end with one queue, the other with three, with a known key.
fn pair() -> (Opened, Opened) {
    pair_with(Some(Key::MICROSOFT))
}

fn pair_with(key: Option<Key>) -> (Opened, Opened) {
    ip("link add mill0 type veth peer name mill1");
    ip("link set mill0 up");
    ip("link set mill1 up");
    let one = packet::open(&PacketOptions::new("mill0")).expect("open");
    assert!(matches!(one.spread, Spread::Single));
    let several = PacketOptions { queues: QUEUES, key, ..PacketOptions::new("mill1") };
    (one, packet::open(&several).expect("open"))
}

/// Returns the port's steering; `None` if this process may not load programs.
fn steering(opened: &Opened) -> Option<Arc<dyn Steering>> {
    match &opened.spread {
        Spread::Tables(steering) => Some(steering.clone()),
        Spread::Hash(reason) => {
            eprintln!("skipped: needs the right to load eBPF programs: {reason}");
            None
        }
        Spread::Single => panic!("there are several queues"),
    }
}

/// A frame that arrived, and its queue.
struct Arrival {
    queue: usize,
    bytes: Vec<u8>,
    tag: Option<VlanTag>,
    gso: GsoType,
}

/// Takes from all queues until this many frames of the test have arrived.
fn arrivals(device: &mut Device, enough: usize) -> Vec<Arrival> {
    let (start, mut all) = (Instant::now(), Vec::new());
    while all.len() < enough {
        assert!(start.elapsed() < ARRIVAL_TIMEOUT, "{} of {enough} frames came", all.len());
        take_all(device, &mut all);
        all.retain(|arrival| arrival.bytes[6..12] == OUR_MAC);
    }
    all
}

/// Sends until a frame arrives: a link that came up carries frames only after some time.
fn until_it_carries(here: &mut Opened, device: &mut Device) {
    let mut all = Vec::new();
    let mut probe = flow(THEIR_MAC, 1, &[]);
    probe[6..12].copy_from_slice(&PROBE);
    waiting::until("a frame comes", || {
        send(here, &probe);
        take_all(device, &mut all);
        !all.is_empty()
    });
}

fn take_all(device: &mut Device, all: &mut Vec<Arrival>) {
    for (queue, ingress) in device.ingress.iter_mut().enumerate() {
        let mut burst = Burst::new();
        ingress.take(Nanos(1), &mut burst).expect("take");
        for frame in burst.frames() {
            let mut bytes = Vec::new();
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            if bytes.get(6..11) == Some(&OUR_MAC[..5]) {
                all.push(Arrival { queue, bytes, tag: frame.vlan, gso: frame.vnet.gso() });
            }
        }
        drop(burst);
        ingress.release();
    }
}

/// Returns a UDP frame of a flow, with tags in front of its EtherType.
fn flow(to: [u8; 6], number: u8, tags: &[u16]) -> Vec<u8> {
    let mut frame = udp_header(to, OUR_MAC, [[10, 9, number, 2], [10, 9, 0, 1]], 18);
    frame.resize(frame.len() + 18, number);
    let tags: Vec<u8> =
        tags.iter().flat_map(|tci| [[0x81, 0], tci.to_be_bytes()].concat()).collect();
    frame.splice(12..12, tags);
    frame
}

fn send(from: &mut Opened, frame: &[u8]) {
    deliver(&mut from.device.egress[0], VnetHeader::default(), frame, &[]);
}

fn entry(frame: &[u8]) -> usize {
    let parsed = wire::parse(frame, frame.len()).expect("Ethernet");
    Toeplitz::new(&Key::MICROSOFT).hash_flow(frame, &parsed) as usize % 128
}

/// Sends the frames one by one. Each must arrive once, at the queue of its entry in its vNIC's
/// table.
fn assert_steered(
    here: &mut Opened,
    there: &mut Opened,
    frames: &[Vec<u8>],
    steering: &dyn Steering,
    vnic: impl Fn(&[u8]) -> Vnic,
) -> Vec<usize> {
    frames.iter().for_each(|frame| send(here, frame));
    let mut counts = vec![0; QUEUES.into()];
    let came = arrivals(&mut there.device, frames.len());
    assert_eq!(came.len(), frames.len());
    for arrival in came {
        let mut whole = arrival.bytes;
        if let Some(tag) = arrival.tag {
            whole.splice(12..12, [tag.tpid.to_be_bytes(), tag.tci.to_be_bytes()].concat());
        }
        assert!(frames.contains(&whole), "not as sent: {whole:02x?}");
        let table = steering.table(vnic(&whole)).expect("a table");
        assert_eq!(arrival.queue, usize::from(table[entry(&whole)]), "{whole:02x?}");
        counts[arrival.queue] += 1;
    }
    counts
}

/// The kernel takes tags out of the frame, which `BPF_PROG_TEST_RUN` cannot show.
#[test]
fn frames_arrive_at_the_queue_of_their_vnic_s_table_tags_and_all() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        let Some(steering) = steering(&there) else { return };
        assert_eq!(steering.queues(), QUEUES);
        let vnic = steering.add_vnic(Mac(THEIR_MAC), 5).expect("added");
        (0..128).for_each(|entry| steering.set_entry(vnic, entry, 1).expect("set"));
        let is_vnic = |frame: &[u8]| {
            let parsed = wire::parse(frame, frame.len()).expect("Ethernet");
            if parsed.vlan_id() == 5 && frame[..6] == THEIR_MAC { vnic } else { Vnic::DEFAULT }
        };
        let tags: [&[u16]; 7] = [&[], &[5], &[0xe005], &[6], &[0xe000], &[5, 9], &[9, 5]];
        let frames: Vec<_> = (0..140u8)
            .map(|number| flow(THEIR_MAC, number, tags[usize::from(number) % tags.len()]))
            .chain((0..20).map(|number| flow([2, 0, 0, 0, 0, 4], number, &[5])))
            .collect();
        let counts = assert_steered(&mut here, &mut there, &frames, &*steering, is_vnic);
        assert!(counts.iter().all(|&count| count > 10), "{counts:?}");

        // A change applies from the next frame on; a vNIC's change applies to its frames alone.
        (0..128).for_each(|entry| steering.set_entry(vnic, entry, 2).expect("set"));
        assert_steered(&mut here, &mut there, &frames, &*steering, is_vnic);
        steering.remove_vnic(vnic).expect("removed");
        assert_steered(&mut here, &mut there, &frames, &*steering, |_| Vnic::DEFAULT);
    });
}

/// The kernel adds the sockets to their group again, in the order in which they were made.
#[test]
fn queues_keep_their_numbers_when_the_link_was_down() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        let Some(steering) = steering(&there) else { return };
        let frames: Vec<_> = (0..60).map(|number| flow(THEIR_MAC, number, &[])).collect();
        let mut now = Nanos::SECOND;
        for _ in 0..3 {
            there.link.set_up(false).expect("down");
            for ingress in &mut there.device.ingress {
                let end = Instant::now() + ARRIVAL_TIMEOUT;
                while !matches!(ingress.take(now, &mut Burst::new()), Err(PortFault::Down)) {
                    assert!(Instant::now() < end, "the queue does not know that the link is down");
                    ingress.release();
                    now = now + Nanos::SECOND;
                }
            }
            there.link.set_up(true).expect("up");
            until_it_carries(&mut here, &mut there.device);
            let default = |_: &[u8]| Vnic::DEFAULT;
            let counts = assert_steered(&mut here, &mut there, &frames, &*steering, default);
            assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
        }
    });
}

/// Any frame of a peer arrives once, at the queue of entry 0 if it has no hash.
#[test]
fn crafted_frames_have_a_queue() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        let Some(steering) = steering(&there) else { return };
        // Entry 0 names another queue than the other entries.
        (1..128).for_each(|entry| steering.set_entry(Vnic::DEFAULT, entry, 0).expect("set"));
        steering.set_entry(Vnic::DEFAULT, 0, 2).expect("set");
        let whole = flow(THEIR_MAC, 1, &[]);
        let mut frames = vec![
            flow(THEIR_MAC, 1, &[1, 2, 3]),
            flow(THEIR_MAC, 1, &[5, 5, 5, 5, 5, 5, 5, 5]),
            [&whole[..14], &[0x46; 6]].concat(),
            [&whole[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0xff, 0xff, 0, 64]].concat(),
            [&whole[..12], &[0x88, 0xcc], &[0xff; 40]].concat(),
            [&whole[..12], &[0, 3], &[0xaa; 40]].concat(),
        ];
        frames.extend((15..whole.len()).map(|len| whole[..len].to_vec()));
        // As many extension headers as are walked, one more, and one that reaches beyond the
        // packet.
        for (count, length) in [(8usize, 0u8), (9, 0), (2, 255)] {
            let mut frame = [&whole[..12], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
            let packet = 8 * count + 8;
            frame.extend([0, u8::try_from(packet).expect("short"), 60, 64]);
            frame.extend([0xfd; 32]);
            for left in (0..count).rev() {
                let next = if left > 0 { 60 } else { 17 };
                frame.extend([next, length, 0, 0, 0, 0, 0, 0]);
            }
            frame.extend([0, 7, 0, 9, 0, 8, 0, 0]);
            frames.push(frame);
        }
        let default = |_: &[u8]| Vnic::DEFAULT;
        let counts = assert_steered(&mut here, &mut there, &frames, &*steering, default);
        assert!(counts[2] > 20 && counts[0] > 0 && counts[1] == 0, "{counts:?}");
    });
}

#[test]
fn a_train_arrives_whole_beside_the_ring_of_its_queue() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        let Some(steering) = steering(&there) else { return };
        let payload = vec![7; 14_000];
        for number in 0..12 {
            let header =
                udp_header(THEIR_MAC, OUR_MAC, [[10, 9, number, 2], [10, 9, 0, 1]], 14_000);
            deliver(
                &mut here.device.egress[0],
                udp_vnet(1400),
                &header,
                &[Slice::from(&payload[..])],
            );
        }
        for arrival in arrivals(&mut there.device, 12) {
            assert_eq!((arrival.gso, arrival.bytes.len()), (GsoType::UdpL4, 14_042));
            let table = steering.table(Vnic::DEFAULT).expect("a table");
            assert_eq!(arrival.queue, usize::from(table[entry(&arrival.bytes)]));
        }
    });
}

/// A socket's own option has no effect in a group: the group's flag is needed.
#[test]
fn what_the_port_sends_does_not_come_back() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        for queue in 0..usize::from(QUEUES) {
            let frame = flow(OUR_MAC, 1, &[]);
            deliver(&mut there.device.egress[queue], VnetHeader::default(), &frame, &[]);
        }
        assert_eq!(arrivals(&mut here.device, QUEUES.into()).len(), usize::from(QUEUES));
        send(&mut here, &flow(THEIR_MAC, 9, &[]));
        assert_eq!(arrivals(&mut there.device, 1)[0].bytes[14 + 14], 9);
        let mut more = Vec::new();
        take_all(&mut there.device, &mut more);
        assert_eq!(more.len(), 0);
    });
}

#[test]
fn without_the_right_to_load_programs_the_kernel_spreads_the_flows() {
    in_namespace(|| {
        let mut mine = capabilities(None).expect("capabilities");
        mine.effective -= CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
        set_capabilities(None, mine).expect("fewer");
        let (mut here, mut there) = pair();
        let Spread::Hash(reason) = &there.spread else { panic!("loaded without the right") };
        assert!(reason.contains("not permitted"), "{reason}");
        let frames: Vec<_> = (0..60).map(|number| flow(THEIR_MAC, number, &[])).collect();
        let mut queues = vec![None; 60];
        for _ in 0..3 {
            frames.iter().for_each(|frame| send(&mut here, frame));
            for arrival in arrivals(&mut there.device, 60) {
                let number = usize::from(arrival.bytes[14 + 14]);
                assert_eq!(*queues[number].get_or_insert(arrival.queue), arrival.queue);
            }
        }
        for queue in 0..usize::from(QUEUES) {
            assert!(queues.contains(&Some(queue)), "queue {queue} has no flow");
        }
    });
}

/// A peer that knew the key aimed all its flows at one queue.
#[test]
fn which_queue_a_flow_arrives_at_is_known_to_nobody() {
    let queues = || {
        let mut queues = vec![None; 60];
        in_namespace(|| {
            let (mut here, mut there) = pair_with(None);
            if steering(&there).is_none() {
                return;
            }
            (0..60).for_each(|number| send(&mut here, &flow(THEIR_MAC, number, &[])));
            for arrival in arrivals(&mut there.device, 60) {
                queues[usize::from(arrival.bytes[14 + 14])] = Some(arrival.queue);
            }
        });
        queues
    };
    let [one, other] = [queues(), queues()];
    assert!(one != other || one[0].is_none(), "{one:?}");
}

#[test]
fn several_queues_open_on_a_link_that_is_down_and_work_when_it_is_up() {
    in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        let one = packet::open(&PacketOptions::new("mill0")).expect("open");
        let key = Some(Key::MICROSOFT);
        let several = PacketOptions { queues: QUEUES, key, ..PacketOptions::new("mill1") };
        let mut there = match packet::open(&several) {
            Err(refused @ PacketError::Down { .. }) => {
                assert!(refused.to_string().contains("ip link set mill1 up"), "{refused}");
                eprintln!("skipped: needs Linux 6.13: {refused}");
                return;
            }
            opened => opened.expect("open"),
        };
        let mut here = one;
        let Some(steering) = steering(&there) else { return };
        here.link.set_up(true).expect("up");
        there.link.set_up(true).expect("up");
        until_it_carries(&mut here, &mut there.device);
        let frames: Vec<_> = (0..60).map(|number| flow(THEIR_MAC, number, &[])).collect();
        let default = |_: &[u8]| Vnic::DEFAULT;
        assert_steered(&mut here, &mut there, &frames, &*steering, default);
    });
}
