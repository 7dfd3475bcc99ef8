//! The split ring against rust-vmm's `virtio-queue`: the same bytes in, the same buffers and the
//! same used ring out.

use crate::guest::{
    BUFFER_REGION, BUFFER_REGION_SIZE, Guest, RING_REGION_SIZE, readable, writable,
};
use guestmem::Gpa;
use proptest::prelude::*;
use test_guest::driver::{Buffer, Shape};
use virtio_queue::{Queue as OracleQueue, QueueT};
use virtqueue::{Limit, Reserved, RingFeatures};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const SIZE: u16 = 64;

/// Returns the guest's memory as it is now, copied.
fn copy(guest: &Guest) -> GuestMemoryMmap<()> {
    let ranges = [
        (GuestAddress(0), RING_REGION_SIZE as usize),
        (GuestAddress(BUFFER_REGION), BUFFER_REGION_SIZE as usize),
    ];
    let memory = GuestMemoryMmap::from_ranges(&ranges).unwrap();
    // RingAddresses and tables; the buffers' contents do not matter.
    memory.write_slice(&guest.read(0, RING_REGION_SIZE as usize), GuestAddress(0)).unwrap();
    memory
}

fn oracle(guest: &Guest) -> OracleQueue {
    let mut queue = OracleQueue::new(SIZE).unwrap();
    queue.set_size(SIZE);
    let rings = guest.setup.rings;
    let halves = |gpa: Gpa| (Some(gpa.0 as u32), Some((gpa.0 >> 32) as u32));
    let (low, high) = halves(rings.descriptors);
    queue.set_desc_table_address(low, high);
    let (low, high) = halves(rings.driver);
    queue.set_avail_ring_address(low, high);
    let (low, high) = halves(rings.device);
    queue.set_used_ring_address(low, high);
    queue.set_event_idx(guest.setup.features.contains(RingFeatures::EVENT_IDX));
    queue.set_ready(true);
    queue
}

fn used_ring(guest: &Guest) -> Vec<u8> {
    guest.read(guest.setup.rings.device.0, 4 + 8 * usize::from(SIZE))
}

fn chains() -> impl Strategy<Value = Vec<(Vec<u32>, bool)>> {
    let lengths = proptest::collection::vec(1u32..3000, 1..8);
    proptest::collection::vec((lengths, any::<bool>()), 0..20)
}

fn buffers(lengths: &[u32], seed: usize, write: bool) -> Vec<Buffer> {
    let make = |(place, len): (usize, &u32)| {
        let gpa = BUFFER_REGION + (seed * 8 + place) as u64 * 4096;
        if write { writable(gpa, *len) } else { readable(gpa, *len) }
    };
    lengths.iter().enumerate().map(make).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_buffers_and_the_same_used_ring(rounds in proptest::collection::vec(chains(), 1..6), write: bool, by_position: bool) {
        let features = RingFeatures::INDIRECT_DESC | if by_position { RingFeatures::EVENT_IDX } else { RingFeatures::empty() };
        let guest = Guest::new(SIZE, features);
        let (mut driver, mut oracle) = (guest.driver(), oracle(&guest));
        let mut ours = guest.queue();
        for round in rounds {
            let added = round.iter().enumerate().map_while(|(seed, (lengths, indirect))| {
                let shape = if *indirect { Shape::Indirect } else { Shape::Direct };
                driver.add(&buffers(lengths, seed, write), shape)
            });
            let added = added.count();
            driver.publish();
            if by_position {
                driver.arm();
            }
            let theirs = copy(&guest);
            let mut expected = Vec::new();
            while let Some(chain) = oracle.pop_descriptor_chain(&theirs) {
                let head = chain.head_index();
                let elements: Vec<_> = chain.map(|element| (element.addr().0, element.len() as usize)).collect();
                let written = if write { elements.iter().map(|(_, len)| *len as u32).sum() } else { 0 };
                oracle.add_used(&theirs, head, written).unwrap();
                expected.push(elements);
            }
            prop_assert_eq!(expected.len(), added);
            let notify = oracle.needs_notification(&theirs).unwrap();
            let mut found = Vec::new();
            if write {
                for elements in &expected {
                    let len: usize = elements.iter().map(|(_, len)| *len).sum();
                    let Ok(Reserved::Buffers(room)) = ours.reserve(len as u32, 1) else { panic!("no room") };
                    found.push(room.elements.iter().map(|element| (guest.gpa_of(element), element.len)).collect::<Vec<_>>());
                }
                prop_assert!(matches!(ours.reserve(0, 1), Ok(Reserved::Full)));
            } else {
                ours.take(Limit { chains: 64, bytes: usize::MAX }).unwrap();
                found.extend(ours.taken().map(|elements| elements.iter().map(|element| (guest.gpa_of(element), element.len)).collect()));
            }
            let ours_notify = if write { ours.publish() } else { ours.complete(added) };
            prop_assert_eq!(found, expected);
            let mut expected = vec![0; 4 + 8 * usize::from(SIZE)];
            theirs.read_slice(&mut expected, GuestAddress(guest.setup.rings.device.0)).unwrap();
            prop_assert_eq!(used_ring(&guest), expected);
            if by_position && added > 0 {
                prop_assert_eq!(ours_notify, notify);
            }
            while driver.reap().is_some() {}
        }
    }
}
