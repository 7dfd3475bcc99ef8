//! Tests the flows: what the API tells of who talks to whom.

use crate::test_daemon::{Daemon, eventually};
use api::body::{CarriedBy, FlowBody, FlowsBody, TraceRequest};
use api::client::ClientError;
use wire::vnet::VnetHeader;

const TWO: &str = "[[port]]\nname = 'a'\nvhost-user = '/run/a'\nvlan = 7\n\
                   [[port]]\nname = 'b'\nvhost-user = '/run/b'\nvlan = 7\n";
const DENY: &str = "acl = ['deny out udp to port 9']\n";

/// Returns a UDP packet between two hosts.
fn udp(from: u8, to: u8, port: u8) -> Vec<u8> {
    let macs = [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
    let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to];
    [&macs[..], &[8, 0], &ip, &[0, 1, 0, port, 0, 8, 0, 0]].concat()
}

/// Sends a frame until it is told: what comes before the first poll is not looked at.
fn begin(daemon: &Daemon, device: &str, frame: &[u8]) {
    let peer = daemon.devices.peer(device).unwrap();
    eventually("the switch looks at flows", || {
        assert!(peer.send(VnetHeader::default(), frame));
        (!daemon.client.flows(None, "").unwrap().flows.is_empty()).then_some(())
    });
}

/// Sends a frame by one port, and waits until the flows are as wanted.
fn flows(
    daemon: &Daemon,
    (device, frame): (&str, &[u8]),
    query: &str,
    are_meant: impl Fn(&FlowsBody) -> bool,
) -> FlowsBody {
    let peer = daemon.devices.peer(device).unwrap();
    assert!(peer.send(VnetHeader::default(), frame));
    eventually("the flows are told", || {
        let body = daemon.client.flows(None, query).unwrap();
        are_meant(&body).then_some(body)
    })
}

fn only(body: &FlowsBody) -> &FlowBody {
    let [flow] = &body.flows[..] else { panic!("{body:?}") };
    flow
}

#[test]
fn a_flow_and_a_denied_one_are_told_and_can_be_traced() {
    let daemon = Daemon::start(&format!("{TWO}{DENY}"));
    let is_one = |body: &FlowsBody| body.flows.len() == 1;
    // The answer teaches the switch where both are.
    begin(&daemon, "/run/b", &udp(2, 1, 5));
    let passed = flows(&daemon, ("/run/a", &udp(1, 2, 80)), "ip=10.0.0.1", |body| {
        body.flows.iter().any(|flow| flow.destination_port == Some(80))
    });
    let passed = passed.flows.iter().find(|flow| flow.destination_port == Some(80)).unwrap();
    assert_eq!((passed.from.as_deref(), passed.to.as_deref()), (Some("a"), Some("b")));
    assert_eq!((passed.vlan, passed.protocol.as_str(), passed.frames), (7, "udp", 1));
    assert_eq!((passed.bytes, passed.sampled, passed.carried_by), (42, 1, CarriedBy::Switch));
    let denied = flows(&daemon, ("/run/a", &udp(1, 2, 9)), "drops=true", is_one);
    let denied = only(&denied);
    assert_eq!(denied.drops, [("acl_denied".to_owned(), 1)].into());
    assert_eq!((denied.to.as_deref(), denied.bytes), (Some("b"), 0));
    let frames = vec![denied.trace.clone().unwrap()];
    let request = TraceRequest { port: "a".into(), frames, burst: false };
    let traced = daemon.client.trace(&request).unwrap();
    assert_eq!(traced.turns[0].drops[0].reason, "acl_denied", "{traced:?}");
    let of_b = daemon.client.flows(Some("b"), "limit=1").unwrap();
    assert_eq!((of_b.matching, of_b.flows.len()), (3, 1));
}

#[test]
fn what_cannot_be_listed_is_refused() {
    let daemon = Daemon::start(TWO);
    let refused = [
        (Some("c"), "", "there is no port c"),
        (None, "ip=10.0.0", "the address cannot be read"),
        (None, "ip=10.0.0.0/33", "the address cannot be read"),
        (None, "limit=0", "so many flows are not listed"),
        (None, "drop=true", "drop"),
    ];
    for (port, query, words) in refused {
        let Err(ClientError::Refused(problem)) = daemon.client.flows(port, query) else {
            panic!("{query} was answered")
        };
        assert!(problem.to_string().contains(words), "{problem}");
    }
}

#[test]
fn a_switch_whose_file_says_so_looks_at_no_flows() {
    let daemon = Daemon::start(&format!("[switch]\nflows = false\n{TWO}"));
    let peer = daemon.devices.peer("/run/a").unwrap();
    assert!(peer.send(VnetHeader::default(), &udp(1, 2, 80)));
    eventually("the frame has passed", || {
        (daemon.client.counters("b").unwrap().egress_frames == 1).then_some(())
    });
    let body = daemon.client.flows(None, "").unwrap();
    assert_eq!((body.enabled, body.flows.len()), (false, 0));
}
