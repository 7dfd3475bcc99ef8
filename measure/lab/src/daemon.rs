//! The real daemon on the topology's switch host, configured by a file and reached over its own
//! socket.

use crate::LabError;
use crate::host::{Command, Host, Request};
use crate::interrupt::Interrupt;
use crate::load::Way;
use crate::machine::MAC;
use crate::port::{Port, switch_error};
use crate::port_churn::PortChurn;
use crate::switch_counters::SwitchCounters;
use crate::topology::{GUEST, Topology, UPLINK, VNIC};
use crate::vnic::Vnic;
use api::body::{PortBody, RssChange, StateBody, TeamBody};
use api::client::Client;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Timeout of the daemon's start, and of its ports and team members.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Name of the vNIC's port.
const PORT: &str = "vnic";
/// Name of the port at the wire.
const UPLINK_PORT: &str = "uplink";

/// A running daemon; it ends with the topology's switch host.
pub(crate) struct Daemon {
    client: Rc<Client>,
    pub(crate) vnic: Port,
    uplink: Port,
    socket: PathBuf,
    /// A third port that is added and removed repeatedly, while that runs.
    visitor: Option<PortChurn>,
    /// How often the third port was added.
    visits: Arc<AtomicU64>,
    interrupt: Interrupt,
}

impl Daemon {
    /// Turns the switch host into the daemon, waits until both ports are up, and sets the guest's
    /// address.
    ///
    /// # Errors
    /// The daemon does not answer, a port does not come up, or the interrupt is set.
    pub(crate) fn start(
        topology: &mut Topology,
        interrupt: &Interrupt,
    ) -> Result<Daemon, LabError> {
        let (path, text) = (topology.directory().join("millrace"), configuration(topology));
        let there = |ports: &[PortBody]| ports.len() == 2;
        let program = topology.program.clone();
        let client = run(&mut topology.switch, &program, (&path, &text), interrupt, there)?;
        let client = Rc::new(client);
        match topology.files.take() {
            Some(files) => topology.boot(files, interrupt)?,
            None if topology.vnic == Vnic::Tap => topology.address_guest()?,
            None => {}
        }
        let socket = socket(topology);
        let port = |name: &str| Port::new(client.clone(), name.to_owned());
        let (vnic, uplink, visits) = (port(PORT), port(UPLINK_PORT), Arc::default());
        let (visitor, interrupt) = (None, interrupt.clone());
        let daemon = Daemon { client, vnic, uplink, socket, visitor, visits, interrupt };
        daemon.wait_for_ports()?;
        Ok(daemon)
    }

    fn wait_for_ports(&self) -> Result<(), LabError> {
        let mut seen = String::new();
        let all_up = || {
            let ports = self.client.ports().map_err(switch_error)?;
            let waiting = ports.iter().find(|port| port.state != StateBody::Up);
            seen = waiting.map_or(String::new(), |port| format!("{}: {}", port.name, port.reason));
            Ok(waiting.is_none().then_some(()))
        };
        let up = self.interrupt.wait_for(START_TIMEOUT, all_up)?;
        up.ok_or_else(|| LabError::Switch(format!("a port did not come up: {seen}")))
    }

    /// Returns every change so far, for the report.
    pub(crate) fn commands(&self) -> Vec<Command> {
        [&self.uplink, &self.vnic].into_iter().flat_map(Port::commands).collect()
    }

