//! Options of a campaign: those that all experiments share, and the types of those that one alone
//! has.

mod own;

pub use own::{JumboOptions, RateOptions, RscOptions, SelfTestOptions, SweepOptions, TeamOptions};

use crate::LabError;
use crate::existing_hosts::ExistingHosts;
use crate::host::ROUND_TRIPS_MAX;
use crate::load::Sockets;
use crate::placement::list;
use crate::plan::StopRule;
use crate::report::Threshold;
use crate::shell::word;
use serde::{Deserialize, Serialize};
use statistics::{DEFAULT_REPETITIONS, FEWEST_PAIRS};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a campaign. An experiment with defaults of its own has a constructor beside its code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Connection counts, in the order of measuring. At least one.
    pub connections: Vec<u32>,
    /// Intervals per arm.
    pub repetitions: usize,
    /// Values that [`Options::quick`] takes.
    #[serde(skip)]
    pub quick: Quick,
    /// Length of an interval.
    pub interval: Duration,
    /// Width of the confidence interval (0.02: two per cent) that ends a point early.
    pub narrow: Option<f64>,
    /// Queues of the uplink and the vNIC in each arm, fewest first; empty if all have one.
    pub queues: Vec<u32>,
    /// Directory of the virtual machine and its QEMU; `None` if none is needed.
    pub guest: Option<PathBuf>,
    /// MTU of every link, in bytes; `validate jumbo` measures 1500 as well.
    pub mtu: u16,
    /// Options of `validate rsc` alone.
    #[serde(flatten)]
    pub rsc: RscOptions,
    /// Options of `validate jumbo` alone.
    #[serde(flatten)]
    pub jumbo: JumboOptions,
    /// Options of `validate rate` alone.
    #[serde(flatten)]
    pub rate: RateOptions,
    /// Options of `sweep` alone.
    #[serde(flatten)]
    pub sweep: SweepOptions,
    /// Options of `validate self` alone.
    #[serde(flatten)]
    pub self_test: SelfTestOptions,
    /// Options of `validate team` alone.
    #[serde(flatten)]
    pub team: TeamOptions,
    /// Existing hosts, and the running switch between them, in place of namespaces. Not saved for
    /// [`Options::resume`], because it holds secrets.
    #[serde(skip)]
    pub existing_hosts: Option<ExistingHosts>,
    /// Directory of the report; `None` is `millrace-report-DATE` in the current directory.
    #[serde(skip)]
    pub output: Option<PathBuf>,
    /// Directory of an interrupted report to resume. Its finished points are kept, and its own
    /// options apply.
    #[serde(skip)]
    pub resume: Option<PathBuf>,
    /// Conditions of this call under which the report fails.
    #[serde(skip)]
    pub fail_if: Vec<Threshold>,
    /// The binary with the commands `lab-host` and `run`; usually this one.
    #[serde(skip)]
    pub program: PathBuf,
}

/// Values of the options with `--quick`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// Most intervals per arm.
    pub repetitions: usize,
    /// Tries of each kind of `validate self`.
    pub tries: usize,
    /// Connection counts of `sweep`.
    pub connections: &'static [u32],
    /// Bytes of one call of `sweep`.
    pub blocks: &'static [u32],
}

impl Options {
    /// Returns the defaults of most experiments.
    pub fn new(program: PathBuf) -> Options {
        Options {
            connections: vec![1],
            repetitions: DEFAULT_REPETITIONS,
            // Twenty verdicts take twelve pairs.
            quick: Quick { repetitions: 12, ..Quick::default() },
            interval: Duration::from_secs(1),
            mtu: 1500,
            program,
            ..Options::default()
        }
    }

    /// Returns the defaults of `validate team`: 16 connections, because a single connection uses
    /// one member at a time.
    pub fn team(program: PathBuf) -> Options {
        Options { connections: vec![16], ..Options::new(program) }
    }

    /// Returns the defaults of `validate vmmq`: 16 connections, ports with `queues` queues, and
    /// fewer intervals, each of which has several phases.
    pub fn vmmq(queues: u32, program: PathBuf) -> Options {
        Options {
            connections: vec![16],
            queues: vec![queues],
            repetitions: 12,
            quick: Quick { repetitions: FEWEST_PAIRS, ..Quick::default() },
            ..Options::new(program)
        }
    }

    /// Applies `--quick`, which detects differences of about 15 % and more.
    pub fn quick(mut self) -> Options {
        if self.self_test.tries > 0 {
            return Options { self_test: SelfTestOptions { tries: self.quick.tries }, ..self };
        }
        self.repetitions = self.repetitions.min(self.quick.repetitions);
        self.interval = Duration::from_millis(500);
        if !self.sweep.blocks.is_empty() {
            self.connections = self.quick.connections.to_vec();
            self.sweep.blocks = self.quick.blocks.to_vec();
        }
        self
    }

    /// Applies `--brief`: a verdict on RSC in less than a minute, with as many intervals as twenty
    /// verdicts take, each of them short.
    pub fn brief(self) -> Options {
        Options {
            connections: vec![1, 16],
            repetitions: 12,
            interval: Duration::from_millis(200),
            rsc: RscOptions { brief: true, ..self.rsc },
            ..self
        }
    }

