//! The API as its clients see it: a daemon with memory ports on a Unix socket.

use crate::test_daemon::{self, Daemon, eventually};
use api::body::{
    CaptureStart, CaptureState, RscSetting, RssChange, RssEntry, Severity, StateBody, StepOutcome,
};
use api::client::{Client, ClientError};
use config::{Config, RscMode, RssKey, SteerMode};
use problem::Problem;
use serde_json::{Value, json};
use test_devices::{Fate, MemoryDevices};
use tokio::sync::oneshot;

const TWO: &str = "\
[[port]]
name = \"vm1\"
tap = \"tap1\"

[[port]]
name = \"uplink0\"
packet = \"eth1\"
";

/// Returns the problem with which the daemon refused.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Err(ClientError::Refused(problem)) => *problem,
        other => panic!("not refused: {other:?}"),
    }
}

/// Returns a broadcast frame from a station.
fn frame(source: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(source);
    frame.extend([0x88, 0xb5]);
    frame.resize(64, 0);
    frame
}

#[test]
fn ports_come_change_and_go() {
    let daemon = Daemon::start(TWO);
    let client = &daemon.client;
    let names =
        || -> Vec<_> { client.ports().unwrap().into_iter().map(|port| port.name).collect() };
    assert_eq!(names(), ["uplink0", "vm1"]);
    let port = serde_json::from_value(json!({"name": "vm2", "tap": "tap2", "vlan": 10})).unwrap();
    let added = client.add_port(&port).unwrap();
    assert_eq!((added.state, added.vlan.as_str()), (StateBody::Up, "access 10"));
    let changed = client.change_port("vm2", &json!({"mtu": 9000, "vlan": null})).unwrap();
    assert_eq!((changed.mtu, changed.vlan.as_str()), (Some(9000), "untagged"));
    client.remove_port("vm2").unwrap();
    assert_eq!(names(), ["uplink0", "vm1"]);
}

#[test]
fn errors_have_one_shape_and_name_the_remedy() {
    let daemon = Daemon::start(TWO);
    let client = &daemon.client;
    let post = |body: Value| refused(client.post::<Value>("/v1/ports", &body));
    let rows = [
        (post(json!({"name": "vm1", "tap": "x"})), "port vm1 exists", "another name"),
        (post(json!({"name": "vm2", "tpa": "x"})), "unknown key", "did you mean `tap`?"),
        (post(json!({"name": "vm2", "tap": "x", "mtu": 5})), "out of range", "68 to 65535"),
        (
            post(json!({"name": "vm2", "tap": "tap1"})),
            "port vm2: its device belongs",
            "another device",
        ),
        (post(json!(7)), "invalid type", "write"),
        (refused(client.port("vm")), "there is no port vm", "did you mean `vm1`?"),
        (refused(client.port("../x y")), "there is no port ../x y", "port list"),
        (refused(client.remove_port("vm9")), "there is no port vm9", "did you mean `vm1`?"),
        (
            refused(client.change_port("vm1", &json!({"name": "vm3"}))),
            "port vm1 cannot be renamed",
            "add a port",
        ),
        (
            refused(client.change_port("vm1", &json!(["mtu"]))),
            "the change is not an object",
            "{\"mtu\": 9000}",
        ),
        (refused(client.get::<Value>("/v1/prots")), "there is no such resource", "openapi.json"),
        (
            refused(client.delete("/v1/switch")),
            "/v1/switch does not support this method",
            "methods",
        ),
        (
            refused(client.put::<Value>("/v1/rsc", &json!({"policy": "onn"}))),
            "unknown word",
            "did you mean `on`?",
        ),
        (
            refused(client.put::<Value>("/v1/config?dry_run=maybe", &json!({}))),
            "the query",
            "write one",
        ),
        (refused(client.capture("vm1")), "there was no capture", "-w FILE"),
    ];
    for (problem, error, remedy) in rows {
        assert!(problem.error.contains(error), "{problem}");
        assert!(problem.remedy.contains(remedy), "{problem}");
    }
    assert_eq!(client.ports().unwrap().len(), 2, "what was refused left nothing behind");
}

