//! The page: what a person sees who keeps it open in a browser, and the files that it consists of,
//! over plain HTTP.

mod actions;
mod keys;
mod places;
mod pretended;

use crate::browser::{self, Browser};
use crate::sandbox::{Need, run, story};
use crate::topology::Topology;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use waiting::until;

const AT: &str = "127.0.0.1:9478";
const WEB: &str = "[web]\nlisten = '127.0.0.1:9478'\n";

/// Returns the body of an answer that must be 200.
fn get(path: &str) -> String {
    let mut stream = until("the page is served", || TcpStream::connect(AT).ok());
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {AT}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    body.to_owned()
}

/// Returns a port of the state that the page is shown from.
fn port(name: &str) -> Value {
    let state: Value = serde_json::from_str(&get("/state")).unwrap();
    state["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).unwrap().clone()
}

#[test]
fn the_page_tells_rates_and_a_port_that_goes_down() {
    story(&[Need::Tap, Need::Program("ping"), Need::Program("ethtool")], || {
        let topology = Topology::new(WEB);
        assert!(get("/").contains("<script src=\"main.js\" type=\"module\">"));
        assert_eq!(port("guest")["state"], "up");
        until("a rate is told", || {
            topology.guest.run("ping -c 3 -i 0.01 10.9.0.1");
            port("guest")["rates"]["ingress_bits_per_s"].as_u64().filter(|rate| *rate > 0)
        });
        run("ip link set uplink down");
        let down =
            until("it is down", || Some(port("uplink")).filter(|port| port["state"] == "down"));
        assert!(!down["reason"].as_str().unwrap().is_empty(), "{down}");
    });
}

/// Address of the page, for a browser.
const PAGE: &str = "http://127.0.0.1:9478/";
const TOKEN: &str = "a-token-of-a-story-0";
const TOKEN_FILE: &str = "/run/web-token";

/// Returns the script that tells whether the row of a port contains these words.
fn row_says(port: &str, words: &str) -> String {
    format!(
        "[...document.querySelectorAll('#rows [role=row]')].some((row) => \
         row.children[0].textContent === '{port}' && row.textContent.includes('{words}'))"
    )
}

fn text_has(selector: &str, words: &str) -> String {
    format!("document.querySelector('{selector}')?.textContent.includes('{words}')")
}

#[test]
fn in_a_browser_a_person_finds_what_is_wrong_and_toggles_rsc() {
    let needs =
        [Need::Tap, Need::Program("chromium"), Need::Program("ping"), Need::Program("ethtool")];
    story(&needs, || {
        std::fs::write(TOKEN_FILE, TOKEN).unwrap();
        std::fs::set_permissions(TOKEN_FILE, PermissionsExt::from_mode(0o600)).unwrap();
        let topology = Topology::new(&format!("{WEB}token-file = '{TOKEN_FILE}'\n"));
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.visit(PAGE);
        browser.wait("both ports are up", &text_has("#summary", "2 of 2 ports up"));
        browser.wait(
            "a port is chosen",
            "['guest', 'uplink'].includes(document.getElementById('port-title').textContent)",
        );
        find_a_port_that_goes_down(&mut browser);
        find_a_drop_by_its_reason(&mut browser, &topology);
        trace_frames(&mut browser);
        toggle_rsc(&mut browser, &topology);
        assert!(
            browser.complaints().iter().all(|complaint| is_expected(complaint)),
            "{:?}",
            browser.complaints()
        );
    });
}

/// Returns whether a complaint is about the wrong token, the wrong frame or the late undo of the
/// story itself.
fn is_expected(complaint: &str) -> bool {
    ["401", "412", "422"].iter().any(|status| complaint.contains(status))
}

fn find_a_port_that_goes_down(browser: &mut Browser) {
    run("ip link set uplink down");
    browser.wait("it is down in the list", &row_says("uplink", "down"));
    browser.wait("it is told", &text_has("#news", "port uplink is down"));
    browser.wait("it is counted", &text_has("#summary", "1 of 2 ports up"));
    run("ip link set uplink up");
    browser.wait("it is up again", &text_has("#summary", "2 of 2 ports up"));
}

/// Finds the reason of a drop by the keyboard: the first row is the guest's.
fn find_a_drop_by_its_reason(browser: &mut Browser, topology: &Topology) {
    browser.value("document.getElementById('grid').focus()");
    browser.press("Home");
    browser.press("Enter");
    browser.wait("the port is chosen", &text_has("#port-title", "guest"));
    browser.wait("it has no drops", &text_has("#port-body", "No frame of this port was dropped"));
    topology.guest.run("ip link set tap0 address 02:00:00:00:00:99");
    // The ping gets no answer, because it is sent from a forged address.
    let mut ping = topology
        .guest
        .command("ping")
        .args(["-c", "200", "-i", "0.05", "10.9.0.1"])
        .spawn()
        .unwrap();
    browser.wait("the header says so", &text_has("#summary", "1 port drops frames"));
    browser.wait("so does a tile", &text_has("#tiles .drops", "guest"));
    browser.wait(
        "and the drawing",
        "document.querySelector('#topology-body .port.drops')?.dataset.port === 'guest'",
    );
    browser.wait("the reason has a line of its own", &text_has("#charts", "mac spoofed"));
    browser.wait("it is in the port's table", &text_has("#port-body", "mac spoofed"));
    browser.wait("it is found by the filter", "document.getElementById('only').value = 'drops', \
        document.getElementById('only').dispatchEvent(new Event('input')), document.getElementById('shown').textContent === '1 of 2 ports'");
    browser.value("document.getElementById('only').value = '', document.getElementById('only').dispatchEvent(new Event('input'))");
    let _ = ping.kill();
    ping.wait().unwrap();
}

/// Types a frame and sends it, by the keyboard.
fn trace(browser: &mut Browser, frame: &str) {
    browser.value("document.getElementById('trace-frame').select()");
    browser.write(frame);
    browser.press("Enter");
}

/// Traces frames. They enter by the port that was chosen before.
fn trace_frames(browser: &mut Browser) {
    let verdicts = [
        ("tcp 10.9.0.2:1 > 10.9.0.1:80 vlan 5000", "`5000` is not a number from 0 to 4095"),
        (
            "tcp 10.9.0.2:1 > 10.9.0.1:80",
            "From guest: destination unknown, may leave through uplink.",
        ),
        (
            "tcp 10.9.0.2:1 > 10.9.0.1:80 eth 02:00:00:00:00:99 > 02:00:00:00:00:98",
            "From guest: dropped at guest, mac spoofed",
        ),
    ];
    for (frame, verdict) in verdicts {
        trace(browser, frame);
        browser.wait("the verdict is told", &text_has("#trace-verdict", verdict));
    }
    browser.wait("it is told why", &text_has("#trace-steps", "guest: spoofing the port may send"));
    let last = "document.querySelector('#trace-steps li:last-child.bad')?.textContent";
    let last = browser.value(last);
    assert!(last.as_str().is_some_and(|last| last.contains("dropped: mac_spoofed")), "{last}");
}

/// The token of the file turns RSC off and on, and does nothing else.
fn toggle_rsc(browser: &mut Browser, topology: &Topology) {
    browser.wait("it is on", &text_has("#port-body", "on, by NDIS rules"));
    for (token, answer) in
        [("a-wrong-token-0000", "missing or wrong"), (TOKEN, "RSC toward guest was turned off")]
    {
        actions::give_key(browser, token);
        actions::act(browser, "rsc", &[("policy", "off")]);
        browser.wait("it is answered", &actions::form_has("rsc", answer));
    }
    assert_eq!(topology.switch.ask("rsc show guest")[0]["Policy"], "off");
    actions::act(browser, "rate", &[("rate", "1Gbit")]);
    browser.wait("the token is no key", &actions::form_has("rate", "run `millrace page`"));
    browser.wait("the page says so", &text_has("#port-body", "port is off"));
    browser.wait(
        "there is a command line for the undo",
        &text_has("#change-list", "millrace port set guest rsc=ndis"),
    );
    browser.wait(
        "the strip has both sides",
        &text_has("#port-body", "Before and after. RSC toward guest was turned off"),
    );
    browser.wait("some time has passed", &text_has("#port-body", "2 s after"));
    topology.switch.tell("port set guest rsc=gro");
    browser.wait("somebody else turned it on", &text_has("#port-body", "on, by GRO rules"));
    actions::undo(browser, "were changed since they were read");
    assert_eq!(topology.switch.ask("rsc show guest")[0]["Policy"], "gro");
    topology.switch.tell("rsc off guest");
    browser.wait("it is as it was left", &text_has("#port-body", "port is off"));
    actions::undo(browser, "It was undone");
    browser.wait("it is as it was", &text_has("#port-body", "on, by NDIS rules"));
}

/// On a phone, on a desk, on a wall; light and dark. The check works: it finds a planted barrier.
#[test]
fn no_size_and_no_light_has_barriers() {
    story(&browser::NEEDS, || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.visit(&format!("{PAGE}#port=guest"));
        browser.wait("the port is shown", &text_has("#port-body", "Queues into the switch"));
        trace(&mut browser, "tcp 10.9.0.2:1 > 10.9.0.1:80 len 100");
        browser.wait("its steps are shown", &text_has("#trace-steps", "uplink: deliver"));
        for (width, height) in [(360, 740), (1280, 900), (2560, 1440)] {
            for dark in [false, true] {
                browser.look(width, height, dark);
                browser.wait(
                    "nothing sticks out",
                    "document.documentElement.scrollWidth <= document.documentElement.clientWidth",
                );
                let name = format!("{width}-{}", if dark { "dark" } else { "light" });
                browser.picture(&name);
                let found = browser.barriers();
                assert!(found.is_empty(), "{name}: {found:#?}");
            }
        }
        browser.look(360, 740, true);
        trace(&mut browser, "tcp 10.9.0.2:1 > 10.9.0.1:80 vlna 10");
        browser.wait("it is refused", &text_has("#trace-verdict", "did you mean `vlan`?"));
        browser.picture("360-refused");
        assert_eq!(browser.barriers(), Vec::<String>::new());
        browser.value("document.querySelector('main').append(document.createElement('img'))");
        let found = browser.barriers();
        assert!(found.iter().any(|barrier| barrier.contains("image-alt")), "{found:?}");
    });
}

