//! The user's own daemon, which carries a load that is measured: one port's coalescing is toggled there, and put back.
//!
//! Nothing else of it is touched. What was in force before is in force again when this is dropped, whatever happened.

use crate::LabError;
use crate::experiments::{Feature, ON, Toggle};
use crate::port::{Port, switch_error};
use crate::report::Check;
use control::body::PortBody;
use control::client::{Client, ClientError};
use control::config::PortRole;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

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
    /// The keys of the port that are toggled, as they were when we came.
    before: Value,
    /// Whether we have changed any.
    touched: Cell<bool>,
}

impl Running {
    /// Finds the daemon on its socket, and the port toward the receiver: the one that is named, or the only vNIC.
    pub(crate) fn find(
        socket: &Path,
        port: Option<&str>,
        feature: &Feature,
    ) -> Result<Running, LabError> {
        let refused = || LabError::NotBetweenHosts(feature.name.to_owned());
        let toggle = feature.toggle.ok_or_else(refused)?;
        let client = Client::connect(socket).map_err(unreachable)?;
        let found = match port {
            Some(name) => client.port(name).map_err(switch_error)?,
            None => only_vnic(client.ports().map_err(switch_error)?)?,
        };
        let (rsc, limit) = (found.config.rsc, found.config.length_limit);
        Ok(Running {
            port: Port::new(Rc::new(client), found.name),
            process: process(socket),
            mtu: found.mtu,
            kind: found.device.split(' ').next().unwrap_or_default().to_owned(),
            toggle,
            before: json!({ "rsc": rsc, "length-limit": limit }),
            touched: Cell::new(false),
        })
    }

    /// Brings an arm into force; done when this returns.
    pub(crate) fn switch(&self, arm: &str) -> Result<(), LabError> {
        self.touched.set(true);
        (self.toggle)(&self.port, arm)
    }

    /// That coalescing is on and works.
    pub(crate) fn checks(&self) -> Result<Vec<Check>, LabError> {
        self.switch(ON)?;
        self.port.rsc_checks()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.touched.get() {
            // A daemon that is gone has nothing to be put back.
            let _ = self.port.change(&self.before);
        }
    }
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
