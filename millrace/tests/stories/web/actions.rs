//! The page's actions: what a person with a key changes, by which command line that would be done,
//! and how it is taken back.

use super::{PAGE, WEB, text_has};
use crate::browser::{self, Browser};
use crate::sandbox::{Need, output_of, story};
use crate::switch::millrace;
use crate::topology::Topology;
use serde_json::Value;

/// Types a key or a token.
pub(super) fn give_key(browser: &mut Browser, key: &str) {
    browser.value(&format!("document.getElementById('key').value = '{key}'"));
}

/// Fills in the form of an action and presses its button.
pub(super) fn act(browser: &mut Browser, action: &str, fields: &[(&str, &str)]) {
    fill(browser, action, fields);
    browser.value(&format!("document.getElementById('act-{action}').click()"));
}

fn fill(browser: &mut Browser, action: &str, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        let form = format!("document.getElementById('act-{action}').form");
        let field = format!("{form}.elements['{name}']");
        browser.wait("the field is there", &format!("Boolean({field})"));
        browser.value(&format!("{field}.value = '{value}'"));
        browser.value(&format!("{form}.dispatchEvent(new Event('input'))"));
        assert_eq!(browser.value(&format!("{field}.value")), *value, "{action}: {name}");
    }
}

/// Returns the script that tells whether an action's form has these words.
pub(super) fn form_has(action: &str, words: &str) -> String {
    format!("document.getElementById('act-{action}').form.textContent.includes('{words}')")
}

/// Takes the newest change back, and waits for the answer.
pub(super) fn undo(browser: &mut Browser, answer: &str) {
    browser.value("document.querySelector('#change-list li:first-child button').click()");
    browser.wait("the undo is answered", &text_has("#change-list li:first-child", answer));
}

/// Presses a button of the dialogue, once that asks.
fn answer(browser: &mut Browser, question: &str, button: &str) {
    browser.wait(
        "it asks",
        &format!("document.getElementById('ask').open && {}", text_has("#ask", question)),
    );
    browser.value(&format!("document.getElementById('{button}').click()"));
    browser.wait("it is closed", "!document.getElementById('ask').open");
}

/// Returns a key of the configuration of a port, as text.
fn setting(topology: &Topology, port: &str, key: &str) -> String {
    topology.switch.ask(&format!("port show {port}"))["config"][key].to_string()
}

/// Opens the page by the address that the command prints, and the guest's port on it.
fn open_with_key(browser: &mut Browser) {
    let address = output_of(millrace().arg("page"));
    let (page, key) = address.trim().split_once("#key=").unwrap();
    assert_eq!((page, key.len()), (PAGE, 32));
    browser.visit(address.trim());
    browser.wait("the page has the key", &text_has("#key-said", "The page has a key"));
    assert_eq!(browser.value("location.hash"), "", "the key does not stay in the address");
    browser.value("location.hash = '#port=guest'");
    browser.wait("the port is shown", &text_has("#port-body", "Queues into the switch"));
}

#[test]
fn in_a_browser_a_person_changes_a_port_and_takes_it_back() {
    story(&[Need::Tap, Need::Program("chromium"), Need::Program("ethtool")], || {
        let topology = Topology::new(&format!("[switch]\nworkers = 2\n{WEB}"));
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.visit(&format!("{PAGE}#port=guest"));
        browser.wait("the port is shown", &text_has("#port-body", "Queues into the switch"));
        act(&mut browser, "vlan", &[("vlans", "20")]);
        browser.wait("it says how to get a key", &form_has("vlan", "run `millrace page`"));
        open_with_key(&mut browser);
        change_vlan(&mut browser, &topology);
        change_rate(&mut browser, &topology);
        change_rules(&mut browser, &topology);
        move_queue(&mut browser, &topology);
        let expected = |complaint: &String| complaint.contains("422") || complaint.contains("412");
        assert!(browser.complaints().iter().all(expected), "{:?}", browser.complaints());
        topology.switch.tell("page --end-keys");
        act(&mut browser, "vlan", &[("vlans", "20")]);
        browser.wait("the key has ended", &form_has("vlan", "missing or wrong, or has ended"));
        assert_eq!(setting(&topology, "guest", "vlan"), "null");
    });
}

