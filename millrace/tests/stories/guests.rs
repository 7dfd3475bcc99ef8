//! Linux kernels as guests on the switch: with each other, and with a network namespace.

use crate::guest::Guest;
use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::shell::{Shell, addresses, ping, send};
use crate::switch::Switch;
use crate::uml;
use rustix::process::Signal;
use waiting::until;

const NEEDS: [Need; 3] = [Need::Guest("uml"), Need::Tap, Need::Program("bash")];
/// Size of each transfer.
const MIB: usize = 16;

const TWO: &str = "\
[[port]]
name = 'a'
vhost-user = '/run/a.sock'
[[port]]
name = 'b'
vhost-user = '/run/b.sock'
";

/// Boots a guest with addresses of this number.
fn boot(name: &str, number: u8) -> Guest {
    let mut guest = uml::boot(name, &[&format!("/run/{name}.sock")]);
    guest.assign_addresses("eth0", number);
    guest
}

/// Pings and transfers in both directions, over both families.
fn talk(one: (&mut dyn Shell, u8), other: (&mut dyn Shell, u8)) {
    for (family, port) in [(0, 5001), (1, 5101)] {
        ping(one.0, addresses(other.1)[family]);
        send(one.0, other.0, (addresses(other.1)[family], port), MIB);
        send(other.0, one.0, (addresses(one.1)[family], port + 1), MIB);
    }
}

#[test]
fn two_guests_talk() {
    story(&NEEDS, || {
        let switch = Switch::start(TWO);
        let (mut a, mut b) = (boot("a", 1), boot("b", 2));
        switch.wait_for("a", "up");
        switch.wait_for("b", "up");
        talk((&mut a, 1), (&mut b, 2));
        assert!(switch.noted("port a is up"));
    });
}

#[test]
fn a_guest_and_a_namespace_talk() {
    story(&NEEDS, || {
        let mut far = Host::new("far");
        let tap = "[[port]]\nname = 'far'\ntap = 'tap0'\nnetns = 'far'\n";
        let _switch = Switch::start(&format!("{TWO}{tap}"));
        far.assign_addresses("tap0", 9);
        let mut a = boot("a", 1);
        talk((&mut a, 1), (&mut far, 9));
    });
}

#[test]
fn jumbo_frames_pass_between_guests() {
    story(&NEEDS, || {
        let ports = TWO.replace(".sock'\n", ".sock'\nmtu = 9000\n");
        let switch = Switch::start(&ports);
        let (mut a, mut b) = (boot("a", 1), boot("b", 2));
        // The device reports its MTU, and the driver accepts it.
        assert_eq!(a.run("cat /sys/class/net/eth0/mtu").trim(), "9000");
        assert_eq!(b.run("cat /sys/class/net/eth0/mtu").trim(), "9000");
        // 8 bytes of ICMP and 20 of IP fill 9000.
        a.run("ping -c 3 -s 8972 10.9.0.2");
        talk((&mut a, 1), (&mut b, 2));
        assert_eq!(switch.counter("b", "/drops/too_big"), 0);
    });
}

#[test]
fn a_guest_that_reboots_or_loses_its_power_comes_back() {
    story(&NEEDS, || {
        let switch = Switch::start(TWO);
        let (mut a, mut b) = (boot("a", 1), boot("b", 2));
        a.reboot();
        a.assign_addresses("eth0", 1);
        ping(&mut a, addresses(2)[0]);
        send(&mut b, &mut a, (addresses(1)[0], 5001), MIB);
        a.kill();
        switch.wait_for("a", "down");
        assert_eq!(switch.state("b").0, "up");
        let mut a = boot("a", 1);
        send(&mut a, &mut b, (addresses(2)[1], 5002), MIB);
    });
}

#[test]
fn a_killed_switch_is_followed_by_another_and_guests_that_start_anew() {
    story(&NEEDS, || {
        let switch = Switch::start(TWO);
        let (mut a, mut b) = (boot("a", 1), boot("b", 2));
        ping(&mut a, addresses(2)[0]);
        switch.end(Signal::KILL);
        let _switch = Switch::start(TWO);
        // This kernel does not reconnect by itself, but it keeps running.
        for (guest, number) in [(&mut a, 1), (&mut b, 2)] {
            guest.reboot();
            guest.assign_addresses("eth0", number);
        }
        send(&mut a, &mut b, (addresses(2)[0], 5001), MIB);
    });
}

#[test]
fn a_guest_that_takes_no_trains_gets_none() {
    story(&NEEDS, || {
        let switch = Switch::start(TWO);
        let (mut a, mut b) = (boot("a", 1), boot("b", 2));
        let operational = || switch.ask("rsc show b")[0]["IPv4OperationalState"] == true;
        until("RSC toward b is operational", || operational().then_some(()));
        // The driver turns receive offloads off by a command of the control queue, while it runs.
        b.run("ethtool -K eth0 rx-gro-hw off");
        until("RSC toward b is not operational", || (!operational()).then_some(()));
        send(&mut a, &mut b, (addresses(2)[0], 5001), MIB);
        assert_eq!(switch.counter("b", "/rsc/CoalescedPackets"), 0);
        assert!(switch.counter("b", "/segmented_trains") > 0, "a sends trains, b takes none");
        b.run("ethtool -K eth0 rx-gro-hw on");
        until("RSC toward b is operational", || operational().then_some(()));
    });
}
