//! The kernel path: a container's connections are carried by the kernel, and every change of the
//! switch is in force at once.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, cli};
use crate::topology::Family;
use crate::transfer::{Stream, transfer};
use ports::kernel_path::KernelPath;
use ports::tap::{self, TapOptions};
use ports::{Burst, IngressQueue, Nanos};
use std::net::UdpSocket;
use std::time::Duration;
use waiting::until;

const NEEDS: [Need; 1] = [Need::Program("ethtool")];
const MIB: usize = 1 << 20;

fn up(switch: &Switch, vnic: &str) {
    for port in ["uplink", vnic] {
        switch.wait_for(port, "up");
    }
}

/// Whether the kernel carries flows from and to a port, as it has to where this process could load
/// the programs itself.
fn carries_both_ways(switch: &Switch, port: &str) -> bool {
    let missing = match KernelPath::load() {
        Ok(path) => path.unchecked().map(str::to_owned),
        Err(error) => Some(error.to_string()),
    };
    if let Some(missing) = &missing {
        println!(
            "skipped: needs Linux 6.6 with its types, CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: {missing}"
        );
        return false;
    }
    let path = &switch.ask(&format!("port show {port}"))["kernel_path"];
    assert!(path["carries"] == true && path["from_reason"].is_null(), "{path}");
    true
}

/// A host behind the uplink, and a container behind the host's end of a veth pair.
struct Bed {
    switch: Switch,
    far: Host,
    container: Host,
}

impl Bed {
    /// Starts it; `None` where the kernel path is not available.
    fn start() -> Option<Bed> {
        let [far, container] = ["far", "container"].map(Host::new);
        for (name, inside, host) in [("uplink", "far", far), ("box", "container", container)] {
            run(&format!("ip link add {name} type veth peer name veth netns {inside}"));
            run(&format!("ip link set {name} up"));
            host.assign_addresses("veth", if name == "uplink" { 1 } else { 2 });
        }
        far.run("ethtool -K veth tso off gso off");
        run("ethtool -K uplink gro on");
        let switch = Switch::start(
            "[switch]\nkernel-path = 'auto'\n[[port]]\nname = 'uplink'\npacket = 'uplink'\nqueues = 1\n\
             [[port]]\nname = 'box'\npacket = 'box'\nrole = 'vnic'\n",
        );
        up(&switch, "box");
        let bed = Bed { switch, far, container };
        carries_both_ways(&bed.switch, "box").then_some(bed)
    }

    fn count(&self, name: &str) -> u64 {
        self.switch.counter("box", &format!("/{name}"))
    }

    /// Waits until a counter of carried traffic, which is read once a second, has passed a mark.
    fn wait_for_carried(&self, name: &str, mark: u64) {
        until(name, || (self.count(name) > mark).then_some(()));
    }
}

#[test]
fn the_connections_of_a_container_are_carried_both_ways() {
    story(&NEEDS, || {
        let Some(bed) = Bed::start() else { return };
        for (family, far, own) in
            [Family::V4, Family::V6].map(|family| (family, family.far(), family.guest()))
        {
            let [before_in, before_out] =
                ["carried_ingress_bytes", "carried_egress_bytes"].map(|name| bed.count(name));
            transfer((bed.far, bed.container, own), 16 * MIB);
            bed.wait_for_carried("carried_egress_bytes", before_out + 15 * MIB as u64);
            transfer((bed.container, bed.far, far), 16 * MIB);
            bed.wait_for_carried("carried_ingress_bytes", before_in + 15 * MIB as u64);
            println!("measured: {family:?} was carried");
        }
        assert!(bed.count("egress_bytes") >= bed.count("carried_egress_bytes"));
        let shown = String::from_utf8(cli("port show box").stdout).unwrap();
        let share = |text: &str| text.split(' ').next()?.parse::<u32>().ok();
        let fact = shown.lines().find_map(|line| line.strip_prefix("kernel path: to the port "));
        assert!(fact.and_then(share).is_some_and(|share| share >= 90), "{shown}");
    });
}

/// The same with a pair that the switch makes.
#[test]
fn a_veth_port_s_connections_are_carried() {
    story(&NEEDS, || {
        let [far, container] = ["far", "container"].map(Host::new);
        run("ip link add uplink type veth peer name veth netns far");
        run("ip link set uplink up");
        far.assign_addresses("veth", 1);
        let switch = Switch::start(
            "[switch]\nkernel-path = 'auto'\n[[port]]\nname = 'uplink'\npacket = 'uplink'\n\
             [[port]]\nname = 'box'\nveth = 'eth0'\nnetns = 'container'\n",
        );
        container.assign_addresses("eth0", 2);
        up(&switch, "box");
        let bed = Bed { switch, far, container };
        if !carries_both_ways(&bed.switch, "box") {
            return;
        }
        transfer((far, container, Family::V4.guest()), 16 * MIB);
        bed.wait_for_carried("carried_egress_bytes", 15 * MIB as u64);
        transfer((container, far, Family::V6.far()), 16 * MIB);
        bed.wait_for_carried("carried_ingress_bytes", 15 * MIB as u64);
    });
}

