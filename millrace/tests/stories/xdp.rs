//! An uplink by AF_XDP: transfers both ways, tags, MTUs, a port that comes and goes, what it leaves
//! behind, and what replaces it.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, cli, complaint};
use crate::topology::{Family, Topology};
use crate::transfer::{transfer, transfer_while};
use ports::xdp::{self, XdpError, XdpOptions};
use rustix::process::Signal;
use std::process::Stdio;
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];
const MEGABYTE: usize = 1 << 20;

#[test]
fn tcp_arrives_as_sent_through_an_xdp_uplink_both_ways() {
    story(&NEEDS, || {
        let Some(topology) = topology("", "") else { return };
        both_ways(&topology, 32);
        assert_eq!(topology.switch.counter("uplink", "/device_lost"), 0);
        // Segments of a peer on this host have partial checksums. Without the claim none would be
        // merged.
        let partial = topology.switch.counter("uplink", "/unfinished_checksums");
        assert!(partial > 10_000, "{partial}");
        let merged = topology.switch.counter("guest", "/rsc/CoalescedPackets");
        assert!(merged > 10_000, "{merged}");
    });
}

#[test]
fn datagrams_arrive_through_an_xdp_uplink() {
    story(&[NEEDS[0], NEEDS[1], Need::Program("iperf3")], || {
        let Some(topology) = topology("", "") else { return };
        for (server, client, address) in [
            (topology.guest, topology.far, Family::V4.guest()),
            (topology.far, topology.guest, Family::V6.far()),
        ] {
            let mut listening = server.command("iperf3");
            let mut listening = listening.args(["-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
            until("iperf3 listens", || {
                server.run("ss -ltnH sport = :5201").contains("5201").then_some(())
            });
            let told = client.run(&format!("iperf3 -u -c {address} -n 2M -b 20M -l 1000 -J"));
            assert!(listening.wait().unwrap().success());
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            let sum = &told["end"]["sum"];
            assert!(sum["packets"].as_u64() >= Some(2000) && sum["lost_packets"] == 0, "{sum}");
        }
    });
}

#[test]
fn large_frames_pass_an_xdp_uplink_and_larger_ones_come_by_packet() {
    story(&NEEDS, || {
        let Some(topology) = topology("mtu = 3400\n", "mtu = 3400\n") else { return };
        run("ip link set uplink mtu 3400");
        topology.far.run("ip link set veth mtu 3400");
        reopen(&topology.switch, "xdp uplink (native, copied)");
        both_ways(&topology, 8);

        // The driver refuses a program at this MTU: the port is opened by AF_PACKET, and `check`
        // reports it.
        run("ip link set uplink down");
        topology.switch.tell("port remove uplink");
        run("ip link set uplink mtu 9000");
        run("ip link set uplink up");
        topology.far.run("ip link set veth mtu 9000");
        topology.switch.tell("port add uplink --xdp uplink --mtu 3400");
        assert_eq!(device(&topology.switch), "xdp uplink (by packet)");
        let told = String::from_utf8(cli("port show uplink").stdout).unwrap();
        assert!(told.contains("its MTU is 9000") && told.contains("3818"), "{told}");
        let told = String::from_utf8(cli("check").stdout).unwrap();
        assert!(told.contains("AF_PACKET instead"), "{told}");
        topology.far.run("ip link set veth mtu 3400");
        topology.wait();
        both_ways(&topology, 8);
    });
}

#[test]
fn an_xdp_uplink_comes_and_goes_while_a_transfer_waits() {
    story(&NEEDS, || {
        let Some(topology) = topology("", "") else { return };
        let route = (topology.far, topology.guest, Family::V4.guest());
        let mut rounds = 0;
        transfer_while(route, 512 * MEGABYTE, || {
            if rounds < 5 {
                topology.switch.tell("port remove uplink");
                assert!(!is_attached());
                topology.switch.tell("port add uplink --xdp uplink");
                assert!(is_attached());
                rounds += 1;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        });
        assert_eq!((rounds, device(&topology.switch).as_str()), (5, "xdp uplink (native, copied)"));
    });
}

#[test]
fn no_program_is_left_when_the_daemon_ends_or_is_killed() {
    story(&NEEDS, || {
        for signal in [Signal::TERM, Signal::KILL] {
            let far = Host::new(if signal == Signal::TERM { "far" } else { "far2" });
            run(&format!("ip link add uplink type veth peer name veth netns {}", name(signal)));
            run("ip link set uplink up");
            far.assign_addresses("veth", 1);
            let switch = Switch::start("[[port]]\nname = 'uplink'\nxdp = 'uplink'\n");
            if !is_xdp(&switch) {
                return;
            }
            assert!(is_attached());
            switch.end(signal);
            until("the program is gone", || (!is_attached()).then_some(()));
            run("ip link del uplink");
        }
    });
}

#[test]
fn queues_that_the_device_does_not_have_are_refused() {
    story(&NEEDS, || {
        run("ip link add uplink type veth peer name veth");
        let switch = Switch::start("");
        let (code, told) = complaint("port add uplink --xdp uplink --queues 3");
        assert_eq!(code, 1, "{told}");
        assert!(told.contains("3 queues are wanted and the device has 1"), "{told}");
        drop(switch);
    });
}

fn name(signal: Signal) -> &'static str {
    if signal == Signal::TERM { "far" } else { "far2" }
}

/// Starts the usual network with an xdp uplink. Returns `None` if programs may not be loaded.
fn topology(uplink: &str, more: &str) -> Option<Topology> {
    let topology = Topology::by("xdp", uplink, more);
    is_xdp(&topology.switch).then_some(topology)
}

fn is_xdp(switch: &Switch) -> bool {
    let told = String::from_utf8(cli("port show uplink").stdout).unwrap();
    let is_xdp = device(switch) == "xdp uplink (native, copied)";
    if !is_xdp && told.contains("cannot load the redirect program") {
        println!("skipped: needs the right to load eBPF programs");
        return false;
    }
    assert!(is_xdp, "{told}");
    true
}

fn device(switch: &Switch) -> String {
    switch.ask("port show uplink")["device"].as_str().unwrap().to_owned()
}

fn is_attached() -> bool {
    run("ip -d link show uplink").contains("prog/xdp")
}

/// Reopens the uplink.
fn reopen(switch: &Switch, as_what: &str) {
    switch.tell("port remove uplink");
    switch.tell("port add uplink --xdp uplink");
    assert_eq!(device(switch), as_what);
    switch.wait_for("uplink", "up");
}

fn both_ways(topology: &Topology, megabytes: usize) {
    let (far, guest) = (topology.far, topology.guest);
    for family in [Family::V4, Family::V6] {
        transfer((far, guest, family.guest()), megabytes * MEGABYTE);
        transfer((guest, far, family.far()), megabytes * MEGABYTE);
    }
}

/// Returns whether this process may load the program that an xdp port needs.
pub(crate) fn is_xdp_possible() -> bool {
    run("ip link add probe0 type veth peer name probe1");
    let refused = xdp::open(&XdpOptions::new("probe0")).err();
    let is_possible = !matches!(refused, Some(XdpError::Program { .. }));
    run("ip link del probe0");
    is_possible
}
