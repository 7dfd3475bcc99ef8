//! Tests the bad wire around whole ports: the contract holds, and frames come out as the faults
//! say.

use ports::fault::{Faults, PerMillion, wrap};
use ports::{Burst, Device, EgressDrop, Nanos, Offloads, Outgoing, memory};
use wire::vnet::VnetHeader;

const ALWAYS: PerMillion = PerMillion(1_000_000);

fn port(depth: usize, ingress: Faults, egress: Faults) -> (Device, memory::Peer) {
    let (device, peer) = memory::open(depth, Offloads::all(), 1500).expect("open");
    (wrap(device, ingress, egress), peer)
}

fn take(device: &mut Device, now: Nanos) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    device.ingress[0].take(now, &mut burst).expect("take");
    let bytes = |frame| {
        let mut bytes = Vec::new();
        burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
        bytes
    };
    let frames = burst.frames().iter().map(bytes).collect();
    drop(burst);
    device.ingress[0].release();
    frames
}

fn outgoing(header: &[u8]) -> Outgoing<'_> {
    Outgoing { vnet: VnetHeader::default(), header, payload: &[], len: 1 }
}

#[test]
fn ingress_delays_and_does_not_sleep_meanwhile() {
    let delayed = Faults { delay: Nanos(100), ..Faults::default() };
    let (mut device, peer) = port(8, delayed, Faults::default());
    assert!(peer.send(VnetHeader::default(), &[7]));
    assert_eq!(take(&mut device, Nanos(1)), Vec::<Vec<u8>>::new());
    assert!(device.ingress[0].arm());
    assert_eq!(take(&mut device, Nanos(101)), [[7]]);
    assert!(!device.ingress[0].arm());
}

#[test]
fn a_burst_is_never_fuller_than_full() {
    let twice = Faults { duplication: ALWAYS, ..Faults::default() };
    let (mut device, peer) = port(1000, twice, Faults::default());
    for number in 0..200 {
        assert!(peer.send(VnetHeader::default(), &[number]));
    }
    assert_eq!(take(&mut device, Nanos(0)).len(), Burst::FRAMES);
    assert_eq!(take(&mut device, Nanos(0)).len(), 400 - Burst::FRAMES);
}

#[test]
fn egress_overtakes_across_calls_and_names_the_right_drops() {
    let swapped = Faults { reordering: ALWAYS, ..Faults::default() };
    let (device, peer) = port(2, Faults::default(), swapped);
    let mut drops = Vec::new();
    // 1 overtakes 0; 2 waits to be overtaken.
    let frames = [outgoing(&[0]), outgoing(&[1]), outgoing(&[2])];
    device.egress[0].deliver(&frames, &mut drops).expect("deliver");
    assert_eq!(drops, []);
    // There is room for two frames only: 3 is refused under its own place, 2 of the earlier call
    // silently.
    device.egress[0].deliver(&[outgoing(&[3])], &mut drops).expect("deliver");
    assert_eq!(drops, [(0, EgressDrop::Full)]);
    let received: Vec<_> = std::iter::from_fn(|| peer.receive()).map(|frame| frame.bytes).collect();
    assert_eq!(received, [[1], [0]]);
}
