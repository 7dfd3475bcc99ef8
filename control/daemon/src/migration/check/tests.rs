//! Tests of two hosts that are alike, and of the findings when one thing is changed.

use super::*;
use crate::migration::HOST;
use crate::running::{Running, pictures};
use api::body::GuestBody;
use std::time::Instant;
use test_devices::MemoryDevices;

const MAC: &str = "52:54:00:00:00:01";

/// Returns a host with a guest's port, a port beside it, and a team of two members as its uplink.
fn host() -> HostExport {
    let text = format!(
        "[[port]]\nname='vm'\nvhost-user='/v'\nmac='{MAC}'\nvlan=10\nmtu=9000\nqueues=2\nmirror-to='beside'\n\
         [[port]]\nname='beside'\ntap='beside'\n\
         [[port]]\nname='up'\npacket='eth1'\ntrunk='10,20'\nmtu=9000\n"
    );
    let config = config::Config::from_toml("test", &text).unwrap();
    let now = Instant::now();
    let running = Running::start(config, Box::<MemoryDevices>::default(), now).unwrap();
    let mut host = HostExport {
        schema: HOST.to_owned(),
        ports: running.report().ports(),
        mtu: pictures::mtu_body(&running.report(), now),
        teams: vec![serde_json::from_value(team()).unwrap()],
        macs: Vec::new(),
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    let guest = GuestBody {
        connected: true,
        memory_bytes: 1 << 30,
        memory_regions: 200,
        memory_limit: Some(64 << 30),
        offered: words("csum mac mq guest-announce guest-tso4"),
        taken: words("csum mac mq guest-tso4"),
        ..GuestBody::default()
    };
    port(&mut host, "vm").guest = Some(guest);
    set(&mut host, "vm", "team-member", "eth1");
    host
}

fn team() -> Value {
    let member = |name: &str, queue: usize| {
        serde_json::json!({
            "name": name, "queue": queue, "active": true, "mac": "", "mtu": 9000, "tx_offloads": [],
            "rx_checksum": true, "vlans_heard": [10], "counters": {}
        })
    };
    serde_json::json!({
        "port": "up", "teaming_mode": "SwitchIndependent", "load_balancing_algorithm": "hyper-v-port",
        "fail_back_s": 1, "mtu": 9000, "tx_offloads": [], "rx_checksum": true,
        "members": [member("eth1", 0), member("eth2", 1)], "mappings": []
    })
}

fn port<'h>(host: &'h mut HostExport, name: &str) -> &'h mut PortBody {
    host.ports.iter_mut().find(|port| port.name == name).unwrap()
}

fn guest(host: &mut HostExport) -> &mut GuestBody {
    port(host, "vm").guest.as_mut().unwrap()
}

/// Returns the host at which the guest runs.
fn source() -> HostExport {
    let mut host = host();
    guest(&mut host).queues = 2;
    host
}

/// Changes a key of a port, written as in the configuration.
fn set(host: &mut HostExport, name: &str, key: &str, value: &str) {
    let port = port(host, name);
    let change =
        Value::Object([(key.to_owned(), config::typed_value(key, value))].into_iter().collect());
    let mut keys = keys(&port.config);
    match change.get(key) {
        Some(Value::Null) | None => drop(keys.remove(key)),
        Some(value) => drop(keys.insert(key.to_owned(), value.clone())),
    }
    port.config = config::from_value(Value::Object(keys)).unwrap();
}

#[test]
fn hosts_that_are_alike_have_no_finding() {
    assert_eq!(findings(&source(), &host(), "vm").unwrap(), []);
    assert!(findings(&source(), &host(), "vm9").unwrap_err().wanted.contains("vm"));
}