    /// Returns the command of a campaign with these options, without secrets.
    pub fn command(&self, campaign: &str) -> String {
        let validates = !["ladder", "sweep", "connections"].contains(&campaign);
        let mut line = format!("millrace {}{campaign}", if validates { "validate " } else { "" });
        let mut put =
            |option: &str, value: String| line += &format!(" --{option} {}", word(&value));
        let moves = self.rsc.receivers.is_none().then_some(self.guest.as_ref()).flatten();
        match (self.self_test.tries, moves) {
            (0, None) if campaign == "iscsi" => {}
            (0, None) => put("connections", list(&self.connections)),
            (0, Some(guest)) => put("guest", guest.display().to_string()),
            (tries, _) => put("tries", tries.to_string()),
        }
        for (option, numbers) in [("blocks", &self.sweep.blocks), ("queues", &self.queues)] {
            if !numbers.is_empty() {
                put(option, list(numbers));
            }
        }
        let modes: Vec<&str> = self.sweep.vmmq.iter().map(|mode| mode.name()).collect();
        if !modes.is_empty() {
            put("vmmq", modes.join(","));
        }
        let Sockets { receive, send } = self.sweep.sockets;
        for (option, bytes) in [("receive-buffer", receive), ("send-buffer", send)] {
            bytes.into_iter().for_each(|bytes| put(option, bytes.to_string()));
        }
        if campaign == "sweep" && self.mtu != 1500 {
            put("mtu", self.mtu.to_string());
        }
        put("repetitions", self.repetitions.to_string());
        put("seconds", self.interval.as_secs_f64().to_string());
        if let Some(narrow) = self.narrow {
            put("narrow", ((narrow * 1e6).round() / 1e4).to_string());
        }
        let one_mtu = self.self_test.tries == 0 && self.queues.is_empty() && moves.is_none();
        if validates && one_mtu {
            put("mtu", self.mtu.to_string());
        }
        self.fail_if.iter().for_each(|threshold| put("fail-if", threshold.to_string()));
        match (&self.existing_hosts, self.rsc.receivers) {
            (Some(hosts), _) => hosts.options().for_each(|(option, value)| put(option, value)),
            (None, _) if self.rsc.in_process => line += " --in-process",
            (None, Some(receivers)) => {
                put("receiver", receivers.to_string());
                self.guest.iter().for_each(|guest| put("guest", guest.display().to_string()));
            }
            (None, None) => {}
        }
        if let Some(name) = &self.rate.congestion {
            line += &format!(" --congestion {}", word(name));
        }
        if let Some(milliseconds) = self.rate.round_trip_ms {
            line += &format!(" --round-trip {milliseconds}");
        }
        for (option, is_set) in [("two-paths", self.jumbo.two_paths), ("brief", self.rsc.brief)] {
            if is_set {
                line += &format!(" --{option}");
            }
        }
        line
    }

    /// Refuses intervals so long that an agent, which hears nothing within one, would end.
    ///
    /// # Errors
    /// [`LabError::ExistingHosts`] with the longest interval.
    pub(crate) fn check_interval(&self) -> Result<(), LabError> {
        let [asked, most] = [self.interval, ROUND_TRIPS_MAX].map(|time| time.as_secs_f64());
        let why = || format!("intervals of {asked} s: with an agent {most} s is the maximum");
        (asked <= most).then_some(()).ok_or_else(|| LabError::ExistingHosts(why()))
    }

    /// Returns the directory of the virtual machine; by default the one of `cargo xtask guests`.
    pub(crate) fn guest(&self) -> &Path {
        self.guest.as_deref().unwrap_or(Path::new("target/guests/qemu"))
    }

    /// Returns the largest number of queues of a port in any arm.
    pub(crate) fn most_queues(&self) -> u32 {
        self.queues.iter().copied().max().unwrap_or(1)
    }

    /// Returns when a point ends.
    pub(crate) fn stop(&self) -> StopRule {
        let (repetitions, narrow) = (self.repetitions, self.narrow);
        StopRule { repetitions, narrow, least: repetitions.div_ceil(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnic::Receivers;
    use serde_json::json;

    #[test]
    fn a_command_states_all_its_settings() {
        let program = PathBuf::new;
        assert_eq!(
            Options::sweep(program()).quick().command("sweep"),
            "millrace sweep --connections 1,4,16 --blocks 512,4096,32768,524288 --repetitions 2 --seconds 0.5"
        );
        assert_eq!(
            Options::new(program()).command("ladder"),
            "millrace ladder --connections 1 --repetitions 26 --seconds 1"
        );
        let fail_if = vec!["throughput<2.0x".parse().unwrap()];
        let rsc = Options {
            rsc: RscOptions { receivers: Some(Receivers::Both), ..RscOptions::default() },
            narrow: Some(0.02),
            fail_if,
            ..Options::new(program())
        };
        assert_eq!(
            rsc.command("rsc"),
            "millrace validate rsc --connections 1 --repetitions 26 --seconds 1 --narrow 2 --mtu 1500 --fail-if 'throughput < 2x' --receiver both"
        );
        let machine = Options {
            rsc: RscOptions { receivers: Some(Receivers::Qemu), ..RscOptions::default() },
            guest: Some("a guest".into()),
            ..Options::new(program())
        };
        let line = machine.command("rsc");
        assert!(line.ends_with(" --mtu 1500 --receiver qemu --guest 'a guest'"), "{line}");
        assert!(line.contains(" --connections 1 "), "{line}");
        let alone = Options {
            rsc: RscOptions { in_process: true, ..RscOptions::default() },
            ..Options::new(program())
        };
        assert!(alone.command("rsc").ends_with(" --mtu 1500 --in-process"));
    }

    /// State files of earlier versions have all options beside each other.
    #[test]
    fn options_of_one_experiment_are_stored_among_those_of_all() {
        let options = Options::sweep(PathBuf::new());
        let stored = serde_json::to_value(&options).unwrap();
        assert_eq!((&stored["blocks"][0], &stored["in_process"]), (&json!(512), &json!(false)));
        let read: Options = serde_json::from_value(stored).unwrap();
        assert_eq!(read, Options { quick: Quick::default(), ..options });
    }
}