#[test]
fn a_queue_is_shown_with_its_load_and_moved() {
    let two = TWO.replace("tap1\"", "tap1\"\nqueues = 1\nvmmq = \"static\"");
    let daemon = Daemon::start(&format!("[switch]\nworkers = 2\n{two}"));
    let client = &daemon.client;
    let show = || client.port("vm1").unwrap().queues.remove(0);
    let before = show();
    assert_eq!((before.queue, before.entries, before.movable), (0, 128, true));
    assert_eq!(before.mac, client.port("vm1").unwrap().mac);
    let peer = daemon.devices.peer("tap1").unwrap();
    let own: wire::Mac = client.port("vm1").unwrap().mac.unwrap().parse().unwrap();
    let send = |frames: u64| {
        let end = show().frames + frames;
        while show().frames < end {
            (show().frames..end).for_each(|_| {
                peer.send(wire::vnet::VnetHeader::default(), &frame(own.0));
            });
            eventually("frames are taken", || (show().frames >= end).then_some(()));
        }
    };
    send(10);
    let worker = show().worker;
    // The time is counted at the end of a turn.
    let busy = eventually("time is counted", || Some(show().busy_ns).filter(|busy| *busy > 0));
    let moved = client.move_queue("vm1", 0, 1 - worker).unwrap();
    assert_eq!((moved.worker, moved.frames), (1 - worker, 10));
    assert!(
        client
            .queues()
            .unwrap()
            .iter()
            .any(|queue| (queue.worker, &*queue.port) == (1 - worker, "vm1"))
    );
    send(10);
    assert_eq!((show().worker, show().frames), (1 - worker, 20));
    let status = client.switch().unwrap();
    assert!(status.workers.iter().map(|worker| worker.busy_ns).sum::<u64>() >= busy);
    let rows = [
        (
            client.move_queue("vm1", 1, 0),
            "port vm1 has no queue 1",
            "1",
            "0: the port has one queue",
        ),
        (client.move_queue("vm1", 0, 2), "there is no worker 2", "2", "0 to 1"),
        (client.move_queue("vm2", 0, 0), "there is no port vm2", "vm2", "uplink0, vm1"),
    ];
    for (answer, error, seen, wanted) in rows {
        let problem = refused(answer);
        assert_eq!((&*problem.error, &*problem.seen, &*problem.wanted), (error, seen, wanted));
        assert!(!problem.remedy.is_empty());
    }
    let problem = refused(client.put::<Value>("/v1/ports/vm1/queues/0", &json!({"core": 1})));
    assert!(problem.error.contains("unknown key"), "{problem}");
    daemon.devices.set("tap1", Fate::Gone);
    eventually("vm1 is broken", || {
        (client.port("vm1").unwrap().state == StateBody::Broken).then_some(())
    });
    let problem = refused(client.move_queue("vm1", 0, 0));
    assert_eq!(problem.error, "port vm1 is not open");
    assert!(problem.seen.contains("device"), "{problem}");
}