/// Names are text: markup in them is shown unchanged.
#[test]
fn a_thousand_ports_are_a_few_rows() {
    story(&[Need::Tap, Need::Program("chromium"), Need::Program("ethtool")], || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.prepare(&pretended::answers(1000));
        browser.visit(PAGE);
        browser.wait("all ports are counted", &text_has("#shown", "1,000 ports"));
        browser.wait("the charts have lines", &text_has("#charts", "worker 3 (core 3)"));
        browser.wait("the event is told as it is", &text_has("#event-list", "<img src=x"));
        let rows = "document.querySelectorAll('#rows [role=row]').length";
        let drawn = browser.value(rows).as_u64().unwrap();
        assert!((10..60).contains(&drawn), "{drawn} rows");
        browser.value("document.getElementById('grid').focus()");
        browser.press("End");
        browser.wait("the last port is drawn", &row_says("vm999", "up"));
        assert!(browser.value(rows).as_u64().unwrap() < 60);
        let active = "document.getElementById(document.getElementById('grid').getAttribute('aria-activedescendant'))";
        browser.wait(
            "it is the active row",
            &format!("{active}?.getAttribute('aria-rowindex') === '1001'"),
        );
        browser.value("document.getElementById('find').value = 'vm77', document.getElementById('find').dispatchEvent(new Event('input'))");
        browser.wait("they are found by name", &text_has("#shown", "11 of 1,000 ports"));
        assert_eq!(browser.value("document.images.length"), 0);
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    });
}

