//! The runner of a campaign: it measures the points one after the other, and writes the report of
//! them all.
//!
//! What was measured is written even after Ctrl-C or the death of a process. Every finished point
//! is saved at once (`crate::state`), so that a campaign can be resumed where it ended.

use crate::campaign::{Campaign, Point};
use crate::existing_hosts::connected::ConnectedHosts;
use crate::experiment::{Description, Experiment};
use crate::host::{Command, is_root};
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::plan::{Ended, Run};
use crate::progress::Progress;
use crate::report::{self, Case, Report};
use crate::site::memory_guests::MemoryGuests;
use crate::site::new_hosts::NewHosts;
use crate::site::{RunResult, Site};
use crate::state::State;
use crate::{LabError, explain};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Exit code if a threshold of `--fail-if` is met and nothing else is wrong.
const MET: u8 = 5;

/// The result of a campaign.
#[derive(Debug)]
pub struct Outcome {
    /// Report to print, as text or JSON.
    pub report: Report,
    /// Directory it was written to.
    pub directory: PathBuf,
    /// Whether Ctrl-C was pressed.
    interrupted: bool,
}

impl Outcome {
    /// Returns the exit code: 130 after Ctrl-C; 1 if a point broke or a check failed; otherwise 5
    /// if a threshold is met; 0 if all is well.
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            return 130;
        }
        let mut cases = self.report.cases.iter().chain(&self.report.latency);
        let broke = cases.any(|case| matches!(case.ended, Ended::Failed(_)));
        if broke || self.report.checks.iter().any(|check| !check.passed) {
            return 1;
        }
        if self.report.thresholds.iter().any(|held| held.met) { MET } else { 0 }
    }
}

/// Runs the campaign that `make` returns for these options, or for those of the run to resume. Call
/// it while this process has one thread: an ordinary user cannot create namespaces later.
///
/// # Errors
/// Nothing could be measured, the run to resume does not exist, or the report could not be written.
pub fn run(
    make: &dyn Fn(&Options) -> Campaign,
    options: &Options,
    interrupt: &Interrupt,
) -> Result<Outcome, LabError> {
    let asked = make(options);
    asked.check(&options.fail_if)?;
    let (directory, mut state) = begin(asked.name, options)?;
    let (program, existing_hosts) = (options.program.clone(), options.existing_hosts.clone());
    let (resumes, fail_if) = (options.resume.is_some(), options.fail_if.clone());
    let options = Options { program, existing_hosts, fail_if, ..state.options.clone() };
    let campaign = if resumes { make(&options) } else { asked };
    let outcome = measure(&campaign, &options, &mut state, &directory, interrupt)
        .and_then(|complete| write(&campaign, &options, &state, &directory, complete));
    if outcome.is_err() {
        // Removes the directory only if it is empty; one with files is kept.
        let _ = std::fs::remove_dir(&directory);
    }
    outcome
}

/// Creates the report's directory before an hour of measuring rather than after it, or reads what
/// the run to resume left in its own.
fn begin(name: &str, options: &Options) -> Result<(PathBuf, State), LabError> {
    if let Some(directory) = &options.resume {
        return Ok((directory.clone(), State::read(directory, name)?));
    }
    let date = report::now_utc();
    let usual = || PathBuf::from(format!("millrace-report-{}", date.replace(':', "")));
    let directory = options.output.clone().unwrap_or_else(usual);
    std::fs::create_dir_all(&directory)
        .map_err(|source| LabError::Report { path: directory.clone(), source })?;
    Ok((directory, State::new(name, options, date)))
}

