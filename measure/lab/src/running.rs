//! The user's own daemon, which carries a load that is measured: one port's coalescing is toggled
//! there, and put back.
//!
//! Nothing else of it is touched. What was in force before is in force again when this is dropped,
//! whatever happened: unless someone else has changed it meanwhile, which ends the measurement.

use crate::LabError;
use crate::plan::ON;
use crate::port::{Port, switch_error};
use crate::report::Check;
use api::body::PortBody;
use api::client::{Client, ClientError};
use config::PortRole;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use traffic::measure::ProcessSample;

/// Brings an arm, by its name, into force at one port of a running switch.
pub(crate) type Toggle = fn(&Port, &str) -> Result<(), LabError>;

/// See the module.
pub(crate) struct Running {
    /// The port that is toggled.
    pub(crate) port: Port,
    /// The daemon's process, where we can see it.
    pub(crate) process: Option<u32>,
    /// The port's MTU when we came, in bytes.
    pub(crate) mtu: Option<u16>,
    /// Kind of the port's device: `tap`, `vhost-user`.
    pub(crate) kind: String,
    /// Brings an arm into force at the port.
    toggle: Toggle,
    /// The keys of the port that are toggled ([`toggled`]), as they were when we came.
    before: Value,
    /// The same as we have set them last. `None`: we have not.
    ours: RefCell<Option<Value>>,
    /// Whether an arm may be in force whose keys are not known: its answer was lost.
    pending: Cell<bool>,
}

/// How long the daemon is asked to put back what was in force: it may be restarting.
const PATIENCE: Duration = Duration::from_secs(5);

impl Running {
    /// Finds the daemon on its socket, and the port toward the receiver: the one that is named, or
    /// the only vNIC.
    pub(crate) fn find(
        socket: &Path,
        port: Option<&str>,
        toggle: Toggle,
    ) -> Result<Running, LabError> {
        let client = Client::connect(socket).map_err(unreachable)?;
        let found = match port {
            Some(name) => client.port(name).map_err(switch_error)?,
            None => only_vnic(client.ports().map_err(switch_error)?)?,
        };
        let before = toggled(&found);
        Ok(Running {
            port: Port::new(Rc::new(client), found.name),
            process: process(socket),
            mtu: found.mtu,
            kind: found.device.split(' ').next().unwrap_or_default().to_owned(),
            toggle,
            before,
            ours: RefCell::default(),
            pending: Cell::new(false),
        })
    }

    /// Brings an arm into force; done when this returns. The last one still has to be.
    pub(crate) fn switch(&self, arm: &str) -> Result<(), LabError> {
        self.check()?;
        self.ours.borrow_mut().get_or_insert_with(|| self.before.clone());
        self.pending.set(true);
        (self.toggle)(&self.port, arm)?;
        *self.ours.borrow_mut() = Some(toggled(&self.port.body()?));
        self.pending.set(false);
        Ok(())
    }

    /// That the last arm is still in force.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let (ours, now) = (self.ours.borrow(), toggled(&self.port.body()?));
        match &*ours {
            Some(ours) if *ours != now => Err(LabError::Switch(format!(
                "port {} was changed during the measurement: {now} where {ours} was set; measure again while nothing else changes it",
                self.port.name
            ))),
            _ => Ok(()),
        }
    }

    /// Whether the daemon's processor time can be read.
    pub(crate) fn is_visible(&self) -> bool {
        self.process.is_some_and(|process| ProcessSample::read(process).is_ok())
    }

    /// That coalescing is on and works.
    pub(crate) fn checks(&self) -> Result<Vec<Check>, LabError> {
        self.switch(ON)?;
        self.port.rsc_checks()
    }

    /// Puts back what was in force before. `None`: we have changed nothing since that was done
    /// last.
    pub(crate) fn leave(&self) -> Option<Check> {
        let ours = self.ours.take()?;
        let until = Instant::now() + PATIENCE;
        let restored = loop {
            match self.restore(&ours) {
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(100)),
                restored => break restored,
            }
        };
        let (port, before) = (&self.port.name, &self.before);
        let (passed, seen) = match restored {
            Ok(now) if now == *before => (true, format!("{now} at port {port}, as before")),
            Ok(now) => (
                false,
                format!(
                    "someone else has set {now} at port {port}, which is left so; before it was {before}"
                ),
            ),
            Err(error) => {
                (false, format!("port {port} still has {ours}, before it was {before}: {error}"))
            }
        };
        Some(Check { name: "The port was put back".into(), passed, seen })
    }

    /// Puts back what was in force, but no key that someone else has set: what differs from before
    /// is ours where an answer was lost. What is in force then.
    fn restore(&self, ours: &Value) -> Result<Value, LabError> {
        let (now, tag) = self.port.tagged()?;
        let mut now = toggled(&now);
        let is_ours = |key: &String| {
            now[key] != self.before[key] && (now[key] == ours[key] || self.pending.get())
        };
        let keys = self.before.as_object().into_iter().flatten();
        let change: Map<String, Value> = keys
            .filter(|(key, _)| is_ours(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if change.is_empty() {
            return Ok(now);
        }
        self.port.change_tagged(&Value::Object(change.clone()), &tag)?;
        change.into_iter().for_each(|(key, value)| now[key] = value);
        Ok(now)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where nothing was measured there is no report to say it in.
        let _ = self.leave();
    }
}

/// The keys that are toggled, spelled as in the file; null where a port does not have one.
fn toggled(port: &PortBody) -> Value {
    json!({ "rsc": port.config.rsc, "length-limit": port.config.length_limit })
}

/// Who listens on a socket.
fn process(socket: &Path) -> Option<u32> {
    let peer = socket_peercred(UnixStream::connect(socket).ok()?).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

fn unreachable(error: ClientError) -> LabError {
    match error {
        ClientError::Unreachable(problem) => LabError::NoDaemon(problem),
        other => switch_error(other),
    }
}

fn only_vnic(ports: Vec<PortBody>) -> Result<PortBody, LabError> {
    let mut vnics: Vec<PortBody> =
        ports.into_iter().filter(|port| port.role == PortRole::Vnic).collect();
    match (vnics.pop(), vnics.as_slice()) {
        (Some(only), []) => Ok(only),
        (None, _) => Err(LabError::Switch(
            "the switch has no vNIC: name the port toward the receiver with --port".into(),
        )),
        (Some(last), others) => {
            let names = others.iter().chain([&last]).map(|port| port.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            Err(LabError::Switch(format!(
                "the switch has several vNICs ({names}): name the one toward the receiver with --port"
            )))
        }
    }
}
