//! Tests veth pairs against the kernel: what is made, what of an earlier process is found again, what
//! is refused, and that the host's stack takes no part.

use crate::support::{self, TO_PORT, deliver, in_namespace, ip, take_until, udp_header, udp_vnet};
use crate::veth::OUR_MAC;
use ports::link::{Link, LinkError};
use ports::packet::{self, PacketOptions};
use ports::veth::{self, HostEnd, Pair, VethError, VethOptions};
use ports::{Slice, namespace};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use waiting::until;
use wire::Mac;
use wire::vnet::GsoType;

const HOST_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x11]);
const INSIDE_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x12]);

fn options(netns: Option<&Path>) -> VethOptions {
    VethOptions {
        host: HostEnd { name: "millhost".into(), mac: HOST_MAC },
        name: "eth0".into(),
        netns: netns.map(Path::to_owned),
        mtu: None,
        mac: Some(INSIDE_MAC),
        alias: "test port a".into(),
    }
}

/// Runs a test in a namespace of its own, with the path of another one.
fn beside(test: impl FnOnce(&Path) + Send) {
    in_namespace(|| {
        let path = own_namespace();
        namespace::fresh(|| test(&path)).expect("a second namespace");
    });
}

fn own_namespace() -> PathBuf {
    format!("/proc/self/task/{}/ns/net", rustix::thread::gettid().as_raw_nonzero()).into()
}

fn there<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> T {
    namespace::within(Some(netns), work).expect("entered")
}

fn indices(pair: &Pair) -> (u32, u32) {
    (pair.host.index().expect("a host end"), pair.inside.index().expect("an end inside"))
}

