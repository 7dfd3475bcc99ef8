//! Containers behind veth ports: what they get, what they keep when daemons, namespaces and devices
//! come and go, and what is left when their ports are removed.

use crate::host::Host;
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::{Switch, complaint, write};
use crate::transfer::{transfer, transfer_during};
use rustix::process::Signal;
use std::net::IpAddr;
use std::process::Command;
use waiting::until;

const NEEDS: [Need; 0] = [];

const PORTS: &str = "[[port]]\nname = 'a'\nveth = 'eth0'\nnetns = 'a'\nmac = '52:54:00:00:00:0a'\nmtu = 1400\n\
    [[port]]\nname = 'b'\nveth = 'eth0'\nnetns = 'b'\nmtu = 1400\n";

/// Far more bytes than two containers' traffic needs to show a fault.
const BYTES: usize = 64 << 20;

fn two() -> [Host; 2] {
    [Host::new("a"), Host::new("b")]
}

fn assign(hosts: [Host; 2]) {
    hosts.iter().zip(1..).for_each(|(host, number)| host.assign_addresses("eth0", number));
}

fn is_up(switch: &Switch) {
    ["a", "b"].iter().for_each(|name| drop(switch.wait_for(name, "up")));
}

/// Starts a switch with two containers that have addresses.
fn started() -> ([Host; 2], Switch) {
    let hosts = two();
    let switch = Switch::start(PORTS);
    is_up(&switch);
    assign(hosts);
    (hosts, switch)
}

/// Returns the host ends, each with its number: one that is made anew has another.
fn host_ends() -> Vec<String> {
    let shown = run_for("ip -o link show");
    let is_end = |line: &&str| line.contains("alias millrace port ");
    shown.lines().filter(is_end).map(|line| line.split('@').next().unwrap().to_owned()).collect()
}

/// Checks that the host's own stack takes nothing at a link, by whatever way it comes.
fn has_no_stack(link: &str) {
    for (setting, wanted) in
        [("ipv6/conf/LINK/disable_ipv6", "1"), ("ipv4/conf/LINK/rp_filter", "1")]
    {
        let path = format!("/proc/sys/net/{}", setting.replace("LINK", link));
        let seen = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(seen.trim(), wanted, "{path}");
    }
}

fn run_for(line: &str) -> String {
    let mut words = line.split(' ');
    output_of(Command::new(words.next().unwrap()).args(words))
}