#[test]
#[allow(clippy::too_many_lines, reason = "a list, an entry for each difference")]
fn each_difference_is_found_alone_and_says_what_to_do() {
    type Seed = fn(&mut HostExport);
    let seeds: [(&str, &str, Seed); 26] = [
        ("port", "no such port", |it| it.ports.retain(|port| port.name != "vm")),
        ("kind", "tap t", |it| {
            set(it, "vm", "queues", "");
            let name = port(it, "vm").config.name.clone();
            let tap = config::from_value(serde_json::json!("t")).unwrap();
            port(it, "vm").config = PortConfig { tap: Some(tap), ..PortConfig::named(name) };
        }),
        ("state", "a guest runs there", |it| guest(it).queues = 1),
        ("state", "ring 1", |it| {
            port(it, "vm").state = StateBody::Broken;
            port(it, "vm").reason = "ring 1: broken".to_owned();
        }),
        ("features", "guest-tso4", |it| guest(it).offered.retain(|name| name != "guest-tso4")),
        ("queues", "1", |it| set(it, "vm", "queues", "1")),
        ("mtu", "1500", |it| port(it, "vm").mtu = Some(1500)),
        ("uplink-mtu", "1500", |it| port(it, "up").mtu = Some(1500)),
        ("vlan", "trunk 20", |it| {
            set(it, "up", "trunk", "20");
            port(it, "up").vlan = "trunk 20".to_owned();
        }),
        ("vlan", "no uplink", |it| it.ports.retain(|port| port.name != "up")),
        ("uplink", "no carrier", |it| {
            port(it, "up").state = StateBody::Down;
            port(it, "up").reason = "no carrier".to_owned();
        }),
        ("team-member", "eth2", |it| it.teams[0].members.retain(|member| member.name == "eth2")),
        ("team-member", "no carrier", |it| {
            it.teams[0].members[0].active = false;
            it.teams[0].members[0].reason = Some("no carrier".to_owned());
        }),
        ("member-vlan", "20", |it| it.teams[0].members[1].vlans_heard = vec![20]),
        ("mirror-to", "no such port", |it| it.ports.retain(|port| port.name != "beside")),
        ("mac-taken", MAC, |it| {
            set(it, "beside", "vlan", "10");
            port(it, "beside").held_mac = Some(MAC.to_owned());
        }),
        ("mac", "52:54:00:00:00:02", |it| set(it, "vm", "mac", "52:54:00:00:00:02")),
        ("mac", "not set", |it| set(it, "vm", "mac", "")),
        ("memory-limit", "1048576", |it| {
            set(it, "vm", "memory-limit", "1MiB");
            guest(it).memory_limit = Some(1 << 20);
        }),
        // This host has less memory than the guest, without a `memory-limit`.
        ("memory-limit", "536870912", |it| guest(it).memory_limit = Some(512 << 20)),
        ("memory-regions", "96 free of the 4096", |it| {
            port(it, "beside").guest =
                Some(GuestBody { memory_regions: 4032, ..GuestBody::default() });
        }),
        ("rsc", "off", |it| port(it, "vm").rsc = config::RscMode::Off),
        ("rate", "1Mbit", |it| set(it, "vm", "rate", "1Mbit")),
        ("storm", "off", |it| set(it, "vm", "storm", "off")),
        ("mac-spoofing", "allow", |it| set(it, "vm", "mac-spoofing", "allow")),
        ("ip-guard", "10.0.0.5", |it| set(it, "vm", "ip-guard", "10.0.0.5")),
    ];
    for (about, seen, seed) in seeds {
        let mut there = host();
        seed(&mut there);
        let found = findings(&source(), &there, "vm").unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.about.as_str(), &it.problem)).collect();
        let [(found_about, problem)] = found[..] else { panic!("{about}: {found:#?}") };
        assert_eq!(found_about, about, "{problem}");
        assert!(problem.seen.contains(seen), "{about}: {problem}");
        assert!(!problem.wanted.is_empty() && !problem.remedy.is_empty(), "{problem}");
    }
}

#[test]
fn a_guest_that_is_announced_by_nothing_is_found() {
    let (mut from, mut to) = (source(), host());
    for host in [&mut from, &mut to] {
        set(host, "vm", "mac", "");
    }
    port(&mut from, "vm").held_mac = Some(MAC.to_owned());
    let found = findings(&from, &to, "vm").unwrap();
    assert_eq!(found[0].about, "announce");
    assert!(found[0].problem.remedy.contains(MAC), "{}", found[0].problem);
    guest(&mut from).taken.push("guest-announce".to_owned());
    assert_eq!(findings(&from, &to, "vm").unwrap(), []);
}