fn change_vlan(browser: &mut Browser, topology: &Topology) {
    fill(browser, "vlan", &[("mode", "vlan"), ("vlans", "20")]);
    browser.wait(
        "the command line is beside it",
        &form_has("vlan", "millrace port set guest vlan=20 trunk= native="),
    );
    act(browser, "vlan", &[("vlans", "5000")]);
    browser.wait("the API's refusal is told", &form_has("vlan", "out of range"));
    act(browser, "vlan", &[("vlans", "20")]);
    browser.wait("it is told", &text_has("#change-list", "Port guest has VLAN 20"));
    assert_eq!(setting(topology, "guest", "vlan"), "20");
    browser.wait(
        "the strip is shown",
        &text_has("#port-body", "Before and after. Port guest has VLAN 20"),
    );
    browser.wait(
        "so is the undo",
        &text_has("#change-list", "millrace port set guest vlan= trunk= native="),
    );
    // Another person's change is not overwritten.
    topology.switch.tell("port set guest vlan=30");
    undo(browser, "It was changed again since");
    assert_eq!(setting(topology, "guest", "vlan"), "30");
    topology.switch.tell("port set guest vlan=20");
    undo(browser, "It was undone");
    assert_eq!(setting(topology, "guest", "vlan"), "null");
}

fn change_rate(browser: &mut Browser, topology: &Topology) {
    act(browser, "rate", &[("way", "rate-to"), ("rate", "50Mbit")]);
    browser.wait("it is told", &text_has("#change-list", "receives is limited to 50Mbit"));
    assert_eq!(setting(topology, "guest", "rate-to"), "\"50Mbit\"");
    undo(browser, "It was undone");
    assert_eq!(setting(topology, "guest", "rate-to"), "null");
}

fn rules(topology: &Topology) -> Vec<String> {
    let shown = topology.switch.ask("acl show guest");
    let rules = shown["rules"].as_array().unwrap().iter();
    rules.map(|rule| rule["rule"].as_str().unwrap().to_owned()).collect()
}

fn change_rules(browser: &mut Browser, topology: &Topology) {
    topology.switch.tell("acl add guest deny in udp to port 53");
    act(browser, "rule", &[("rule", "allow in tcp to port 22"), ("number", "1")]);
    browser.wait("it is told", &text_has("#change-list", "has the rule allow in tcp to port 22"));
    assert_eq!(rules(topology), ["allow in tcp to port 22", "deny in udp to port 53"]);
    undo(browser, "It was undone");
    assert_eq!(rules(topology), ["deny in udp to port 53"]);
    act(browser, "rule-removed", &[("number", "1")]);
    browser
        .wait("it asks", &text_has("#ask", "Remove rule 1 of port guest: deny in udp to port 53?"));
    // Rule 1 becomes another one before the person answers.
    topology.switch.tell("acl add guest deny in arp --number 1");
    answer(browser, "millrace acl remove guest 1 deny in udp to port 53", "ask-yes");
    browser.wait("it is refused", &form_has("rule-removed", "were changed since they were read"));
    assert_eq!(rules(topology), ["deny in arp", "deny in udp to port 53"]);
    topology.switch.tell("acl remove guest 1 deny in arp");
    act(browser, "rule-removed", &[("number", "1")]);
    answer(browser, "Remove rule 1 of port guest: deny in udp to port 53?", "ask-yes");
    browser.wait("it is told", &text_has("#change-list", "Rule 1 of port guest was removed"));
    assert!(rules(topology).is_empty());
    topology.switch.tell("acl add guest deny in arp");
    undo(browser, "It was changed again since");
    topology.switch.tell("acl remove guest 1");
    undo(browser, "It was undone");
    assert_eq!(rules(topology), ["deny in udp to port 53"]);
}

fn move_queue(browser: &mut Browser, topology: &Topology) {
    let worker = |topology: &Topology| topology.switch.ask("queue show guest")[0]["worker"].clone();
    topology.switch.tell("port set guest vmmq=static");
    let before = worker(topology);
    let to = if before == 0 { "1" } else { "0" };
    browser.wait("its worker is known", &is_at(&before.to_string()));
    act(browser, "queue", &[("queue", "0"), ("worker", to)]);
    browser.wait(
        "it is told",
        &text_has("#change-list", &format!("Worker {to} has queue 0 of port guest")),
    );
    assert_eq!(worker(topology).to_string(), to);
    undo(browser, "It was undone");
    assert_eq!(worker(topology), before);
}

