//! What clients see while a long plan is in work.
//!
//! Devices open at once after a test has let them, and otherwise after 0.5 s, some at the same time.
//! So a plan of many ports is in work until the test has its answers, but ends if there are none.

use crate::api::refused;
use crate::test_daemon::{self, eventually};
use api::body::{StateBody, StepOutcome};
use api::client::Client;
use config::{Config, PortConfig, Scale};
use daemon::server;
use devices::{OpenError, Opened, Opener};
use serde_json::json;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use test_devices::MemoryDevices;
use tokio::sync::oneshot;

const PORTS: usize = 640;

/// Opens memory devices, slowly until it is told to hurry.
#[derive(Clone, Default)]
struct Slow {
    devices: MemoryDevices,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    opened: usize,
    /// Devices that are being opened.
    waiting: usize,
    hurries: bool,
    /// Whether devices that do not hurry take longer than a read ever does.
    dawdles: bool,
}

impl Slow {
    /// Waits until so many devices have been opened.
    fn has_opened(&self, count: usize) {
        let (gate, news) = &*self.gate;
        drop(news.wait_while(gate.lock().unwrap(), |gate| gate.opened < count).unwrap());
    }

    /// Returns how many devices are being opened.
    fn waiting(&self) -> usize {
        self.gate.0.lock().unwrap().waiting
    }

    fn hurry(&self) {
        self.gate.0.lock().unwrap().hurries = true;
        self.gate.1.notify_all();
    }
}

impl Opener for Slow {
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        let (gate, news) = &*self.gate;
        let mut opened = gate.lock().unwrap();
        (opened.opened, opened.waiting) = (opened.opened + 1, opened.waiting + 1);
        news.notify_all();
        let slowly = Duration::from_millis(if opened.dawdles { 30_000 } else { 500 });
        let waited = news.wait_timeout_while(opened, slowly, |gate| !gate.hurries);
        waited.unwrap().0.waiting -= 1;
        self.devices.open(port, scale)
    }
}

/// Returns a port with its device, both of this number.
fn port(number: usize) -> PortConfig {
    serde_json::from_value(json!({"name": format!("vm{number}"), "tap": format!("tap{number}")}))
        .unwrap()
}

/// Runs a daemon with one port in a thread of its own, until the closure returns.
fn with_daemon(run: impl FnOnce(&dyn Fn() -> Client, &Slow)) {
    let directory = tempfile::tempdir().unwrap();
    let options = test_daemon::options(directory.path());
    std::fs::write(directory.path().join("switch.toml"), "[[port]]\nname='vm0'\ntap='tap0'\n")
        .unwrap();
    let (slow, (stop, stopped)) = (Slow::default(), oneshot::channel::<()>());
    let opener = Box::new(slow.clone());
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server::serve(&options, opener, async {
            let _ = stopped.await;
        }))
    };
    let daemon = std::thread::spawn(serve);
    let client = || {
        eventually("the daemon answers", || {
            Client::connect(&directory.path().join("api.sock"))
                .ok()
                .filter(|it| it.switch().is_ok())
        })
    };
    run(&client, &slow);
    drop(stop);
    daemon.join().unwrap().unwrap();
}

/// Reads waited until the last of all steps.
#[test]
fn reads_are_answered_between_the_steps_of_a_plan_and_find_it_whole() {
    with_daemon(|client, slow| {
        let (reader, writer) = (client(), client());
        let wanted = Config { ports: (0..=PORTS).map(port).collect(), ..reader.config().unwrap() };
        std::thread::scope(|scope| {
            let plan = scope.spawn(|| writer.put_config(&wanted, false).unwrap());
            // The first ones are in the switch.
            slow.has_opened(PORTS / 2);
            let (config, switch) = (reader.config().unwrap(), reader.switch().unwrap());
            let ports = reader.ports().unwrap();
            assert!(!plan.is_finished());
            let last = reader.port(&format!("vm{PORTS}")).unwrap();
            slow.hurry();
            assert_eq!(config.ports.len(), PORTS + 1, "the wanted configuration");
            assert!((2..PORTS).contains(&switch.ports), "{} of {PORTS} ports", switch.ports);
            assert_eq!(switch.ports, switch.ports_up, "no port is broken meanwhile");
            assert_eq!(ports.len(), PORTS + 1, "the whole configuration");
            let down = ports.iter().filter(|port| port.state == StateBody::Down);
            assert!(down.count() > 0, "those that are not open yet");
            assert_eq!(last.state, StateBody::Down);
            assert!(last.reason.contains("still in work"), "{}", last.reason);
            let steps = plan.join().unwrap().steps;
            assert_eq!(steps.len(), PORTS);
            assert!(steps.iter().all(|step| step.outcome == StepOutcome::Done));
        });
        assert_eq!(reader.switch().unwrap().ports_up, PORTS + 1);
    });
}

