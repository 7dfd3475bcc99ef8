//! Ports added through the API outlast the daemon, however it ends.

use crate::test_daemon::{self, Daemon, eventually};
use api::body::Origin;
use api::client::{Client, ClientError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use test_devices::MemoryDevices;
use tokio::sync::oneshot;

const FILE: &str = "[[port]]\nname = \"web\"\ntap = \"tap0\"\n";

fn add(client: &Client, name: &str) -> Result<(), ClientError> {
    let port = json!({"name": name, "tap": format!("t-{name}")});
    client.add_port(&serde_json::from_value(port).unwrap()).map(drop)
}

/// Returns names, origins and MTUs.
fn ports(client: &Client) -> Vec<(String, Origin, Option<u16>)> {
    let ports = client.ports().unwrap().into_iter();
    ports.map(|port| (port.name, port.origin, port.config.mtu.map(|mtu| mtu.0))).collect()
}

#[test]
fn what_the_api_added_is_there_again_after_a_restart_and_a_reload_leaves_it_alone() {
    let daemon = Daemon::start(FILE);
    add(&daemon.client, "vm1").unwrap();
    add(&daemon.client, "vm2").unwrap();
    daemon.client.change_port("vm1", &json!({"mtu": 9000})).unwrap();
    daemon.client.change_port("web", &json!({"mtu": 9000})).unwrap();
    daemon.client.remove_port("vm2").unwrap();
    let daemon = daemon.again();
    let both =
        [("vm1".to_owned(), Origin::Api, Some(9000)), ("web".to_owned(), Origin::File, None)];
    assert_eq!(ports(&daemon.client), both);
    daemon.client.remove_port("vm1").unwrap();
    assert_eq!(ports(&daemon.again().client), both[1..]);
}

#[test]
fn the_file_wins_a_name_and_a_device_and_says_so() {
    let daemon = Daemon::start(FILE);
    for name in ["vm1", "vm2", "vm3"] {
        add(&daemon.client, name).unwrap();
    }
    let text = format!(
        "{FILE}[[port]]\nname = \"vm1\"\ntap = \"new\"\n[[port]]\nname = \"x\"\ntap = \"t-vm2\"\n"
    );
    std::fs::write(daemon.path("switch.toml"), text).unwrap();
    let daemon = daemon.again();
    let names = |wanted| {
        let ports = ports(&daemon.client).into_iter();
        ports.filter(|port| port.1 == wanted).map(|port| port.0).collect::<Vec<_>>()
    };
    assert_eq!(names(Origin::File), ["vm1", "web", "x"]);
    assert_eq!(names(Origin::Api), ["vm3"]);
    let events = daemon.client.switch().unwrap().events;
    let told = |words: &str| events.iter().any(|event| event.text.contains(words));
    assert!(told("port vm1 is in the file and was also added through the API"), "{events:?}");
    assert!(told("port vm2, added through the API, conflicts with the file"), "{events:?}");
}

#[test]
fn ports_of_the_fleet_survive_a_restart_and_are_replaced_as_a_whole() {
    let daemon = Daemon::start(FILE);
    add(&daemon.client, "vm1").unwrap();
    let port = |name: &str| {
        serde_json::from_value(json!({"name": name, "tap": format!("f-{name}")})).unwrap()
    };
    let planned = daemon.client.plan_fleet(&[port("f1"), port("f2")]).unwrap();
    assert_eq!((planned.steps.len(), planned.applied), (2, false));
    let done = daemon.client.put_fleet(1, &[port("f1"), port("f2")]).unwrap();
    assert!(done.applied && done.steps.len() == 2);
    let daemon = daemon.again();
    let origins = |daemon: &Daemon| {
        let ports = ports(&daemon.client).into_iter();
        ports.map(|port| format!("{} {}", port.0, port.1.name())).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(origins(&daemon), "f1 fleet, f2 fleet, vm1 api, web file");
    daemon.client.put_fleet(2, &[port("f2")]).unwrap();
    assert_eq!(origins(&daemon.again()), "f2 fleet, vm1 api, web file");
}

#[test]
fn a_revision_of_the_fleet_is_an_event_and_so_are_steps_that_fail() {
    let daemon = Daemon::start(FILE);
    let port = |name: &str| {
        serde_json::from_value(json!({"name": name, "tap": format!("f-{name}")})).unwrap()
    };
    let told = || {
        let events = daemon.client.switch().unwrap().events.into_iter();
        let of_fleet = events.filter(|event| event.text.starts_with("fleet revision"));
        of_fleet.map(|event| (event.count, event.text)).collect::<Vec<_>>()
    };
    daemon.client.plan_fleet(&[port("f1")]).unwrap();
    assert_eq!(told(), []);
    daemon.client.put_fleet(7, &[port("f1")]).unwrap();
    let seven = (1, "fleet revision 7 applied: 1 step".to_owned());
    assert_eq!(told(), std::slice::from_ref(&seven));
    // Applying the same revision again is no event. The next revision is one, even if it changes
    // nothing here.
    daemon.client.put_fleet(7, &[port("f1")]).unwrap();
    assert_eq!(told(), std::slice::from_ref(&seven));
    daemon.client.put_fleet(8, &[port("f1")]).unwrap();
    let eight = (1, "fleet revision 8 applied: 0 steps".to_owned());
    assert_eq!(told(), [seven, eight]);
    daemon.devices.set("f-f2", test_devices::Fate::Gone);
    assert!(!daemon.client.put_fleet(9, &[port("f1"), port("f2")]).unwrap().applied);
    let last = told().pop().unwrap();
    assert!(last.1.starts_with("fleet revision 9: 1 of 1 steps failed: "), "{last:?}");
}

#[test]
fn a_broken_state_is_set_aside_and_the_daemon_starts() {
    let daemon = Daemon::start(FILE);
    add(&daemon.client, "vm1").unwrap();
    let state = daemon.path("api.sock.state/ports.json");
    std::fs::write(&state, &std::fs::read(&state).unwrap()[..40]).unwrap();
    let daemon = daemon.again();
    assert_eq!(ports(&daemon.client).len(), 1);
    let events = daemon.client.switch().unwrap().events;
    assert!(events.iter().any(|event| event.text.contains("was set aside as")), "{events:?}");
    assert!(daemon.path("api.sock.state/ports.json.broken-1").exists());
}

#[test]
fn a_change_that_cannot_be_kept_is_answered_as_such_and_kept_later() {
    let daemon = Daemon::start(FILE);
    let state = daemon.socket().with_extension("sock.state");
    let next = state.join("ports.json.next");
    std::fs::create_dir(&next).unwrap();
    let Err(ClientError::Refused(problem)) = add(&daemon.client, "vm1") else {
        panic!("it was taken");
    };
    assert!(problem.error.contains("would not survive a restart"), "{problem}");
    assert_eq!(ports(&daemon.client).len(), 2, "it is in force");
    std::fs::remove_dir(&next).unwrap();
    eventually("the state is written", || state.join("ports.json").exists().then_some(()));
    assert_eq!(ports(&daemon.again().client).len(), 2);
}

/// Set in the environment of a daemon that the test starts.
const CHILD: &str = "MILLRACE_TEST_DAEMON";
/// How often the daemon is killed.
const KILLS: usize = 100;

/// Runs the daemon that the test below kills; does nothing as a test.
#[test]
fn a_daemon_to_be_killed() {
    let Some(directory) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let (_stop, stopped) = oneshot::channel();
    test_daemon::serve(&test_daemon::options(&directory), MemoryDevices::default(), stopped)
        .unwrap();
}

fn start(directory: &Path) -> (Child, Client) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "state::a_daemon_to_be_killed"])
        .env(CHILD, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let client = eventually("the daemon answers", || {
        let client = Client::connect(&directory.join("api.sock")).ok()?;
        client.switch().ok().map(|_| client)
    });
    (child, client)
}

