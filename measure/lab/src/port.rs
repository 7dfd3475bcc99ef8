//! A port of a daemon, ours in the topology or the user's own, changed and read over the API. Each
//! change is noted as a person would type it, for the report.

use crate::LabError;
use crate::report::{Check, Command};
use api::body::{AclBody, CountersBody, PortBody, RscBody, RscSetting};
use api::client::{Client, ClientError};
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// See the module.
pub(crate) struct Port {
    client: Rc<Client>,
    pub(crate) name: String,
    /// What was changed, each once.
    told: RefCell<Vec<String>>,
}

impl Port {
    pub(crate) fn new(client: Rc<Client>, name: String) -> Port {
        Port { client, name, told: RefCell::default() }
    }

    /// Toggles coalescing toward it; done when this returns.
    pub(crate) fn set_rsc(&self, on: bool) -> Result<(), LabError> {
        let (setting, word) = if on { (RscSetting::On, "on") } else { (RscSetting::Off, "off") };
        self.tell(format!("millrace rsc {word} {}", self.name));
        self.client.set_rsc(Some(&self.name), setting).map(drop).map_err(switch_error)
    }

    /// Changes keys of it, spelled as in the file; null takes a key away.
    pub(crate) fn change(&self, change: &Value) -> Result<(), LabError> {
        self.tell_change(change);
        self.client.change_port(&self.name, change).map(drop).map_err(switch_error)
    }

    /// The same if its settings still have this tag ([`Port::tagged`]).
    pub(crate) fn change_tagged(&self, change: &Value, tag: &str) -> Result<(), LabError> {
        self.tell_change(change);
        let changed = self.client.change_tagged_port(&self.name, change, tag);
        changed.map(drop).map_err(switch_error)
    }

    /// What the daemon says of it, with the tag of its settings.
    pub(crate) fn tagged(&self) -> Result<(PortBody, String), LabError> {
        self.client.tagged_port(&self.name).map_err(switch_error)
    }

    /// What the daemon says of it.
    pub(crate) fn body(&self) -> Result<PortBody, LabError> {
        self.client.port(&self.name).map_err(switch_error)
    }

    /// Its rules, with the frames each decided about.
    pub(crate) fn acl(&self) -> Result<AclBody, LabError> {
        self.client.acl(&self.name).map_err(switch_error)
    }

    /// Its counters.
    pub(crate) fn counters(&self) -> Result<CountersBody, LabError> {
        self.client.counters(&self.name).map_err(switch_error)
    }

    /// Activity 1 of the guide: coalescing toward it is on, and what each family's adapter status
    /// says.
    pub(crate) fn rsc_checks(&self) -> Result<Vec<Check>, LabError> {
        let rsc = self.client.rsc(Some(&self.name)).map_err(switch_error)?;
        Ok(rsc.iter().flat_map(statuses).collect())
    }

    /// Every change so far, for the report.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let told = self.told.borrow();
        told.iter().map(|line| Command { host: "switch".into(), command: line.clone() }).collect()
    }

    fn tell_change(&self, change: &Value) {
        let keys = change.as_object().into_iter().flatten().map(|(key, value)| match value {
            Value::Null => format!(" {key}="),
            value => format!(" {key}={value}"),
        });
        self.tell(format!("millrace port set {}{}", self.name, keys.collect::<String>()));
    }

    /// Notes a change, once however often it is made.
    pub(crate) fn tell(&self, line: String) {
        let mut told = self.told.borrow_mut();
        if !told.contains(&line) {
            told.push(line);
        }
    }
}

/// What each family's adapter status says.
fn statuses(rsc: &RscBody) -> [Check; 2] {
    let RscBody { name, ipv4_enabled: v4, ipv6_enabled: v6, .. } = rsc;
    [
        status(name, "IPv4", [*v4, rsc.ipv4_operational], &rsc.ipv4_failure_reason),
        status(name, "IPv6", [*v6, rsc.ipv6_operational], &rsc.ipv6_failure_reason),
    ]
}

/// A family's adapter status at a port: whether coalescing is enabled, and whether it works.
pub(crate) fn status(
    port: &str,
    family: &str,
    [enabled, operational]: [bool; 2],
    reason: &str,
) -> Check {
    let seen = format!(
        "{family}Enabled {enabled}, {family}OperationalState {operational}, {family}FailureReason {reason}"
    );
    Check {
        name: format!("Get-NetAdapterRsc {port} {family}"),
        passed: enabled && operational,
        seen,
    }
}

/// For `map_err`.
pub(crate) fn switch_error(error: ClientError) -> LabError {
    LabError::Switch(error.to_string())
}
