//! Tests the program in the kernel (`BPF_PROG_TEST_RUN`) against `wire` on the same frames.

use super::super::gate::{Gate, Slots};
use super::*;
use crate::bpf;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::parse;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const VLAN: u16 = 5;

/// Returns a program with tables that tell which entry was hit; the vNIC's entries have 128 added.
/// `None` if programs cannot be loaded.
fn loaded(key: &Key) -> Option<ProgramSteering> {
    let steering = match ProgramSteering::load(255, key, no_fence()) {
        Ok(steering) => steering,
        Err(error) => {
            eprintln!("skipped: needs the right to load eBPF programs: {error}");
            return None;
        }
    };
    let vnic = steering.add_vnic(Mac(STATION), VLAN).unwrap();
    store(steering.row(Vnic::DEFAULT), 0..128);
    store(steering.row(vnic), 128..=255);
    Some(steering)
}

fn no_fence() -> Arc<Fence> {
    Arc::new(Fence::new(Vec::new(), 1))
}

fn kernel(steering: &ProgramSteering, frame: &[u8]) -> u32 {
    bpf::tests::run(&steering.program, frame, 1).0
}

/// Returns the table entry of a frame by `wire`.
fn expected(toeplitz: &Toeplitz, frame: &[u8]) -> u32 {
    let parsed = parse(frame, frame.len()).unwrap();
    let vnic = frame[..6] == STATION && parsed.vlan_id() == VLAN;
    toeplitz.hash_flow(frame, &parsed) % 128 + if vnic { 128 } else { 0 }
}

fn address(len: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), len)
}

/// Returns a length field that is wrong by this much.
fn length(right: usize, wrong: isize) -> [u8; 2] {
    u16::try_from(right.saturating_add_signed(wrong)).unwrap().to_be_bytes()
}

/// Returns TCP or UDP with lengths that mostly fit, or any bytes.
fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let tcp = (address(4), 3u8..9, 0usize..30).prop_map(|(ports, words, payload)| {
        let rest = [0, 0, 0, 1, 0, 0, 0, 2, words << 4, 16, 1, 0, 0, 0, 0, 0];
        let mut bytes = [&ports[..], &rest].concat();
        bytes.resize(4 * usize::from(words.max(5)) + payload, 7);
        (6, bytes)
    });
    let udp = (address(4), 0usize..30, prop_oneof![8 => Just(0isize), 1 => -8isize..10]);
    let udp = udp.prop_map(|(ports, payload, wrong)| {
        let length = length(8 + payload, wrong);
        let mut bytes = [&ports[..], &length, &[0, 0]].concat();
        bytes.resize(8 + payload, 7);
        (17, bytes)
    });
    let other = (select(vec![0u8, 1, 6, 17, 44, 47, 50, 51, 58, 59, 60]), vec(any::<u8>(), 0..40));
    prop_oneof![3 => tcp, 3 => udp, 1 => other]
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        6 => Just(0u16), 2 => Just(0x4000), 1 => Just(0x2000), 1 => Just(0x0001), 1 => Just(0x8000)
    ];
    let options = prop_oneof![4 => Just(0u8), 1 => 1u8..11];
    let wrong = prop_oneof![10 => Just(0isize), 1 => -60isize..60];
    (address(8), fragment, options, transport(), wrong).prop_map(
        |(addresses, fragment, options, (protocol, body), wrong)| {
            let total = 20 + 4 * usize::from(options) + body.len();
            let total = length(total, wrong);
            let mut bytes = vec![0x45 + options, 0, total[0], total[1], 0, 7];
            bytes.extend(fragment.to_be_bytes());
            bytes.extend([64, protocol, 0, 0]);
            bytes.extend(addresses);
            bytes.resize(bytes.len() + 4 * usize::from(options), 1);
            bytes.extend(body);
            bytes
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let kinds = select(vec![0u8, 43, 44, 51, 60]);
    let extensions =
        prop_oneof![2 => vec((kinds.clone(), 0u8..4), 0..3), 1 => vec((kinds, 0u8..2), 6..11)];
    let wrong = prop_oneof![10 => Just(0isize), 1 => -60isize..60];
    (address(32), extensions, transport(), wrong).prop_map(
        |(addresses, extensions, (protocol, body), wrong)| {
            let names = extensions.iter().map(|&(kind, _)| kind).chain([protocol]);
            let names: Vec<u8> = names.collect();
            let mut walked = Vec::new();
            for (place, &(kind, units)) in extensions.iter().enumerate() {
                let (length, bytes) = match kind {
                    44 => (units, 8),
                    51 => (units, (usize::from(units) + 2) * 4),
                    _ => (units, (usize::from(units) + 1) * 8),
                };
                let end = walked.len() + bytes;
                walked.extend([names[place + 1], length]);
                walked.resize(end, 0);
            }
            walked.extend(body);
            let length = length(walked.len(), wrong);
            [&[0x60, 0, 0, 0, length[0], length[1], names[0], 64][..], &addresses, &walked].concat()
        },
    )
}

/// Returns the shortest frame that `BPF_PROG_TEST_RUN` accepts: without a tag only frames with a
/// whole IP header.
fn shortest(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => 15,
    }
}

