//! Counts allocations for each kind of port. After a first turn, which may allocate buffers, a turn
//! allocates nothing, neither per frame nor per burst.
//! It is a program of its own, because it has an allocator of its own.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "tests, though not only in functions marked so"
)]
#![allow(unsafe_code, reason = "an allocator that counts")]

mod support;

use ports::packet::{self, PacketOptions};
use ports::tap::{self, TapOptions};
use ports::team::{self, Algorithm, Member, MemberError, TeamOptions};
use ports::xdp::{self, XdpError, XdpOptions};
use ports::{Burst, Device, Nanos, Outgoing, Slice};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{in_namespace, ip, udp_header, udp_vnet};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// Runs turns in which `from` delivers a full burst and `to` takes the frames that arrived. Returns
/// how many it took.
fn turns<'b>(
    (from, to): (&mut Device, &mut Device),
    header: &[u8],
    count: usize,
    mut burst: Burst<'b>,
) -> (usize, Burst<'b>) {
    let payload = [7; 1000];
    let slices = [Slice::from(&payload[..500]), Slice::from(&payload[500..])];
    let frame = Outgoing { vnet: udp_vnet(0), header, payload: &slices, len: 1042 };
    let frames = [frame; Burst::FRAMES];
    let mut drops = Vec::new();
    let mut taken = 0;
    for _ in 0..count {
        from.egress[0].deliver(&frames, &mut drops).expect("deliver");
        let mut lent = burst.recycle();
        to.ingress[0].take(Nanos(0), &mut lent).expect("take");
        taken += lent.frames().len();
        burst = lent.recycle();
        to.ingress[0].release();
    }
    assert_eq!(drops, []);
    (taken, burst)
}

/// Returns the allocations of many turns after a first, and the frames taken.
fn allocations(from: &mut Device, to: &mut Device) -> (u64, usize) {
    let header = udp_header(THEIR_MAC, OUR_MAC, [[10, 9, 0, 2], [10, 9, 0, 1]], 1000);
    let (_, burst) = turns((from, to), &header, 1, Burst::new());
    let before = ALLOCATIONS.get();
    let (taken, _burst) = turns((from, to), &header, 20, burst);
    (ALLOCATIONS.get() - before, taken)
}

#[test]
fn packet_ports_allocate_nothing_in_a_turn() {
    in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        ip("link set mill0 up");
        ip("link set mill1 up");
        let open = |name| packet::open(&PacketOptions::new(name)).expect("open").device;
        let (allocations, taken) = allocations(&mut open("mill0"), &mut open("mill1"));
        assert_eq!(allocations, 0);
        assert!(taken > Burst::FRAMES, "{taken}");
    });
}

/// Teams of two members, with either algorithm; with `dynamic` frames leave under a member's own
/// address.
#[test]
fn teams_allocate_nothing_in_a_turn() {
    in_namespace(|| {
        for (team, peer) in [("mill0", "mill1"), ("mill2", "mill3")] {
            ip(&format!("link add {team} type veth peer name {peer}"));
            for link in [team, peer] {
                // The port would take the kernel's own frames for its IPv6 address as well.
                ip(&format!("link set {link} addrgenmode none up"));
            }
        }
        for algorithm in [Algorithm::HyperVPort, Algorithm::Dynamic] {
            let opener = |name: &str| {
                Member::packet(name, None)
                    .map_err(|error| MemberError { reason: error.to_string(), denied: false })
            };
            let options = TeamOptions { algorithm, ..TeamOptions::new(&["mill0", "mill2"]) };
            let (mut team, handle) = team::assemble(&options, Box::new(opener)).expect("a team");
            let open = |name| packet::open(&PacketOptions::new(name)).expect("open").device;
            let mut peers = [open("mill1"), open("mill3")];
            let mut taken = [0; 2];
            for (peer, taken) in peers.iter_mut().zip(&mut taken) {
                let (allocations, count) = allocations(&mut team, peer);
                assert_eq!(allocations, 0);
                *taken = count;
            }
            assert!(taken.iter().sum::<usize>() > Burst::FRAMES, "{taken:?}");
            let (allocations, taken) = allocations(&mut peers[0], &mut team);
            assert_eq!(allocations, 0);
            // Frames sent just now from this address come back.
            assert_eq!(taken, 0);
            assert!(handle.status().members[0].counters.reflected > 0);
        }
    });
}

#[test]
fn xdp_ports_allocate_nothing_in_a_turn() {
    in_namespace(|| {
        ip("link add mill0 type veth peer name mill1");
        ip("link set mill0 up");
        ip("link set mill1 up");
        let open = |name| xdp::open(&XdpOptions::new(name));
        let mut there = match open("mill1") {
            Err(XdpError::Program { source, .. }) => {
                return eprintln!("skipped: needs the right to load eBPF programs: {source}");
            }
            other => other.expect("open").device,
        };
        let (allocations, taken) =
            allocations(&mut open("mill0").expect("open").device, &mut there);
        assert_eq!(allocations, 0);
        assert!(taken > Burst::FRAMES, "{taken}");
    });
}

#[test]
fn tap_ports_allocate_nothing_in_a_turn() {
    in_namespace(|| {
        let mut tap = tap::open(&TapOptions::new("mill2")).expect("open").device;
        // The TAP takes the frames that a packet port sends through its device.
        let mut kernel = packet::open(&PacketOptions::new("mill2")).expect("open").device;
        let (in_kernel_to_tap, taken) = allocations(&mut kernel, &mut tap);
        assert!(taken > Burst::FRAMES, "{taken}");
        let (in_tap_to_kernel, taken) = allocations(&mut tap, &mut kernel);
        assert!(taken > Burst::FRAMES, "{taken}");
        assert_eq!((in_kernel_to_tap, in_tap_to_kernel), (0, 0));
    });
}
