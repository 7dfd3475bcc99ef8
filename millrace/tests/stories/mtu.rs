//! `millrace mtu check` between hosts: each kind of fault is seeded in turn, found and named. A
//! healthy network has no finding.
//!
//! ```text
//! h1 to h4, TAPs ── millrace ── uplink ══ rack (a Linux bridge) ── h5 to h8      a ── router ── b
//! ```

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, millrace};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Instant;
use waiting::until;

const NEEDS: [Need; 1] = [Need::Tap];

/// Makes a host with a computed name, which lasts as long as the story.
fn host(name: String) -> Host {
    Host::new(name.leak())
}

/// A responder on a host, and the name by which a check reaches it.
struct Responder(Child, String);

impl Responder {
    fn start(host: Host, address: &str) -> Responder {
        let program = millrace().get_program().to_owned();
        let mut command = host.command(program.to_str().unwrap());
        command.args(["mtu", "responder", "--listen", address]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Responder(child, line.trim().to_owned())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Checks from a host. Returns the report and the exit code.
fn check(from: Host, responders: &[Responder], more: &[&str]) -> (Value, i32) {
    let program = millrace().get_program().to_owned();
    let mut command = from.command(program.to_str().unwrap());
    command.args(["mtu", "check", "--json"]).args(more);
    command.args(responders.iter().map(|responder| &responder.1));
    let output = command.heard();
    let error = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    (report, output.status.code().unwrap())
}

/// Returns each finding's hop, its place, the value seen, and its sentence.
fn findings(report: &Value) -> Vec<(String, String, String, String)> {
    let word = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    let finding =
        |it: &Value| (word(it, "hop"), word(it, "at"), word(it, "seen"), word(it, "error"));
    report["findings"].as_array().unwrap().iter().map(finding).collect()
}

/// Eight hosts on two switches, all with jumbo frames.
struct Racks {
    switch: Switch,
    hosts: Vec<Host>,
    rack: Host,
    responders: Vec<Responder>,
}

impl Racks {
    fn new() -> Racks {
        let rack = Host::new("rack");
        let hosts: Vec<Host> = (1..=8).map(|number| host(format!("h{number}"))).collect();
        rack.run("ip link add br0 mtu 9000 type bridge");
        rack.run("ip link set br0 up");
        run("ip link add uplink mtu 9000 type veth peer name up0 mtu 9000 netns rack");
        run("ip link set uplink up");
        rack.run("ip link set up0 master br0 up");
        for number in 5..=8 {
            rack.run(&format!(
                "ip link add b{number} mtu 9000 type veth peer name eth0 mtu 9000 netns h{number}"
            ));
            rack.run(&format!("ip link set b{number} master br0 up"));
            hosts[number - 1].assign_addresses("eth0", number.try_into().unwrap());
        }
        let port = |number| {
            format!(
                "[[port]]\nname = 'vm{number}'\ntap = 'tap0'\nnetns = 'h{number}'\nmtu = 9000\n"
            )
        };
        let vms: String = (1..=4).map(port).collect();
        let switch = Switch::start(&format!("[[port]]\nname = 'uplink'\npacket = 'uplink'\n{vms}"));
        for number in 1..=4 {
            hosts[number - 1].assign_addresses("tap0", number.try_into().unwrap());
            switch.wait_for(&format!("vm{number}"), "up");
        }
        let address = |number| format!("10.9.0.{number}:5910");
        let responders =
            hosts.iter().zip(1..).map(|(host, number)| Responder::start(*host, &address(number)));
        let responders = responders.collect();
        Racks { switch, hosts, rack, responders }
    }

    /// Seeds a fault, checks that it is the only finding, and mends it.
    fn finds(
        &self,
        seed: impl Fn(&Racks),
        mend: impl Fn(&Racks),
        wanted: (&str, &str, &str, &str),
    ) {
        seed(self);
        let (report, code) = check(self.hosts[0], &self.responders, &["--mtu", "9000"]);
        let found = findings(&report);
        mend(self);
        let (hop, at, seen, words) = wanted;
        assert_eq!(
            (found.len(), code),
            (1, 1),
            "{wanted:?}: {found:#?}\n{:#}",
            report["unchecked"]
        );
        let (found_hop, found_at, found_seen, error) = &found[0];
        assert_eq!((found_hop.as_str(), found_seen.as_str()), (hop, seen), "{error}");
        assert!(found_at.contains(at) && error.contains(words), "{wanted:?}: {found_at}: {error}");
        println!("    found {hop}: {error}");
    }

    fn is_healthy(&self) {
        let (report, code) = check(self.hosts[0], &self.responders, &[]);
        assert_eq!((findings(&report), code), (vec![], 0), "{:#}", report["unchecked"]);
        assert_eq!(
            (&report["wanted"], report["directions"].as_array().unwrap().len()),
            (&9000.into(), 56)
        );
    }
}

#[test]
fn each_kind_of_mtu_fault_is_found_and_named() {
    story(&NEEDS, || {
        let racks = Racks::new();
        racks.is_healthy();
        racks.finds(
            |it| drop(it.hosts[2].run("ip link set tap0 mtu 1500")),
            |it| drop(it.hosts[2].run("ip link set tap0 mtu 9000")),
            ("vnic", "10.9.0.3", "1500", "tap0 has MTU 1500"),
        );
        racks.finds(
            |it| drop(it.hosts[6].run("ip link set eth0 mtu 4000")),
            |it| drop(it.hosts[6].run("ip link set eth0 mtu 9000")),
            ("vnic", "10.9.0.7", "4000", "eth0 has MTU 4000"),
        );
        racks.finds(
            |it| drop(it.rack.run("ip link set b6 mtu 1500")),
            |it| drop(it.rack.run("ip link set b6 mtu 9000")),
            ("switch-port", "10.9.0.6", "1500", "in both directions"),
        );
        racks.finds(
            |it| it.switch.tell("port set uplink mtu=1500"),
            |it| it.switch.tell("port set uplink mtu="),
            ("uplink", "10.9.0.1", "1500", "in this direction only"),
        );
        racks.finds(
            |it| it.switch.tell("port set uplink mtu=8996"),
            |it| it.switch.tell("port set uplink mtu="),
            ("uplink", "10.9.0.1", "8996", "drops packets above 8996"),
        );
        racks.finds(
            |it| drop(it.rack.run("ip link set up0 mtu 2000")),
            |it| drop(it.rack.run("ip link set up0 mtu 9000")),
            ("uplink", "10.9.0.1", "2000", "in both directions"),
        );
        racks.is_healthy();
    });
}

/// Checks without responders: the daemon compares MTUs, and probes run between TAPs of this host.
#[test]
fn a_host_checks_its_own_ports_members_and_taps() {
    story(&NEEDS, || {
        let (a, b) = (Host::new("a"), Host::new("b"));
        for member in ["m1", "m2"] {
            run(&format!("ip link add {member} mtu 9000 type veth peer name {member}x mtu 9000"));
            run(&format!("ip link set {member} up"));
            run(&format!("ip link set {member}x up"));
        }
        let tap = |name| {
            format!("[[port]]\nname = '{name}'\ntap = 'tap0'\nnetns = '{name}'\nmtu = 9000\n")
        };
        let team = "[[port]]\nname = 'team0'\nteam = ['m1', 'm2']\n";
        let switch = Switch::start(&format!("{team}{}{}", tap("a"), tap("b")));
        a.assign_addresses("tap0", 1);
        b.assign_addresses("tap0", 2);
        ["team0", "a", "b"].iter().for_each(|port| drop(switch.wait_for(port, "up")));
        let check = || {
            let output = millrace().args(["mtu", "check", "--json"]).heard();
            let error = String::from_utf8_lossy(&output.stderr);
            let report: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
            (report, output.status.code().unwrap())
        };
        let (report, code) = check();
        assert_eq!(code, 0, "{report:#}");
        assert_eq!(report["configuration"]["ports"][2]["links"][1]["name"], "m2");
        assert_eq!(report["networks"][0]["directions"].as_array().unwrap().len(), 2);
        let not_probed = report["not_probed"][0].as_str().unwrap();
        assert!(not_probed.starts_with("team0: "), "{not_probed}");
        // The device has MTU 9000, but its port does not.
        switch.tell("port set b mtu=4000");
        b.run("ip link set tap0 mtu 9000");
        let (report, code) = check();
        let found = findings(&report["networks"][0]);
        assert_eq!(code, 1);
        assert!(found.iter().any(|it| it.0 == "between" && it.2 == "4000"), "{found:#?}");
        switch.tell("port set b mtu=9000");
        until("all is well", || (check().1 == 0).then_some(()));
        run("ip link set m2 mtu 1500");
        until("the member is named", || {
            let (report, code) = check();
            let problems = report["configuration"]["findings"].as_array().unwrap();
            let mut errors = problems.iter().map(|it| it["error"].as_str().unwrap());
            (code == 1 && errors.any(|it| it == "team team0: its members have different MTUs"))
                .then_some(())
        });
    });
}

/// Hosts with a management network at 1500 and a migration network at 9000, each a bridge.
struct TwoNetworks {
    hosts: Vec<Host>,
    responders: Vec<Responder>,
}

impl TwoNetworks {
    fn new() -> TwoNetworks {
        let hosts: Vec<Host> = (1..=3).map(|number| host(format!("t{number}"))).collect();
        let mut responders = Vec::new();
        for (network, device, mtu) in [(66, "eth0", 1500), (67, "lm", 9000)] {
            run(&format!("ip link add br{network} mtu {mtu} type bridge"));
            run(&format!("ip link set br{network} up"));
            for (host, number) in hosts.iter().zip(1..) {
                let port = format!("p{network}-{number}");
                run(&format!(
                    "ip link add {port} mtu {mtu} type veth peer name {device} mtu {mtu} netns t{number}"
                ));
                run(&format!("ip link set {port} master br{network} up"));
                host.run(&format!("ip address add 10.{network}.0.{number}/24 dev {device}"));
                host.run(&format!("ip link set {device} up"));
                responders.push(Responder::start(*host, &format!("10.{network}.0.{number}:5910")));
            }
        }
        TwoNetworks { hosts, responders }
    }

    /// Returns an option for each network.
    fn named(&self) -> Vec<String> {
        let list = |from: usize, to: usize| {
            let all = self.responders[from..to].iter().map(|responder| responder.1.as_str());
            all.collect::<Vec<_>>().join(",")
        };
        let [management, migration] = [list(0, 3), list(3, 6)];
        vec![
            format!("--network=management={management}"),
            format!("--network=migration={migration}"),
        ]
    }

    fn check_named(&self, more: &[&str]) -> (Value, i32) {
        let named = self.named();
        let more: Vec<&str> =
            named.iter().map(String::as_str).chain(more.iter().copied()).collect();
        check(self.hosts[0], &[], &more)
    }
}

/// It paired the management address of one host with the migration address of another, whose
/// packets left by the management device, and blamed the other: "lm has MTU 1500".
#[test]
fn a_management_and_a_migration_network_are_checked_in_one_run_and_never_mixed() {
    story(&[], || {
        let world = TwoNetworks::new();
        let (report, code) = check(world.hosts[0], &world.responders, &[]);
        assert_eq!((findings(&report), code), (vec![], 0), "{report:#}");
        let networks = report["networks"].as_array().unwrap();
        let told: Vec<_> = networks
            .iter()
            .map(|it| (it["network"].as_str().unwrap(), it["wanted"].as_u64().unwrap()))
            .collect();
        assert_eq!(told, [("10.66.0.0/24", 1500), ("10.67.0.0/24", 9000)]);
        for (network, device) in networks.iter().zip(["eth0", "lm"]) {
            let directions = network["directions"].as_array().unwrap();
            assert_eq!(directions.len(), 6);
            let is_own = |it: &Value| it["interface"] == device && it["arrives_by"] == device;
            assert!(directions.iter().all(is_own), "{network:#}");
        }
        let (report, code) = world.check_named(&[]);
        assert_eq!((findings(&report), code), (vec![], 0), "{report:#}");
        world.hosts[1].run("ip link set eth0 mtu 1400");
        let (report, code) = world.check_named(&[]);
        let found = findings(&report);
        assert_eq!((found.len(), code), (1, 1), "{found:#?}");
        assert_eq!(report["findings"][0]["network"], "management");
        assert!(found[0].3.contains("10.66.0.2:5910: eth0 has MTU 1400"), "{found:#?}");
        println!("    found in management: {}", found[0].3);
        world.hosts[1].run("ip link set eth0 mtu 1500");
        // One address of the migration network is left out: nothing is said of its device.
        let (report, code) = check(world.hosts[0], &world.responders[..4], &[]);
        assert_eq!((findings(&report), code), (vec![], 1));
        let unchecked = report["unchecked"][0]["error"].as_str().unwrap();
        assert_eq!(unchecked, "no path of 10.67.0.1:5910 was probed");
        // A device is named only if the route leaves by it.
        world.hosts[0].run("ip route add 10.67.0.3/32 dev eth0 src 10.67.0.1");
        let (report, _) = world.check_named(&["--mtu", "9000"]);
        let of = |network: &str| {
            let all = report["findings"].as_array().unwrap().iter();
            let own = all.filter(|it| it["network"] == network);
            own.map(|it| it["error"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let migration = of("migration");
        assert!(migration.iter().any(|it| it.contains("10.67.0.1:5910: eth0 has MTU 1500")));
        assert!(!migration.iter().any(|it| it.contains("lm has")), "{migration:#?}");
    });
}

/// "Check VLANs and firewalls" was all that was said.
#[test]
fn a_host_in_another_vlan_is_told_from_one_behind_a_firewall() {
    story(&[], || {
        let world = TwoNetworks::new();
        let lm = &world.responders[3..];
        let unchecked = |from: Host| {
            let (report, code) = check(from, lm, &[]);
            assert_eq!(code, 1, "{report:#}");
            let all = report["unchecked"].as_array().unwrap().iter();
            let word = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
            let mut problems =
                all.map(|it| (word(it, "error"), word(it, "seen"), word(it, "remedy")));
            problems.find(|it| it.0.contains("10.67.0.3:5910")).unwrap()
        };
        // Another VLAN: a bridge of its own, as not every kernel's bridges know VLANs.
        run("ip link add br20 mtu 9000 type bridge");
        run("ip link set br20 up");
        run("ip link set p67-3 master br20");
        world.hosts.iter().for_each(|host| drop(host.run("ip neigh flush dev lm")));
        let (error, seen, remedy) = unchecked(world.hosts[0]);
        assert!(error.contains("cannot be reached") && seen.contains("no answer to ARP"), "{seen}");
        assert!(remedy.starts_with("look for a different VLAN first"), "{remedy}");
        println!("    another VLAN: {seen}: {remedy}");
        run("ip link set p67-3 master br67");
        // A firewall. A host that checks sources answers no ARP of one that it has no route to.
        let checks = "/proc/sys/net/ipv4/conf/lm/rp_filter";
        world.hosts[2].within(|| std::fs::write(checks, "0").unwrap());
        world.hosts[2].run("ip route add blackhole 10.67.0.1/32");
        world.hosts.iter().for_each(|host| drop(host.run("ip neigh flush dev lm")));
        let (_, seen, remedy) = unchecked(world.hosts[0]);
        assert!(!remedy.starts_with("look for a different VLAN"), "{seen}: {remedy}");
        println!("    a firewall: {seen}: {remedy}");
    });
}

/// It said that there was no path to check, and asked for responders.
#[test]
fn taps_in_one_namespace_are_not_probed_and_the_reason_is_told() {
    story(&NEEDS, || {
        let host = Host::new("a");
        let port = |name| {
            format!("[[port]]\nname = '{name}'\ntap = 'tap-{name}'\nnetns = 'a'\nmtu = 9000\n")
        };
        let switch = Switch::start(&format!("{}{}", port("one"), port("two")));
        host.assign_addresses("tap-one", 1);
        host.assign_addresses("tap-two", 2);
        ["one", "two"].iter().for_each(|port| drop(switch.wait_for(port, "up")));
        let output = millrace().args(["mtu", "check", "--json"]).heard();
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
        assert_eq!(output.status.code(), Some(0), "{report:#}");
        let reasons = report["not_probed"].as_array().unwrap();
        let two = "two: its device tap-two and that of one are in one network namespace";
        assert!(reasons.iter().any(|it| it.as_str().unwrap().starts_with(two)), "{reasons:#?}");
    });
}

#[test]
fn a_router_that_says_too_big_is_named_and_one_that_does_not_is_located() {
    story(&[], || {
        let [a, router, b] = ["a", "router", "b"].map(Host::new);
        router.run("ip link add east mtu 9000 type veth peer name eth0 mtu 9000 netns a");
        router.run("ip link add west mtu 9000 type veth peer name eth0 mtu 9000 netns b");
        router.run("sysctl -qw net.ipv4.ip_forward=1");
        for (host, number) in [(a, 1), (b, 2)] {
            let device = if number == 1 { "east" } else { "west" };
            router.run(&format!("ip address add 10.8.{number}.254/24 dev {device}"));
            router.run(&format!("ip link set {device} up"));
            host.run(&format!("ip address add 10.8.{number}.1/24 dev eth0"));
            host.run("ip link set eth0 up");
            host.run(&format!("ip route add default via 10.8.{number}.254"));
        }
        let responders = [(a, "10.8.1.1:5910"), (b, "10.8.2.1:5910")]
            .map(|(host, address)| Responder::start(host, address));
        let (report, code) = check(a, &responders, &[]);
        assert_eq!((findings(&report), code), (vec![], 0));
        // Only the way to b is narrower: the router's own device is smaller.
        router.run("ip link set west mtu 1500");
        let (report, code) = check(a, &responders, &["--mtu", "9000"]);
        let found = findings(&report);
        let of = |hop: &str| found.iter().filter(|it| it.0 == hop).count();
        assert_eq!((code, of("beyond")), (1, 1), "{found:#?}");
        assert!(found.iter().any(|it| it.3.contains("router 10.8.1.254 reports")), "{found:#?}");
        // The router cannot send packets of its own.
        router.run("ip rule add pref 1 iif lo blackhole");
        let (report, code) = check(a, &responders, &["--mtu", "9000"]);
        let found = findings(&report);
        assert_eq!((found.len(), code), (1, 1), "{found:#?}");
        assert_eq!((found[0].0.as_str(), found[0].2.as_str()), ("between", "1500"), "{found:#?}");
        println!("    found {}: {}", found[0].0, found[0].3);
    });
}

#[test]
fn sixty_four_hosts_are_checked_in_seconds() {
    story(&[], || {
        run("ip link add br0 mtu 9000 type bridge");
        run("ip link set br0 up");
        let start = Instant::now();
        // All namespaces share the kernel's table of 1,024 neighbours that it learns by itself.
        let mac = |number| format!("02:00:00:00:00:{number:02x}");
        let neighbour = |number| {
            let mac = mac(number);
            format!("neigh add 10.9.0.{number} lladdr {mac} dev eth0 nud permanent\n")
        };
        std::fs::write("/run/neighbours", (1..=64).map(neighbour).collect::<String>()).unwrap();
        let attach = |number: usize| {
            let host = host(format!("n{number}"));
            run(&format!(
                "ip link add v{number} mtu 9000 type veth peer name eth0 mtu 9000 address {} netns n{number}",
                mac(number)
            ));
            run(&format!("ip link set v{number} master br0 up"));
            host.assign_addresses("eth0", number.try_into().unwrap());
            host.run("ip -batch /run/neighbours");
            (host, Responder::start(host, &format!("10.9.0.{number}:5910")))
        };
        let (hosts, responders): (Vec<_>, Vec<_>) = (1..=64).map(attach).unzip();
        println!("    64 hosts made in {:.1} s", start.elapsed().as_secs_f64());
        let start = Instant::now();
        let (report, code) = check(hosts[0], &responders, &[]);
        let took = start.elapsed().as_secs_f64();
        assert_eq!((findings(&report), code), (vec![], 0), "{:#}", report["unchecked"]);
        let directions = report["directions"].as_array().unwrap().len();
        println!("    64 hosts, {directions} directions, healthy: {took:.1} s");
        run("ip link set v40 mtu 1500");
        let start = Instant::now();
        let (report, code) = check(hosts[0], &responders, &["--mtu", "9000"]);
        let took = start.elapsed().as_secs_f64();
        let found = findings(&report);
        assert_eq!((found.len(), code), (1, 1), "{found:#?}");
        assert_eq!((found[0].0.as_str(), found[0].1.as_str()), ("switch-port", "10.9.0.40:5910"));
        println!("    one port at 1500: {took:.1} s: {}", found[0].3);
        let (report, code) = check(hosts[0], &responders, &["--mtu", "9000", "--sample", "4"]);
        assert_eq!((findings(&report).len(), code), (1, 1));
        assert!(report["sampled"]["missed_one"].as_f64() > Some(0.9));
    });
}
