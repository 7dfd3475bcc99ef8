//! `millrace setup` where it goes wrong: what it did is undone, and the host keeps its addresses.

use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, complaint, millrace};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use waiting::until;

const FILE: &str = "/run/setup.toml";

/// Makes a NIC with an address and a default route, as clouds have it: the gateway is in no network
/// of the address. The routes came back in the wrong order, so that the host had none.
fn nic() {
    run("ip link add nic0 type veth peer name lan0");
    run("ip link set lan0 up");
    run("ip link set nic0 up");
    run("ip address add 192.0.2.10/32 dev nic0");
    run("ip route add 192.0.2.1 dev nic0 scope link");
    run("ip route add default via 192.0.2.1 metric 7");
}

fn told(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Where the address and the default route are.
fn places() -> (String, String) {
    let address = told("ip -4 -oneline address show to 192.0.2.10");
    let device = address.split_whitespace().nth(1).unwrap_or_default().to_owned();
    (device, told("ip route show default").trim().to_owned())
}

fn unchanged() -> (String, String) {
    ("nic0".to_owned(), "default via 192.0.2.1 dev nic0 metric 7".to_owned())
}

fn setup(more: &[&str]) -> Child {
    let mut setup = millrace();
    setup.args(["setup", "--file", FILE, "--uplink", "nic0"]).args(more);
    setup.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn addresses_come_back_if_the_gateway_does_not_answer() {
    story(&[Need::Tap, Need::Program("ping"), Need::Program("sysctl")], || {
        nic();
        assert_eq!(places(), unchanged());
        let setup = setup(&["--yes"]);
        until("the file is there", || Path::new(FILE).exists());
        let _switch = Switch::start(&fs::read_to_string(FILE).unwrap());
        until("the address has moved", || places().0 == "host0");
        let output = setup.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("the gateway 192.0.2.1 does not answer"), "{said}");
        assert_eq!(places(), unchanged(), "{said}");
        assert!(!Path::new(FILE).exists() && !Path::new(&format!("{FILE}.setup.json")).exists());
    });
}

#[test]
fn a_setup_that_is_interrupted_undoes_what_it_did() {
    story(&[Need::Tap, Need::Program("sysctl")], || {
        nic();
        let setup = setup(&["--yes"]);
        until("the file is there", || Path::new(FILE).exists());
        run(&format!("kill -INT {}", setup.id()));
        let output = setup.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(!Path::new(FILE).exists());
        assert_eq!(places(), unchanged());
    });
}

#[test]
fn without_a_terminal_setup_does_nothing_that_was_not_asked_for() {
    story(&[], || {
        nic();
        let output = setup(&["--dry-run"]).wait_with_output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("ip address add 192.0.2.10/32 dev host0"), "{said}");
        let output = setup(&[]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(!Path::new(FILE).exists());
        let (code, said) = complaint(&format!("setup --undo --file {FILE}"));
        assert!(code == 1 && said.contains("no setup to undo"), "{said}");
    });
}
