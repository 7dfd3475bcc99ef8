//! `millrace guide`: walks a person through the activities of Microsoft's documents, one by one, on
//! the running switch.
//!
//! A guide is data: activities with tasks, a file each. One walk looks at the tasks, and stores each
//! result at once.

mod agents;
mod document;
mod iscsi;
mod jumbo;
mod keep;
mod linux;
mod paths;
mod people;
mod place;
mod prerequisites;
mod progress;
mod rsc;
mod script;
mod traffic;
mod vmmq;
mod walk;

use super::names;
use super::networks::{Named, networks};
use crate::global::Global;
use crate::output::{self, Failure, INTERRUPTED, Outcome};
use ::traffic::schema;
use api::body::PortBody;
use clap::{Args, ValueEnum};
use config::PortRole;
use document::{Document, SCHEMA, Verdict};
use keep::Keep;
use lab::host::Whereabouts;
use lab::report::now_utc;
use path_mtu::check::Network;
use people::People;
use place::{Agents, Place};
use problem::Problem;
use script::{End, Guide};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace guide --list                      # the guides
  millrace guide rsc --list                  # what it would do, with the command of Windows beside
  millrace guide rsc --port vm1
  millrace guide jumbo --port vm1 --yes --json
  millrace guide jumbo --port vm1 --network management=TOKEN@192.0.2.1:5910,TOKEN@192.0.2.2:5910
  millrace guide rsc --port vm1 --sender TOKEN@192.0.2.1:5900 --receiver TOKEN@10.0.0.7:5900

Each task shows the document's command and the one here, what was seen, what is wanted, and the
remedy. A task that measures says what to type at both ends, waits for the traffic, and measures by
the switch's counters; with agents (`millrace lab agent`) it measures as `validate rsc` does. What a
guide sets for a measurement is put back at its end, also after Ctrl-C.

After each task the state is stored, so that the next run continues where this one ended. It does
not measure again what was measured, and looks again at everything else: settings, problems, notes.
When nothing is left, the next run prints what was found and does nothing more; --restart begins
anew.
Exit codes: 0 no problem (notes may be left), 1 a task found a problem, 2 wrong usage, 3 no daemon
answers, 130 after Ctrl-C.")]
pub(crate) struct Arguments {
    /// The guide.
    #[arg(value_enum, required_unless_present = "list")]
    guide: Option<Name>,
    /// The vNIC's port; for iscsi the guest's two, as NAME,NAME [default: the only vNIC; for iscsi
    /// those with a link of their own].
    #[arg(long, add = names::ports())]
    port: Option<String>,
    /// Length of a measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// Longest time to wait for traffic, or for its end.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    wait: Duration,
    /// The receiver's address, for the command lines shown and for agents [default: that of the
    /// vNIC's TAP].
    #[arg(long, value_name = "ADDRESS")]
    to: Option<IpAddr>,
    /// The sending agent, as `millrace lab agent` printed it on the far host (rsc only).
    #[arg(long, value_name = "TOKEN@ADDRESS:PORT", env = "MILLRACE_LAB_SENDER", hide_env = true)]
    sender: Option<Whereabouts>,
    /// The receiving agent, for example in a guest [default: this host].
    #[arg(long, value_name = "TOKEN@ADDRESS:PORT", requires = "sender")]
    receiver: Option<Whereabouts>,
    /// Responders in one network, as for `mtu check`, to be checked against each other. Repeat it for
    /// each network (jumbo only).
    #[arg(long = "network", value_name = "NAME=TOKEN@ADDRESS:PORT,…")]
    networks: Vec<Named>,
    /// The state file [default: guide-GUIDE-PORT.json in $XDG_STATE_HOME/millrace, without that
    /// variable in ~/.local/state/millrace; with another --socket, its path is part of the name].
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Begin anew, and forget what earlier runs have seen, also of a guide that is finished.
    #[arg(long)]
    restart: bool,
    /// Print the tasks with both commands, or without GUIDE the guides, and do nothing.
    #[arg(long)]
    list: bool,
    /// Do not wait for Enter between activities.
    #[arg(long, short)]
    yes: bool,
}

/// What to do where there is no vNIC.
const NO_VNIC: &str = "`millrace port add NAME --tap DEVICE` adds one";