#[test]
fn entries_of_a_ports_table_are_shown_and_set() {
    let text = "[[port]]\nname = \"vm1\"\nvhost-user = \"/run/vm1\"\nqueues = 4\n";
    let daemon =
        Daemon::start(&format!("{text}{TWO}").replacen("\"vm1\"\ntap", "\"tap1\"\ntap", 1));
    let client = &daemon.client;
    let show = |name| client.rss(Some(name)).unwrap().remove(0);
    let vm1 = show("vm1");
    assert_eq!((vm1.steer, vm1.queues, vm1.key), (SteerMode::Guest, 4, RssKey(None)));
    assert_eq!(show("tap1").steer, SteerMode::Rss, "its kernel steers by itself");
    assert_eq!(show("uplink0").steer, SteerMode::Rss);
    assert_eq!(vm1.key_in_force.clone().map(|key| key.len()), Some(80));
    let equally = |queues: u8| (0..128).map(|entry| entry % queues).collect::<Vec<u8>>();
    assert_eq!((&vm1.configured, &vm1.in_force), (&equally(4), &equally(4)));
    let entry = |entry, queue| RssEntry { entry, queue };
    let set = |entries: Vec<RssEntry>| {
        client.change_rss("vm1", &RssChange { entries: Some(entries), ..RssChange::default() })
    };
    let changed = set(vec![entry(0, 3), entry(127, 0)]).unwrap();
    assert_eq!((changed.in_force[0], changed.in_force[1], changed.in_force[127]), (3, 1, 0));
    let counts: Vec<_> = client.port("vm1").unwrap().queues.iter().map(|it| it.entries).collect();
    assert_eq!(counts, [32, 32, 32, 32]);
    let equal = |queues| {
        client.change_rss("vm1", &RssChange { equal: Some(queues), ..RssChange::default() })
    };
    assert_eq!(equal(3).unwrap().in_force, equally(3));
    let key = RssChange { key: Some("microsoft".parse().unwrap()), ..RssChange::default() };
    let microsoft = client.change_rss("vm1", &key).unwrap();
    assert!(microsoft.key_in_force.clone().unwrap().starts_with("6d5a56da"));
    assert_eq!(microsoft.in_force, equally(3), "the table stays");
    let random = RssChange { key: Some(RssKey(None)), ..RssChange::default() };
    assert_eq!(client.change_rss("vm1", &random).unwrap().key_in_force, vm1.key_in_force);
    let types = RssChange { types: Some("ipv4,ipv6".parse().unwrap()), ..RssChange::default() };
    assert_eq!(client.change_rss("vm1", &types).unwrap().types.to_string(), "ipv4,ipv6");
    let changed = client.change_port("vm1", &json!({"steer": "rss"})).unwrap();
    assert_eq!(changed.config.steer, Some(SteerMode::Rss));
    assert_eq!(show("vm1").in_force, equally(3), "not opened again");
}

#[test]
fn what_is_no_entry_queue_or_change_of_a_table_is_refused() {
    let text = "[[port]]\nname = \"vm1\"\nvhost-user = \"/run/vm1\"\nqueues = 4\n";
    let daemon =
        Daemon::start(&format!("{text}{TWO}").replacen("\"vm1\"\ntap", "\"tap1\"\ntap", 1));
    let client = &daemon.client;
    let show = |name| client.rss(Some(name)).unwrap().remove(0);
    let entry = |entry, queue| RssEntry { entry, queue };
    let set = |entries: Vec<RssEntry>| {
        client.change_rss("vm1", &RssChange { entries: Some(entries), ..RssChange::default() })
    };
    let equal = |queues| {
        client.change_rss("vm1", &RssChange { equal: Some(queues), ..RssChange::default() })
    };
    let equally = equal(3).unwrap().in_force;
    let both = RssChange { equal: Some(1), key: Some(RssKey(None)), ..RssChange::default() };
    let rows = [
        (
            set(vec![entry(0, 1), entry(128, 0)]),
            "an indirection table has no entry 128",
            "0 to 127",
        ),
        (set(vec![entry(0, 1), entry(1, 4)]), "port vm1 has no queue 4", "0 to 3"),
        (equal(0), "port vm1 cannot spread over 0 queues", "1 to 4"),
        (equal(5), "port vm1 cannot spread over 5 queues", "1 to 4"),
        (
            client.change_rss("vm1", &both),
            "the request does not make exactly one change",
            "`entries`",
        ),
        (client.change_rss("vm2", &both), "there is no port vm2", "uplink0"),
    ];
    for (answer, error, wanted) in rows {
        let problem = refused(answer);
        assert_eq!(problem.error, error);
        assert!(problem.wanted.contains(wanted) && !problem.seen.is_empty(), "{problem}");
        assert!(!problem.remedy.is_empty(), "{problem}");
    }
    assert_eq!(show("vm1").in_force, equally, "all or none");
    daemon.devices.set("/run/vm1", Fate::Gone);
    eventually("vm1 is broken", || {
        (client.port("vm1").unwrap().state == StateBody::Broken).then_some(())
    });
    assert_eq!(refused(equal(2)).error, "port vm1 is not open");
    assert!(show("vm1").in_force.is_empty() && show("vm1").key_in_force.is_none());
}