#[test]
fn a_flow_that_a_rule_denies_or_that_is_captured_is_carried_no_more() {
    story(&NEEDS, || {
        let Some(bed) = Bed::start() else { return };
        let route = (bed.far, bed.container, Family::V4.guest());
        let stream = Stream::start(route, Duration::ZERO);
        bed.wait_for_carried("carried_egress_frames", 0);
        for (change, back) in [
            ("acl add box deny out tcp", "acl remove box 1"),
            ("port set box kernel-path=off", "port set box kernel-path=auto"),
            ("port set box rate-to=10Gbit", "port set box rate-to="),
        ] {
            bed.switch.tell(change);
            let then = bed.count("carried_egress_frames");
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(bed.count("carried_egress_frames"), then, "after {change}");
            bed.switch.tell(back);
            let checked = stream.checked();
            until("the stream to go on", || (stream.checked() > checked).then_some(()));
            // A new connection is carried from its handshake on.
            transfer(route, MIB);
            bed.wait_for_carried("carried_egress_frames", then);
        }
        stream.end();
    });
}

#[test]
fn a_carried_connection_outlives_a_take_over_of_the_daemon() {
    story(&NEEDS, || {
        let Some(Bed { switch, far, container }) = Bed::start() else { return };
        let stream = Stream::start((far, container, Family::V4.guest()), Duration::ZERO);
        until("a carried frame", || {
            (switch.counter("box", "/carried_egress_frames") > 0).then_some(())
        });
        let switch = switch.take_over();
        up(&switch, "box");
        let checked = stream.checked();
        until("the stream to go on", || (stream.checked() > checked + MIB).then_some(()));
        stream.end();
        let before = switch.counter("box", "/carried_egress_bytes");
        transfer((far, container, Family::V6.guest()), 4 * MIB);
        until("what is carried anew", || {
            (switch.counter("box", "/carried_egress_bytes") > before + 3 * MIB as u64).then_some(())
        });
    });
}

/// The far host's UDP port, and the VMM's.
const PORTS: [u16; 2] = [7001, 7002];

/// A VMM's TAP: the test holds its descriptor as a VMM does.
#[test]
fn a_vmm_with_a_tap_gets_each_frame_once_and_in_order() {
    story(&NEEDS, || {
        let far = Host::new("far");
        run("ip link add uplink type veth peer name veth netns far");
        run("ip link set uplink up");
        far.assign_addresses("veth", 1);
        far.run("ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev veth");
        let mut vmm = tap::open(&TapOptions::new("vmtap")).unwrap();
        vmm.link.set_up(true).unwrap();
        let switch = Switch::start(
            "[switch]\nkernel-path = 'auto'\n[[port]]\nname = 'uplink'\npacket = 'uplink'\nqueues = 1\n\
             [[port]]\nname = 'vm'\npacket = 'vmtap'\nrole = 'vnic'\nmac = '02:00:00:00:00:02'\n",
        );
        up(&switch, "vm");
        if !carries_both_ways(&switch, "vm") {
            return;
        }
        let socket = far.within(|| UdpSocket::bind(("10.9.0.1", PORTS[0])).unwrap());
        let (mut next, mut seen) = (0u32, Vec::new());
        until("most frames are carried", || {
            for _ in 0..50 {
                socket.send_to(&next.to_be_bytes(), ("10.9.0.2", PORTS[1])).unwrap();
                next += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            numbers(&mut vmm.device.ingress[0], &mut seen);
            (switch.counter("vm", "/carried_egress_frames") > 500).then_some(())
        });
        until("all frames have come", || {
            numbers(&mut vmm.device.ingress[0], &mut seen);
            (seen.len() >= next as usize).then_some(())
        });
        assert_eq!(seen, (0..next).collect::<Vec<_>>());
        until("all frames are counted", || {
            (switch.counter("vm", "/egress_frames") >= u64::from(next)).then_some(())
        });
    });
}

/// Takes what waits in the VMM's TAP, and notes the numbers of the test's datagrams.
fn numbers(queue: &mut IngressQueue, seen: &mut Vec<u32>) {
    loop {
        let mut burst = Burst::new();
        queue.take(Nanos(1), &mut burst).unwrap();
        for frame in burst.frames() {
            let mut bytes = Vec::new();
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            if bytes.get(36..38) == Some(&PORTS[1].to_be_bytes()) {
                seen.push(u32::from_be_bytes(*bytes[42..].first_chunk().unwrap()));
            }
        }
        let taken = burst.taken();
        drop(burst);
        queue.release();
        if taken == 0 {
            return;
        }
    }
}