    /// Starts or stops the repeated adding and removing of a third port.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn churn_ports(&mut self, on: bool) -> Result<(), LabError> {
        // The old thread must end before another starts.
        self.visitor = None;
        if on {
            self.vnic.tell(PortChurn::command());
            self.visitor = Some(PortChurn::begin(self.socket.clone(), self.visits.clone())?);
        }
        Ok(())
    }

    /// Returns how often the third port was added.
    pub(crate) fn visits(&self) -> u64 {
        self.visits.load(Relaxed)
    }

    /// Sets the MTU of both ports, in bytes; the TAP of a port follows.
    ///
    /// # Errors
    /// The daemon refuses the change.
    pub(crate) fn set_mtu(&self, mtu: u16) -> Result<(), LabError> {
        let change = json!({ "mtu": mtu });
        self.uplink.change(&change).and_then(|()| self.vnic.change(&change))
    }

    /// Lets the kernel carry flows between both ports, or stops it; in force on return.
    ///
    /// # Errors
    /// The daemon refuses the change, or a port says why the kernel carries nothing.
    pub(crate) fn set_kernel_path(&self, on: bool) -> Result<(), LabError> {
        let change = json!({ "kernel-path": if on { "auto" } else { "off" } });
        for port in [&self.uplink, &self.vnic] {
            port.change(&change)?;
            let path = port.body()?.kernel_path;
            let reason = path.and_then(|path| path.reason.or(path.from_reason));
            if let Some(reason) = reason.filter(|_| on) {
                return Err(LabError::Switch(format!(
                    "port {} has kernel-path auto, and the kernel does not carry its flows: {reason}",
                    port.name
                )));
            }
        }
        Ok(())
    }

    /// Returns the daemon's description of the uplink.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(crate) fn uplink(&self) -> Result<PortBody, LabError> {
        self.uplink.body()
    }

    /// Changes both ports, and waits until they are up: up to a second if that reopens them.
    ///
    /// # Errors
    /// The daemon refuses a change, or a port does not come up.
    pub(crate) fn reopen(&self, uplink: &Value, vnic: &Value) -> Result<(), LabError> {
        self.uplink.change(uplink)?;
        self.vnic.change(vnic)?;
        self.wait_for_ports()
    }

    /// Returns the guest's team member at the uplink, which is a team.
    ///
    /// # Errors
    /// The uplink is not a team, or has no member for the guest.
    pub(crate) fn home_of_guest(&self) -> Result<String, LabError> {
        let homes = self.team()?.mappings;
        let home = homes.into_iter().find(|home| home.port.as_deref() == Some(PORT));
        let current = home.and_then(|home| home.current);
        current.ok_or_else(|| LabError::Switch("the team has no member for the guest".into()))
    }

    /// Waits until a member of the team is active.
    ///
    /// # Errors
    /// The member does not become active in time, or the interrupt is set.
    pub(crate) fn wait_for_member(&self, name: &str) -> Result<(), LabError> {
        let is_active = || {
            let members = self.team()?.members;
            Ok(members.iter().any(|member| member.name == name && member.active).then_some(()))
        };
        let active = self.interrupt.wait_for(START_TIMEOUT, is_active)?;
        active.ok_or_else(|| LabError::Switch(format!("member {name} did not come back")))
    }

    fn team(&self) -> Result<TeamBody, LabError> {
        let team = self.client.teams(Some(UPLINK_PORT)).map_err(switch_error)?.into_iter().next();
        team.ok_or_else(|| LabError::Switch("the uplink is not a team".into()))
    }

    /// Returns how many indirection entries and queues load balancing has moved so far.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(crate) fn moves(&self) -> Result<u64, LabError> {
        Ok(self.client.vmmq_load().map_err(switch_error)?.moves)
    }

    /// Returns an error unless the guest's port steers this way: `rss`, `follow`.
    pub(crate) fn steers_by(&self, wanted: &str) -> Result<(), LabError> {
        let ports = self.client.rss(Some(PORT)).map_err(switch_error)?;
        let seen = ports.first().map_or(Value::Null, |port| json!(port.steer));
        if seen == wanted {
            return Ok(());
        }
        Err(LabError::Switch(format!("port {PORT} has steer {seen} where \"{wanted}\" was set")))
    }

    /// Steers all frames toward the guest to its first queue, until the port is reopened.
    ///
    /// # Errors
    /// The daemon refuses the change.
    pub(crate) fn receive_on_first_queue(&self) -> Result<(), LabError> {
        self.vnic.tell(format!("millrace rss set {PORT} --equal 1"));
        let change = RssChange { equal: Some(1), ..RssChange::default() };
        self.client.change_rss(PORT, &change).map(drop).map_err(switch_error)
    }

    /// Returns the counters of both ports, of their queues and of the workers.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(crate) fn switch_counters(&self, way: Way) -> Result<SwitchCounters, LabError> {
        let (from, to) = match way.guest_sends() {
            false => (&self.uplink, &self.vnic),
            true => (&self.vnic, &self.uplink),
        };
        let queues = self.client.queues().map_err(switch_error)?;
        let workers = self.client.switch().map_err(switch_error)?.workers;
        Ok(SwitchCounters { ingress: from.counters()?, egress: to.counters()?, queues, workers })
    }
}