/// Host, switch and ports, as `Get-NetOffloadGlobalSetting`, `Get-VMSwitch` and
/// `Get-NetAdapterRsc` have them.
#[test]
fn rsc_of_the_switch_is_above_that_of_ports() {
    let daemon = Daemon::start(TWO);
    let client = &daemon.client;
    client.set_rsc(Some("vm1"), RscSetting::Ndis).unwrap();
    let body = client.set_switch_rsc(false).unwrap();
    assert_eq!((body.software_rsc_enabled, body.operational_ports), (false, 0));
    assert_eq!(body.receive_segment_coalescing, "Enabled");
    let vm1 = &client.rsc(Some("vm1")).unwrap()[0];
    assert_eq!((vm1.ipv4_enabled, vm1.ipv4_operational), (true, false), "its own setting stays");
    assert_eq!(vm1.ipv4_failure_reason, "NetOffloadGlobalDisabled");
    let uplink = &client.rsc(Some("uplink0")).unwrap()[0];
    assert_eq!(uplink.ipv4_failure_reason, "NicPropertyDisabled", "it is off by itself");
    let body = client.set_switch_rsc(true).unwrap();
    assert!(body.software_rsc_enabled && body.operational_ports > 0, "{body:?}");
}

#[test]
fn rsc_is_toggled_live_in_the_words_of_windows() {
    let daemon = Daemon::start(TWO);
    let client = &daemon.client;
    let vm1 = &client.rsc(Some("vm1")).unwrap()[0];
    assert_eq!((vm1.policy, vm1.ipv4_operational), (RscMode::Ndis, true));
    client.set_rsc(Some("vm1"), RscSetting::Off).unwrap();
    let vm1: Value = client.get("/v1/ports/vm1/rsc").unwrap();
    assert_eq!(vm1["IPv4Enabled"], json!(false));
    assert_eq!(vm1["IPv4FailureReason"], json!("NicPropertyDisabled"));
    assert_eq!(vm1["Statistics"]["CoalescedBytes"], json!(0));
    let modes = |wish| -> Vec<_> {
        client
            .set_rsc(None, wish)
            .unwrap()
            .into_iter()
            .map(|body| (body.name, body.policy))
            .collect()
    };
    let pair = |uplink, vm1| vec![("uplink0".to_owned(), uplink), ("vm1".to_owned(), vm1)];
    assert_eq!(modes(RscSetting::On), pair(RscMode::Off, RscMode::Ndis));
    client.set_rsc(Some("uplink0"), RscSetting::On).unwrap();
    assert_eq!(client.port("uplink0").unwrap().rsc, RscMode::Gro);
    assert_eq!(modes(RscSetting::Off), pair(RscMode::Off, RscMode::Off));
}

#[test]
fn a_dry_run_changes_nothing_and_a_change_disturbs_no_other_port() {
    let daemon = Daemon::start(TWO);
    let client = &daemon.client;
    let peer = daemon.devices.peer("tap1").unwrap();
    let own: wire::Mac = client.port("vm1").unwrap().mac.unwrap().parse().unwrap();
    assert!(peer.send(wire::vnet::VnetHeader::default(), &frame(own.0)));
    let counted = || client.counters("vm1").unwrap().ingress_frames;
    eventually("the frame is counted", || (counted() == 1).then_some(()));
    let text = format!("{TWO}queues = 1\nmtu = 9000\n[switch]\nworkers = 1\npoll = \"never\"\n");
    let wanted = Config::from_toml("t", &text).unwrap();
    let plan = client.put_config(&wanted, true).unwrap();
    assert!(!plan.applied && plan.steps.len() == 3, "{:?}", plan.steps);
    assert!(plan.steps.iter().all(|step| step.outcome == StepOutcome::Planned));
    assert_ne!(client.config().unwrap(), wanted);
    assert!(client.put_config(&wanted, false).unwrap().applied);
    assert_eq!(client.config().unwrap(), wanted);
    assert_eq!(client.port("uplink0").unwrap().mtu, Some(9000));
    assert_eq!(counted(), 1, "vm1 was not opened again");
    assert_eq!(client.switch().unwrap().restart_needed, ["poll"]);
    let findings = client.health().unwrap().findings;
    assert!(
        findings
            .iter()
            .any(|finding| finding.problem.error == "vm1 has MTU 1500, uplink0 has 9000")
    );
}

