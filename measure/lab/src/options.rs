//! What was asked for, the same for every experiment.

use crate::LabError;
use crate::between::Between;
use crate::host::ROUND_TRIPS_MAX;
use crate::placement::list;
use crate::plan::StopRule;
use crate::report::Threshold;
use crate::shell::word;
use crate::vnic::Receivers;
use serde::{Deserialize, Serialize};
use statistics::{DEFAULT_REPETITIONS, FEWEST_PAIRS};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of a campaign; each experiment adds the constructor of its own beside its code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Connection counts, one after the other. At least one.
    pub connections: Vec<u32>,
    /// Bytes of one send or receive call, one after the other. For the sweep only.
    pub blocks: Vec<u32>,
    /// Intervals per arm.
    pub repetitions: usize,
    /// Smaller settings that [`Options::quick`] takes.
    #[serde(skip)]
    pub quick: Quick,
    /// Length of an interval.
    pub interval: Duration,
    /// Ends a point early once all its figures are known this closely (0.02: within two per cent).
    pub narrow: Option<f64>,
    /// Two stacks in this process instead of hosts in namespaces. For RSC only.
    pub in_process: bool,
    /// Experiments of each kind by which the lab itself is validated; 0 for anything else.
    pub tries: usize,
    /// How often a team's member is pulled, by each algorithm; 0 for anything else.
    pub pulls: usize,
    /// Queues that the uplink and the vNIC have in an arm, fewest first; empty where all have one.
    pub queues: Vec<u32>,
    /// Where the guest is, with its QEMU; `None` where none is needed.
    pub guest: Option<PathBuf>,
    /// MTU of every link, in bytes; with jumbo frames where those are what is validated.
    pub mtu: u16,
    /// What receives; `None` where there is no choice.
    pub receivers: Option<Receivers>,
    /// The receiver was named, so no other will do.
    pub receiver_named: bool,
    /// Hosts that there are already, and the switch that runs between them, instead of namespaces.
    /// Not kept for [`Options::resume`]: it holds secrets.
    #[serde(skip)]
    pub between: Option<Between>,
    /// Directory of the report; `None`: `millrace-report-DATE` here.
    #[serde(skip)]
    pub output: Option<PathBuf>,
    /// Directory of a report that was interrupted: its finished points are kept, and it goes on
    /// with the options it was begun with.
    #[serde(skip)]
    pub resume: Option<PathBuf>,
    /// Conditions under which the report fails, those of this call.
    #[serde(skip)]
    pub fail_if: Vec<Threshold>,
    /// The binary that knows `lab-host` and `run`; usually this one.
    #[serde(skip)]
    pub program: PathBuf,
}

/// Smaller settings for a first look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// Most intervals per arm.
    pub repetitions: usize,
    /// Experiments of each kind, where the lab itself is validated.
    pub tries: usize,
    /// Connection counts, where blocks are measured.
    pub connections: &'static [u32],
    /// Bytes of one call, where blocks are measured.
    pub blocks: &'static [u32],
}

impl Options {
    /// What `validate` does without options.
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

    /// What `validate team` does: 16 connections, for one has one member at a time.
    pub fn team(program: PathBuf) -> Options {
        Options { connections: vec![16], ..Options::new(program) }
    }

    /// What `validate vmmq` does: 16 connections, ports of so many queues, intervals of several
    /// phases.
    pub fn vmmq(queues: u32, program: PathBuf) -> Options {
        Options {
            connections: vec![16],
            queues: vec![queues],
            repetitions: 12,
            quick: Quick { repetitions: FEWEST_PAIRS, ..Quick::default() },
            ..Options::new(program)
        }
    }

    /// `--quick`: a first look, which sees differences of about 15 % and more.
    pub fn quick(mut self) -> Options {
        if self.tries > 0 {
            return Options { tries: self.quick.tries, ..self };
        }
        self.repetitions = self.repetitions.min(self.quick.repetitions);
        self.interval = Duration::from_millis(500);
        if !self.blocks.is_empty() {
            self.connections = self.quick.connections.to_vec();
            self.blocks = self.quick.blocks.to_vec();
        }
        self
    }