/// Turns a host into a daemon with this configuration, and waits until it answers and `wanted`
/// accepts its ports. `path` with the ending `api` is its socket; its other files have other
/// endings.
///
/// # Errors
/// The host does not become the daemon, its ports are not as wanted in time, or the interrupt is
/// set.
pub(crate) fn run(
    host: &mut Host,
    program: &Path,
    (path, text): (&Path, &str),
    interrupt: &Interrupt,
    wanted: impl Fn(&[PortBody]) -> bool,
) -> Result<Client, LabError> {
    let [file, state] = ["toml", "state"].map(|ending| path.with_extension(ending));
    std::fs::write(&file, text).map_err(LabError::io(format!("writing {}", file.display())))?;
    let [program, file, state] = [program, &file, &state].map(|path| path.display().to_string());
    let arguments = ["run", "-c", &file, "--state-dir", &state].map(str::to_owned).to_vec();
    let line = format!("millrace run -c millrace.toml  # {}", text.trim().replace('\n', "; "));
    host.order(&Request::Become { program, arguments }, &line)?;
    let client = interrupt.wait_for(START_TIMEOUT, || {
        host.check()?;
        let client = Client::connect(&path.with_extension("api")).ok();
        Ok(client.filter(|client| client.ports().is_ok_and(|ports| wanted(&ports))))
    })?;
    client.ok_or_else(|| LabError::Switch(host.last_words()))
}

fn socket(topology: &Topology) -> PathBuf {
    topology.directory().join("millrace.api")
}

/// Returns the daemon's configuration. It leaves out RSC, because activity 1 is about the default.
/// Arms whose queues move say so.
fn configuration(topology: &mut Topology) -> String {
    let vnic = match topology.vnic {
        Vnic::Tap => {
            let napi = if topology.receiver_gro { "\nnapi = true" } else { "" };
            format!(
                "tap = \"{VNIC}\"\nnetns = \"/proc/{}/ns/net\"{napi}",
                topology.guest().process()
            )
        }
        Vnic::VhostUser => {
            let socket = topology.machine_path().with_extension("vm");
            format!("vhost-user = {socket:?}\nmac = \"{MAC}\"\nmtu = {}", topology.mtu)
        }
        Vnic::Veth => format!(
            "packet = \"{GUEST}\"\nrole = \"vnic\"\nmac-spoofing = \"allow\"\nkernel-path = \"off\""
        ),
    };
    let socket = socket(topology);
    let workers = match &topology.placement {
        Ok(placement) => format!("workers = {:?}\n", placement.switch),
        // The workers are not pinned, but there is one for each queue.
        Err(_) => format!("workers = {}\n", topology.queues),
    };
    let role = match topology.way {
        Way::BetweenVnics => "role = \"vnic\"\nmac-spoofing = \"allow\"\n",
        Way::ToVnic | Way::FromVnic => "",
    };
    format!(
        "[switch]\nsocket = {socket:?}\nkernel-path = \"auto\"\n{workers}[[port]]\nname = \"{UPLINK_PORT}\"\npacket = \"{UPLINK}\"\n{role}vmmq = \"static\"\n\
         [[port]]\nname = \"{PORT}\"\n{vnic}\nvmmq = \"static\"\n"
    )
}