/// Returns a number of the kernel's counters of TCP on a host.
fn wrong_checksums(host: Host) -> String {
    let shown = host.run("nstat -asz TcpInCsumErrors");
    shown.lines().last().unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn two_containers_talk_and_removal_leaves_nothing() {
    story(&NEEDS, || {
        let (hosts, switch) = started();
        let shown = hosts[0].run("ip link show eth0");
        assert!(shown.contains("52:54:00:00:00:0a") && shown.contains("mtu 1400"), "{shown}");
        assert_eq!(switch.ask("port show a")["mac"], "52:54:00:00:00:0a");
        for to in ["10.9.0.2", "fd09::2"] {
            hosts[0].run(&format!("ping -c 2 -i 0.2 -w 20 {to}"));
            transfer((hosts[0], hosts[1], to.parse::<IpAddr>().unwrap()), BYTES);
        }
        assert_eq!(hosts.map(wrong_checksums), ["0", "0"]);
        // The sender's kernel hands over what it did not segment, and the other one gets it whole.
        assert!(switch.counter("a", "/ingress_trains") > 100);
        assert!(switch.counter("b", "/egress_trains") > 100);
        let addresses = run_for("ip -o address show");
        assert!(!addresses.contains("mill"), "a host end has an address: {addresses}");
        let ends = host_ends();
        assert_eq!(ends.len(), 2);
        ends.iter().for_each(|end| has_no_stack(end.split(": ").last().unwrap()));
        for name in ["a", "b"] {
            switch.tell(&format!("port remove {name}"));
        }
        assert_eq!(host_ends(), Vec::<String>::new());
        assert!(!hosts.iter().any(|host| host.run("ip link show").contains("eth0")));
    });
}

#[test]
fn keys_change_while_the_container_keeps_its_interface() {
    story(&NEEDS, || {
        let (hosts, switch) = started();
        let before = host_ends();
        switch.tell("port set a mtu=1300 mac=52:54:00:00:00:0b queues=2");
        let shown = hosts[0].run("ip link show eth0");
        assert!(shown.contains("52:54:00:00:00:0b") && shown.contains("mtu 1300"), "{shown}");
        assert_eq!(host_ends(), before);
        transfer((hosts[0], hosts[1], IpAddr::from([10, 9, 0, 2])), BYTES);
        // Another device is another pair.
        write(&PORTS.replacen("veth = 'eth0'", "veth = 'eth1'", 1));
        switch.tell("config reload");
        let shown = hosts[0].run("ip link show");
        assert!(shown.contains("eth1") && !shown.contains("eth0"), "{shown}");
        assert_eq!(host_ends().len(), 2);
    });
}

/// A TAP that no service manager keeps goes with its daemon, and its container's addresses with it.
#[test]
fn a_container_keeps_its_interface_and_connections_over_kills_and_restarts() {
    story(&NEEDS, || {
        let (hosts, switch) = started();
        let before = host_ends();
        let route = (hosts[0], hosts[1], IpAddr::from([10, 9, 0, 2]));
        let mut running = Some(switch);
        transfer_during(route, |checked| {
            let restarts: [fn(Switch) -> Switch; 3] = [
                |switch| start_again(switch, Signal::KILL),
                |switch| start_again(switch, Signal::TERM),
                Switch::take_over,
            ];
            for restart in restarts {
                running = running.take().map(restart);
                let seen = checked();
                until("bytes come", || (checked() > seen + (1 << 20)).then_some(()));
            }
        });
        assert_eq!(host_ends(), before, "the pairs of the first daemon");
    });
}

fn start_again(switch: Switch, signal: Signal) -> Switch {
    let _ = switch.end(signal);
    assert_eq!(host_ends().len(), 2, "the pairs stay");
    Switch::start(PORTS)
}

/// The configuration changed while no daemon ran.
#[test]
fn pairs_of_ports_that_are_gone_are_deleted_at_the_next_start() {
    story(&NEEDS, || {
        let hosts = two();
        let switch = Switch::start(PORTS);
        is_up(&switch);
        // Another daemon's, by its alias; its name and address say that it is not ours.
        run("ip link add foreign type veth peer name foreigner");
        let alias = ["link", "set", "foreign", "alias", "millrace port a"];
        output_of(Command::new("ip").args(alias));
        let _ = switch.end(Signal::KILL);
        let (_, b) = PORTS.split_at(PORTS.rfind("[[port]]").unwrap());
        let switch = Switch::start(b);
        switch.wait_for("b", "up");
        assert!(!hosts[0].run("ip link show").contains("eth0"), "left of the port that is gone");
        assert!(hosts[1].run("ip link show").contains("eth0"));
        run("ip link show foreign");
    });
}

#[test]
fn a_namespace_or_a_device_that_goes_breaks_its_port_until_it_is_made_anew() {
    story(&NEEDS, || {
        let (hosts, switch) = started();
        hosts[0].run("ip link delete eth0");
        until("the loss is noted", || switch.noted("port a is broken: ").then_some(()));
        switch.wait_for("a", "up");
        hosts[0].assign_addresses("eth0", 1);
        transfer((hosts[1], hosts[0], IpAddr::from([10, 9, 0, 1])), BYTES);
        run("ip netns delete b");
        let reason = switch.wait_for("b", "broken");
        assert!(reason.contains("/run/netns/b"), "{reason}");
        until("nothing holds the namespace", || (host_ends().len() == 1).then_some(()));
        let b = Host::new("b");
        switch.wait_for("b", "up");
        b.assign_addresses("eth0", 2);
        transfer((hosts[0], b, IpAddr::from([10, 9, 0, 2])), BYTES);
        assert_eq!(switch.state("a").0, "up");
    });
}

#[test]
fn what_is_not_the_port_s_own_is_refused_and_an_end_that_is_down_is_told() {
    story(&NEEDS, || {
        let hosts = two();
        let switch = Switch::start("");
        hosts[0].run("ip link add eth0 type veth peer name peer");
        let (code, told) = complaint("port add a --veth eth0 --netns a");
        assert_eq!(code, 1);
        assert!(told.contains("eth0 exists in /run/netns/a"), "{told}");
        hosts[0].run("ip link show eth0");
        assert_eq!(host_ends(), Vec::<String>::new(), "nothing is left of what was refused");
        hosts[0].run("ip link delete eth0");
        switch.tell("port add a --veth eth0 --netns a --wait up");
        let end = host_ends().remove(0);
        let name = end.split_whitespace().nth(1).unwrap();
        run(&format!("ip link set {name} down"));
        switch.wait_for("a", "down");
        run(&format!("ip link set {name} up"));
        switch.wait_for("a", "up");
        hosts[0].run("ip link set eth0 down");
        let reason = switch.wait_for("a", "down");
        assert!(reason.contains("administratively down"), "{reason}");
        let (code, told) = complaint("port add c --veth eth0 --netns nowhere");
        assert!(code == 1 && told.contains("/run/netns/nowhere"), "{told}");
    });
}