/// A port that sent from the guest's address in another VLAN kept the guest from moving here.
#[test]
fn one_address_in_two_vlans_is_none() {
    let mut to = host();
    port(&mut to, "beside").held_mac = Some(MAC.to_owned());
    let learned = serde_json::json!({"mac": MAC, "vlan": 0, "port": "beside", "age_s": 1});
    to.macs.push(serde_json::from_value(learned).unwrap());
    assert_eq!(findings(&source(), &to, "vm").unwrap(), []);
}

#[test]
fn a_guest_held_to_none_is_not_to_be_held_there() {
    let (mut from, to) = (source(), host());
    set(&mut from, "vm", "mac", "");
    guest(&mut from).taken.push("guest-announce".to_owned());
    let found = findings(&from, &to, "vm").unwrap();
    assert_eq!(
        (found.len(), found[0].about.as_str(), found[0].problem.seen.as_str()),
        (1, "mac", MAC)
    );
}

/// Packets that do not leave the old host are no finding.
#[test]
fn an_uplink_as_narrow_as_the_old_one_is_none() {
    let (mut from, mut to) = (source(), host());
    for host in [&mut from, &mut to] {
        port(host, "up").mtu = Some(1500);
    }
    assert_eq!(findings(&from, &to, "vm").unwrap(), []);
}

#[test]
fn a_file_is_read_back_and_another_schema_refused() {
    let text = serde_json::to_string(&host()).unwrap();
    assert_eq!(HostExport::read(&text).unwrap().ports.len(), 3);
    let later = text.replacen("millrace-host/1", "millrace-host/2", 1);
    let refused = HostExport::read(&later).unwrap_err();
    assert_eq!((refused.seen.as_str(), refused.wanted.as_str()), ("millrace-host/2", HOST));
    assert_eq!(HostExport::read("{}").unwrap_err().seen, "none");
}

/// The uplinks of VLAN 10 gave the guest its 9000 at the old host. The check compared the least MTU
/// of all VLANs, so 1500 was enough at the new host.
#[test]
fn each_vlan_is_compared_by_its_own_uplinks() {
    let host = |jumbo: &str| {
        let mut host = host();
        set(&mut host, "vm", "vlan", "");
        set(&mut host, "vm", "trunk", "10,20");
        set(&mut host, "up", "trunk", "10");
        set(&mut host, "beside", "role", "uplink");
        set(&mut host, "beside", "trunk", "20");
        for name in ["up", "beside"] {
            port(&mut host, name).mtu = Some(if name == jumbo { 9000 } else { 1500 });
        }
        port(&mut host, "beside").role = PortRole::Uplink;
        host
    };
    let source = |jumbo| {
        let mut from = host(jumbo);
        guest(&mut from).queues = 2;
        from
    };
    let found = findings(&source("up"), &host("beside"), "vm").unwrap();
    let found: Vec<_> = found.iter().map(|it| (&*it.about, &*it.problem.seen)).collect();
    assert_eq!(found, [("uplink-mtu", "MTU 1500, in VLAN 10")]);
    assert_eq!(findings(&source("up"), &host("up"), "vm").unwrap(), []);
}

/// No uplink of the source takes a trunk's untagged frames, yet the destination's uplinks were
/// required to.
#[test]
fn a_vlan_that_does_not_leave_the_old_host_is_not_wanted_of_the_new_one() {
    let (mut from, mut to) = (source(), host());
    for host in [&mut from, &mut to] {
        set(host, "vm", "vlan", "");
        set(host, "vm", "trunk", "10,30");
        set(host, "up", "native", "7");
    }
    assert_eq!(findings(&from, &to, "vm").unwrap(), []);
}

