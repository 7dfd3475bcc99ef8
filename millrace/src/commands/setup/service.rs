//! The service that runs the switch, under systemd.

use problem::Problem;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

const UNIT: &str = "millrace.service";

/// The service as a setup found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Service {
    /// No systemd, or the unit is not installed.
    Absent,
    /// It did not run.
    Stopped,
    /// It ran.
    Running,
}

impl Service {
    /// Asks systemd.
    pub(super) fn of_host() -> Service {
        let says_yes = |arguments: &[&str]| {
            let output = Command::new("systemctl").args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !Path::new("/run/systemd/system").is_dir() || !says_yes(&["cat", UNIT]) {
            Service::Absent
        } else if says_yes(&["is-active", "--quiet", UNIT]) {
            Service::Running
        } else {
            Service::Stopped
        }
    }

    /// Has the service use the new configuration.
    ///
    /// # Errors
    /// It cannot be started or reloaded.
    pub(super) fn start(self) -> Result<(), Problem> {
        match self {
            Service::Absent => Ok(()),
            Service::Stopped => systemctl(&["enable", "--now", UNIT]),
            Service::Running => systemctl(&["reload", UNIT]),
        }
    }

    /// Leaves the service as it was found; the old configuration is back already.
    ///
    /// # Errors
    /// It cannot be stopped or reloaded.
    pub(super) fn put_back(self) -> Result<(), Problem> {
        match self {
            Service::Absent => Ok(()),
            Service::Stopped => systemctl(&["disable", "--now", UNIT]),
            Service::Running => systemctl(&["reload", UNIT]),
        }
    }
}

fn systemctl(arguments: &[&str]) -> Result<(), Problem> {
    let line = format!("systemctl {}", arguments.join(" "));
    let failed = |seen: String| {
        let problem = Problem::new(format!("`{line}` failed")).seen(seen);
        problem.remedy("`journalctl -u millrace` says why; run as root")
    };
    let output = Command::new("systemctl").args(arguments).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(failed(said)) }
}
