//! Emulated machines on the switch, connected by QEMU's usual options.

use crate::guest::Guest;
use crate::qemu::{self, Machine};
use crate::sandbox::{Need, story};
use crate::shell::{Shell, Transfer, addresses, ping, send};
use crate::switch::{Switch, cli};
use crate::uml;
use rustix::process::Signal;
use std::env;
use waiting::eventually;

const NEEDS: [Need; 3] = [Need::Guest("qemu"), Need::Guest("uml"), Need::Program("bash")];

/// Returns a machine's vNIC and a port for a small guest.
fn ports(more: &str) -> String {
    format!(
        "[[port]]\nname = 'vm'\nvhost-user = '/run/vm.sock'\nmac = '52:54:00:00:00:01'\n{more}\
         [[port]]\nname = 'peer'\nvhost-user = '/run/peer.sock'\n"
    )
}

#[test]
fn a_machine_talks() {
    story(&NEEDS, || talks(""));
}

#[test]
fn a_machine_that_listens_talks_over_two_queues() {
    story(&NEEDS, || talks("vhost-client = true\nqueues = 2\nmtu = 9000\n"));
}

fn talks(more: &str) {
    let switch = Switch::start(&ports(more));
    let mut peer = uml::boot("peer", &["/run/peer.sock"]);
    peer.assign_addresses("eth0", 2);
    let mut machine = Machine::boot("vm", &["vm"]);
    let vm = &mut machine.guest;
    vm.assign_addresses("eth0", 1);
    switch.wait_for("vm", "up");
    assert_eq!(vm.run("cat /sys/class/net/eth0/address").trim(), "52:54:00:00:00:01");
    for (family, port) in [(0, 5001), (1, 5101)] {
        ping(vm, addresses(2)[family]);
        send(vm, &mut peer, (addresses(2)[family], port), 8);
        send(&mut peer, vm, (addresses(1)[family], port + 1), 8);
    }
    assert_eq!(switch.state("vm"), ("up".to_owned(), String::new()));
}

#[test]
fn a_vnic_is_plugged_and_unplugged_while_another_carries_traffic() {
    story(&NEEDS, || {
        if qemu::old() {
            println!("skipped: needs QEMU 8 or newer, whose hot unplug can be relied on");
            return;
        }
        let switch = Switch::start(&ports(""));
        let mut peer = uml::boot("peer", &["/run/peer.sock"]);
        peer.assign_addresses("eth0", 2);
        let mut machine = Machine::boot("vm", &["vm"]);
        machine.guest.assign_addresses("eth0", 1);
        let end = (addresses(1)[0], 5001);
        let transfer = Transfer::start(&mut peer, &mut machine.guest, end, 48);
        let by_qmp: [fn(&mut Machine, &str); 2] = [Machine::plug, Machine::unplug];
        let typed: [fn(&mut Machine, &str); 2] = [Machine::plug_as_typed, Machine::unplug_as_typed];
        for [plug, unplug] in [by_qmp, typed] {
            switch.tell("port add hot --vhost-user /run/hot.sock --vlan 7 --mac 52:54:00:00:00:07");
            plug(&mut machine, "hot");
            machine.guest.run("until [ -e /sys/class/net/eth1 ]; do sleep 0.1; done");
            machine.guest.run("ip link set eth1 up");
            switch.wait_for("hot", "up");
            unplug(&mut machine, "hot");
            machine.guest.run("[ ! -e /sys/class/net/eth1 ]");
            switch.tell("port remove hot");
        }
        transfer.check(&mut peer, &mut machine.guest);
    });
}

/// Returns the MiB to transfer, how often a third vNIC comes and goes, and how often the switch is
/// killed and started again.
fn endurance() -> (usize, u32, u32) {
    if env::var_os("MILLRACE_LONG").is_some() { (1024, 100, 5) } else { (128, 20, 5) }
}

#[test]
fn no_byte_is_lost_while_vnics_come_and_go_and_the_switch_starts_again() {
    story(&NEEDS, || {
        let (mib, additions, restarts) = endurance();
        // Both guests listen or reconnect by themselves.
        let configuration = "[[port]]\nname = 'one'\nvhost-user = '/run/one.sock'\nmac = '52:54:00:00:00:01'\n\
            [[port]]\nname = 'two'\nvhost-user = '/run/two.sock'\nvhost-client = true\nmac = '52:54:00:00:00:02'\n";
        let mut switch = Switch::start(configuration);
        let (mut one, mut two) = (Machine::boot("one", &["one"]), Machine::boot("two", &["two"]));
        one.guest.assign_addresses("eth0", 1);
        two.guest.assign_addresses("eth0", 2);
        ping(&mut one.guest, addresses(2)[0]);
        let end = (addresses(2)[0], 5001);
        let transfer = Transfer::start(&mut one.guest, &mut two.guest, end, mib);
        for restart in 0..restarts {
            for _ in 0..additions / restarts {
                switch.tell("port add third --vhost-user /run/third.sock");
                switch.tell("port remove third");
            }
            assert_eq!(cli("port show third").status.code(), Some(1));
            assert!(!transfer.done(&mut two.guest), "over before restart {restart}");
            switch.end(Signal::KILL);
            switch = Switch::start(configuration);
            moves(&switch, [&mut one.guest, &mut two.guest]);
        }
        while !transfer.done(&mut two.guest) {
            moves(&switch, [&mut one.guest, &mut two.guest]);
        }
        transfer.check(&mut one.guest, &mut two.guest);
    });
}

/// Waits until more bytes have arrived at the receiving guest. If none do, it reports what each
/// part saw last.
fn moves(switch: &Switch, [sender, receiver]: [&mut Guest; 2]) {
    let mut received = || -> u64 {
        receiver.run("cat /sys/class/net/eth0/statistics/rx_bytes").trim().parse().unwrap()
    };
    let before = received();
    if eventually(|| (received() > before).then_some(())).is_none() {
        let look = "netstat -tn; cat /proc/net/dev /proc/interrupts";
        let (sender, receiver) = (sender.run(look), receiver.run(look));
        let ports = ["one", "two"].map(|port| switch.ask(&format!("port show {port}")));
        panic!("no more bytes come\nsender: {sender}\nreceiver: {receiver}\nswitch: {ports:?}");
    }
}