#[test]
fn a_chart_shows_the_part_that_was_dragged_over() {
    story(&[Need::Tap, Need::Program("chromium"), Need::Program("ethtool")], || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.prepare(&pretended::answers(6));
        browser.visit(PAGE);
        browser.wait("the charts have lines", &text_has("#charts", "worker 3 (core 3)"));
        browser.drag("#charts .u-over", [0.25, 0.5]);
        let pressed = "document.querySelectorAll('#overview [aria-pressed=true]').length";
        browser.wait("no whole range is shown", &format!("{pressed} === 0"));
        browser.picture("1280-zoomed");
        browser.value("document.querySelector('#port .ranges button').click()");
        browser.wait("all charts show the range", &format!("{pressed} === 1"));
        // A click is no drag.
        browser.drag("#charts .u-over", [0.5, 0.5]);
        assert_eq!(browser.value(pressed), 1);
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    });
}

/// Puts markup before every word of the daemon's answers, and before the reasons of drops.
const MARKUP: &str = r#"
    const real = globalThis.fetch, mark = (text) => `<img src=x onerror="document.title='hit'">${text}`;
    const walk = (value, key) => {
        if (typeof value === "string") return mark(value);
        if (Array.isArray(value)) return value.map((one) => walk(one));
        if (value === null || typeof value !== "object") return value;
        const name = (it) => key === "drops" ? mark(it) : it;
        return Object.fromEntries(Object.entries(value).map(([it, inner]) => [name(it), walk(inner, it)]));
    };
    globalThis.fetch = async (path, options) => {
        const answer = await real(path.replaceAll(encodeURIComponent(mark("")), ""), options);
        const body = walk(await answer.json());
        if (path === "/state") {
            body.findings.push({severity: "error", kind: mark("k"), port: mark("guest"), message: mark("m"),
                error: mark("e"), seen: mark("s"), wanted: mark("w"), remedy: mark("r")});
            body.ports.forEach((port) => port.drops = {[mark("storm")]: 7, ...port.drops});
        }
        return new Response(JSON.stringify(body), {status: answer.status});
    };
"#;

/// Whatever guests, networks and other hosts have a daemon say is text.
#[test]
fn no_answer_of_the_daemon_becomes_markup() {
    story(&[Need::Tap, Need::Program("chromium"), Need::Program("ethtool")], || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.prepare(MARKUP);
        browser.visit(PAGE);
        browser.wait("a row has it as text", &text_has("#rows", "<img src=x"));
        browser.wait("so has a finding", &text_has("#finding-list", "<img src=x"));
        browser.wait("and an event", &text_has("#event-list", "<img src=x"));
        browser.value("document.getElementById('grid').focus()");
        browser.press("End");
        browser.press("Enter");
        browser.wait("so has a port's title", &text_has("#port-title", "<img src=x"));
        browser.wait("and its facts and drops", &text_has("#port-body dl", "<img src=x"));
        browser.wait("and a drop", &text_has("#port-body table", "<img src=x"));
        assert_eq!(browser.value("document.images.length"), 0);
        assert_ne!(browser.value("document.title"), "hit");
    });
}