/// The site in use, with the experiment it was created for.
type Visited = Option<(&'static dyn Experiment, Box<dyn Site>)>;

/// Measures the points that are not finished, until all are done or one ends early. An error after
/// the first point ends the measuring and is kept as that point's ending. Returns whether all is
/// done.
fn measure(
    campaign: &Campaign,
    options: &Options,
    state: &mut State,
    directory: &Path,
    interrupt: &Interrupt,
) -> Result<bool, LabError> {
    let mut site: Visited = None;
    let mut left: Duration = campaign.points.iter().map(|point| point.plan.length()).sum();
    let (mut progress, mut complete) = (Progress::new(), true);
    for (place, point) in campaign.points.iter().enumerate() {
        left = left.saturating_sub(point.plan.length());
        if state.has(place) || (state.is_in_process() && point.takes_hosts()) {
            continue;
        }
        let of = format!("{} {} of {}", campaign.name, place + 1, campaign.points.len());
        progress.phase(&point.words(&of), left, point.plan.stop.narrow.is_some());
        let run = visit(&mut site, point, options, state, interrupt).and_then(|site| {
            site.run(point.load, &point.plan, interrupt, &mut |step| progress.step(step))
        });
        let run = kept(run, !state.is_empty())?;
        for note in site.iter().flat_map(|(_, site)| site.left_out()) {
            state.note(note);
        }
        let case = Case::new(&point.plan, point.setting(), run.0, run.1);
        let opinion = site.as_ref().filter(|_| !case.setting.is_round_trips());
        if let Some(note) = opinion.and_then(|(_, site)| site.second_opinion(&case)) {
            let toward =
                if case.setting.receiver_gro { "Toward the receiver with GRO: " } else { "" };
            state.note(format!("{toward}{note}"));
        }
        complete = state.keep(place, case);
        if !complete {
            break;
        }
        state.write(directory)?;
    }
    if let Some((_, site)) = &mut site {
        state.note_checks(site.leave().into_iter().collect());
        state.commands.extend(site.commands());
    }
    if state.is_empty() {
        return Err(LabError::Interrupted);
    }
    state.write(directory)?;
    Ok(complete)
}

/// Turns an error into a run's ending if other points were measured before it.
fn kept(run: RunResult, something_before: bool) -> RunResult {
    let ended = match run {
        Err(LabError::Interrupted) if something_before => Ended::Interrupted,
        Err(error) if something_before => Ended::Failed(error.to_string()),
        other => return other,
    };
    Ok((Run { samples: Vec::new(), ended }, None))
}

/// Returns the site of a point's experiment: the one in use, or a new one in its place, after
/// running its checks.
fn visit<'s>(
    site: &'s mut Visited,
    point: &Point,
    options: &Options,
    state: &mut State,
    interrupt: &Interrupt,
) -> Result<&'s mut dyn Site, LabError> {
    let Description { name, wiring, note, .. } = point.experiment.description();
    let stays = site.as_ref().is_some_and(|(experiment, _)| {
        let known = experiment.description();
        known.name == name && known.wiring == wiring
    });
    if !stays {
        if let Some((_, mut left)) = site.take() {
            state.note_checks(left.leave().into_iter().collect());
            state.commands.extend(left.commands());
            let command = "(from here on with new hosts)".to_owned();
            state.commands.push(Command { host: "here".into(), command });
        }
        let mut fresh = choose_site(point.experiment, options, interrupt, state)?;
        state.meet(fresh.facts(), note);
        let mut checks = fresh.checks(interrupt)?;
        for check in checks.iter_mut().filter(|_| wiring.receiver_gro) {
            check.name += " (receiver with GRO)";
        }
        state.note_checks(checks);
        *site = Some((point.experiment, fresh));
    }
    let (_, site) = site.as_mut().ok_or(LabError::Interrupted)?;
    Ok(site.as_mut())
}

/// Returns hosts in namespaces if these are available. Otherwise, or if asked for, everything runs
/// in process, provided that the experiment can be seen there and no receiver was named.
fn choose_site(
    experiment: &'static dyn Experiment,
    options: &Options,
    interrupt: &Interrupt,
    state: &mut State,
) -> Result<Box<dyn Site>, LabError> {
    if let Some(named) = &options.existing_hosts {
        interrupt.watch_signals()?;
        return Ok(Box::new(ConnectedHosts::connect(experiment, named, options, interrupt)?));
    }
    if let Some(make) = experiment.site() {
        return make(options, interrupt);
    }
    let root = is_root();
    let Description { whole_guide, wiring, .. } = experiment.description();
    let only_hosts = !whole_guide || wiring.receiver_gro || options.rsc.receiver_named;
    if !options.rsc.in_process {
        let made = NewHosts::make(experiment, options, interrupt);
        let why = match made.map(|site| Box::new(site) as Box<dyn Site>) {
            other if only_hosts => return other,
            Err(LabError::NamespaceRefused(why)) => why,
            // What an ordinary user's switch may not do differs from kernel to kernel.
            Err(error @ (LabError::Host { died: true, .. } | LabError::Switch(_))) if !root => {
                error.to_string()
            }
            other => return other,
        };
        state.note(format!(
            "Network namespaces were not available ({why}), so everything ran in one process, and the receiver was not a TAP."
        ));
    }
    interrupt.watch_signals()?;
    Ok(Box::new(MemoryGuests))
}

fn write(
    campaign: &Campaign,
    options: &Options,
    state: &State,
    directory: &Path,
    complete: bool,
) -> Result<Outcome, LabError> {
    let report = explain::report(campaign, options, state)?;
    report::write(&report, directory)?;
    if complete {
        State::remove(directory);
    }
    let (directory, interrupted) = (directory.to_owned(), state.was_interrupted());
    Ok(Outcome { report, directory, interrupted })
}