/// PUT and PATCH said "applied" and 200 although a device did not open.
#[test]
fn a_step_that_fails_is_told_with_the_reason() {
    let two = format!("[switch]\nworkers = 1\n{TWO}");
    let daemon = Daemon::start(&two);
    let client = &daemon.client;
    daemon.devices.set("gone", Fate::Gone);
    daemon.devices.set("lost", Fate::Gone);
    let wanted = Config::from_toml("t", &two.replace("eth1", "gone")).unwrap();
    let plan = client.put_config(&wanted, false).unwrap();
    assert!(!plan.applied);
    let outcomes: Vec<_> = plan.steps.iter().map(|step| (step.outcome, &*step.reason)).collect();
    let failed = (StepOutcome::Failed, "there is no such device");
    assert_eq!(outcomes, [(StepOutcome::Done, ""), failed]);
    let problem = refused(client.change_port("vm1", &json!({"tap": "lost"})));
    assert_eq!((&*problem.error, &*problem.seen), ("port vm1 cannot be changed", failed.1));
    assert_eq!(problem.wanted, "the port has its previous settings");
    let vm1 = client.port("vm1").unwrap();
    assert_eq!((vm1.state, vm1.device.as_str()), (StateBody::Up, "tap tap1"));
    // A port that was broken before may still be changed.
    client.change_port("uplink0", &json!({"promiscuous": true})).unwrap();
    assert_eq!(client.port("uplink0").unwrap().state, StateBody::Broken);
}

#[test]
fn a_change_of_what_was_changed_meanwhile_is_refused_with_both_tags() {
    let daemon = Daemon::start(TWO);
    let client = &daemon.client;
    let config = client.config().unwrap();
    let seen = client.put_config(&config, true).unwrap().etag;
    client.change_port("vm1", &json!({"mtu": 9000})).unwrap();
    let in_force = client.put_config(&config, true).unwrap().etag;
    let problem = refused(client.replace_config(&config, &seen));
    assert!(problem.seen.contains(&seen) && problem.wanted.contains(&in_force), "{problem}");
    assert_eq!(client.port("vm1").unwrap().mtu, Some(9000));
    assert!(client.replace_config(&config, &in_force).unwrap().applied);
}

#[test]
fn a_broken_port_is_shown_with_its_reason_and_comes_back() {
    let devices = MemoryDevices::default();
    devices.set("tap1", Fate::Gone);
    let daemon = Daemon::with(TWO, devices);
    let state = || {
        let port = daemon.client.port("vm1").unwrap();
        (port.state, port.reason)
    };
    let becomes = |wanted: StateBody, reason: &str| {
        eventually(reason, || (state() == (wanted, reason.to_owned())).then_some(()));
    };
    becomes(StateBody::Broken, "there is no such device");
    assert_eq!(daemon.client.port("uplink0").unwrap().state, StateBody::Up);
    assert!(!daemon.client.health().unwrap().healthy);
    daemon.devices.set("tap1", Fate::Up);
    becomes(StateBody::Up, "");
    daemon.devices.set("tap1", Fate::Down);
    becomes(StateBody::Down, "its device is administratively down");
    daemon.devices.set("tap1", Fate::Up);
    becomes(StateBody::Up, "");
    let events = daemon.client.switch().unwrap().events;
    assert!(events.iter().any(|event| event.text.contains("vm1 is down")), "{events:?}");
}