/// Returns the API's ports, oldest first, after this number of changes.
fn model(changes: usize) -> Vec<(String, Option<u16>)> {
    let mut ports: Vec<(String, Option<u16>)> = Vec::new();
    for number in 0..changes {
        let mtu = Some(1000 + u16::try_from(number % 8000).unwrap());
        match number % 3 {
            1 => ports.last_mut().unwrap().1 = mtu,
            2 if ports.len() > 3 => drop(ports.remove(0)),
            _ => ports.push((format!("p{number:06}"), None)),
        }
    }
    ports
}

/// Makes the change that leads from the model of `number` changes to the next one.
fn change(client: &Client, number: usize) -> Result<(), ClientError> {
    let (before, after) = (model(number), model(number + 1));
    let last = after.last().unwrap();
    if after.len() > before.len() {
        add(client, &last.0)
    } else if after.len() < before.len() {
        client.remove_port(&before[0].0)
    } else {
        client.change_port(&last.0, &json!({"mtu": last.1})).map(drop)
    }
}

/// The daemon is killed at a random moment of a change. The next daemon has the ports from before
/// that change or from after it. On a busy machine a daemon lives through few changes, so it is
/// killed until there were as many changes as kills are wanted.
#[test]
fn a_killed_daemon_leaves_the_old_state_or_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("switch.toml"), FILE).unwrap();
    let (mut kills, mut done, mut old, mut new) = (0, 0, 0, 0);
    while kills <= KILLS || done <= KILLS {
        let (mut child, client) = start(directory.path());
        let ports = ports(&client).into_iter();
        let found: Vec<_> =
            ports.filter(|port| port.1 == Origin::Api).map(|port| (port.0, port.2)).collect();
        if found == model(done) {
            old += 1;
        } else {
            assert_eq!(found, model(done + 1), "after {done} changes");
            (done, new) = (done + 1, new + 1);
        }
        let delay = Duration::from_micros(fastrand::u64(..60_000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay);
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let refusal = loop {
            match change(&client, done) {
                Ok(()) => done += 1,
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(refusal, ClientError::Unreachable(_)), "{refusal}");
        killer.join().unwrap();
        kills += 1;
    }
    println!(
        "killed {kills} times in {done} changes: {old} times the old state, {new} times the new one"
    );
}
