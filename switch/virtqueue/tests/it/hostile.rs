//! A guest that writes anything anywhere: no panic, no element outside its memory, and an end to
//! every burst.

use crate::guest::{
    BUFFER_REGION, BUFFER_REGION_SIZE, Guest, RING_REGION_SIZE, TABLES_START, readable, writable,
};
use guestmem::Gpa;
use proptest::prelude::*;
use test_guest::driver::{Driver, Shape};
use virtqueue::{Limit, Queue, QueueFault, Reserved, RingFeatures, Setup, SetupError};

/// A descriptor of either format: address, length, two fields of 16 bits.
type Raw = (u64, u32, u16, u16);

/// Values that are nearly right: most faults hide behind many good descriptors.
fn descriptor() -> impl Strategy<Value = Raw> {
    let gpa = prop_oneof![
        6 => (0..BUFFER_REGION_SIZE).prop_map(|offset| BUFFER_REGION + offset),
        2 => (0u64..64).prop_map(|table| TABLES_START + table * 16),
        1 => Just(BUFFER_REGION + BUFFER_REGION_SIZE - 16),
        1 => Just(RING_REGION_SIZE - 8),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![6 => 1u32..2000, 2 => (1u32..8).prop_map(|n| n * 16), 1 => Just(0), 1 => any::<u32>()];
    // In a split ring the first is the flags, in a packed ring the second.
    let half = || prop_oneof![6 => 0u16..8, 2 => (0u16..8).prop_map(|kind| kind | 0x80), 1 => any::<u16>()];
    (gpa, len, half(), half())
}

#[derive(Clone, Debug)]
enum Attack {
    /// A descriptor in the ring, the table, or the indirect tables.
    Descriptor(bool, u64, Raw),
    /// Any 16 bits of the driver's part, near its start.
    Driver(u64, u16),
    /// Any 16 bits of the device's part, where the driver has no business.
    Device(u64, u16),
    Take,
    Reserve(u32),
    ControlChain,
    GiveBack,
    Arm,
}

fn attacks() -> impl Strategy<Value = Vec<Attack>> {
    let small = || prop_oneof![4 => 0u16..20, 1 => any::<u16>()];
    let attack = prop_oneof![
        8 => (any::<bool>(), 0u64..20, descriptor()).prop_map(|(ring, place, raw)| Attack::Descriptor(ring, place, raw)),
        4 => (0u64..20, small()).prop_map(|(place, value)| Attack::Driver(place, value)),
        1 => (0u64..80, small()).prop_map(|(place, value)| Attack::Device(place, value)),
        3 => Just(Attack::Take),
        3 => (0u32..70_000).prop_map(Attack::Reserve),
        1 => Just(Attack::ControlChain),
        3 => Just(Attack::GiveBack),
        1 => Just(Attack::Arm),
    ];
    proptest::collection::vec(attack, 1..120)
}

fn put(guest: &Guest, attack: &Attack) {
    let rings = guest.setup.rings;
    let short = |gpa: Gpa, place: u64, value: u16| {
        assert!(guest.memory.write(Gpa(gpa.0 + place * 2), &value.to_le_bytes()));
    };
    match attack {
        Attack::Descriptor(ring, place, (gpa, len, first, last)) => {
            let start = if *ring { rings.descriptors.0 } else { TABLES_START };
            let mut bytes = gpa.to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(first.to_le_bytes());
            bytes.extend(last.to_le_bytes());
            assert!(guest.memory.write(Gpa(start + place * 16), &bytes));
        }
        Attack::Driver(place, value) => short(rings.driver, *place, *value),
        Attack::Device(place, value) => short(rings.device, *place, *value),
        _ => {}
    }
}

/// What the device does meanwhile. Every element it is given must be the guest's.
fn serve(guest: &Guest, queue: &mut Queue, attack: &Attack) {
    let limit = Limit { chains: 64, bytes: 64 * 1024 };
    match attack {
        Attack::Take => {
            let _ = queue.take(limit);
            assert!(queue.taken().flatten().all(|element| element.len > 0 && guest.owns(element)));
            assert!(queue.taken().all(|elements| !elements.is_empty()));
        }
        Attack::Reserve(len) => {
            if let Ok(Reserved::Buffers(room)) = queue.reserve(*len, 8) {
                assert!(room.elements.iter().all(|element| guest.owns(element)));
                assert!(
                    room.elements.iter().map(|element| element.len).sum::<usize>() >= *len as usize
                );
                assert!((1..=8).contains(&room.buffers));
            }
        }
        Attack::ControlChain => {
            if let Ok(Some(request)) = queue.take_control() {
                let mut all = request.readable.iter().chain(request.writable);
                assert!(all.all(|element| guest.owns(element)));
                queue.answer(1);
            }
        }
        Attack::GiveBack => {
            queue.publish();
            queue.complete(7);
        }
        Attack::Arm => {
            queue.arm();
            queue.disarm();
        }
        _ => {}
    }
}

fn run(guest: &Guest, queue: &mut Queue, attacks: &[Attack]) {
    for attack in attacks {
        put(guest, attack);
        serve(guest, queue, attack);
    }
    if let Some(fault) = queue.fault() {
        assert_eq!(
            queue.take(Limit { chains: 1, bytes: 1 }),
            Err(fault),
            "a stopped queue stays stopped"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn anything_in_the_ring(bits in 0u8..8, size in 1u16..20, power in 0u32..5, attacks in attacks()) {
        let chosen = [RingFeatures::EVENT_IDX, RingFeatures::IN_ORDER, RingFeatures::RING_PACKED];
        let chosen = chosen.into_iter().enumerate().filter(|(place, _)| bits & 1 << place != 0);
        let features: RingFeatures = chosen.map(|(_, feature)| feature).collect();
        let packed = features.contains(RingFeatures::RING_PACKED);
        let guest = Guest::new(if packed { size } else { 1 << power }, features);
        run(&guest, &mut guest.queue(), &attacks);
    }

    #[test]
    fn any_setup(size: u16, base: u32, spread in proptest::array::uniform3(any::<u64>()), near: bool, packed: bool) {
        let guest = Guest::new(8, RingFeatures::empty());
        let place = |gpa: u64| Gpa(if near { gpa % (RING_REGION_SIZE + 64) } else { gpa });
        let [descriptors, driver, device] = spread.map(place);
        let rings = virtqueue::RingAddresses { descriptors, driver, device };
        let features = if packed { RingFeatures::RING_PACKED } else { RingFeatures::empty() };
        let setup = Setup { size, rings, features, base };
        if let Ok(mut queue) = Queue::resume(guest.memory.clone(), &setup, None) {
            queue.set_enabled(true);
            let _ = queue.take(Limit { chains: 8, bytes: 8 });
        }
    }
}

/// Returns a queue of 8 and its driver, in the format.
fn pair(features: RingFeatures) -> (Guest, Driver, Queue) {
    let guest = Guest::new(8, features);
    let (driver, queue) = (guest.driver(), guest.queue());
    (guest, driver, queue)
}

const LIMIT: Limit = Limit { chains: 8, bytes: usize::MAX };
const FORMATS: [RingFeatures; 2] = [RingFeatures::empty(), RingFeatures::RING_PACKED];

/// Returns the fault that the device finds in a chain of these buffers.
fn fault_of(
    features: RingFeatures,
    shape: Shape,
    buffers: &[test_guest::driver::Buffer],
) -> QueueFault {
    let (_guest, mut driver, mut queue) = pair(features);
    driver.add(buffers, shape).unwrap();
    driver.publish();
    queue.take(LIMIT).unwrap_err()
}

#[test]
fn faults_name_what_was_seen() {
    for (features, shape) in
        FORMATS.map(|format| [(format, Shape::Direct), (format, Shape::Indirect)]).concat()
    {
        let fault = |buffer| fault_of(features, shape, &[readable(BUFFER_REGION, 4), buffer]);
        let end = BUFFER_REGION + BUFFER_REGION_SIZE;
        assert_eq!(fault(readable(end, 0)), QueueFault::EmptyBuffer(Gpa(end)));
        let outside = |gpa, len| QueueFault::OutsideMemory { gpa: Gpa(gpa), len };
        assert_eq!(fault(readable(end - 3, 4)), outside(end - 3, 4));
        assert_eq!(fault(readable(RING_REGION_SIZE - 1, 2)), outside(RING_REGION_SIZE - 1, 2));
        assert_eq!(fault(readable(BUFFER_REGION, u32::MAX)), outside(BUFFER_REGION, u32::MAX));
        assert_eq!(fault(readable(u64::MAX, 2)), outside(u64::MAX, 2));
        assert_eq!(fault(writable(BUFFER_REGION, 2)), QueueFault::NotReadable(Gpa(BUFFER_REGION)));
    }
}

#[test]
fn a_split_chain_that_loops() {
    let (guest, mut driver, mut queue) = pair(RingFeatures::empty());
    driver.add(&[readable(BUFFER_REGION, 4), readable(BUFFER_REGION, 4)], Shape::Direct).unwrap();
    driver.publish();
    // The second descriptor goes back to the first.
    guest.memory.write(Gpa(guest.setup.rings.descriptors.0 + 16 + 12), &[1, 0, 0, 0]);
    assert_eq!(queue.take(LIMIT), Err(QueueFault::ChainTooLong(8)));
    // A descriptor the table does not have.
    let (guest, mut driver, mut queue) = pair(RingFeatures::empty());
    driver.add(&[readable(BUFFER_REGION, 4)], Shape::Direct).unwrap();
    driver.publish();
    guest.memory.write(Gpa(guest.setup.rings.descriptors.0 + 12), &[1, 0, 8, 0]);
    assert_eq!(queue.take(LIMIT), Err(QueueFault::NoSuchDescriptor { index: 8, size: 8 }));
}

#[test]
fn a_packed_chain_without_an_end() {
    let (guest, mut driver, mut queue) = pair(RingFeatures::RING_PACKED);
    driver.add(&[readable(BUFFER_REGION, 4); 8], Shape::Direct).unwrap();
    driver.publish();
    guest.memory.write(Gpa(guest.setup.rings.descriptors.0 + 7 * 16 + 14), &[0x81]);
    assert_eq!(queue.take(LIMIT), Err(QueueFault::ChainTooLong(8)));
}

#[test]
fn an_index_that_jumps() {
    let (guest, _driver, mut queue) = pair(RingFeatures::empty());
    guest.memory.write(Gpa(guest.setup.rings.driver.0 + 2), &9u16.to_le_bytes());
    assert_eq!(queue.take(LIMIT), Err(QueueFault::IndexJump { seen: 9, used: 0, size: 8 }));
}

#[test]
fn tables_that_are_wrong() {
    // Indirect with a next one, a table of odd length, a table within a table: (flags, length,
    // flags of the entry).
    let cases = [
        (5, 16, 0, QueueFault::IndirectWithNext),
        (4, 17, 0, QueueFault::IndirectLength(17)),
        (4, 0, 0, QueueFault::IndirectLength(0)),
        (4, 1025 * 16, 0, QueueFault::IndirectLength(1025 * 16)),
        (4, 16, 4, QueueFault::NestedIndirect),
    ];
    for (flags, len, entry, expected) in cases {
        for format in FORMATS {
            let (guest, mut driver, mut queue) = pair(format);
            driver.add(&[readable(BUFFER_REGION, 4)], Shape::Indirect).unwrap();
            driver.publish();
            let place = if format.is_empty() { 12 } else { 14 };
            let head = guest.setup.rings.descriptors.0;
            guest.memory.write(Gpa(head + 8), &u32::to_le_bytes(len));
            guest.memory.write(Gpa(head + place), &[flags]);
            guest.memory.write(Gpa(TABLES_START + place), &[entry]);
            // The high byte of packed flags has USED, the low one AVAIL.
            if !format.is_empty() {
                guest.memory.write(Gpa(head + place), &[flags | 0x80]);
            }
            assert_eq!(queue.take(LIMIT), Err(expected));
        }
    }
}

/// A length that is checked for one entry holds for the next ones too (CVE-2026-93683 of another
/// back end).
#[test]
fn a_linked_table_has_no_entry_behind_its_length() {
    let (guest, mut driver, mut queue) = pair(RingFeatures::empty());
    driver.add(&[readable(BUFFER_REGION, 4); 2], Shape::Indirect).unwrap();
    driver.publish();
    // The first entry names one that is in memory and good, but not in the table.
    let entry = |number: u64| Gpa(TABLES_START + 16 * number);
    let mut good = [0; 16];
    guest.memory.read(entry(1), &mut good);
    guest.memory.write(entry(40), &good);
    guest.memory.write(Gpa(entry(0).0 + 14), &40u16.to_le_bytes());
    assert_eq!(queue.take(LIMIT), Err(QueueFault::NoSuchDescriptor { index: 40, size: 2 }));
}

#[test]
fn good_chains_before_a_bad_one_are_delivered() {
    for format in FORMATS {
        let (_guest, mut driver, mut queue) = pair(format);
        driver.add(&[readable(BUFFER_REGION, 4)], Shape::Direct).unwrap();
        driver.add(&[readable(BUFFER_REGION, 0)], Shape::Direct).unwrap();
        driver.publish();
        assert_eq!(queue.take(LIMIT), Ok(1));
        queue.complete(1);
        assert_eq!(driver.reap().map(|used| used.len), Some(0));
        assert_eq!(queue.take(LIMIT), Err(QueueFault::EmptyBuffer(Gpa(BUFFER_REGION))));
    }
}

#[test]
fn a_fault_in_the_middle_of_a_frame_takes_nothing_of_it() {
    let (_guest, mut driver, mut queue) = pair(RingFeatures::empty());
    driver.add(&[writable(BUFFER_REGION, 100)], Shape::Direct).unwrap();
    driver.add(&[writable(BUFFER_REGION, 0)], Shape::Direct).unwrap();
    driver.publish();
    assert_eq!(queue.reserve(150, 2).unwrap_err(), QueueFault::EmptyBuffer(Gpa(BUFFER_REGION)));
    queue.publish();
    assert_eq!(driver.reap(), None);
}

/// Fills a ring with chains of 1024 elements of one byte each: all of one indirect table.
fn crumble(guest: &Guest, driver: &mut Driver, write: bool) {
    let is_split = !guest.setup.features.contains(RingFeatures::RING_PACKED);
    let table: Vec<u8> = (0u16..1024)
        .flat_map(|place| {
            let mut entry = (BUFFER_REGION + u64::from(place)).to_le_bytes().to_vec();
            entry.extend(1u32.to_le_bytes());
            let next = u8::from(place < 1023);
            // Flags and next of a split ring; the id and, but for WRITE without meaning, the flags
            // of a packed one.
            let (flags, link) = ([next | u8::from(write) << 1, 0], (place + 1).to_le_bytes());
            entry.extend(if is_split { [flags, link] } else { [link, flags] }.concat());
            entry
        })
        .collect();
    guest.memory.write(Gpa(BUFFER_REGION + (1 << 20)), &table);
    let size = guest.setup.size;
    for _ in 0..size {
        driver.add(&[readable(BUFFER_REGION + (1 << 20), 16 * 1024)], Shape::Direct).unwrap();
    }
    driver.publish();
    for slot in 0..u64::from(size) {
        let (place, flags) = if is_split { (12, 4) } else { (14, 0x84) };
        guest.memory.write(Gpa(guest.setup.rings.descriptors.0 + slot * 16 + place), &[flags]);
    }
}

/// A frame of one byte an element costs the sender much, so only so many elements are looked at
/// until some are given back.
#[test]
fn a_receiver_that_offers_crumbs_gets_few_of_them_filled() {
    fn check(guest: &Guest, mut queue: Queue) {
        crumble(guest, &mut guest.driver(), true);
        for _ in 0..8 {
            assert!(queue.room(256).0 <= 8);
            let mut elements = 0;
            while let Ok(Reserved::Buffers(room)) = queue.reserve(1500, 64) {
                elements += room.elements.len();
            }
            assert!((1500..=8192).contains(&elements), "{elements} elements in a burst");
            queue.publish();
        }
    }
    each_format_of_crumbs(check);
}

/// Behind a batch that is not written nothing is given back, however long that takes.
#[test]
fn a_batch_that_lasts_does_not_let_crumbs_add_up() {
    fn check(guest: &Guest, mut queue: Queue) {
        crumble(guest, &mut guest.driver(), true);
        let open = queue.begin_batch();
        let mut elements = 0;
        for _ in 0..128 {
            while let Ok(Reserved::Buffers(room)) = queue.reserve(1500, 64) {
                elements += room.elements.len();
            }
            queue.publish();
        }
        assert!((65_536..=9 * 8192 + 2048).contains(&elements), "{elements} elements");
        queue.end_batch(open);
        assert!(matches!(queue.reserve(1500, 64), Ok(Reserved::Buffers(_))));
    }
    each_format_of_crumbs(check);
}

#[test]
fn an_index_does_not_go_back_behind_what_was_taken() {
    let (guest, mut driver, mut queue) = pair(RingFeatures::empty());
    for _ in 0..3 {
        driver.add(&[readable(BUFFER_REGION, 1)], Shape::Direct).unwrap();
    }
    driver.publish();
    assert_eq!(queue.take(LIMIT), Ok(3));
    guest.memory.write(Gpa(guest.setup.rings.driver.0 + 2), &2u16.to_le_bytes());
    assert!(matches!(queue.take(LIMIT), Err(QueueFault::IndexJump { seen: 2, used: 0, .. })));
}

fn each_format_of_crumbs(check: impl Fn(&Guest, Queue)) {
    for format in FORMATS {
        let guest = Guest::new(128, format);
        check(&guest, guest.queue());
    }
}

/// In a large ring a chain of direct descriptors could have tens of thousands.
#[test]
fn a_direct_chain_is_no_longer_than_an_indirect_one() {
    for format in FORMATS {
        let guest = Guest::new(2048, format);
        let (mut driver, mut queue) = (guest.driver(), guest.queue());
        driver.add(&[readable(BUFFER_REGION, 1); 1024], Shape::Direct).unwrap();
        driver.add(&[readable(BUFFER_REGION, 1); 1024], Shape::Direct).unwrap();
        driver.publish();
        assert_eq!(queue.take(LIMIT), Ok(2));
        let guest = Guest::new(2048, format);
        let (mut driver, mut queue) = (guest.driver(), guest.queue());
        driver.add(&[readable(BUFFER_REGION, 1); 1025], Shape::Direct).unwrap();
        driver.publish();
        assert_eq!(queue.take(LIMIT), Err(QueueFault::ChainTooLong(1024)));
    }
}

#[test]
fn a_chain_of_millions_of_pieces_fills_a_burst() {
    for format in FORMATS {
        let (guest, mut driver, mut queue) = pair(format);
        crumble(&guest, &mut driver, false);
        assert_eq!(
            queue.take(Limit { chains: 8, bytes: 600_000 }),
            Ok(2),
            "1024 bytes count as 524288"
        );
    }
}

#[test]
fn a_truncated_memory_stops_the_queue() {
    let (guest, mut driver, mut queue) = pair(RingFeatures::empty());
    driver.add(&[readable(BUFFER_REGION, 4)], Shape::Direct).unwrap();
    driver.publish();
    rustix::fs::ftruncate(&*guest.file, 0).unwrap();
    // The first look at the ring hits the hole, the next one sees the mark.
    let _ = queue.take(LIMIT);
    assert_eq!(queue.take(LIMIT), Err(QueueFault::MemoryBroken));
}

#[test]
fn what_cannot_start() {
    let guest = Guest::new(8, RingFeatures::empty());
    let refuse = |setup: Setup| Queue::resume(guest.memory.clone(), &setup, None).unwrap_err();
    let good = guest.setup;
    assert_eq!(refuse(Setup { size: 7, ..good }), SetupError::Size(7));
    let packed = RingFeatures::RING_PACKED;
    assert_eq!(refuse(Setup { size: 0, features: packed, ..good }), SetupError::Size(0));
    assert_eq!(
        refuse(Setup { base: 1 << 16, ..good }),
        SetupError::Base { base: 1 << 16, size: 8 }
    );
    assert_eq!(
        refuse(Setup { base: 8, features: packed, ..good }),
        SetupError::Base { base: 8, size: 8 }
    );
    let mut odd = good;
    odd.rings.descriptors = Gpa(8);
    assert_eq!(
        refuse(odd).to_string(),
        "the descriptor table is at guest address 0x8, which is not a multiple of 16"
    );
    odd.rings.descriptors = Gpa(RING_REGION_SIZE - 64);
    assert!(refuse(odd).to_string().contains("128 bytes at guest address 0x3fffc0, is not all"));
}