#[test]
fn a_daemon_that_may_open_nothing_says_so_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("switch.toml"), "[[port]]\nname='a'\ntap='t'").unwrap();
    let devices = MemoryDevices::default();
    devices.set("t", Fate::Denied);
    let (_stop, stopped) = oneshot::channel();
    let problem =
        test_daemon::serve(&test_daemon::options(directory.path()), devices, stopped).unwrap_err();
    assert!(problem.error.contains("lacks a privilege"), "{problem}");
    assert!(problem.wanted.contains("CAP_NET_ADMIN") && problem.remedy.contains("setcap"));
}

#[test]
fn one_daemon_a_socket_and_nothing_is_left_behind() {
    let mut daemon = Daemon::start("");
    let (_stop, stopped) = oneshot::channel();
    let options = test_daemon::options(daemon.socket().parent().unwrap());
    let problem = test_daemon::serve(&options, MemoryDevices::default(), stopped).unwrap_err();
    assert!(problem.error.contains("already listens"), "{problem}");
    assert_eq!(daemon.client.ports().unwrap().len(), 0, "the first one still answers");
    daemon.stop().unwrap();
    assert!(!daemon.socket().exists());
    assert!(matches!(Client::connect(&daemon.socket()), Err(ClientError::Unreachable(_))));
}

/// Sends a request to an address and returns the status and all of the answer.
fn over_tcp(address: std::net::SocketAddr, request: &str) -> (String, String) {
    let mut stream = eventually("it listens", || std::net::TcpStream::connect(address).ok());
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), answer)
}

/// A web page reached the API under its own domain name.
#[test]
fn over_tcp_there_are_metrics_and_health_and_nothing_else() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let daemon = Daemon::start(&format!("[metrics]\nlisten = \"{free}\"\n{TWO}"));
    let ask = |method: &str, path: &str, host: &str| {
        let close = "Connection: close\r\n\r\n";
        over_tcp(free, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{close}"))
    };
    let own = free.to_string();
    assert!(ask("GET", "/metrics", &own).1.contains("millrace_port_up{port=\"vm1\"} 1"));
    let open = format!("{own}\r\nAccept: application/openmetrics-text;q=0.5,text/plain;q=0.3");
    for (host, kind) in
        [(&own, "text/plain; version=0.0.4"), (&open, "application/openmetrics-text")]
    {
        let answer = ask("GET", "/metrics", host).1.to_lowercase();
        assert!(answer.contains(&format!("content-type: {kind}")), "{answer}");
        assert!(answer.contains("vary: accept"), "{answer}");
        assert_eq!(answer.contains("# eof\n"), kind.starts_with("application"), "{answer}");
    }
    assert_eq!(ask("GET", "/healthz", &own).0, "200");
    assert_eq!(ask("GET", "/readyz", &own).0, "200");
    for path in ["/v1/ports", "/v1/switch", "/v1/openapi.json", "/"] {
        assert_eq!(ask("GET", path, &own).0, "404", "{path}");
    }
    for (method, path) in [("POST", "/v1/ports"), ("DELETE", "/metrics"), ("PUT", "/v1/config")] {
        assert_eq!(ask(method, path, &own).0, "405", "{path}");
    }
    assert_eq!(ask("GET", "/metrics", "evil.example").0, "403");
    daemon.devices.set("tap1", Fate::Gone);
    let (_, answer) = eventually("vm1 is not ready", || {
        Some(ask("GET", "/readyz", &own)).filter(|(status, _)| status == "503")
    });
    assert!(answer.ends_with("port vm1 is not open\n"), "{answer}");
    assert_eq!(ask("GET", "/healthz", &own).0, "200", "a restart would help nobody");
}