/// The guides.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// RSC in the vSwitch, on against off.
    Rsc,
    /// Dynamic VMMQ: queues, workers, moves.
    Vmmq,
    /// Linux guests: vRSS, offloads, hot add, throughput.
    Linux,
    /// Jumbo frames end to end, measured at 1500 and 9000.
    Jumbo,
    /// iSCSI of a guest over two paths.
    Iscsi,
}

impl Name {
    fn guide(self) -> &'static Guide<Place> {
        match self {
            Name::Rsc => &rsc::GUIDE,
            Name::Vmmq => &vmmq::GUIDE,
            Name::Linux => &linux::GUIDE,
            Name::Jumbo => &jumbo::GUIDE,
            Name::Iscsi => &iscsi::GUIDE,
        }
    }
}

/// Returns the JSON schema of what `--json` prints.
pub(crate) fn json_schema() -> serde_json::Value {
    schema::of::<Document>("guide", SCHEMA)
}

/// Parses a time such as `90s`, `10min` or `1h`.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "" | "s" => 1,
        "min" => 60,
        "h" => 3600,
        _ => 0,
    };
    let number = number.parse::<u32>().ok().filter(|number| *number > 0 && seconds > 0);
    let number =
        number.ok_or_else(|| format!("{text:?} is not a time such as 90s, 10min or 1h"))?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let Some(guide) = arguments.guide.map(Name::guide) else {
        let all = Name::value_variants().iter().map(|name| listed(name.guide(), None));
        return output::show(global, &all.collect::<Vec<_>>(), |all| people::names(all));
    };
    if arguments.list {
        return output::show(global, &listed(guide, arguments.port.clone()), people::list);
    }
    let mut place = place(arguments, guide, global)?;
    let port = Some(place.port.clone()).filter(|port| !port.is_empty());
    let fresh = Document::new(guide.name, guide.title, port);
    let keep = Keep::of(arguments.state.as_deref(), &fresh, global.unusual_socket().as_deref())?;
    let known = if arguments.restart { None } else { keep.read(&fresh)? };
    if let Some(known) = &known {
        output::tell(&people::earlier(known, keep.path()));
        if known.verdict == Verdict::Done {
            return output::show(global, known, people::finished);
        }
    }
    let mut document = known.unwrap_or(fresh);
    place.interrupt.watch_signals().map_err(|error| Problem::new(error.to_string()))?;
    let (json, interrupt) = (global.json, place.interrupt.clone());
    let lines = if arguments.yes { None } else { people::lines() };
    let mut people = People { keep: &keep, json, lines, interrupt };
    let walked = walk::walk(guide, &mut place, &mut document, &mut people);
    let left = place.leave();
    for line in left.as_ref().into_iter().flatten() {
        output::tell(line);
    }
    // After the guide's own settings are undone, so that none of them is found.
    let settled = walked.and_then(|()| match left {
        Ok(_) => walk::settle(guide, &mut place, &mut document),
        Err(_) => Ok(()),
    });
    let code = match settled {
        Ok(()) => code(document.verdict),
        Err(End::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(End::Failed(failure)) => return Err(failure),
    };
    left?;
    document.ended = now_utc();
    keep.write(&document)?;
    output::show(global, &document, people::summary)?;
    Ok(code)
}

/// Returns a guide's tasks before they are looked at.
fn listed(guide: &Guide<Place>, port: Option<String>) -> Document {
    walk::list(guide, Document::new(guide.name, guide.title, port))
}

fn code(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Done | Verdict::Noted => ExitCode::SUCCESS,
        Verdict::Problems | Verdict::Stopped | Verdict::Unfinished => ExitCode::FAILURE,
    }
}

/// Connects to the daemon, and finds the vNIC.
fn place(arguments: &Arguments, guide: &Guide<Place>, global: &Global) -> Result<Place, Failure> {
    let (agents, networks) = (arguments.agents(guide.name)?, arguments.networks(guide.name)?);
    let client = global.client()?;
    let port = match (guide.is_of_one_vnic, &arguments.port) {
        (true, Some(name)) => vnic(&client.port(name)?, &vnics(&client.ports()?))?,
        (true, None) => only(&vnics(&client.ports()?))?,
        (false, Some(names)) => {
            let ports = client.ports()?;
            for name in names.split(',') {
                vnic(&client.port(name)?, &vnics(&ports))?;
            }
            names.clone()
        }
        (false, None) => String::new(),
    };
    let mut place = Place::new(client, global.socket(), port);
    place.length = Duration::from_secs(arguments.seconds.into());
    (place.traffic_timeout, place.to, place.agents) = (arguments.wait, arguments.to, agents);
    place.networks = networks;
    Ok(place)
}

