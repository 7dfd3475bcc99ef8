//! Devices break and go away: their own port reports it, and all others go on.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::Switch;
use crate::topology::{Family, Topology};
use crate::transfer::{transfer, transfer_while};
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];

#[test]
fn a_tap_deleted_under_traffic_breaks_its_port_alone() {
    story(&NEEDS, || {
        let other = Host::new("other");
        let topology = Topology::new("[[port]]\nname = 'other'\ntap = 'tap1'\nnetns = 'other'\n");
        let switch = &topology.switch;
        let mut deleted = false;
        transfer_while((topology.far, topology.guest, Family::V4.guest()), 128 << 20, || {
            if !deleted {
                other.run("ip link delete tap1");
                deleted = true;
            }
            until("port other is told to be broken", || {
                switch.noted("port other is broken: ").then_some(())
            });
        });
        // The switch makes its own devices again.
        switch.wait_for("other", "up");
        other.run("ip link show tap1");
        assert_eq!(switch.state("guest").0, "up");
    });
}

#[test]
fn the_end_of_a_transfer_goes_away_and_comes_back() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        topology.guest.run("ip link delete tap0");
        until("the loss is noted", || {
            topology.switch.noted("port guest is broken: ").then_some(())
        });
        topology.switch.wait_for("guest", "up");
        topology.guest.assign_addresses("tap0", 2);
        transfer((topology.far, topology.guest, Family::V6.guest()), 1 << 20);
    });
}

#[test]
fn an_uplink_set_down_is_down_and_works_when_it_is_up_again() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let route = (topology.far, topology.guest, Family::V4.guest());
        transfer(route, 1 << 20);
        run("ip link set uplink down");
        let reason = topology.switch.wait_for("uplink", "down");
        assert!(reason.contains("down"), "{reason}");
        assert_eq!(topology.switch.state("guest").0, "up");
        run("ip link set uplink up");
        topology.wait();
        transfer(route, 1 << 20);
        topology.far.run("ip link set veth down");
        let reason = topology.switch.wait_for("uplink", "down");
        assert!(reason.contains("no carrier"), "{reason}");
        topology.far.run("ip link set veth up");
        topology.wait();
        transfer(route, 1 << 20);
    });
}

/// The daemon's descriptors kept a deleted namespace alive: its addresses answered, nothing was
/// found, and the one made anew under its name got no device.
#[test]
fn a_namespace_that_is_deleted_is_let_go_of_and_entered_again_when_it_is_there() {
    story(&NEEDS, || {
        let gone = Host::new("gone");
        // Its other end ends with the namespace.
        run("ip link add witness type veth peer name seen netns gone");
        let prepare = |gone: &Host| {
            for pair in ["v0", "v2", "v4"] {
                gone.run(&format!("ip link add {pair} type veth peer name {pair}p"));
                gone.run(&format!("ip link set {pair} up"));
                gone.run(&format!("ip link set {pair}p up"));
            }
        };
        prepare(&gone);
        let of = |name: &str, device: &str| {
            format!("[[port]]\nname = '{name}'\n{device}\nnetns = 'gone'\n")
        };
        let ports = [
            of("tap", "tap = 'tap1'"),
            of("packet", "packet = 'v0'\nrole = 'vnic'"),
            of("xdp", "xdp = 'v2'\nrole = 'vnic'"),
            of("team", "team = ['v4']"),
        ];
        let names = ["tap", "packet", "xdp", "team"];
        let switch = Switch::start(&ports.concat());
        names.iter().for_each(|name| drop(switch.wait_for(name, "up")));
        run("ip netns delete gone");
        for name in names {
            let reason = switch.wait_for(name, "broken");
            assert!(reason.contains("/run/netns/gone"), "{reason}");
            let text = format!("port {name} is broken: its network namespace /run/netns/gone was");
            assert!(switch.noted(&text), "{name}");
        }
        until("nothing holds the namespace", || {
            (!std::path::Path::new("/sys/class/net/witness").exists()).then_some(())
        });
        let gone = Host::new("gone");
        prepare(&gone);
        names.iter().for_each(|name| drop(switch.wait_for(name, "up")));
        gone.run("ip link show tap1");
    });
}

/// Another device got the name of a port's own, and passed for it.
#[test]
fn a_device_that_takes_a_ports_name_is_not_taken_for_its_own() {
    story(&NEEDS, || {
        let other = Host::new("other");
        other.run("ip link add v0 type veth peer name v0p");
        other.run("ip link set v0 up");
        other.run("ip link set v0p up");
        let switch = Switch::start(
            "[[port]]\nname = 'tap'\ntap = 'tap1'\nnetns = 'other'\n\
             [[port]]\nname = 'packet'\npacket = 'v0'\nrole = 'vnic'\nnetns = 'other'\n",
        );
        ["tap", "packet"].iter().for_each(|name| drop(switch.wait_for(name, "up")));
        other.run("ip link set tap1 down");
        std::fs::write(
            "/run/batch",
            "link set tap1 name away\nlink add tap1 type veth peer name tap1p\nlink set tap1 up\n\
             link delete v0\nlink add v0 type veth peer name v0p\nlink set v0 up\n\
             link set v0p up\n",
        )
        .unwrap();
        other.run("ip -batch /run/batch");
        let reason = switch.wait_for("tap", "broken");
        assert!(reason.contains("tap1"), "{reason}");
        assert!(other.run("ip link show").contains("tap1"));
        until("the packet port lost its device", || {
            switch.noted("port packet is broken: ").then_some(())
        });
        switch.wait_for("packet", "up");
        other.run("ip link delete tap1");
        switch.wait_for("tap", "up");
        assert!(!other.run("ip link show").contains("away"), "the renamed one was let go of");
    });
}
