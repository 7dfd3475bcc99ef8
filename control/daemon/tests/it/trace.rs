//! Tests `POST /v1/trace` against a daemon: what it says, and that it leaves nothing behind.

use crate::test_daemon::Daemon;
use api::body::{TraceBody, TraceRequest, TraceTurnBody};
use api::client::ClientError;
use problem::Problem;

const PORTS: &str = "\
[[port]]
name = \"vm1\"
tap = \"tap1\"
vlan = 10
mac = \"52:54:00:00:00:01\"
acl = [\"mark dscp 46 in udp\", \"deny in tcp to 10.0.0.0/8 port 22-23\"]
dhcp-guard = true

[[port]]
name = \"vm2\"
tap = \"tap2\"
vlan = 10
mac = \"52:54:00:00:00:02\"
mtu = 900

[[port]]
name = \"uplink0\"
packet = \"eth1\"
trunk = \"10,20\"
";

fn ask(daemon: &Daemon, port: &str, frames: &[&str]) -> Result<TraceBody, ClientError> {
    let frames = frames.iter().map(|frame| (*frame).to_owned()).collect();
    daemon.client.trace(&TraceRequest { port: port.to_owned(), frames, burst: false })
}

fn turn(daemon: &Daemon, port: &str, frame: &str) -> TraceTurnBody {
    ask(daemon, port, &[frame]).unwrap().turns.remove(0)
}

/// Returns the text of a stage at a port.
fn step(turn: &TraceTurnBody, port: &str, stage: &str) -> String {
    let steps = turn.steps.iter().filter(|step| step.port == port && step.stage == stage);
    let texts: Vec<_> = steps.map(|step| step.text.as_str()).collect();
    texts.join(" / ")
}

fn drops(turn: &TraceTurnBody) -> Vec<(&str, &str)> {
    turn.drops.iter().map(|drop| (drop.port.as_str(), drop.reason.as_str())).collect()
}

#[test]
fn each_step_says_what_was_decided_and_why() {
    let daemon = Daemon::start(PORTS);
    let ssh = turn(&daemon, "vm1", "tcp 10.0.0.1:1 > 10.0.0.2:22 to vm2");
    assert_eq!(drops(&ssh), [("vm1", "acl_denied")]);
    assert_eq!(
        step(&ssh, "vm1", "acl"),
        "rule 2: deny in tcp to 10.0.0.0/8 port 22-23 / dropped: acl_denied (a rule of the port's ACL denies it)"
    );
    assert!(ssh.delivered.is_empty() && step(&ssh, "vm1", "lookup").is_empty(), "{ssh:?}");

    let sip = turn(&daemon, "vm1", "udp 10.0.0.1 > 10.0.0.2:5060 to vm2 len 100");
    assert_eq!(step(&sip, "vm1", "mark"), "rule 1: mark dscp 46 in udp");
    assert_eq!(step(&sip, "vm1", "lookup"), "52:54:00:00:00:02 is vm2's own address");
    assert_eq!(sip.delivered.len(), 1);
    assert_eq!((&*sip.delivered[0].port, sip.delivered[0].length), ("vm2", 142));
    let tos = &sip.delivered[0].hex[30..32];
    assert_eq!(u8::from_str_radix(tos, 16).unwrap(), 46 << 2);

    let tagged = turn(&daemon, "vm1", "tcp 10.0.0.1 > 10.0.0.2 vlan 20");
    assert_eq!(drops(&tagged), [("vm1", "vlan_not_allowed")]);
    let dhcp = turn(&daemon, "vm1", "udp 10.0.0.1:67 > 255.255.255.255:68 len 300");
    assert_eq!(drops(&dhcp), [("vm1", "dhcp_guard")]);
    let long = turn(&daemon, "vm1", "icmp 10.0.0.1 > 10.0.0.2 to vm2 len 1200");
    assert_eq!(drops(&long), [("vm2", "too_big")]);

    let flood = turn(&daemon, "vm1", "arp 10.0.0.1 > 10.0.0.2");
    assert!(step(&flood, "vm1", "lookup").ends_with("is a group address: to all ports of VLAN 10"));
    let left: Vec<_> = flood.delivered.iter().map(|out| (&*out.port, out.vlan)).collect();
    assert_eq!(left, [("vm2", None), ("uplink0", Some(10))].map(|it| it));
}

#[test]
fn segments_of_one_burst_coalesce_and_trains_are_cut() {
    let daemon = Daemon::start(&PORTS.replace("mtu = 900", "rsc = \"ndis\""));
    let burst =
        turn(&daemon, "uplink0", "tcp 10.0.0.9:1 > 10.0.0.2:80 to vm2 vlan 10 len 1000 count 4");
    assert_eq!(step(&burst, "vm2", "coalesce"), "4 segments become 1 train");
    assert_eq!(burst.delivered.len(), 1);
    assert_eq!(burst.delivered[0].segment_size, Some(1000));
}

/// Nothing is learned, counted, sent or held: the next trace and the next frame find the switch as
/// it was.
#[test]
fn a_trace_leaves_nothing_behind() {
    let daemon = Daemon::start(PORTS);
    let counters = || ["vm1", "vm2", "uplink0"].map(|port| daemon.client.counters(port).unwrap());
    let before = counters();
    let frame = "eth 02:00:00:00:00:77 > 52:54:00:00:00:01 tcp 10.9.9.9 > 10.0.0.1 vlan 10";
    let first = ask(&daemon, "uplink0", &[frame, frame]).unwrap();
    assert_eq!(
        step(&first.turns[0], "uplink0", "learn"),
        "02:00:00:00:00:77 is learned in VLAN 10"
    );
    assert!(step(&first.turns[1], "uplink0", "learn").contains("is known to be here"), "{first:?}");
    assert_eq!(ask(&daemon, "uplink0", &[frame, frame]).unwrap(), first);
    assert_eq!(counters(), before);
    assert_eq!(daemon.client.switch().unwrap().macs, 0);
    assert!(daemon.devices.peer("tap1").unwrap().receive().is_none());
}

#[test]
fn what_cannot_be_traced_is_refused_with_the_word() {
    let daemon = Daemon::start(PORTS);
    let refused = |port: &str, frames: &[&str]| -> Problem {
        match ask(&daemon, port, frames) {
            Err(ClientError::Refused(problem)) => *problem,
            other => panic!("{other:?}"),
        }
    };
    let word = refused("vm1", &["tcp 10.0.0.1 > 10.0.0.2 vlan 5000"]);
    assert_eq!(word.error, "the frame, column 30: `5000` is not a number from 0 to 4095");
    assert!(refused("vm9", &["arp 10.0.0.1 > 10.0.0.2"]).error.contains("there is no port vm9"));
    assert!(refused("vm1", &["arp 10.0.0.1 > 10.0.0.2 reply to vm9"]).error.contains("vm9"));
    assert!(refused("vm1", &[]).wanted.contains("1 to 64"));
    assert_eq!(refused("vm1", &["arp 10.0.0.1 > 10.0.0.2 count 40"; 2]).seen, "80");
    assert_eq!(refused("vm1", &["no frame at all"; 65]).seen, "65", "none is read");
    let long = refused("vm1", &["udp 10.0.0.1:1 > 10.0.0.2:2 len 60000"; 3]);
    assert!(long.wanted.contains("131072"), "{long:?}");
}

#[test]
fn of_many_frames_the_first_are_told_and_the_rest_counted() {
    let mirrored = PORTS.replace("dhcp-guard = true", "mirror-to = \"vm2\"");
    let daemon = Daemon::start(&mirrored);
    let turn = turn(&daemon, "vm1", "udp 10.0.0.1:1 > 10.0.0.2:2 to vm2 count 40");
    assert_eq!(turn.delivered.iter().filter(|it| it.port == "vm2").count(), 64);
    assert!(step(&turn, "vm2", "deliver").ends_with("and 16 more frames, not listed"));
}

/// With two tenants of the same address, the trace took the first by name, in any VLAN.
#[test]
fn an_address_is_looked_for_in_the_vlan_of_the_frame() {
    let tenant = |name: &str, vlan: u16, ip: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ntap = \"{name}\"\nvlan = {vlan}\nip-guard = [\"{ip}\"]\n"
        )
    };
    let daemon = Daemon::start(
        &[
            tenant("a10", 10, "10.0.0.2"),
            tenant("a20", 20, "10.0.0.2"),
            tenant("from10", 10, "10.0.0.1"),
            tenant("from20", 20, "10.0.0.1"),
            "[[port]]\nname = \"uplink0\"\npacket = \"eth1\"\ntrunk = \"10,20\"\n".to_owned(),
        ]
        .concat(),
    );
    let taken = |port: &str, tag: &str| {
        let frame = format!("icmp 10.0.0.1 > 10.0.0.2{tag}");
        ask(&daemon, port, &[&frame]).unwrap().notes.concat()
    };
    for (port, tag, wanted) in [
        ("from10", "", "by ip-guard of port a10"),
        ("from20", "", "by ip-guard of port a20"),
        ("uplink0", " vlan 20", "by ip-guard of port a20"),
        ("uplink0", " vlan 10", "by ip-guard of port a10"),
        ("uplink0", "", "the destination is shown as unknown"),
    ] {
        let notes = taken(port, tag);
        assert!(notes.contains(wanted), "{port}{tag}: {notes}");
    }
}
