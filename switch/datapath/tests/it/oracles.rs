//! Compares the queue and the hash of frames with those by other implementations: DPDK, QEMU, and
//! the kernel with QEMU's program.

use crate::common::packet::{Extension, GUEST, PEER, Packet, Scene, VLAN, packet};
use crate::common::trunk;
use crate::oracle::device::Device;
use crate::oracle::dpdk::Dpdk;
use crate::oracle::{QUEUES, Setting, setting};
use datapath::{PortSettings, Rss, Steer};
use ports::vhost::{GuestHash, GuestSettings, GuestTable};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::sync::Arc;
use tempfile::TempDir;
use wire::parse;
use wire::toeplitz::{HashTypes, Key, Toeplitz};

/// Returns the queue and the hash of each packet in our switch, with a setting.
fn ours(setting: &Setting, packets: &[Packet]) -> Vec<(usize, Option<u32>)> {
    let key = Key(setting.key);
    let rss = Rss { key: Some(key), types: setting.types, ..Rss::default() };
    let mut scene = Scene::new(QUEUES.into(), PortSettings { rss, ..trunk(0, &[VLAN]) });
    let table = setting.table.iter().map(|queue| usize::from(*queue));
    let entries: Vec<_> = table.enumerate().collect();
    scene.bench.switch.set_rss_entries(scene.guest, &entries).unwrap();
    let toeplitz = Toeplitz::new(&key);
    let hash = |packet: &Packet| {
        let frame = packet.frame(PEER, GUEST);
        toeplitz.hash_types(&frame, &parse(&frame, frame.len()).unwrap(), setting.types)
    };
    let queues: Vec<_> = packets.iter().map(|packet| scene.receives(packet)).collect();
    let mut scene = of_guest(setting);
    let by_guest: Vec<_> = packets.iter().map(|packet| scene.receives(packet)).collect();
    assert_eq!(queues, by_guest, "the same table, key and types set by the guest's driver");
    queues.into_iter().zip(packets.iter().map(hash)).collect()
}

/// Returns a scene with a setting that the guest's driver has made.
fn of_guest(setting: &Setting) -> Scene {
    let rss = Rss { steer: Steer::Guest, ..Rss::default() };
    let scene = Scene::new(QUEUES.into(), PortSettings { rss, ..trunk(0, &[VLAN]) });
    let table: Vec<u16> = setting.table.iter().map(|queue| u16::from(*queue)).collect();
    // Frames without a hash have hash 0 at the oracles.
    let unclassified = table[0];
    scene.live.set_guest_settings(Arc::new(GuestSettings {
        hash: Some(Arc::new(GuestHash::new(Key(setting.key), setting.types))),
        table: Some(Arc::new(GuestTable::new(table, unclassified))),
        filter: None,
    }));
    scene
}

/// Compares our results with an oracle's: the queue of each frame, and its hash if the oracle
/// reports one. Oracles know a second tag only behind a tag of 802.1ad.
fn compare(
    packets: impl Strategy<Value = Packet>,
    types: impl Strategy<Value = HashTypes>,
    other: impl FnMut(&Setting, &[u8]) -> (usize, Option<Option<u32>>),
) {
    let other = RefCell::new(other);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let packets = packets.prop_map(|packet| Packet { tags: packet.tags.min(1), ..packet });
    let all = (setting(types), vec(packets, 1..20));
    let compared = runner.run(&all, |(setting, packets)| {
        for (packet, (queue, hash)) in packets.iter().zip(ours(&setting, &packets)) {
            let said = other.borrow_mut()(&setting, &packet.frame(PEER, GUEST));
            prop_assert_eq!((said.0, said.1.unwrap_or(hash)), (queue, hash), "{:?}", packet);
        }
        Ok(())
    });
    if let Err(difference) = compared {
        panic!("{difference:?}");
    }
}

/// Generates subsets of the six hash types without extension headers.
fn plain_types() -> impl Strategy<Value = HashTypes> {
    (0..0x40u16).prop_map(HashTypes::from_bits_truncate)
}

#[test]
fn hash_and_queue_are_those_of_dpdk() {
    let mut dpdk = match Dpdk::start() {
        Ok(dpdk) => dpdk,
        Err(needed) => return eprintln!("skipped: needs {needed}"),
    };
    compare(packet(), plain_types(), |setting, frame| {
        let hash = dpdk.hash(setting, frame);
        (setting.table[hash.unwrap_or(0) as usize % 128].into(), Some(hash))
    });
}

/// Generates plain types, alone or with the extension-header variants of all their IPv6 types. With
/// such a variant alone QEMU differs: it hashes frames without extension headers as well, and ports
/// where only addresses were asked for.
fn all_types() -> impl Strategy<Value = HashTypes> {
    (plain_types(), any::<bool>()).prop_map(|(plain, extended)| {
        let v6 = plain.bits() & 0x38;
        plain | HashTypes::from_bits_truncate(if extended { v6 << 3 } else { 0 })
    })
}

/// Returns the packet with at most one home address, at byte 8 of its header, and one routing
/// header. QEMU looks for a home address only from that byte on, and forgets it at a further
/// header.
fn simplified_for_qemu(packet: Packet) -> Packet {
    let (mut chain, mut homes, mut routes) = (vec![], vec![], vec![]);
    for header in packet.chain {
        match header {
            Extension::Options => chain.push(header),
            Extension::Home { address, .. } => {
                homes.push(Extension::Home { padded: true, address })
            }
            Extension::Route(..) => routes.push(header),
        }
    }
    chain.extend(homes.into_iter().take(1).chain(routes.into_iter().take(1)));
    Packet { chain, ..packet }
}

#[test]
fn hash_and_queue_are_those_of_qemu() {
    with_device(true, |device| compare_device(device, true));
}

#[test]
fn the_queue_is_the_one_that_the_kernel_finds_by_the_program_of_qemu() {
    with_device(false, |mut device| {
        let any = Setting { key: [1; 40], types: HashTypes::PLAIN, table: vec![0; 128] };
        device.set_up(&any);
        if device.said().contains("software RSS") {
            return eprintln!("skipped: needs the right to load eBPF: {}", device.said());
        }
        compare_device(device, false);
    });
}

/// Compares with QEMU's device, which reports hashes if `reports` is set.
fn compare_device(mut device: Device, reports: bool) {
    let mut last = None;
    compare(packet().prop_map(simplified_for_qemu), all_types(), |setting, frame| {
        if last.replace(setting.clone()).is_none_or(|last| last != *setting) {
            device.set_up(setting);
        }
        let (queue, hash) = device.receives(frame);
        (queue, reports.then_some(hash))
    });
}

/// Calls `test` with QEMU's device in a network namespace of its own, or says why it cannot.
fn with_device(reports: bool, test: impl FnOnce(Device) + Send) {
    let folder = TempDir::new().unwrap();
    let tested = ports::namespace::fresh(|| match Device::start(folder.path(), reports) {
        Ok(device) => test(device),
        Err(needed) => eprintln!("skipped: needs {needed}"),
    });
    if let Err(error) = tested {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}
