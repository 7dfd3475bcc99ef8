//! Tests that need a program at the peer: a tag that its stack keeps beside the frame.

use super::*;
use crate::namespace;
use crate::packet::{self, PacketOptions};
use crate::{Burst, EgressQueue, IngressQueue, Nanos, Outgoing, Slice, bpf};
use std::process::Command;
use std::time::{Duration, Instant};
use wire::vnet::VnetHeader;

/// An Ethernet header and a payload that no stack sends.
const FRAME: [u8; 60] = {
    let mut frame = [7; 60];
    frame[0] = 2;
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

fn tell(line: &str) -> bool {
    let mut words = line.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status();
    status.is_ok_and(|status| status.success())
}

/// Sends the frame out of one port. Returns the bytes that arrive at the other.
fn pass(from: &EgressQueue, to: &mut IngressQueue) -> Vec<u8> {
    let payload = [Slice::from(&FRAME[..])];
    let frame = Outgoing { vnet: VnetHeader::default(), header: &[], payload: &payload, len: 60 };
    from.deliver(&[frame], &mut Vec::new()).unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < Duration::from_secs(10), "nothing came");
        let mut burst = Burst::new();
        to.take(Nanos(1), &mut burst).unwrap();
        let bytes = |frame| {
            let mut bytes = Vec::new();
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            bytes
        };
        let ours = burst.frames().iter().map(bytes).find(|bytes| bytes.ends_with(&FRAME[14..]));
        drop(burst);
        to.release();
        if let Some(bytes) = ours {
            return bytes;
        }
    }
}

/// A frame of VLAN 7 looks untagged. The port's limits say so, and the remedy that they name works.
#[test]
fn a_tag_that_a_peer_keeps_beside_its_frame_is_lost_until_it_is_put_into_it() {
    let test = || {
        assert!(tell("ip link add mill0 type veth peer name mill1"));
        assert!(tell("ip link set mill0 up") && tell("ip link set mill1 up"));
        let mut there = match open(&XdpOptions::new("mill1")) {
            Err(error @ XdpError::Program { .. }) => return eprintln!("skipped: {error}"),
            other => other.unwrap(),
        };
        let peer = packet::open(&PacketOptions::new("mill0")).unwrap();
        let index = peer.link.index().unwrap();
        let _tagging = match bpf::tests::tag_all(index, 7) {
            Ok(link) => link,
            Err(error) => return eprintln!("skipped: needs Linux 6.6: {error}"),
        };
        let (egress, ingress) = (&peer.device.egress[0], &mut there.device.ingress[0]);
        assert_eq!(pass(egress, ingress), FRAME);
        assert!(
            there.limits.iter().any(|limit| limit.contains("txvlan off")),
            "{:?}",
            there.limits
        );
        if !tell("ethtool -K mill0 txvlan off") {
            return eprintln!("skipped: needs ethtool");
        }
        let tagged = [&FRAME[..12], &[0x81, 0, 0, 7], &FRAME[12..]].concat();
        assert_eq!(pass(egress, ingress), tagged);
    };
    if let Err(error) = namespace::fresh(test) {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}