/// Returns what `ip` prints here.
fn shown(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_pair_is_made_as_the_options_say() {
    beside(|netns| {
        let pair = veth::open(&VethOptions { mtu: Some(1400), ..options(Some(netns)) }).unwrap();
        assert_eq!(pair.exposed, Vec::<String>::new());
        let (host, inside) = (&pair.host, &pair.inside);
        assert_eq!((host.name(), inside.name()), ("millhost", "eth0"));
        assert_eq!((host.mac().unwrap(), inside.mac().unwrap()), (HOST_MAC, INSIDE_MAC));
        assert_eq!((host.mtu().unwrap(), inside.mtu().unwrap()), (1400, 1400));
        for end in [host, inside] {
            assert!(end.is_up().unwrap() && end.detects_carrier().unwrap(), "{}", end.name());
        }
        there(netns, || ip("link show eth0"));
        assert!(matches!(
            Link::open("eth0", None).unwrap().mtu(),
            Err(LinkError::NoSuchLink { .. })
        ));
        assert!(shown("link show millhost").contains("alias test port a"));
    });
}

#[test]
fn both_ends_may_be_in_one_namespace() {
    in_namespace(|| {
        let pair = veth::open(&options(None)).unwrap();
        ip("link show eth0");
        assert_eq!(indices(&veth::open(&options(None)).unwrap()), indices(&pair));
    });
}

#[test]
fn a_pair_of_an_earlier_process_is_found_with_what_its_container_set() {
    beside(|netns| {
        let before = indices(&veth::open(&options(Some(netns))).unwrap());
        there(netns, || {
            ip("addr add 10.9.0.1/24 dev eth0");
            ip("link set eth0 address 02:00:00:00:00:99");
        });
        ip("link set millhost down");
        let again = VethOptions { mtu: Some(9000), ..options(Some(netns)) };
        let again = veth::open(&again).unwrap();
        assert_eq!(indices(&again), before);
        assert_eq!(again.inside.mac().unwrap(), Mac([2, 0, 0, 0, 0, 0x99]), "its own address");
        assert_eq!((again.host.mtu().unwrap(), again.inside.mtu().unwrap()), (9000, 9000));
        assert!(again.inside.detects_carrier().unwrap());
        assert!(there(netns, || shown("addr show eth0")).contains("10.9.0.1"));
    });
}

/// In the namespace that is meant, another device may have the name and the number of the other end.
#[test]
fn a_pair_whose_other_end_is_elsewhere_is_made_anew() {
    beside(|netns| {
        let before = veth::open(&options(None)).unwrap().inside.index().unwrap();
        there(netns, || ip(&format!("link add eth0 index {before} type bridge")));
        let error = veth::open(&options(Some(netns))).err().expect("not the other end");
        assert!(matches!(error, VethError::Taken { .. }), "{error}");
        there(netns, || ip("link delete eth0"));
        veth::open(&options(None)).unwrap();
        veth::open(&options(Some(netns))).unwrap();
        assert!(shown("link show eth0").is_empty(), "the old end went");
        there(netns, || ip("link set eth0 name eth9"));
        veth::open(&options(Some(netns))).unwrap();
        assert!(!there(netns, || shown("link show")).contains("eth9"), "made anew");
    });
}

#[test]
fn devices_of_others_are_refused_and_left_alone() {
    beside(|netns| {
        ip("link add millhost type veth peer name eth0");
        let error = veth::open(&options(Some(netns))).err().expect("a foreign device");
        assert!(matches!(error, VethError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("ip link delete millhost"), "{error}");
        veth::remove(&options(None).host).unwrap();
        ip("link delete millhost");
        ip(&format!("link add millhost address {HOST_MAC} type bridge"));
        let error = veth::open(&options(Some(netns))).err().expect("a device of another kind");
        assert!(matches!(error, VethError::Foreign { .. }), "{error}");
        veth::remove(&options(None).host).unwrap();
        ip("link delete millhost");
        there(netns, || ip("link add eth0 type bridge"));
        let error = veth::open(&options(Some(netns))).err().expect("a device in its place");
        let told = error.to_string();
        assert!(told.contains("eth0 exists in /proc/self/task"), "{told}");
        assert!(there(netns, || shown("link show eth0")).contains("eth0"));
        assert!(shown("link show millhost").is_empty());
    });
}

#[test]
fn a_removed_pair_leaves_nothing_and_is_found_by_its_alias_before() {
    beside(|netns| {
        let pair = options(Some(netns));
        veth::open(&pair).unwrap();
        let found = veth::described("test port ").unwrap();
        assert_eq!(found, [(pair.host.clone(), "a".to_owned())]);
        assert_eq!(veth::described("other ").unwrap(), []);
        for _ in 0..2 {
            veth::remove(&pair.host).unwrap();
        }
        assert!(shown("link show millhost").is_empty());
        assert!(there(netns, || shown("link show eth0")).is_empty());
    });
}

/// Returns whether the host's end has an address of any kind.
fn has_address() -> bool {
    shown("addr show dev millhost").contains("inet")
}

/// The kernel makes IPv6 anew on a device whose MTU grows to 1280 bytes, with an address.
#[test]
fn the_host_end_never_has_an_address() {
    beside(|netns| {
        let pair = veth::open(&options(Some(netns))).unwrap();
        for mtu in [1500, 1279, 600, 9000, 1280] {
            veth::set_mtu(&pair.host, &pair.inside, mtu).unwrap();
            assert_eq!((pair.host.mtu().unwrap(), pair.inside.mtu().unwrap()), (mtu, mtu));
            assert!(pair.host.is_up().unwrap() && !has_address(), "{mtu}");
        }
        veth::remove(&options(None).host).unwrap();
        let small = VethOptions { mtu: Some(600), ..options(Some(netns)) };
        let pair = veth::open(&small).unwrap();
        veth::set_mtu(&pair.host, &pair.inside, 1500).unwrap();
        assert!(pair.host.is_up().unwrap() && !has_address());
        there(netns, || assert!(shown("addr show dev eth0").contains("inet6 fe80")));
    });
}

fn is_arp(frame: &support::Taken) -> bool {
    frame.bytes.get(12..14) == Some(&[8, 6])
}

/// The host answers ARP for each of its addresses on each of its devices, and takes what is sent to
/// the device's address, or to all.
#[test]
fn the_host_stack_gets_nothing_and_the_port_gets_all() {
    beside(|netns| {
        let pair = veth::open(&options(Some(netns))).unwrap();
        let mut port = packet::open(&PacketOptions::new("millhost")).expect("open");
        ip("link set lo up");
        ip("addr add 10.9.0.7/32 dev lo");
        let server = UdpSocket::bind(("10.9.0.7", TO_PORT)).expect("bind");
        there(netns, || {
            ip("addr add 10.9.0.1/24 dev eth0");
            let client = UdpSocket::bind(("10.9.0.1", 0)).expect("bind");
            client.send_to(b"who has", ("10.9.0.7", TO_PORT)).expect("send");
        });
        take_until(&mut port.device.ingress[0], 1, is_arp);
        there(netns, || {
            ip(&format!("neigh replace 10.9.0.7 lladdr {} dev eth0", pair.host.mac().unwrap()));
            let client = UdpSocket::bind(("10.9.0.1", 0)).expect("bind");
            client.send_to(b"for the host", ("10.9.0.7", TO_PORT)).expect("send");
        });
        let is_udp = |frame: &support::Taken| frame.bytes.get(42..) == Some(b"for the host");
        take_until(&mut port.device.ingress[0], 1, is_udp);
        server.set_nonblocking(true).expect("set");
        assert!(server.recv(&mut [0; 64]).is_err(), "the host's stack got it");
        let own = there(netns, || shown("neigh show 10.9.0.7"));
        assert!(own.contains("PERMANENT"), "nobody answered: {own}");
    });
}

/// Frames that an `ifb` device sent on are marked so that packet sockets and filters are skipped.
#[test]
fn what_an_ifb_marks_does_not_reach_the_host_stack_either() {
    beside(|netns| {
        let pair = veth::open(&options(Some(netns))).unwrap();
        assert_eq!(pair.exposed, [""; 0]);
        ip("link set lo up");
        ip("addr add 10.9.0.7/32 dev lo");
        ip("-6 addr add fd09::7/128 dev lo nodad");
        let servers =
            [UdpSocket::bind(("10.9.0.7", TO_PORT)), UdpSocket::bind(("fd09::7", TO_PORT))]
                .map(|server| server.expect("bind"));
        servers.iter().for_each(|server| server.set_nonblocking(true).expect("set"));
        let Some(clients) = there(netns, clients_by_ifb) else {
            return eprintln!("skipped: needs the kernel's ifb, u32 and mirred");
        };
        let receives = |limit: Duration| {
            let before = arrived();
            clients[0].send_to(b"four", ("10.9.0.7", TO_PORT)).expect("send");
            clients[1].send_to(b"six", ("fd09::7", TO_PORT)).expect("send");
            until("the frames arrive at the host's end", || arrived() >= before + 2);
            let mut got = [false; 2];
            let start = Instant::now();
            while got != [true; 2] && start.elapsed() < limit {
                for (server, got) in servers.iter().zip(&mut got) {
                    *got |= server.recv(&mut [0; 64]).is_ok();
                }
            }
            got
        };
        assert_eq!(receives(Duration::from_millis(200)), [false; 2], "the host's stack got it");
        // Without the settings it would.
        for (setting, value) in
            [("ipv6/conf/millhost/disable_ipv6", "0"), ("ipv4/conf/millhost/rp_filter", "0")]
        {
            std::fs::write(format!("/proc/sys/net/{setting}"), value).expect("a setting");
        }
        ip("route add 10.9.0.1/32 dev millhost");
        ip("-6 route add fd09::1/128 dev millhost");
        assert_eq!(receives(Duration::from_secs(20)), [true; 2], "this kernel has closed the way");
    });
}

/// Returns sockets of the container whose frames leave by eth0 by way of an `ifb` device; `None` if
/// the kernel cannot do that.
fn clients_by_ifb() -> Option<[UdpSocket; 2]> {
    let redirect = "protocol all u32 match u32 0 0";
    for line in [
        "ip link add a0 type veth peer name a1".into(),
        "ip link add ifb9 type ifb".into(),
        // From a1 to eth0, and there by way of the ifb device.
        "tc qdisc add dev a1 clsact".into(),
        format!("tc filter add dev a1 ingress {redirect} action mirred egress redirect dev eth0"),
        "tc qdisc add dev eth0 clsact".into(),
        format!(
            "tc filter add dev eth0 egress {redirect} indev a1 action mirred egress redirect dev ifb9"
        ),
    ] {
        let (program, words) = line.split_once(' ').expect("words");
        let status = Command::new(program).args(words.split(' ')).status();
        status.ok().filter(|status| status.success())?;
    }
    for device in ["a0", "a1", "ifb9"] {
        ip(&format!("link set {device} up"));
    }
    ip("addr add 10.9.0.1/24 dev a0");
    ip("-6 addr add fd09::1/64 dev a0 nodad");
    for address in ["10.9.0.7", "fd09::7"] {
        ip(&format!("neigh replace {address} lladdr {HOST_MAC} dev a0"));
    }
    Some([("10.9.0.1", 0), ("fd09::1", 0)].map(|from| UdpSocket::bind(from).expect("bind")))
}

/// Returns the frames that have arrived at the host's end.
fn arrived() -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").expect("counters");
    let line = all.lines().find_map(|line| line.trim().strip_prefix("millhost:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|frames| frames.parse().ok()).expect("a number")
}

#[test]
fn trains_pass_whole_both_ways_with_unfinished_checksums() {
    beside(|netns| {
        veth::open(&options(Some(netns))).unwrap();
        let options = PacketOptions { promiscuous: false, ..PacketOptions::new("millhost") };
        let mut port = packet::open(&options).expect("open");
        let socket = there(netns, || {
            ip("addr add 10.9.0.1/24 dev eth0");
            ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0");
            let socket = UdpSocket::bind(("10.9.0.1", TO_PORT)).expect("bind");
            socket.connect(("10.9.0.2", support::FROM_PORT)).expect("connect");
            socket
        });
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        let payload: Vec<u8> = (0..3000u32).map(|at| (at % 251) as u8).collect();
        let header =
            udp_header(INSIDE_MAC.0, OUR_MAC, [[10, 9, 0, 2], [10, 9, 0, 1]], payload.len());
        deliver(&mut port.device.egress[0], udp_vnet(1200), &header, &[Slice::from(&payload[..])]);
        for wanted in payload.chunks(1200) {
            let mut got = [0; 4000];
            let count = socket.recv(&mut got).expect("recv");
            assert_eq!(&got[..count], wanted);
        }
        support::segment_by(&socket, 1200);
        socket.send(&payload).expect("send");
        let is_udp = |frame: &support::Taken| frame.bytes.get(23) == Some(&17);
        let frames = take_until(&mut port.device.ingress[0], 1, is_udp);
        assert_eq!(frames[0].raw.vnet.gso(), GsoType::UdpL4);
        assert_eq!(frames[0].raw.vnet.gso_size.get(), 1200);
        assert_eq!(frames[0].bytes[42..], payload);
    });
}
