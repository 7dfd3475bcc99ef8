//! What tasks look at: the running switch over its API, and the options of the guide.
//!
//! Changes that a guide makes for a measurement are undone when it ends, however it ends, unless
//! another client has changed the same key meanwhile.

use super::script::End;
use api::body::{CountersBody, PortBody};
use api::client::{Client, ClientError};
use config::{PortConfig, PortRole};
use lab::Interrupt;
use lab::host::Whereabouts;
use path_mtu::check::Network;
use problem::Problem;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long to retry undoing a change: the daemon may be restarting.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);

/// The running switch and the options of the guide.
pub(super) struct Place {
    /// The daemon.
    pub(super) client: Client,
    /// The daemon's socket, which agents' measurements need too.
    pub(super) socket: PathBuf,
    /// The vNIC's port. If the guide is about several, the named ones as typed, or empty.
    pub(super) port: String,
    /// Length of a measurement.
    pub(super) length: Duration,
    /// Longest time to wait for traffic.
    pub(super) traffic_timeout: Duration,
    /// The receiver's address, if typed.
    pub(super) to: Option<IpAddr>,
    /// Agents that send and receive.
    pub(super) agents: Option<Agents>,
    /// Networks whose hosts are checked against each other.
    pub(super) networks: Vec<Network>,
    /// Set by Ctrl-C.
    pub(super) interrupt: Interrupt,
    /// What to undo, in the order of the changes.
    undo: Vec<Undo>,
}

/// Agents between which the lab measures.
pub(super) struct Agents {
    /// The sending agent.
    pub(super) sender: Whereabouts,
    /// The receiving agent; this host if absent.
    pub(super) receiver: Option<Whereabouts>,
}

/// A change to undo.
enum Undo {
    /// A key of the vNIC's port, with its value before and the one that the guide set.
    Key { key: &'static str, before: Value, ours: Value },
    /// A port that the guide added.
    Port(String),
}

impl Place {
    /// Returns the place without options.
    pub(super) fn new(client: Client, socket: PathBuf, port: String) -> Place {
        Place {
            client,
            socket,
            port,
            length: Duration::ZERO,
            traffic_timeout: Duration::ZERO,
            to: None,
            agents: None,
            networks: Vec::new(),
            interrupt: Interrupt::default(),
            undo: Vec::new(),
        }
    }

    /// Reads the vNIC's port.
    pub(super) fn vnic(&self) -> Result<PortBody, ClientError> {
        self.client.port(&self.port)
    }

    /// Reads the counters of the vNIC's port.
    pub(super) fn counters(&self) -> Result<CountersBody, ClientError> {
        self.client.counters(&self.port)
    }

    /// Reads the uplinks.
    pub(super) fn uplinks(&self) -> Result<Vec<PortBody>, ClientError> {
        let mut ports = self.client.ports()?;
        ports.retain(|port| port.role == PortRole::Uplink);
        Ok(ports)
    }

    /// Sets a key of the vNIC's port until the guide ends. Null removes the key.
    pub(super) fn set(&mut self, key: &'static str, value: Value) -> Result<PortBody, End> {
        let now = key_of(&self.vnic()?, key);
        if now == value {
            return Ok(self.vnic()?);
        }
        let known = self.undo.iter_mut().find_map(|undo| match undo {
            Undo::Key { key: known, ours, .. } if *known == key => Some(ours),
            _ => None,
        });
        match known {
            Some(ours) => *ours = value.clone(),
            None => self.undo.push(Undo::Key { key, before: now, ours: value.clone() }),
        }
        Ok(self.client.change_port(&self.port, &json!({ key: value }))?)
    }

    /// Adds a port until it is removed or the guide ends.
    pub(super) fn add(&mut self, port: &PortConfig) -> Result<PortBody, End> {
        let body = self.client.add_port(port)?;
        self.undo.push(Undo::Port(body.name.clone()));
        Ok(body)
    }

    /// Removes a port that the guide added.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), End> {
        self.client.remove_port(name)?;
        self.undo.retain(|undo| !matches!(undo, Undo::Port(added) if added == name));
        Ok(())
    }

    /// Undoes all changes, the last first. Returns a line for each.
    ///
    /// # Errors
    /// The daemon did not answer for some seconds, or refuses; says what remains to be undone.
    pub(super) fn leave(&mut self) -> Result<Vec<String>, Problem> {
        let mut lines = Vec::new();
        while let Some(undo) = self.undo.pop() {
            let until = Instant::now() + UNDO_TIMEOUT;
            let undone = loop {
                match self.revert(&undo) {
                    Err(_) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    undone => break undone,
                }
            };
            lines.push(undone.map_err(|error| self.left(&undo, &error))?);
        }
        Ok(lines)
    }

    fn revert(&self, undo: &Undo) -> Result<String, ClientError> {
        let port = &self.port;
        match undo {
            Undo::Port(name) => {
                self.client.remove_port(name).map(|()| format!("port {name} is removed"))
            }
            Undo::Key { key, before, ours } => {
                let now = key_of(&self.client.port(port)?, key);
                if now == *before {
                    return Ok(format!("{key} of port {port} is as before"));
                }
                if now != *ours {
                    return Ok(format!(
                        "{key} of port {port} was changed meanwhile to {now}, and stays so"
                    ));
                }
                self.client.change_port(port, &json!({ *key: before }))?;
                let before =
                    if before.is_null() { "its default".to_owned() } else { before.to_string() };
                Ok(format!("{key} of port {port} is {before} again"))
            }
        }
    }

    fn left(&self, undo: &Undo, error: &ClientError) -> Problem {
        let port = &self.port;
        match undo {
            Undo::Port(name) => Problem::new(format!("port {name} of the guide is left"))
                .seen(error)
                .remedy(format!("`millrace port remove {name}`")),
            Undo::Key { key, before, ours } => {
                let typed = match before {
                    Value::Null => String::new(),
                    Value::String(word) => word.clone(),
                    other => other.to_string(),
                };
                Problem::new(format!("{key} of port {port} is still {ours}"))
                    .seen(error)
                    .wanted(before)
                    .remedy(format!("`millrace port set {port} {key}={typed}`"))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failure, the failure is what is reported.
        let _ = self.leave();
    }
}

/// Returns a key of a port as configured; null if it is not.
fn key_of(port: &PortBody, key: &str) -> Value {
    let config = serde_json::to_value(&port.config).unwrap_or_default();
    config.get(key).cloned().unwrap_or_default()
}
