//! An uplink of two queues on two workers: both carry traffic, and flows keep their order.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, cli};
use crate::topology::{Family, Topology};
use crate::transfer::transfer;
use serde_json::Value;
use std::net::{IpAddr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use waiting::until;

const NEEDS: [Need; 3] = [Need::Tap, Need::Program("ethtool"), Need::Program("iperf3")];
const TWO_WORKERS: &str = "queues = 1\nvmmq = 'static'\n[switch]\nworkers = 2";

#[test]
fn two_queues_of_an_uplink_carry_sixteen_connections_in_order() {
    story(&NEEDS, || {
        let topology = Topology::with("queues = 2\n", TWO_WORKERS);
        if is_hashed(&topology.switch) {
            return println!("skipped: needs the right to load eBPF programs");
        }
        let [first, second] = carried(&topology);
        assert!(first > 100 && second > 100, "{first} and {second} frames");
        in_order(out_of_order(&topology), first + second);

        // When the link comes up, the kernel puts the sockets into their group again.
        run("ip link set uplink down");
        topology.switch.wait_for("uplink", "down");
        run("ip link set uplink up");
        topology.wait();
        transfer((topology.far, topology.guest, Family::V4.guest()), 1 << 20);
        let before = out_of_order(&topology);
        let [first, second] = carried(&topology);
        assert!(first > 100 && second > 100, "{first} and {second} frames");
        in_order(out_of_order(&topology) - before, first + second);
    });
}

#[test]
fn an_uplink_of_one_queue_is_as_it_was() {
    story(&NEEDS, || {
        let topology = Topology::with("queues = 1\nvmmq = 'static'\n", TWO_WORKERS);
        let shown = topology.switch.ask("port show uplink");
        assert_eq!(
            (shown["spread"].clone(), shown["queues"].as_array().unwrap().len()),
            (Value::Null, 1)
        );
        let [_, second] = carried(&topology);
        assert_eq!(second, 0);
    });
}

/// Without the right to load programs the kernel spreads the flows, and `check` reports it.
#[test]
fn an_uplink_that_cannot_be_steered_works_and_is_found() {
    story(&NEEDS, || {
        let topology = Topology::with("queues = 2\n", TWO_WORKERS);
        if !is_hashed(&topology.switch) {
            let said = String::from_utf8(cli("port show uplink").stdout).unwrap();
            assert!(said.contains("flows spread by: indirection tables"), "{said}");
            return println!("skipped: needs to be without the right to load eBPF programs");
        }
        transfer((topology.far, topology.guest, Family::V6.guest()), 1 << 20);
        let said = String::from_utf8(cli("port show uplink").stdout).unwrap();
        assert!(said.contains("flows spread by: the kernel's hash (cannot load"), "{said}");
        let said = String::from_utf8(cli("check").stdout).unwrap();
        assert!(said.contains("port uplink: the kernel's hash spreads flows"), "{said}");
    });
}

/// UDP port of the far host.
const PORT: u16 = 7000;

/// Two guests send all they can through a slow link. They share it by their weights, which change
/// meanwhile.
#[test]
fn guests_share_a_slow_uplink_by_their_weights() {
    story(&[Need::Tap, Need::Program("tc")], || {
        let other = Host::new("other");
        let topology = Topology::new(
            "weight = 3\n[[port]]\nname = 'other'\ntap = 'tap1'\nnetns = 'other'\nweight = 1\n",
        );
        other.assign_addresses("tap1", 3);
        run("tc qdisc add dev uplink root tbf rate 50mbit burst 16kb limit 10mb");
        let far = topology.far.within(|| UdpSocket::bind((Family::V4.far(), PORT)).unwrap());
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let done = AtomicBool::new(false);
        let send = |host: Host| {
            let socket = host.within(|| UdpSocket::bind("0.0.0.0:0").unwrap());
            while !done.load(Relaxed) {
                let _ = socket.send_to(&[0; 1400], (Family::V4.far(), PORT));
            }
        };
        std::thread::scope(|threads| {
            let send = &send;
            for host in [topology.guest, other] {
                threads.spawn(move || send(host));
            }
            let first = share(&far, Family::V4.guest());
            topology.switch.tell("port set other weight=3");
            let second = share(&far, Family::V4.guest());
            done.store(true, Relaxed);
            println!("measured: {first:.3} by weights 3 and 1, {second:.3} by 3 and 3");
            assert!((0.70..0.80).contains(&first) && (0.45..0.55).contains(&second));
        });
        assert_eq!(topology.switch.counter("uplink", "/drops/egress_full"), 0);
    });
}

/// Returns a guest's share of 6,000 datagrams, after 6,000 that were under way. The share is less
/// if they do not come.
fn share(far: &UdpSocket, guest: IpAddr) -> f64 {
    let from = |_| Some(far.recv_from(&mut [0; 1500]).ok()?.1.ip());
    let _ = (0..6000).filter_map(from).count();
    (0..6000).filter_map(from).filter(|from| *from == guest).count() as f64 / 6000.0
}

fn is_hashed(switch: &Switch) -> bool {
    switch.ask("port show uplink")["spread"]["by"] == "kernel-hash"
}

/// Runs sixteen connections for a few seconds. Writes are so small that no queue of the kernel
/// overflows, because resent segments come out of order. Returns the number of frames that each
/// queue of the uplink got. The guest's port is the second, so the first worker has the first queue
/// of the uplink alone.
fn carried(topology: &Topology) -> [u64; 2] {
    let frames = || {
        let uplink = topology.switch.counter("uplink", "/ingress_frames");
        let workers = topology.switch.ask("status")["switch"]["workers"].clone();
        let first = workers[0]["frames"].as_u64().unwrap();
        [first, uplink.saturating_sub(first)]
    };
    let before = frames();
    let mut server = topology.guest.command("iperf3");
    let mut server = server.args(["-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    until("iperf3 listens", || {
        topology.guest.run("ss -ltnH sport = :5201").contains("5201").then_some(())
    });
    let options = format!("-c {} -t 3 -P 16 -b 10M -l 4K -J", Family::V4.guest());
    topology.far.run(&format!("iperf3 {options}"));
    assert!(server.wait().unwrap().success());
    let after = frames();
    [after[0] - before[0], after[1] - before[1]]
}

/// Checks the order of frames. Two readers of one flow would put every other frame out of order.
/// The kernel itself does so with a few, when a sender changes its processor.
fn in_order(out_of_order: u64, frames: u64) {
    assert!(out_of_order < frames / 1000, "{out_of_order} of {frames} frames are out of order");
}

/// Returns the number of segments that the guest's TCP got before an earlier one.
fn out_of_order(topology: &Topology) -> u64 {
    let counters = topology.guest.run("nstat -asz TcpExtTCPOFOQueue");
    let counter = counters.lines().find_map(|line| line.strip_prefix("TcpExtTCPOFOQueue"));
    counter.unwrap().split_whitespace().next().unwrap().parse().unwrap()
}