/// Every request waited for the worker forever.
#[test]
fn a_worker_that_hangs_is_told_and_holds_no_request_up() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let switch = format!("[switch]\nworkers = 2\n[metrics]\nlisten = \"{free}\"\n");
    let daemon = Daemon::start(&format!("{switch}{TWO}"));
    let client = &daemon.client;
    let peer = daemon.devices.peer("tap1").unwrap();
    let hang = peer.hang();
    let told = "worker 0 does not answer; its last turn was of port vm1";
    let findings =
        || client.health().unwrap().findings.into_iter().map(|found| found.problem.error);
    eventually("it is found", || findings().find(|found| found == told));
    let status = client.switch().unwrap();
    let answers: Vec<_> = status.workers.iter().map(|worker| worker.answers).collect();
    assert_eq!((answers, status.ports_up), (vec![false, true], 2));
    let event = "worker 0 does not answer: its ports carry no frames, and nothing can be changed; it last served vm1";
    assert!(status.events.iter().any(|known| known.text == event), "{:?}", status.events);
    let metrics = client.text("/metrics").unwrap();
    for line in ["worker_answers{worker=\"0\"} 0", "worker_answers{worker=\"1\"} 1"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let health =
        || over_tcp(free, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(health().0, "503");
    let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(over_tcp(free, request).0, "503");
    assert_eq!(client.health().unwrap().findings[0].severity, Severity::Error);
    let change = || client.change_port("uplink0", &json!({"mtu": 9000}));
    let problem = refused(change());
    assert_eq!(problem.error, told);
    assert!(problem.remedy.contains("restart the daemon"), "{problem}");
    assert_eq!(refused(client.remove_port("vm1")).error, told);
    assert_eq!(refused(client.reload_config(false)).error, told);
    let start = json!({"port": "vm1"});
    assert_eq!(refused(client.post::<Value>("/v1/captures", &start)).error, told);
    let request = "DELETE /v1/ports/vm1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let answer = raw(&daemon, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(client.ports().unwrap().len(), 2, "what was refused left nothing behind");
    drop(hang);
    eventually("it answers again", || change().ok());
    assert_eq!((findings().find(|found| found == told), health().0.as_str()), (None, "200"));
}

/// The switch did not start while the address was taken.
#[test]
fn an_address_for_metrics_that_is_taken_does_not_keep_the_switch_from_its_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let daemon = Daemon::start(&format!("[metrics]\nlisten = \"{address}\"\n{TWO}"));
    assert_eq!(daemon.client.switch().unwrap().ports_up, 2);
    let found = eventually("it is found", || {
        let findings = daemon.client.health().unwrap().findings;
        findings
            .into_iter()
            .map(|found| found.problem)
            .find(|problem| problem.error.contains("metrics cannot be served"))
    });
    assert!(found.error.contains(&address.to_string()), "{found}");
    drop(taken);
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(over_tcp(address, request).0, "200");
    let findings = daemon.client.health().unwrap().findings;
    assert!(!findings.iter().any(|found| found.problem.error.contains("metrics")), "{findings:?}");
}

/// Sends a request to the API and returns all of the answer.
fn raw(daemon: &Daemon, request: &[u8]) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    // The daemon answers a request that is too long and closes the connection before all of it is
    // sent.
    let _ = std::io::Write::write_all(&mut stream, request);
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_refusal_has_the_form_of_rfc_9457_whatever_it_is_for() {
    let daemon = Daemon::start(TWO);
    let big = "x".repeat(3 << 20);
    for (request, body, status, title) in [
        ("GET /v1/ports/vm9", "", 404, "Not Found"),
        ("DELETE /v1/switch", "", 405, "Method Not Allowed"),
        ("POST /v1/ports", "{", 400, "Bad Request"),
        ("POST /v1/ports", "{}", 422, "Unprocessable Entity"),
        ("POST /v1/ports", &*big, 413, "Payload Too Large"),
    ] {
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = raw(&daemon, &[head.as_bytes(), body.as_bytes()].concat());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["status"], &body["title"]), (&json!(status), &json!(title)));
        assert!(body["type"] == "about:blank" && body["detail"].is_string(), "{body}");
        assert!(body["error"].is_string() && body["remedy"] != "", "{body}");
    }
}

