//! The page of the fleet in a browser: a person finds a port that moves, a host that goes away and
//! a finding.

use super::hosts::{FOLDER, GUESTS, NEEDS, Place, all_have, begin, fleet, places, revisions};
use super::moving::write_moving_port;
use super::write_model;
use crate::browser::{AXE, Browser};
use crate::etcd::Etcd;
use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::switch::millrace;
use std::net::TcpStream;
use std::process::Child;
use waiting::{eventually, until};

const AT: &str = "127.0.0.1:9480";
const PAGE: &str = "http://127.0.0.1:9480/";

/// The page's server.
struct Server(Child);

impl Server {
    fn start() -> Server {
        let server = Server(millrace().args(["fleet", "page", "--listen", AT]).spawn().unwrap());
        until("the page is served", || TcpStream::connect(AT).ok());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text_has(selector: &str, words: &str) -> String {
    format!("document.querySelector('{selector}')?.textContent.includes('{words}')")
}

/// Returns the script that tells whether the row of a host contains these words.
fn row_says(host: &str, words: &str) -> String {
    format!(
        "[...document.querySelectorAll('#rows [role=row]')].some((row) => \
         row.children[0].textContent === '{host}' && row.textContent.includes('{words}'))"
    )
}

#[test]
fn web_page_of_the_fleet_shows_a_move_a_host_that_goes_away_and_a_finding() {
    let more = [Need::Program("chromium"), Need::Brought(AXE, "axe-core")];
    story(&[&NEEDS[..], &more].concat(), || {
        let etcd = Etcd::start();
        let guests = GUESTS.map(Host::new);
        Host::new("gm");
        let mut places = places();
        begin(&guests);
        let _server = Server::start();
        let mut browser = Browser::open();
        browser.look(1600, 1000, false);
        browser.visit(PAGE);
        browser.wait("all hosts are there", &text_has("#summary", "revision 1, 3 hosts"));
        browser.wait("each is well", &row_says("c", "well"));
        what_people_write_is_text(&mut browser);
        a_port_moves(&mut browser, &mut places);
        a_host_goes_away(&mut browser);
        a_finding_stops_a_roll_out(&mut browser);
        no_size_and_no_light_has_barriers(&mut browser);
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{complaints:?}");
        etcd.kill();
        browser.wait("the page is out of date", &text_has("#trouble:not([hidden])", "out of date"));
        browser.picture("fleet-out-of-date");
    });
}

fn what_people_write_is_text(browser: &mut Browser) {
    write_moving_port();
    let (text, code) = fleet(&format!("apply -f {FOLDER} -m <img/src=x/onerror=alert(1)>"));
    assert_eq!(code, 0, "{text}");
    all_have(2);
    browser.wait("the message is told as it is", &text_has("#event-list", "<img/src=x/onerror"));
    assert_eq!(browser.value("document.images.length"), 0);
}

/// Moves a port to another host. The agent of the port's host ends, so that it keeps the claim.
fn a_port_moves(browser: &mut Browser, places: &mut [Place; 3]) {
    let (text, code) = fleet("move vm-m b");
    assert_eq!(code, 0, "{text}");
    browser.wait("no port moves", &text_has("#move-list", "No port moves"));
    places[1].end_agent();
    let (text, code) = fleet("move vm-m a --wait 1");
    assert_eq!(code, 1, "{text}");
    browser.wait("it moves", &text_has("#move-list", "vm-m b → a, waiting for claim"));
}

fn a_host_goes_away(browser: &mut Browser) {
    let is_away = || revisions()[1].is_none().then_some(());
    let _ = eventually(is_away);
    until("host b is away", is_away);
    browser.wait("it is in the list", &row_says("b", "away"));
    browser.wait("it is counted", &text_has("#summary", "1 away"));
    browser.wait("it is announced", &text_has("#news", "host b is away"));
}

/// Finds a finding by the keyboard: the first row is that of host a.
fn a_finding_stops_a_roll_out(browser: &mut Browser) {
    write_model(9000, "");
    let (text, code) = fleet(&format!("apply -f {FOLDER} -m jumbo"));
    assert!(code == 1 && text.contains("mtu_mismatch"), "{text}");
    browser.wait("the roll-out has stopped", &text_has("#roll-out", "Revision 3 has stopped"));
    browser.wait("the reason is told", &text_has("#roll-out-reason", "mtu_mismatch"));
    browser.wait("the finding is told", &text_has("#finding-list", "warning host a: "));
    browser.value("document.getElementById('grid').focus()");
    browser.press("Home");
    browser.press("Enter");
    browser.wait("the host is chosen", &text_has("#host-title", "a"));
    browser.wait("it has the finding", &text_has("#host-body .told", "warning"));
    browser.value(
        "document.getElementById('only').value = 'not', \
         document.getElementById('only').dispatchEvent(new Event('input'))",
    );
    browser.wait("what is not well is found", &text_has("#shown", "1 of 3 hosts"));
    browser.value(
        "document.getElementById('only').value = '', \
         document.getElementById('only').dispatchEvent(new Event('input'))",
    );
}

fn no_size_and_no_light_has_barriers(browser: &mut Browser) {
    for (width, height) in [(360, 740), (1600, 1000)] {
        for dark in [false, true] {
            browser.look(width, height, dark);
            browser.wait(
                "nothing sticks out",
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth",
            );
            let name = format!("fleet-{width}-{}", if dark { "dark" } else { "light" });
            browser.picture(&name);
            let found = browser.barriers();
            assert!(found.is_empty(), "{name}: {found:#?}");
        }
    }
    browser.value("document.querySelector('main').append(document.createElement('img'))");
    let found = browser.barriers();
    assert!(found.iter().any(|barrier| barrier.contains("image-alt")), "{found:?}");
}

/// Answers as the server of a fleet of a thousand hosts would. Each host has something to report.
const THOUSAND: &str = r#"
    const host = (n) => ({name: `host${n}`, labels: {rack: `r${n % 40}`}, wanted: 7, lag_s: n % 50 ? null : n,
        status: n % 97 === 5 ? null : {revision: n % 50 ? 7 : 6, version: "1.0.0", agent: "1.0.0", at: 90, prepared: [],
            findings: [{severity: n % 9 ? "info" : "warning", error: `<b>${n}</b>`, seen: "", wanted: "", remedy: ""}]}});
    globalThis.fetch = async () => new Response(JSON.stringify({
        history: [], status: {at: 100, desired: null, driver: null, moves: [],
            hosts: Array.from({length: 1000}, (_, n) => host(n))}}));
"#;

#[test]
fn web_page_of_a_thousand_hosts_is_a_few_rows() {
    story(&[Need::Program("chromium")], || {
        crate::sandbox::run("ip link set lo up");
        let _server = Server::start();
        let mut browser = Browser::open();
        browser.look(1600, 1000, false);
        browser.prepare(THOUSAND);
        browser.visit(PAGE);
        browser.wait("all hosts are counted", &text_has("#shown", "1,000 hosts"));
        let rows = "document.querySelectorAll('#rows [role=row]').length";
        let drawn = browser.value(rows).as_u64().unwrap();
        assert!((10..60).contains(&drawn), "{drawn} rows");
        browser.value("document.getElementById('grid').focus()");
        browser.press("End");
        browser.wait("the last host is drawn", &row_says("host999", "well"));
        assert!(browser.value(rows).as_u64().unwrap() < 60);
        browser.wait("findings are limited", &text_has("#more-findings", "And 789 findings more"));
        browser.wait("what hosts write is text", &text_has("#finding-list", "<b>"));
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    });
}
