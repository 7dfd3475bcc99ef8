//! Ports come and go while others work: no byte is lost.

use crate::sandbox::{Need, run, story};
use crate::topology::{Family, Topology};
use crate::transfer::transfer_while;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];

#[test]
fn ports_come_and_go_and_no_byte_of_others_is_lost() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let switch = &topology.switch;
        for route in [
            (topology.far, topology.guest, Family::V4.guest()),
            (topology.guest, topology.far, Family::V6.far()),
        ] {
            transfer_while(route, 128 << 20, || {
                switch.tell("port add one --tap tap1 --queues 2");
                switch.tell("port add two --tap tap2 --vlan 7");
                switch.tell("port remove one");
                switch.tell("port remove two");
            });
            assert_eq!(switch.ask("port list").as_array().map(Vec::len), Some(2));
        }
        assert!(!run("ip -brief link show").contains("tap"), "a device is left behind");
    });
}
