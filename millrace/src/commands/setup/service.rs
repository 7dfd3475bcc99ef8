//! The service that runs the switch, under systemd.

use super::command;
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::path::Path;

const UNIT: &str = "millrace.service";
/// The unit's configuration.
pub(super) const FILE: &str = "/etc/millrace/millrace.toml";

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
    /// Asks systemd, if the unit would run this configuration.
    pub(super) fn of_host(file: &Path, has_usual_socket: bool) -> Service {
        if file != Path::new(FILE) || !has_usual_socket {
            return Service::Absent;
        }
        let says_yes = |arguments: &[&str]| systemctl(arguments).is_ok();
        if !Path::new("/run/systemd/system").is_dir() || !says_yes(&["cat", UNIT]) {
            Service::Absent
        } else if says_yes(&["is-active", "--quiet", UNIT]) {
            Service::Running
        } else {
            Service::Stopped
        }
    }

    /// Returns the words of `systemctl` that have the service use the new configuration.
    fn words(self) -> Option<&'static [&'static str]> {
        match self {
            Service::Absent => None,
            Service::Stopped => Some(&["enable", "--now", UNIT]),
            Service::Running => Some(&["reload", UNIT]),
        }
    }

    /// Returns the command line that has the service use the new configuration.
    pub(super) fn line(self) -> Option<String> {
        Some(format!("systemctl {}", self.words()?.join(" ")))
    }

    /// Has the service use the new configuration.
    ///
    /// # Errors
    /// It cannot be started or reloaded.
    pub(super) fn start(self) -> Result<(), Problem> {
        self.words().map_or(Ok(()), systemctl)
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
    let words: Vec<&str> = ["systemctl"].into_iter().chain(arguments.iter().copied()).collect();
    let remedy = "`journalctl -u millrace` says why; run as root";
    command::run(&words).map(drop).map_err(|problem| problem.remedy(remedy))
}