/// Returns whether the table of queues, which may follow one of drops, has queue 0 at this worker.
fn is_at(worker: &str) -> String {
    format!(
        "[...document.querySelectorAll('#port-body table')].some((table) =>
           table.caption?.textContent === 'Queues into the switch'
             && table.tBodies[0].rows[0].cells[1].textContent.startsWith('{worker}'))"
    )
}

/// Keeps the first bytes and the size of what the page hands to the browser to write.
const DOWNLOADS: &str = "
    const real = URL.createObjectURL;
    URL.createObjectURL = (blob) => {
        blob.slice(0, 4).arrayBuffer().then((bytes) =>
            globalThis.downloaded = {size: blob.size, magic: [...new Uint8Array(bytes)]});
        return real(blob);
    };";

#[test]
fn a_port_is_captured_removed_and_added_on_the_page_which_asks_before_it_removes() {
    story(&browser::NEEDS, || {
        let topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.prepare(DOWNLOADS);
        open_with_key(&mut browser);
        act(&mut browser, "capture", &[("seconds", "600"), ("count", "1")]);
        browser.wait("it captures", &form_has("capture", "Capturing"));
        let mut ping = topology.guest.command("ping");
        let mut ping = ping.args(["-c", "2000", "-i", "0.05", "10.9.0.1"]).spawn().unwrap();
        browser.wait("it is told", &form_has("capture", "are in guest.pcapng"));
        let _ = ping.kill();
        ping.wait().unwrap();
        // The bytes are read after the page has said it.
        browser.wait("its first bytes are read", "globalThis.downloaded !== undefined");
        let file = browser.value("globalThis.downloaded");
        assert_eq!(file["magic"], serde_json::json!([0x0a, 0x0d, 0x0d, 0x0a]), "{file}");
        assert!(file["size"].as_u64().is_some_and(|size| size > 100), "{file}");

        act(&mut browser, "remove", &[]);
        browser.wait("it asks", &text_has("#ask", "Remove port guest?"));
        assert_eq!(browser.barriers(), Vec::<String>::new());
        browser.picture("1280-asks");
        answer(&mut browser, "Remove port guest?", "ask-no");
        browser.wait("nothing happens", &form_has("remove", "Nothing was changed"));
        act(&mut browser, "remove", &[]);
        answer(&mut browser, "millrace port remove guest", "ask-yes");
        browser.wait("it is gone", &text_has("#summary", "1 of 1 port up"));
        let names = |topology: &Topology| -> Vec<Value> {
            let ports = topology.switch.ask("port list");
            ports.as_array().unwrap().iter().map(|port| port["name"].clone()).collect()
        };
        assert_eq!(names(&topology), ["uplink"]);
        undo(&mut browser, "It was undone");
        assert_eq!(names(&topology), ["guest", "uplink"]);
        assert_eq!(setting(&topology, "guest", "netns"), "\"guest\"");

        let port = [("name", "extra"), ("kind", "tap"), ("device", "tap9"), ("vlan", "7")];
        fill(&mut browser, "add", &port);
        browser.wait(
            "a command line",
            &form_has("add", "millrace port add extra --tap tap9 --vlan 7"),
        );
        act(&mut browser, "add", &port);
        browser.wait("it is told", &text_has("#change-list", "Port extra was added"));
        assert_eq!(setting(&topology, "extra", "vlan"), "7");
        topology.switch.tell("port set extra vlan=8");
        undo(&mut browser, "It was changed again since");
        topology.switch.tell("port set extra vlan=7");
        browser.value("document.querySelector('#change-list li:first-child button').click()");
        answer(&mut browser, "Remove port extra?", "ask-yes");
        browser.wait("it is gone again", &text_has("#change-list li:first-child", "It was undone"));
        assert_eq!(names(&topology), ["guest", "uplink"]);
        // The page asks for a port that has just been removed.
        let expected = |complaint: &String| complaint.contains("404");
        assert!(browser.complaints().iter().all(expected), "{:?}", browser.complaints());
    });
}
