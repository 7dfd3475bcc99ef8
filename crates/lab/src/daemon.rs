//! The real daemon in the topology's switch host: configured by a file, reached over its own socket.

use crate::LabError;
use crate::come_and_go::ComeAndGo;
use crate::host::Request;
use crate::interrupt::Interrupt;
use crate::passed::Passed;
use crate::report::{Check, Command};
use crate::topology::{GUEST, Topology, UPLINK, VNIC, Vnic, Way};
use control::body::{AclBody, PortBody, RscBody, RscSetting, StateBody};
use control::client::{Client, ClientError};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A daemon that does not answer by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// The port of the vNIC.
const PORT: &str = "vnic";
/// The port of the wire.
const UPLINK_PORT: &str = "uplink";

/// See the module. It runs until the topology's switch host ends.
pub(crate) struct Daemon {
    client: Client,
    socket: PathBuf,
    /// The port that comes and goes, while it does.
    visitor: Option<ComeAndGo>,
    /// How often it has come.
    visits: Arc<AtomicU64>,
    /// What was changed, as a person would type it, each once.
    told: RefCell<Vec<String>>,
}

impl Daemon {
    /// Turns the switch host into the daemon, waits until both its ports are up, and addresses the guest.
    pub(crate) fn start(
        topology: &mut Topology,
        interrupt: &Interrupt,
    ) -> Result<Daemon, LabError> {
        let file = topology.directory().join("millrace.toml");
        let text = configuration(topology);
        std::fs::write(&file, &text)
            .map_err(LabError::io(format!("writing {}", file.display())))?;
        let program = topology.program().display().to_string();
        let arguments = vec!["run".to_owned(), "-c".to_owned(), file.display().to_string()];
        let line = format!("millrace run -c millrace.toml  # {}", text.trim().replace('\n', "; "));
        topology.switch.order(&Request::Become { program, arguments }, &line)?;
        let client = Daemon::connect(topology, interrupt)?;
        if topology.vnic == Vnic::Tap {
            topology.address_guest()?;
        }
        let socket = socket(topology);
        let (visits, told) = (Arc::default(), RefCell::default());
        let daemon = Daemon { client, socket, visitor: None, visits, told };
        daemon.wait_for_ports(interrupt)?;
        Ok(daemon)
    }

    fn connect(topology: &mut Topology, interrupt: &Interrupt) -> Result<Client, LabError> {
        let socket = socket(topology);
        let answers = || {
            topology.switch.check()?;
            let client = Client::connect(&socket).ok();
            let ready = client.filter(|client| client.ports().is_ok_and(|ports| ports.len() == 2));
            Ok(ready)
        };
        let client = interrupt.wait_for(PATIENCE, answers)?;
        client.ok_or_else(|| LabError::Switch(topology.switch.last_words()))
    }

    fn wait_for_ports(&self, interrupt: &Interrupt) -> Result<(), LabError> {
        let mut seen = String::new();
        let all_up = || {
            let ports = self.client.ports().map_err(switch_error)?;
            let waiting = ports.iter().find(|port| port.state != StateBody::Up);
            seen = waiting.map_or(String::new(), |port| format!("{}: {}", port.name, port.reason));
            Ok(waiting.is_none().then_some(()))
        };
        let up = interrupt.wait_for(PATIENCE, all_up)?;
        up.ok_or_else(|| LabError::Switch(format!("a port did not come up: {seen}")))
    }

    /// Toggles coalescing toward the receiver; done when this returns.
    pub(crate) fn set_rsc(&self, on: bool) -> Result<(), LabError> {
        let setting = if on { RscSetting::On } else { RscSetting::Off };
        self.tell(format!("millrace rsc {} {PORT}", if on { "on" } else { "off" }));
        self.client.set_rsc(Some(PORT), setting).map(drop).map_err(switch_error)
    }

    /// Changes keys of the vNIC's port, spelled as in the file; null takes a key away.
    pub(crate) fn change_vnic(&self, change: &Value) -> Result<(), LabError> {
        self.change(PORT, change)
    }

    /// The vNIC's port.
    pub(crate) fn vnic(&self) -> Result<PortBody, LabError> {
        self.client.port(PORT).map_err(switch_error)
    }

    /// The rules of the vNIC's port, with the frames each decided about.
    pub(crate) fn vnic_acl(&self) -> Result<AclBody, LabError> {
        self.client.acl(PORT).map_err(switch_error)
    }