impl Arguments {
    /// Returns the agents as typed.
    ///
    /// # Errors
    /// The guide does not measure between agents.
    fn agents(&self, guide: &str) -> Result<Option<Agents>, Failure> {
        let Some(sender) = self.sender.clone() else { return Ok(None) };
        if self.guide != Some(Name::Rsc) {
            return Err(Failure::Usage(
                Problem::new(format!("guide {guide} --sender"))
                    .seen("a guide that measures any traffic toward the vNIC")
                    .wanted("guide rsc")
                    .remedy("omit --sender, and type the lines that the guide shows at both ends"),
            ));
        }
        Ok(Some(Agents { sender, receiver: self.receiver.clone() }))
    }

    /// Returns the networks as typed.
    ///
    /// # Errors
    /// The guide checks no networks.
    fn networks(&self, guide: &str) -> Result<Vec<Network>, Failure> {
        if self.guide != Some(Name::Jumbo) && !self.networks.is_empty() {
            return Err(Failure::Usage(
                Problem::new(format!("guide {guide} --network"))
                    .seen("a guide that checks no networks")
                    .wanted("guide jumbo")
                    .remedy(
                        "omit --network; `millrace mtu check --network …` checks networks alone",
                    ),
            ));
        }
        Ok(networks([], self.networks.clone()))
    }
}

/// Returns the names of the vNICs.
fn vnics(ports: &[PortBody]) -> Vec<&str> {
    let vnics = ports.iter().filter(|port| port.role == PortRole::Vnic);
    vnics.map(|port| port.name.as_str()).collect()
}

/// Returns the name of a port that is a vNIC.
///
/// # Errors
/// It is an uplink.
fn vnic(port: &PortBody, vnics: &[&str]) -> Result<String, Failure> {
    if port.role == PortRole::Vnic {
        return Ok(port.name.clone());
    }
    let remedy = match vnics {
        [] => NO_VNIC.to_owned(),
        vnics => format!("`--port {}`", vnics.join("` or `--port ")),
    };
    Err(Failure::Usage(
        Problem::new(format!("port {} is not a vNIC", port.name))
            .seen(format!("an uplink ({})", port.device))
            .wanted("the vNIC toward the receiver")
            .remedy(remedy),
    ))
}

/// Returns the only vNIC.
///
/// # Errors
/// There is none, or several.
fn only(vnics: &[&str]) -> Result<String, Failure> {
    match vnics {
        [only] => Ok((*only).to_owned()),
        [] => Err(Problem::new("the switch has no vNIC")
            .wanted("the port toward the receiver")
            .remedy(NO_VNIC)
            .into()),
        several => Err(Failure::Usage(
            Problem::new("the switch has several vNICs")
                .seen(several.join(", "))
                .wanted("the one toward the receiver")
                .remedy("name it with --port"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn titles_are_unique_so_that_results_find_their_tasks() {
        for name in Name::value_variants() {
            let guide = name.guide();
            let titles = guide.activities.iter().flat_map(|activity| {
                activity.tasks.iter().map(|task| (activity.title, task.title))
            });
            let titles: Vec<_> = titles.collect();
            let unique: BTreeSet<_> = titles.iter().collect();
            assert_eq!(unique.len(), titles.len(), "{}", guide.name);
            let value = name.to_possible_value().unwrap();
            assert_eq!(value.get_name(), guide.name);
        }
    }

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        let minutes = |text| time(text).map(|time| time.as_secs());
        assert_eq!((minutes("90"), minutes("10min"), minutes("1 h")), (Ok(90), Ok(600), Ok(3600)));
        for wrong in ["", "min", "0s", "5d", "1.5h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn several_vnics_are_named() {
        assert_eq!(only(&["vm1"]).ok(), Some("vm1".to_owned()));
        let Err(Failure::Usage(problem)) = only(&["vm1", "vm2"]) else { panic!("there are two") };
        assert!(problem.seen.contains("vm1, vm2") && problem.remedy.contains("--port"));
    }
}