/// Returns frames with up to four tags, cut or padded, with a byte of the network header changed
/// now and then.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let to = prop_oneof![Just(STATION.to_vec()), address(6)];
    let tag = (select(vec![0x8100u16, 0x88a8]), prop_oneof![Just(0x2000 | VLAN), any::<u16>()]);
    let tags = prop_oneof![4 => vec(tag.clone(), 0..3), 1 => vec(tag, 3..5)];
    let packet = prop_oneof![
        4 => ipv4().prop_map(|bytes| (0x0800u16, bytes)),
        4 => ipv6().prop_map(|bytes| (0x86dd, bytes)),
        1 => (any::<u16>(), vec(any::<u8>(), 0..80)),
    ];
    let damage = prop_oneof![3 => Just(None), 1 => (0usize..60, any::<u8>()).prop_map(Some)];
    let length = prop_oneof![3 => Just(None), 1 => (15usize..140).prop_map(Some)];
    (to, tags, packet, damage, length).prop_map(
        |(to, tags, (ethertype, packet), damage, length)| {
            let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9]].concat();
            for (kind, tci) in tags {
                frame.extend(kind.to_be_bytes().into_iter().chain(tci.to_be_bytes()));
            }
            frame.extend(ethertype.to_be_bytes());
            frame.extend(packet);
            if let Some((place, value)) = damage
                && let Some(byte) = frame.get_mut(12 + place)
            {
                *byte = value;
            }
            let length = length.unwrap_or(frame.len()).max(shortest(&frame));
            frame.resize(length, 0xee);
            frame
        },
    )
}

#[test]
fn the_program_says_what_wire_says() {
    let Some(steering) = loaded(&Key::MICROSOFT) else { return };
    let cases = ProptestConfig { cases: 4000, ..ProptestConfig::default() };
    proptest!(cases, |(key: [u8; 32], frames in vec(frames(), 1..8))| {
        let mut bytes = [7; 40];
        bytes[..32].copy_from_slice(&key);
        let toeplitz = Toeplitz::new(&Key(bytes));
        steering.set_key(&Key(bytes));
        for frame in frames {
            prop_assert_eq!(kernel(&steering, &frame), expected(&toeplitz, &frame), "{:02x?}", frame);
        }
    });
}

