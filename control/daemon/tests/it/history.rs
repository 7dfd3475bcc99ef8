//! Tests the history: what the API tells of it, and that it survives a restart.

use crate::test_daemon::{Daemon, eventually};
use api::body::{HistoryBody, HistoryResolution};
use api::client::ClientError;
use serde_json::{Value, json};
use wire::vnet::VnetHeader;

const TWO: &str = "[[port]]\nname = 'a'\nvhost-user = '/run/a'\n[[port]]\nname = 'b'\ntap = 'b'\n";

/// Returns how many frames a history has from a port, and how many values.
fn sum(body: &HistoryBody) -> (u64, usize) {
    (body.ingress_frames.iter().flatten().sum(), body.ingress_frames.len())
}

/// Sends frames from the guest and waits until the history has them.
fn send(daemon: &Daemon, before: u64) {
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
    frame.resize(64, 0);
    let peer = daemon.devices.peer("/run/a").unwrap();
    for _ in 0..7 {
        assert!(peer.send(VnetHeader::default(), &frame));
    }
    eventually("the frames are in the history", || {
        let body = daemon.client.history(Some("a"), "range_s=60").unwrap();
        (sum(&body).0 == before + 7).then_some(())
    });
}

#[test]
fn a_port_and_the_switch_have_the_same_frames_and_keep_them_over_a_restart() {
    let daemon = Daemon::start(TWO);
    send(&daemon, 0);
    let switch = daemon.client.history(None, "range_s=60&resolution=second").unwrap();
    assert_eq!((sum(&switch), switch.resolution_s, switch.port), ((7, 60), 1, None));
    assert_eq!((switch.busy_us.len(), switch.findings.len()), (60, 60));
    let daemon = daemon.again();
    send(&daemon, 7);
    let switch = daemon.client.history(None, "").unwrap();
    assert_eq!(sum(&switch), (14, 600));
    let other = daemon.client.history(Some("b"), "").unwrap();
    assert_eq!((sum(&other).0, other.port.as_deref()), (0, Some("b")));
    let day = daemon.client.history(Some("a"), "range_s=86400").unwrap();
    assert_eq!((day.resolution_s, day.ingress_bytes.len()), (60, 1440));
}

#[test]
fn a_history_that_cannot_be_read_is_set_aside_and_told() {
    let daemon = Daemon::start(TWO);
    send(&daemon, 0);
    let mut daemon = daemon.again();
    daemon.stop().unwrap();
    let file = daemon.path("api.sock.state/history");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let daemon = daemon.again();
    let events = daemon.client.switch().unwrap().events;
    let told = |event: &api::body::EventBody| event.text.contains("history was set aside as");
    assert!(events.iter().any(told), "{events:?}");
    assert_eq!(
        std::fs::read(daemon.path("api.sock.state/history.broken-1")).unwrap().len(),
        bytes.len() - 1
    );
    let findings = daemon.client.health().unwrap().findings;
    assert!(findings.iter().all(|finding| finding.kind != "state_set_aside"), "no port is lost");
}

#[test]
fn what_is_not_kept_is_refused() {
    let daemon = Daemon::start(TWO);
    for (port, query, seen) in [
        (None, "range_s=0", "0"),
        (None, "range_s=86401", "86401"),
        (Some("a"), "range_s=601&resolution=second", "601"),
        (Some("c"), "", "c"),
    ] {
        let Err(ClientError::Refused(problem)) = daemon.client.history(port, query) else {
            panic!("{query} was answered");
        };
        assert_eq!(problem.seen, seen, "{problem}");
    }
    let body: Value = daemon.client.get("/v1/history?resolution=minute").unwrap();
    assert_eq!(body["resolution_s"], json!(HistoryResolution::Minute.seconds()));
}