/// They waited until all devices of a step were open, which took a second for 64 TAPs.
#[test]
fn reads_are_answered_while_devices_open() {
    /// Of one step.
    const FEW: usize = 10;
    with_daemon(|client, slow| {
        let (reader, writer) = (client(), client());
        let wanted = Config { ports: (0..=FEW).map(port).collect(), ..reader.config().unwrap() };
        slow.gate.0.lock().unwrap().dawdles = true;
        std::thread::scope(|scope| {
            let plan = scope.spawn(|| writer.put_config(&wanted, false).unwrap());
            slow.has_opened(1 + FEW);
            let ports = reader.switch().unwrap().ports;
            assert_eq!((slow.waiting(), ports), (FEW, 1), "none of them is open yet");
            slow.hurry();
            assert_eq!(plan.join().unwrap().steps.len(), FEW);
        });
        assert_eq!(reader.switch().unwrap().ports_up, 1 + FEW);
    });
}

/// Both read the configuration first and changed it then: one would have lost the other's port.
#[test]
fn a_second_change_waits_for_the_first_and_builds_on_it() {
    with_daemon(|client, slow| {
        let (first, second, third) = (client(), client(), client());
        let (_, tag) = first.tagged_port("vm0").unwrap();
        let mut wanted = first.config().unwrap();
        wanted.ports[0].vlan = Some(config::VlanId(7));
        wanted.ports.extend((1..=PORTS).map(port));
        let change = json!({"mtu": 9000});
        std::thread::scope(|scope| {
            let plan = scope.spawn(|| first.put_config(&wanted, false).unwrap());
            slow.has_opened(3);
            let added = scope.spawn(|| second.add_port(&port(PORTS + 1)).unwrap());
            let stale = scope.spawn(|| refused(third.change_tagged_port("vm0", &change, &tag)));
            let reader = client();
            let state = reader.switch().unwrap();
            assert!(state.ports < PORTS && !added.is_finished() && !stale.is_finished());
            slow.hurry();
            assert_eq!(plan.join().unwrap().config.ports.len(), PORTS + 1);
            assert_eq!(added.join().unwrap().name, format!("vm{}", PORTS + 1));
            let stale = stale.join().unwrap();
            assert!(stale.error.starts_with("the settings of port vm0 were changed"), "{stale}");
        });
        assert_eq!(first.switch().unwrap().ports_up, PORTS + 2);
    });
}

/// The state was written only if the client was there for the answer.
#[test]
fn a_change_whose_client_leaves_is_carried_out_and_stored() {
    with_daemon(|client, slow| {
        let reader = client();
        let state = reader.config_source().unwrap().state;
        let added = (1..=PORTS).map(port).collect::<Vec<_>>();
        let body = serde_json::to_string(&added).unwrap();
        let socket = std::path::Path::new(&state).parent().unwrap().with_extension("");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let head = format!(
            "PUT /v1/config/fleet HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        std::io::Write::write_all(&mut stream, [head, body].concat().as_bytes()).unwrap();
        slow.has_opened(3);
        drop(stream);
        reader.switch().unwrap();
        slow.hurry();
        let name = format!("\"vm{PORTS}\"");
        eventually("the ports are stored", || {
            std::fs::read_to_string(&state).ok().filter(|text| text.contains(&name))
        });
        assert_eq!(reader.switch().unwrap().ports_up, PORTS + 1);
    });
}