/// Microsoft's "Verifying the RSS hash calculation": hashes with ports, and of the addresses alone.
#[test]
fn published_vectors() {
    let Some(steering) = loaded(&Key::MICROSOFT) else { return };
    let ipv4 = |protocol: u8, more: u8| {
        let header = [0x45, 0, 0, 40, 0, 0, more, 0, 64, protocol, 0, 0];
        let addresses = [66, 9, 149, 187, 161, 142, 100, 80];
        let transport =
            [&2794u16.to_be_bytes()[..], &1766u16.to_be_bytes(), &[0, 20, 0, 0]].concat();
        let frame = [&[0; 12][..], &[8, 0], &header, &addresses, &transport];
        let mut frame = frame.concat();
        frame.extend([0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        kernel(&steering, &frame)
    };
    assert_eq!([ipv4(6, 0), ipv4(17, 0)], [0x51cc_c178 % 128; 2]);
    assert_eq!([ipv4(6, 0x20), ipv4(47, 0)], [0x323e_8fc2 % 128; 2]);
    let ipv6 = |next: u8| {
        let addresses = [
            0x3ffe_2501_0200_1fff_0000_0000_0000_0007u128,
            0x3ffe_2501_0200_0003_0000_0000_0000_0001,
        ];
        let addresses = addresses.map(u128::to_be_bytes).concat();
        let transport =
            [&2794u16.to_be_bytes()[..], &1766u16.to_be_bytes(), &[0, 20, 0, 0]].concat();
        let frame = [&[0; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, next, 64]];
        let mut frame = [&frame.concat()[..], &addresses, &transport].concat();
        frame.extend([0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        kernel(&steering, &frame)
    };
    assert_eq!([ipv6(6), ipv6(17)], [0x4020_7d3d % 128; 2]);
    assert_eq!(ipv6(47), 0x2cc1_8cd5 % 128);
}

#[test]
fn a_table_belongs_to_one_vnic_and_goes_with_it() {
    let Some(steering) = loaded(&Key::MICROSOFT) else { return };
    let (mac, twin) = (Mac([2, 0, 0, 0, 0, 7]), Mac(STATION));
    assert!(matches!(steering.add_vnic(twin, VLAN), Err(SteeringError::InUse { .. })));
    let vnic = steering.add_vnic(mac, 0).unwrap();
    assert_eq!(steering.table(vnic).unwrap(), steering.table(Vnic::DEFAULT).unwrap());
    steering.set_entry(vnic, 0, 200).unwrap();
    let frame = [&mac.0[..], &[0; 20]].concat();
    assert_eq!([(); 3].map(|()| kernel(&steering, &frame)), [200; 3]);
    let frames = steering.frames(vnic).unwrap();
    assert_eq!((frames[0], frames.iter().sum::<u64>()), (3, 3));
    let refused = |vnic, entry, queue| steering.set_entry(vnic, entry, queue).unwrap_err();
    assert!(matches!(refused(vnic, 128, 0), SteeringError::NoSuchEntry(128)));
    assert!(matches!(refused(vnic, 0, 255), SteeringError::NoSuchQueue { .. }));
    steering.remove_vnic(vnic).unwrap();
    assert_eq!(kernel(&steering, &frame), 0);
    assert!(matches!(refused(vnic, 0, 0), SteeringError::NoSuchVnic(_)));
    assert!(matches!(steering.remove_vnic(Vnic::DEFAULT), Err(SteeringError::NoSuchVnic(0))));
    let frames = steering.frames(Vnic::DEFAULT).unwrap();
    assert_eq!((frames[0], frames.iter().sum::<u64>()), (1, 1));
    // The number is given out again, with the default's table; a handle of the earlier vNIC does
    // not reach the new one.
    let again = steering.add_vnic(mac, 1).unwrap();
    assert_eq!((again.number, steering.table(again).unwrap()[0]), (vnic.number, 0));
    assert!(matches!(refused(vnic, 0, 1), SteeringError::NoSuchVnic(_)));
    assert!(matches!(steering.remove_vnic(vnic), Err(SteeringError::NoSuchVnic(_))));
    let moves = [EntryMove { vnic, entry: 0, queue: 1 }];
    assert_eq!(steering.move_entries(&moves, Duration::from_secs(1)).unwrap(), []);
    assert_eq!(steering.table(again).unwrap()[0], 0);
}

#[test]
fn there_is_a_table_for_each_port_of_a_switch_and_no_more() {
    let Ok(steering) = ProgramSteering::load(2, &Key::MICROSOFT, no_fence()) else { return };
    for number in 1..TABLES {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        steering.add_vnic(Mac([2, 0, 0, 0, high, low]), 0).unwrap();
    }
    let one_more = steering.add_vnic(Mac([2, 0, 0, 1, 0, 0]), 0);
    assert!(matches!(one_more, Err(SteeringError::Full(1023))), "{one_more:?}");
}

/// The old queue's ring, with a frame that stays unread.
struct Unread;

impl Slots for Unread {
    fn count(&self) -> u64 {
        4
    }

    fn is_filled(&self, place: u64) -> bool {
        place == 0
    }
}

/// An entry changed, or its vNIC's number went to another, while a move relied on the old state. A
/// caller that adds a vNIC may hold locks that others wait for, so it must not wait.
#[test]
fn while_entries_move_others_wait_and_vnics_neither_come_nor_go() {
    let gates = (0..2).map(|_| Gate::new(Arc::new(Unread))).collect();
    let fence = Arc::new(Fence::new(gates, 1));
    let Ok(steering) = ProgramSteering::load(2, &Key::MICROSOFT, fence) else { return };
    let patience = Duration::from_millis(200);
    let station = |number| Mac([2, 0, 0, 0, 0, number]);
    let vnic = steering.add_vnic(station(1), 0).unwrap();
    let moves = [EntryMove { vnic: Vnic::DEFAULT, entry: 0, queue: 1 }];
    std::thread::scope(|scope| {
        let start = Instant::now();
        let mover = scope.spawn(|| steering.move_entries(&moves, patience));
        while steering.table(Vnic::DEFAULT).unwrap()[0] != 1 {
            std::thread::yield_now();
        }
        assert!(matches!(steering.add_vnic(station(2), 0), Err(SteeringError::Busy)));
        assert!(matches!(steering.remove_vnic(vnic), Err(SteeringError::Busy)));
        assert!(start.elapsed() < patience, "looks or vNICs waited");
        steering.set_entry(Vnic::DEFAULT, 5, 1).unwrap();
        assert!(start.elapsed() >= patience, "an entry did not wait");
        assert_eq!(mover.join().unwrap().unwrap()[0].order, Order::GivenUp);
    });
    assert_ne!(steering.add_vnic(station(2), 0).unwrap(), vnic);
    steering.remove_vnic(vnic).unwrap();
}

/// Entries of several vNICs share one fence, and so one grace period.
#[test]
fn entries_of_several_vnics_move_together() {
    let Ok(steering) = ProgramSteering::load(4, &Key::MICROSOFT, no_fence()) else { return };
    let vnic = steering.add_vnic(Mac([2, 0, 0, 0, 0, 1]), 0).unwrap();
    let tables = || [Vnic::DEFAULT, vnic].map(|vnic| steering.table(vnic).unwrap());
    let moved = |moves: &[(Vnic, usize, u8)]| {
        let moves = moves.iter().map(|&(vnic, entry, queue)| EntryMove { vnic, entry, queue });
        steering.move_entries(&moves.collect::<Vec<_>>(), Duration::from_secs(1))
    };
    let mut wanted = tables();
    let wrong = moved(&[(vnic, 0, 2), (vnic, 128, 2)]);
    assert!(matches!(wrong, Err(SteeringError::NoSuchEntry(128))), "{wrong:?}");
    let wrong = moved(&[(vnic, 0, 2), (vnic, 1, 4)]);
    assert!(matches!(wrong, Err(SteeringError::NoSuchQueue { .. })), "{wrong:?}");
    assert_eq!(tables(), wanted);
    // Entry 0 names queue 0, entry 1 queue 1 and so on. The last two moves leave a queue that
    // others move to.
    let gone = Vnic { number: 7, generation: 0 };
    let default = Vnic::DEFAULT;
    let moves = [
        (vnic, 0, 2),
        (gone, 0, 2),
        (default, 5, 2),
        (default, 4, 3),
        (vnic, 2, 2),
        (vnic, 0, 1),
        (vnic, 6, 0),
        (vnic, 10, 1),
    ];
    let moved = moved(&moves).unwrap();
    let entries: Vec<_> = moved.iter().map(|moved| moved.entries.as_slice()).collect();
    let together = [&[(vnic, 0), (default, 5)][..], &[(default, 4)], &[(vnic, 6)], &[(vnic, 10)]];
    assert_eq!(entries, together);
    (wanted[0][5], wanted[0][4]) = (2, 3);
    (wanted[1][0], wanted[1][6], wanted[1][10]) = (2, 0, 1);
    assert_eq!(tables(), wanted);
}