#[test]
fn a_connection_that_says_nothing_ends_and_others_go_on() {
    let daemon = Daemon::start(TWO);
    let connect = || std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    // More connections than an admin may have.
    let idle: Vec<_> = (0..300).map(|_| connect()).collect();
    let mut last = connect();
    let ended = std::io::Read::read(&mut last, &mut [0; 1]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    drop(idle);
    eventually("the daemon answers again", || daemon.client.switch().ok());
}

#[test]
fn sighup_reads_the_file_again_and_a_bad_file_changes_nothing() {
    let daemon = Daemon::start(TWO);
    let hang_up = || {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::HUP).unwrap();
    };
    std::fs::write(daemon.path("switch.toml"), TWO.replace("tap1\"", "tap1\"\nmtu = 9000"))
        .unwrap();
    hang_up();
    let mtu = || daemon.client.port("vm1").unwrap().mtu;
    eventually("the new MTU", || (mtu() == Some(9000)).then_some(()));
    std::fs::write(daemon.path("switch.toml"), TWO.replace("tap1\"", "tap1\"\nmtu = 9")).unwrap();
    hang_up();
    let events = || daemon.client.switch().unwrap().events;
    let refusal =
        |event: &&api::body::EventBody| event.text.contains("running configuration stays");
    eventually("the refusal", || events().iter().find(refusal).cloned());
    assert_eq!(mtu(), Some(9000));
}

#[test]
fn a_capture_is_sent_to_its_client() {
    let daemon = Daemon::start(TWO);
    let start = CaptureStart { port: "vm1".into(), snaplen: None, count: Some(1), seconds: None };
    let peer = daemon.devices.peer("tap1").unwrap();
    let sender = std::thread::spawn(move || {
        // Sends until the capture has its frame; a full queue also ends the loop.
        while peer.send(wire::vnet::VnetHeader::default(), &frame([2, 0, 0, 0, 0, 9])) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let file = tempfile::tempfile().unwrap();
    let body = daemon.client.run_capture(&start, || Ok(file.try_clone().unwrap())).unwrap();
    assert_eq!((body.state, body.reason.as_str()), (CaptureState::Done, ""));
    assert!(body.frames >= 1);
    let mut bytes = Vec::new();
    let mut file = file;
    std::io::Seek::rewind(&mut file).unwrap();
    std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng section");
    assert!(bytes.len() as u64 >= body.bytes, "{} of {} bytes", bytes.len(), body.bytes);
    daemon.client.remove_port("vm1").unwrap();
    sender.join().unwrap();
}

/// A client that does not read loses frames, which are counted. The port and the API go on, and
/// stopping the capture does not wait for the client.
#[test]
fn a_slow_client_loses_frames_and_nobody_else_does() {
    let daemon = Daemon::start(TWO);
    let mut slow = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    let body = r#"{"port": "vm1"}"#;
    let head = format!(
        "POST /v1/captures HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    let capture = || daemon.client.capture("vm1");
    eventually("the capture runs", || capture().ok());
    let peer = daemon.devices.peer("tap1").unwrap();
    let mut large = frame([2, 0, 0, 0, 0, 9]);
    large.resize(1500, 0);
    eventually("frames are missed", || {
        (0..2000).for_each(|_| {
            peer.send(wire::vnet::VnetHeader::default(), &large);
        });
        (capture().unwrap().missed > 0).then_some(())
    });
    assert_eq!(daemon.client.stop_capture("vm1").unwrap().state, CaptureState::Done);
    assert_eq!(daemon.client.port("vm1").unwrap().state, StateBody::Up);
    drop(slow);
}

#[test]
fn metrics_are_in_the_text_format() {
    let daemon = Daemon::start(TWO);
    let text = daemon.client.text("/metrics").unwrap();
    for line in [
        "# TYPE millrace_build_info gauge",
        "# TYPE millrace_port_ingress_frames_total counter",
        "millrace_port_ingress_frames_total{port=\"vm1\"} 0",
        "millrace_port_up{port=\"uplink0\"} 1",
        "millrace_port_drops_total{port=\"vm1\",reason=\"too_big\"} 0",
        "millrace_rsc_exceptions_total{port=\"vm1\",reason=\"fragment\"} 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(!text.contains("EOF"));
}

#[test]
fn the_document_is_that_of_the_handlers() {
    let daemon = Daemon::start("");
    let served: Value = daemon.client.get("/v1/openapi.json").unwrap();
    assert_eq!(served, serde_json::to_value(daemon::handlers::document()).unwrap());
    insta::assert_json_snapshot!("openapi", served);
}