    /// The command of a campaign with these options, without secrets.
    pub fn command(&self, campaign: &str) -> String {
        let validates = !["ladder", "sweep", "connections"].contains(&campaign);
        let mut line = format!("millrace {}{campaign}", if validates { "validate " } else { "" });
        let mut put =
            |option: &str, value: String| line += &format!(" --{option} {}", word(&value));
        let moves = self.receivers.is_none().then_some(self.guest.as_ref()).flatten();
        match (self.tries, moves) {
            (0, None) if campaign == "iscsi" => {}
            (0, None) => put("connections", list(&self.connections)),
            (0, Some(guest)) => put("guest", guest.display().to_string()),
            (tries, _) => put("tries", tries.to_string()),
        }
        for (option, numbers) in [("blocks", &self.blocks), ("queues", &self.queues)] {
            if !numbers.is_empty() {
                put(option, list(numbers));
            }
        }
        put("repetitions", self.repetitions.to_string());
        put("seconds", self.interval.as_secs_f64().to_string());
        if let Some(narrow) = self.narrow {
            put("narrow", ((narrow * 1e6).round() / 1e4).to_string());
        }
        let one_mtu = self.tries == 0 && self.queues.is_empty() && moves.is_none();
        if validates && one_mtu {
            put("mtu", self.mtu.to_string());
        }
        self.fail_if.iter().for_each(|threshold| put("fail-if", threshold.to_string()));
        match (&self.between, self.receivers) {
            (Some(between), _) => between.options().for_each(|(option, value)| put(option, value)),
            (None, _) if self.in_process => line += " --in-process",
            (None, Some(receivers)) => {
                put("receiver", receivers.to_string());
                self.guest.iter().for_each(|guest| put("guest", guest.display().to_string()));
            }
            (None, None) => {}
        }
        line
    }

    /// Refuses intervals in which an agent, which is asked for nothing meanwhile, would take us for
    /// gone.
    pub(crate) fn check_interval(&self) -> Result<(), LabError> {
        let [asked, most] = [self.interval, ROUND_TRIPS_MAX].map(|time| time.as_secs_f64());
        let why = || format!("intervals of {asked} s: with an agent {most} s is the maximum");
        (asked <= most).then_some(()).ok_or_else(|| LabError::Between(why()))
    }

    /// The directory of the guest; where none was named, the one in which `scripts/guests` keeps
    /// it.
    pub(crate) fn guest(&self) -> &Path {
        self.guest.as_deref().unwrap_or(Path::new("target/guests/qemu"))
    }

    /// Most queues of a port, of all arms.
    pub(crate) fn most_queues(&self) -> u32 {
        self.queues.iter().copied().max().unwrap_or(1)
    }

    pub(crate) fn stop(&self) -> StopRule {
        let (repetitions, narrow) = (self.repetitions, self.narrow);
        StopRule { repetitions, narrow, least: repetitions.div_ceil(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            receivers: Some(Receivers::Both),
            narrow: Some(0.02),
            fail_if,
            ..Options::new(program())
        };
        assert_eq!(
            rsc.command("rsc"),
            "millrace validate rsc --connections 1 --repetitions 26 --seconds 1 --narrow 2 --mtu 1500 --fail-if 'throughput < 2x' --receiver both"
        );
        let machine = Options {
            receivers: Some(Receivers::Qemu),
            guest: Some("a guest".into()),
            ..Options::new(program())
        };
        let line = machine.command("rsc");
        assert!(line.ends_with(" --mtu 1500 --receiver qemu --guest 'a guest'"), "{line}");
        assert!(line.contains(" --connections 1 "), "{line}");
        let alone = Options { in_process: true, ..Options::new(program()) };
        assert!(alone.command("rsc").ends_with(" --mtu 1500 --in-process"));
    }
}