/// `vlan=0` counted as different from no `vlan`, and likewise for other keys.
#[test]
fn a_default_that_is_spelled_out_is_no_difference_and_another_value_is_one() {
    let values = [
        ("path-mtu", "", "on"),
        ("role", "vnic", "uplink"),
        ("vlan", "10", "11"),
        ("mac-spoofing", "deny", "allow"),
        ("mac-limit", "64", "65"),
        ("storm", "10000/s,100Mbit", "1/s"),
        ("isolated", "false", "true"),
        ("rate", "", "1Gbit"),
        ("back-pressure", "false", "true"),
        ("rsc-ipv4", "true", "false"),
        ("rsc-ipv6", "true", "false"),
        ("length-limit", "0", "4"),
        ("ack-limit", "0", "4"),
        ("flows", "128", "64"),
        ("steer", "guest", "rss"),
        ("rss-types", "ipv4,tcpv4,udpv4,ipv6,tcpv6,udpv6", "ipv4"),
        ("dhcp-guard", "false", "true"),
        ("router-guard", "false", "true"),
        ("ip-guard", "", "10.0.0.1"),
        ("acl", "", "deny in tcp"),
        ("vmmq", "", "dynamic"),
    ];
    for (key, default, other) in values {
        let found = |value: &str| {
            let mut to = host();
            set(&mut to, "vm", key, value);
            let found = findings(&source(), &to, "vm").unwrap();
            found.into_iter().map(|it| it.about).collect::<Vec<_>>()
        };
        assert_eq!(found(default), [""; 0], "{key}={default}");
        assert_eq!(found(other), [key], "{key}={other}");
    }
}

/// The terminal obeyed control characters in the file of another host, and remedies to be typed
/// contained its words.
#[test]
fn what_a_file_says_commands_neither_the_terminal_nor_the_shell() {
    let mut host = host();
    port(&mut host, "up").reason = "no\u{1b}[2Jcarrier\u{202e}".to_owned();
    let text = |host: &HostExport| serde_json::to_string(host).unwrap();
    let read = HostExport::read(&text(&host)).unwrap();
    let reason = &read.ports.iter().find(|port| port.name == "up").unwrap().reason;
    assert_eq!(reason, "no\u{fffd}[2Jcarrier\u{fffd}");
    for bad in ["vm; reboot", "vm$(reboot)", ""] {
        let mut other = host.clone();
        port(&mut other, "up").name = bad.to_owned();
        let refused = HostExport::read(&text(&other)).unwrap_err();
        assert_eq!(
            (&*refused.error, &*refused.seen),
            ("an invalid port name in a host's file", bad)
        );
    }
    let mut other = host.clone();
    port(&mut other, "up").held_mac = Some("`reboot`".to_owned());
    assert!(HostExport::read(&text(&other)).unwrap_err().error.contains("an invalid MAC address"));
    let mut from = source();
    set(&mut from, "vm", "team-member", "eth1;reboot");
    let found = findings(&from, &host, "vm").unwrap();
    let remedy = &found
        .iter()
        .find(|it| it.about == "team-member" && it.problem.error.contains('`'))
        .unwrap()
        .problem
        .remedy;
    assert!(remedy.contains("team-member='eth1;reboot'"), "{remedy}");
    let port = host.ports[0].clone();
    host.ports = (0..=4096).map(|_| port.clone()).collect();
    assert!(HostExport::read(&text(&host)).unwrap_err().wanted.contains("4096"));
}

/// Seed 004: some members had jumbo frames and others not, so probes by one member passed.
#[test]
fn members_of_a_team_with_different_mtus_are_named_with_their_host() {
    let mut host = host();
    assert_eq!(members(&host, "the source"), []);
    host.teams[0].members[1].mtu = 1500;
    let found = members(&host, "the source");
    assert_eq!((found.len(), found[0].about.as_str()), (1, "member-mtu"));
    let problem = &found[0].problem;
    assert_eq!(problem.error, "the source: members of team up have different MTUs");
    assert_eq!(problem.seen, "eth1: 9000, eth2: 1500");
    assert!(problem.remedy.contains("`ip link set eth2 mtu 9000` on the source"), "{problem}");
    // A member that is not open has no MTU.
    host.teams[0].members[1].mtu = 0;
    assert_eq!(members(&host, "the source"), []);
}
