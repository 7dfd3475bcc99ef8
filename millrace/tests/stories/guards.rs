//! Guards: each drops what its port may not send, lets the rest pass, and is named by captures,
//! counters and `check`.

use crate::sandbox::{Need, story};
use crate::switch::{cli, millrace};
use crate::topology::Topology;
use ports::{EgressQueue, Outgoing};
use std::process::{Child, Stdio};
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];

/// A running capture at the guest's port.
pub(crate) struct Capture {
    process: Child,
    file: String,
}

impl Capture {
    pub(crate) fn start(name: &str) -> Capture {
        let file = format!("/run/{name}.pcapng");
        let mut capture = millrace();
        capture.args(["capture", "guest", "-w", &file]);
        let process = capture.stdout(Stdio::null()).spawn().unwrap();
        until("the capture runs", || std::fs::metadata(&file).is_ok().then_some(()));
        Capture { process, file }
    }

    /// Repeats `again` until the file contains a dropped frame with this reason.
    pub(crate) fn names(mut self, reason: &str, mut again: impl FnMut()) {
        let comment = format!("dropped: {reason}");
        let holds =
            |bytes: Vec<u8>| bytes.windows(comment.len()).any(|it| it == comment.as_bytes());
        until(&format!("the capture says {comment}"), || {
            again();
            holds(std::fs::read(&self.file).ok()?).then_some(())
        });
        let stopped = self.process.kill().and_then(|()| self.process.wait());
        assert!(stopped.is_ok(), "{stopped:?}");
        let _ = cli("capture guest --stop");
    }
}

/// Sends frames from the guest's device unchanged, whatever its kernel thinks of them.
struct Raw(EgressQueue);

impl Raw {
    fn open(topology: &Topology) -> (Raw, [u8; 6]) {
        let options = ports::packet::PacketOptions::new("tap0");
        let opened = topology.guest.within(|| ports::packet::open(&options)).unwrap();
        let mac = opened.device.mac.unwrap().0;
        (Raw(opened.device.egress.into_iter().next().unwrap()), mac)
    }

    fn send(&mut self, frame: &[u8]) {
        let len = u32::try_from(frame.len()).unwrap();
        let frame = Outgoing { vnet: Default::default(), header: frame, payload: &[], len };
        let mut drops = vec![];
        self.0.deliver(&[frame], &mut drops).unwrap();
        assert!(drops.is_empty(), "{drops:?}");
    }
}

/// Turns a guard on by `key` and checks that `bad` is dropped for `reason` and `good` passes. Then
/// turns it off and checks that `bad` passes.
fn guards(
    key: &str,
    reason: &str,
    bad: &dyn Fn([u8; 6]) -> Vec<u8>,
    good: &dyn Fn([u8; 6]) -> Vec<u8>,
) {
    let topology = Topology::new("");
    let (mut raw, mac) = Raw::open(&topology);
    let switch = &topology.switch;
    let drops = || switch.counter("guest", &format!("/drops/{reason}"));
    switch.tell(&format!("port set guest {key}"));
    let start = drops();
    Capture::start(reason).names(reason, || raw.send(&bad(mac)));
    assert!(drops() > start);
    let check = cli("check --strict");
    let told = String::from_utf8_lossy(&check.stdout).into_owned();
    assert_eq!(check.status.code(), Some(1), "{told}");
    assert!(
        told.contains("guards of port guest dropped frames") && told.contains(reason),
        "{told}"
    );
    passes(&topology, || raw.send(&good(mac)));
    switch.tell(&format!("port set guest {}=", key.split('=').next().unwrap()));
    passes(&topology, || raw.send(&bad(mac)));
}

/// Repeats `send` until its frames reach the uplink, which gets hundreds of frames more than by
/// chance.
fn passes(topology: &Topology, mut send: impl FnMut()) {
    const MANY: u64 = 300;
    let out = || topology.switch.counter("uplink", "/egress_frames");
    let start = out();
    (0..MANY).for_each(|_| send());
    until("the frames have passed", || (out() >= start + MANY).then_some(()));
}

fn ethernet(mac: [u8; 6], kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&[0xff; 6], &mac[..], &kind, payload].concat()
}

/// Returns a UDP datagram over IPv4 from an address of the guest's network.
fn udp(mac: [u8; 6], last: u8, ports: (u16, u16)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, last, 10, 9, 0, 1];
    packet.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    packet.extend([0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    ethernet(mac, [8, 0], &packet)
}

/// Returns an ICMPv6 packet behind extension headers and a VLAN-0 tag.
fn icmp6(mac: [u8; 6], kind: u8) -> Vec<u8> {
    let mut packet = vec![0, 0, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 0, 255];
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([60, 0, 1, 4, 0, 0, 0, 0, 58, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend([kind, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    ethernet(mac, [0x81, 0], &packet)
}

fn arp(mac: [u8; 6], last: u8) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 2];
    packet.extend([&mac[..], &[10, 9, 0, last], &[0; 6], &[10, 9, 0, 1]].concat());
    ethernet(mac, [8, 6], &packet)
}

#[test]
fn dhcp_guard_keeps_a_guest_from_being_a_dhcp_server() {
    story(&NEEDS, || {
        guards("dhcp-guard=true", "dhcp_guard", &|mac| udp(mac, 2, (67, 68)), &|mac| {
            udp(mac, 2, (68, 67))
        });
    });
}

#[test]
fn router_guard_keeps_a_guest_from_being_a_router() {
    story(&NEEDS, || {
        guards("router-guard=true", "router_guard", &|mac| icmp6(mac, 134), &|mac| icmp6(mac, 128));
    });
}

#[test]
fn ip_guard_holds_a_guest_to_its_addresses() {
    story(&NEEDS, || {
        guards("ip-guard=10.9.0.2,fd09::2", "ip_guard", &|mac| udp(mac, 7, (1000, 2000)), &|mac| {
            udp(mac, 2, (1000, 2000))
        });
    });
}

#[test]
fn ip_guard_holds_arp_to_a_guests_addresses() {
    story(&NEEDS, || {
        guards("ip-guard=10.9.0.2,fd09::2", "ip_guard", &|mac| arp(mac, 1), &|mac| arp(mac, 2));
    });
}
