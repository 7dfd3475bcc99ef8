//! What is served is what the documents say, and nothing can be changed.

#[path = "../../../../../control/daemon/tests/it/exported.rs"]
mod exported;

use super::*;
use exported::{Exported, asked, read, rows};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Returns a board at a free address. Its server ends with the test's process.
fn serve() -> (Board, SocketAddr) {
    let listener = site::bind("127.0.0.1:0".parse().unwrap(), WORDS).unwrap();
    let (board, address) = (Board::new(), listener.local_addr().unwrap());
    let routes = router(board.clone());
    std::thread::spawn(move || site::serve(listener, routes));
    (board, address)
}

/// Status and body of the answer.
fn ask(address: SocketAddr, request: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn figures(board: &Board) -> Figures {
    Figures {
        at: Instant::now(),
        etcd: Some(true),
        answered_at: Some(Instant::now()),
        switch: true,
        certificates_end: vec![("host", 1_800_000_000)],
        desired: 7,
        applied: 7,
        counts: Counts { applied: 3, failed: 2, ..Counts::default() },
        findings: [1, 0, 2],
        ..board.read()
    }
}

#[test]
fn each_metric_is_documented_and_the_alert_rules_ask_for_nothing_else() {
    let (board, address) = serve();
    board.show(figures(&board));
    let (status, page) = ask(address, "GET /metrics", "localhost");
    assert_eq!(status, 200);
    let has = |line: &str| assert!(page.lines().any(|other| other == line), "{line}\n{page}");
    has("millrace_fleet_revision_applied 7");
    has("millrace_fleet_etcd_reachable 1");
    has("millrace_fleet_certificate_not_after_seconds{of=\"host\"} 1800000000");
    has("millrace_fleet_applies_total{result=\"failed\"} 2");
    has("millrace_fleet_findings{severity=\"info\"} 2");
    let exported = Exported::of(&page);
    let document = read("docs/metrics.md");
    let told = rows(document.split("## The agent of a fleet").nth(1).unwrap());
    let of_agent = |(name, _): &(&String, &[String; 3])| name.starts_with("millrace_fleet_");
    let families = exported.families.iter().filter(of_agent);
    assert!(told.iter().eq(families), "{told:#?}\n{:#?}", exported.families);
    let alerts = read("packaging/millrace-alerts.yml");
    let rules = alerts.split("- name: millrace-fleet").nth(1).unwrap();
    let rules: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(rules.len() > 2);
    for rule in rules {
        let names = asked(rule);
        assert!(!names.is_empty(), "{rule}");
        assert!(names.iter().all(|name| exported.series.contains(name)), "{rule}");
    }
}

#[test]
fn it_is_read_only_and_answers_only_requests_for_this_host() {
    let (_, address) = serve();
    assert_eq!(ask(address, "GET /metrics", "evil.example").0, 403);
    for request in ["POST /metrics", "PUT /healthz", "DELETE /"] {
        assert_eq!(ask(address, request, "localhost").0, 405, "{request}");
    }
    for path in ["/", "/v1/config", "/metrics/"] {
        assert_eq!(ask(address, &format!("GET {path}"), "localhost").0, 404, "{path}");
    }
}

#[test]
fn it_is_ready_once_the_wanted_revision_is_in_force() {
    let (board, address) = serve();
    let ready = || ask(address, "GET /readyz", "localhost");
    assert_eq!(ready(), (503, "the agent has just started\n".to_owned()));
    let good = figures(&board);
    board.show(good.clone());
    assert_eq!(ready(), (200, "ready\n".to_owned()));
    for (bad, told) in [
        (Figures { etcd: Some(false), ..good.clone() }, "etcd does not answer\n"),
        (Figures { switch: false, ..good.clone() }, "the switch does not answer\n"),
        (Figures { desired: 8, ..good.clone() }, "revision 8 is not in force; revision 7 is\n"),
    ] {
        board.show(bad);
        assert_eq!(ready(), (503, told.to_owned()));
    }
    assert_eq!(ask(address, "GET /healthz", "localhost"), (200, "ok\n".to_owned()));
    let long_ago = Instant::now().checked_sub(LONGEST_ROUND);
    board.show(Figures { at: long_ago.unwrap(), ..good });
    assert_eq!(ask(address, "GET /healthz", "localhost").0, 503);
}