    fn change(&self, port: &str, change: &Value) -> Result<(), LabError> {
        let keys = change.as_object().into_iter().flatten().map(|(key, value)| match value {
            Value::Null => format!(" {key}="),
            value => format!(" {key}={value}"),
        });
        self.tell(format!("millrace port set {port}{}", keys.collect::<String>()));
        self.client.change_port(port, change).map(drop).map_err(switch_error)
    }

    fn tell(&self, line: String) {
        let mut told = self.told.borrow_mut();
        if !told.contains(&line) {
            told.push(line);
        }
    }

    /// Every change so far, for the report.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let told = self.told.borrow();
        told.iter().map(|line| Command { host: "switch".into(), command: line.clone() }).collect()
    }

    /// Lets a third port come and go from now on, or no more.
    pub(crate) fn come_and_go(&mut self, on: bool) -> Result<(), LabError> {
        // First the old one ends.
        self.visitor = None;
        if on {
            self.tell(ComeAndGo::command());
            self.visitor = Some(ComeAndGo::begin(self.socket.clone(), self.visits.clone())?);
        }
        Ok(())
    }

    /// How often the third port has come.
    pub(crate) fn visits(&self) -> u64 {
        self.visits.load(Relaxed)
    }

    /// Sets the MTU of both ports, in bytes; the TAP behind one of them follows.
    pub(crate) fn set_mtu(&self, mtu: u16) -> Result<(), LabError> {
        for port in [UPLINK_PORT, PORT] {
            self.change(port, &json!({ "mtu": mtu }))?;
        }
        Ok(())
    }

    /// Counters of both ports.
    pub(crate) fn passed(&self, way: Way) -> Result<Passed, LabError> {
        let (from, to) = match way {
            Way::ToVnic => (UPLINK_PORT, PORT),
            Way::FromVnic => (PORT, UPLINK_PORT),
        };
        let counters = |port| self.client.counters(port).map_err(switch_error);
        Ok(Passed { ingress: counters(from)?, egress: counters(to)? })
    }

    /// Activity 1 of the guide: RSC is on, and what each family's adapter status says.
    pub(crate) fn rsc_checks(&self) -> Result<Vec<Check>, LabError> {
        let rsc = self.client.rsc(Some(PORT)).map_err(switch_error)?;
        Ok(rsc.iter().flat_map(statuses).collect())
    }
}

/// What each family's adapter status says.
pub(crate) fn statuses(rsc: &RscBody) -> [Check; 2] {
    let status = |family: &str, enabled: bool, operational: bool, reason: &str| Check {
        name: format!("Get-NetAdapterRsc {} {family}", rsc.name),
        passed: enabled && operational,
        seen: format!(
            "{family}Enabled {enabled}, {family}OperationalState {operational}, {family}FailureReason {reason}"
        ),
    };
    [
        status("IPv4", rsc.ipv4_enabled, rsc.ipv4_operational, &rsc.ipv4_failure_reason),
        status("IPv6", rsc.ipv6_enabled, rsc.ipv6_operational, &rsc.ipv6_failure_reason),
    ]
}

fn socket(topology: &Topology) -> PathBuf {
    topology.directory().join("api.sock")
}

/// The daemon's file. RSC is not mentioned: activity 1 is about the default.
fn configuration(topology: &mut Topology) -> String {
    let vnic = match topology.vnic {
        Vnic::Tap => {
            format!("tap = \"{VNIC}\"\nnetns = \"/proc/{}/ns/net\"", topology.guest().process())
        }
        Vnic::Veth => format!("packet = \"{GUEST}\"\nrole = \"vnic\"\nmac-spoofing = \"allow\""),
    };
    let socket = socket(topology);
    let workers = match &topology.placement {
        Ok(placement) => format!("workers = {:?}\n", placement.switch),
        Err(_) => String::new(),
    };
    format!(
        "[switch]\nsocket = {socket:?}\n{workers}[[port]]\nname = \"{UPLINK_PORT}\"\npacket = \"{UPLINK}\"\n[[port]]\nname = \"{PORT}\"\n{vnic}\n"
    )
}

/// For `map_err`.
pub(crate) fn switch_error(error: ClientError) -> LabError {
    LabError::Switch(error.to_string())
}
