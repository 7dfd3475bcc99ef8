//! Coalescing is turned on and off under traffic: no connection notices.

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::switch::Switch;
use crate::topology::{Family, Topology};
use crate::transfer::{transfer, transfer_while};
use serde_json::Value;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};
use waiting::until;

const NEEDS: [Need; 3] = [Need::Tap, Need::Program("ethtool"), Need::Program("iperf3")];
/// Segments that joined a train toward a port.
const COALESCED: &str = "/rsc/CoalescedPackets";

#[test]
fn one_ipv4_stream_lives_while_rsc_is_toggled() {
    story(&NEEDS, || iperf(Family::V4, 1));
}

#[test]
fn one_ipv6_stream_lives_while_rsc_is_toggled() {
    story(&NEEDS, || iperf(Family::V6, 1));
}

#[test]
fn sixty_four_ipv4_streams_live_while_rsc_is_toggled() {
    story(&NEEDS, || iperf(Family::V4, 64));
}

#[test]
fn sixty_four_ipv6_streams_live_while_rsc_is_toggled() {
    story(&NEEDS, || iperf(Family::V6, 64));
}

#[test]
fn every_byte_toward_the_guest_arrives_while_rsc_is_toggled() {
    story(&NEEDS[..2], || {
        let topology = Topology::new("");
        for family in [Family::V4, Family::V6] {
            verified(&topology, (topology.far, topology.guest, family.guest()));
        }
    });
}

#[test]
fn every_byte_from_the_guest_arrives_while_rsc_is_toggled() {
    story(&NEEDS[..2], || {
        let topology = Topology::new("");
        for family in [Family::V4, Family::V6] {
            verified(&topology, (topology.guest, topology.far, family.far()));
        }
    });
}

#[test]
fn rsc_coalesces_when_it_is_on_and_not_when_it_is_off() {
    story(&NEEDS[..2], || {
        let topology = Topology::new("");
        let coalesced = |wish: &str| {
            topology.switch.tell(wish);
            let before = topology.switch.counter("guest", COALESCED);
            transfer((topology.far, topology.guest, Family::V4.guest()), 16 << 20);
            topology.switch.counter("guest", COALESCED) - before
        };
        assert!(coalesced("rsc on guest") > 0);
        assert_eq!(coalesced("rsc off guest"), 0);
        assert!(coalesced("rsc on guest") > 0);
    });
}

/// Returns the seconds for which iperf3 runs.
fn seconds() -> u64 {
    if std::env::var_os("MILLRACE_LONG").is_some() { 30 } else { 6 }
}

fn iperf(family: Family, streams: usize) {
    let topology = Topology::new("");
    let (address, seconds) = (family.guest().to_string(), seconds());
    let mut server = topology.guest.command("iperf3");
    let mut server = server.args(["-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    until("iperf3 listens", || {
        topology.guest.run("ss -ltnH sport = :5201").contains("5201").then_some(())
    });
    let mut client = topology.far.command("iperf3");
    let options = format!("-c {address} -t {seconds} -P {streams} -J");
    let client = client.args(options.split(' ')).stdout(Stdio::piped()).spawn().unwrap();
    let toggled = toggle_for(&topology.switch, Duration::from_secs(seconds));
    let output = client.heard();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{}", report["error"]);
    assert!(server.wait().unwrap().success());
    assert!(toggled >= 2, "RSC was toggled {toggled} times");
    alive(&report, streams);
    let frames = topology.switch.counter("uplink", "/ingress_frames");
    let coalesced = topology.switch.counter("guest", COALESCED);
    assert!(frames > 100 && coalesced > 0, "{frames} frames, {coalesced} segments coalesced");
}

/// Turns RSC off and on, half a second each, for this time. It is on at the end. Returns how often
/// it was off.
fn toggle_for(switch: &Switch, time: Duration) -> u32 {
    let (start, mut times) = (Instant::now(), 0);
    while start.elapsed() < time {
        std::thread::sleep(Duration::from_millis(500));
        switch.tell("rsc off --all");
        std::thread::sleep(Duration::from_millis(500));
        switch.tell("rsc on --all");
        times += 1;
    }
    times
}

/// Checks that every stream came to its end and moved bytes.
fn alive(report: &Value, wanted: usize) {
    let streams = report["end"]["streams"].as_array().unwrap();
    assert_eq!(streams.len(), wanted);
    for stream in streams {
        let received = stream["receiver"]["bytes"].as_u64().unwrap();
        assert!(received > 0, "a stream moved nothing: {stream}");
    }
}

/// Transfers 64 MiB and checks every byte, while RSC goes off and on as fast as the command line
/// can toggle it.
fn verified(topology: &Topology, route: (Host, Host, IpAddr)) {
    transfer_while(route, 64 << 20, || {
        topology.switch.tell("rsc off --all");
        topology.switch.tell("rsc on --all");
    });
}
