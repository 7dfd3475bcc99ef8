//! A port of a daemon, either the topology's or the user's own, changed and read over the API. Each
//! change is kept as the equivalent command, for the report.

use crate::LabError;
use crate::host::Command;
use crate::report::Check;
use api::body::{AclBody, CountersBody, PortBody, RscBody, RscSetting, SwitchRscBody};
use api::client::{Client, ClientError};
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// A port of a daemon.
pub(crate) struct Port {
    client: Rc<Client>,
    pub(crate) name: String,
    /// Commands equivalent to the changes so far, each once.
    told: RefCell<Vec<String>>,
}

impl Port {
    pub(crate) fn new(client: Rc<Client>, name: String) -> Port {
        Port { client, name, told: RefCell::default() }
    }

    /// Turns coalescing toward the port on or off; it is in force on return.
    pub(crate) fn set_rsc(&self, on: bool) -> Result<(), LabError> {
        let (setting, word) = if on { (RscSetting::On, "on") } else { (RscSetting::Off, "off") };
        self.tell(format!("millrace rsc {word} {}", self.name));
        self.client.set_rsc(Some(&self.name), setting).map(drop).map_err(switch_error)
    }

    /// Changes keys of the port, spelled as in the configuration file; null removes a key.
    pub(crate) fn change(&self, change: &Value) -> Result<(), LabError> {
        self.tell_change(change);
        self.client.change_port(&self.name, change).map(drop).map_err(switch_error)
    }

    /// Like [`change`](Port::change), but refused unless the settings still have this tag
    /// ([`Port::tagged`]).
    pub(crate) fn change_tagged(&self, change: &Value, tag: &str) -> Result<(), LabError> {
        self.tell_change(change);
        let changed = self.client.change_tagged_port(&self.name, change, tag);
        changed.map(drop).map_err(switch_error)
    }

    /// Reads the port's state, with the tag of its settings.
    pub(crate) fn tagged(&self) -> Result<(PortBody, String), LabError> {
        self.client.tagged_port(&self.name).map_err(switch_error)
    }

    /// Reads the port's state.
    pub(crate) fn body(&self) -> Result<PortBody, LabError> {
        self.client.port(&self.name).map_err(switch_error)
    }

    /// Reads the port's rules, with the frames that each decided about.
    pub(crate) fn acl(&self) -> Result<AclBody, LabError> {
        self.client.acl(&self.name).map_err(switch_error)
    }

    /// Reads the port's counters.
    pub(crate) fn counters(&self) -> Result<CountersBody, LabError> {
        self.client.counters(&self.name).map_err(switch_error)
    }

    /// Runs activity 1 of the guide: checks the settings of host and switch, and each address
    /// family's adapter status of coalescing toward the port.
    pub(crate) fn rsc_checks(&self) -> Result<Vec<Check>, LabError> {
        let levels = levels(&self.client.switch_rsc().map_err(switch_error)?);
        let rsc = self.client.rsc(Some(&self.name)).map_err(switch_error)?;
        Ok(levels.into_iter().chain(rsc.iter().flat_map(statuses)).collect())
    }

    /// Returns the commands of all changes so far, for the report.
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

    /// Keeps the command of a change, once however often it is made.
    pub(crate) fn tell(&self, line: String) {
        let mut told = self.told.borrow_mut();
        if !told.contains(&line) {
            told.push(line);
        }
    }
}

/// Returns the checks of host and switch, above the adapters.
fn levels(switch: &SwitchRscBody) -> [Check; 2] {
    let SwitchRscBody { receive_segment_coalescing: host, software_rsc_enabled: on, .. } = switch;
    [
        Check {
            name: "Get-NetOffloadGlobalSetting (host)".into(),
            passed: host == "Enabled",
            seen: format!("ReceiveSegmentCoalescing {host}"),
        },
        Check {
            name: "Get-VMSwitch (switch)".into(),
            passed: *on,
            seen: format!(
                "SoftwareRscEnabled {on}, operational toward {} of {} ports",
                switch.operational_ports, switch.ports
            ),
        },
    ]
}

/// Returns the checks of both families' adapter status.
fn statuses(rsc: &RscBody) -> [Check; 2] {
    let RscBody { name, ipv4_enabled: v4, ipv6_enabled: v6, .. } = rsc;
    [
        status(name, "IPv4", [*v4, rsc.ipv4_operational], &rsc.ipv4_failure_reason),
        status(name, "IPv6", [*v6, rsc.ipv6_operational], &rsc.ipv6_failure_reason),
    ]
}

/// Returns the check of a family's adapter status at a port: whether coalescing is enabled, and
/// whether it is operational.
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

/// Turns an error of the API's client into one of the switch, for `map_err`.
pub(crate) fn switch_error(error: ClientError) -> LabError {
    LabError::Switch(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of `validate rsc` had the adapters only, where Windows has three levels.
    #[test]
    fn host_and_switch_are_checked_above_the_adapters() {
        let of = |host: &str, on: bool| {
            let body = serde_json::json!({
                "ReceiveSegmentCoalescing": host, "Policy": "ndis", "SoftwareRscEnabled": on, "Ports": 4,
                "OperationalPorts": 3,
            });
            levels(&serde_json::from_value(body).unwrap()).map(|check| check.passed)
        };
        assert_eq!(of("Enabled", true), [true, true]);
        assert_eq!(of("Disabled", true), [false, true]);
        assert_eq!(of("Enabled", false), [true, false]);
    }
}
