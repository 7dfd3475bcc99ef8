//! The user's own daemon, which carries a measured load: the lab toggles one port's coalescing and
//! its limits, and restores them, or it only reads the port.
//!
//! The lab changes nothing else. Dropping [`Running`] restores the former settings, whatever
//! happened, except those that another client has changed meanwhile. Such a change ends the
//! measurement.

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

/// A running daemon and the port to toggle.
pub(crate) struct Running {
    /// The port to toggle.
    pub(crate) port: Port,
    /// The daemon's process, if it is visible.
    pub(crate) process: Option<u32>,
    /// The port's MTU at the start, in bytes.
    pub(crate) mtu: Option<u16>,
    /// Kind of the port's device: `tap`, `vhost-user`.
    pub(crate) kind: String,
    /// Sets an arm at the port; `None` if the arms change nothing there.
    toggle: Option<Toggle>,
    /// The toggled keys of the port ([`toggled`]) at the start.
    before: Value,
    /// The toggled keys as the lab last set them; `None` if it has not.
    ours: RefCell<Option<Value>>,
    /// Whether an unknown arm may be in force, because the answer to its change was lost.
    pending: Cell<bool>,
}

/// Timeout of restoring the settings, which is retried because the daemon may be restarting.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

impl Running {
    /// Connects to the daemon, and finds the port toward the receiver: the named one, or the only
    /// vNIC.
    ///
    /// # Errors
    /// The feature cannot be toggled at a port, the daemon is not reachable, or there is no such
    /// port.
    pub(crate) fn find(
        socket: &Path,
        port: Option<&str>,
        toggle: Option<Toggle>,
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

    /// Sets an arm; it is in force when this returns. Fails if the last one no longer is.
    ///
    /// # Errors
    /// Another client has changed the port, or the daemon refuses the change.
    pub(crate) fn switch(&self, arm: &str) -> Result<(), LabError> {
        self.check()?;
        let Some(toggle) = self.toggle else { return Ok(()) };
        self.ours.borrow_mut().get_or_insert_with(|| self.before.clone());
        self.pending.set(true);
        toggle(&self.port, arm)?;
        *self.ours.borrow_mut() = Some(toggled(&self.port.body()?));
        self.pending.set(false);
        Ok(())
    }

    /// Returns an error unless the last arm is still in force.
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

    /// Returns whether the daemon's processor time can be read.
    pub(crate) fn is_visible(&self) -> bool {
        self.process.is_some_and(|process| ProcessSample::read(process).is_ok())
    }

    /// Turns coalescing on, and checks that it is operational. Checks nothing if the arms change
    /// nothing at the port.
    ///
    /// # Errors
    /// Another client has changed the port, or the daemon refuses the change.
    pub(crate) fn checks(&self) -> Result<Vec<Check>, LabError> {
        if self.toggle.is_none() {
            return Ok(Vec::new());
        }
        self.switch(ON)?;
        self.port.rsc_checks()
    }

    /// Restores the settings, and returns the outcome; `None` if nothing has changed since the last
    /// time.
    pub(crate) fn leave(&self) -> Option<Check> {
        let ours = self.ours.take()?;
        let until = Instant::now() + RESTORE_TIMEOUT;
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

    /// Restores each key that the lab set, but none that another client set. If an answer was lost,
    /// every key that differs counts as set by the lab. Returns the settings then in force.
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
        // Without a measurement there is no report for the outcome.
        let _ = self.leave();
    }
}

/// Returns the toggled keys, spelled as in the configuration; null for a key that the port lacks.
fn toggled(port: &PortBody) -> Value {
    let config = &port.config;
    json!({ "rsc": config.rsc, "length-limit": config.length_limit, "ack-limit": config.ack_limit })
}

/// Returns the id of the process that listens on a socket.
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
