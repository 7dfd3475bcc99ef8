//! Devices break and go away: their own port reports it, and all others go on.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
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
