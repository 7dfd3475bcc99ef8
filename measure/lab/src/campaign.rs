//! A campaign: points that are measured one after the other, each with a bench of its own, and the
//! report of them all.
//!
//! `validate`, `ladder`, `sweep` and `connections` are campaigns; they differ in their points only.
//! Whatever was measured is written, also when someone pressed Ctrl-C or a process died, and every
//! finished point is kept at once (in a `State`), so that a campaign can be taken up again where it
//! ended.

use crate::experiments::Feature;
use crate::host::is_root;
use crate::interrupt::Interrupt;
use crate::load::{Bulk, Load};
use crate::measure::Measure;
use crate::options::Options;
use crate::plan::{Ended, Plan, Run};
use crate::progress::Progress;
use crate::report::{self, Case, Command, Report, Setting, Threshold};
use crate::site::{InProcess, Measured, Namespaces, Site};
use crate::state::State;
use crate::{LabError, between, explain};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Exit code where a threshold of `--fail-if` is met, and nothing else is wrong.
const MET: u8 = 5;

/// What is run. Made by `validate::campaign`, `experiments::ladder::campaign` and their like.
#[derive(Debug)]
pub struct Campaign {
    /// Key: `rsc`, `sweep`.
    pub(crate) name: &'static str,
    /// What people read above the report.
    pub(crate) title: &'static str,
    /// In the order they are measured; those of one feature beside each other.
    pub(crate) points: Vec<Point>,
}

/// One load and what is measured under it.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) feature: &'static Feature,
    pub(crate) load: Load,
    pub(crate) plan: Plan,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// To print, as text or JSON.
    pub report: Report,
    /// Where it was written.
    pub directory: PathBuf,
    /// Someone pressed Ctrl-C.
    interrupted: bool,
}

impl Outcome {
    /// 0; 130 after Ctrl-C; 1 where something broke on the way or a check failed; otherwise 5 where
    /// a threshold is met.
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

impl Campaign {
    /// Refuses thresholds of figures that it does not compare.
    fn check(&self, thresholds: &[Threshold]) -> Result<(), LabError> {
        let compares = self.points.iter().filter(|point| point.plan.arms.len() > 1);
        let known: Vec<&Measure> = compares.flat_map(|point| point.plan.measures).collect();
        report::check_thresholds(thresholds, &known)
    }
}

impl Point {
    fn setting(&self) -> Setting {
        let Feature { way, receiver_gro, site, .. } = *self.feature;
        let way = site.is_none().then_some(way);
        let (connections, buffer_bytes, beside) = match self.load {
            Load::Bulk(Bulk { connections, buffer_bytes }) => {
                (connections, Some(buffer_bytes), None)
            }
            Load::RoundTrips(beside) => (1, None, beside.map(|bulk| bulk.connections)),
        };
        Setting { connections, buffer_bytes, beside, way, receiver_gro }
    }

    /// In process there is no kernel that could coalesce, and a guest does one thing at a time.
    fn takes_hosts(&self) -> bool {
        self.feature.receiver_gro || matches!(self.load, Load::RoundTrips(Some(_)))
    }

    /// What people read while it runs.
    fn words(&self, name: &str) -> String {
        format!("{name}, {}", self.setting().words())
    }
}

/// Runs a campaign. Call it while this process has one thread: an ordinary user's namespaces cannot
/// be had later.
///
/// # Errors
/// Nothing could be measured, what should be resumed is not there, or the report could not be
/// written.
pub fn run(
    make: &dyn Fn(&Options) -> Campaign,
    options: &Options,
    interrupt: &Interrupt,
) -> Result<Outcome, LabError> {
    make(options).check(&options.fail_if)?;
    let (directory, mut state) = begin(make, options)?;
    let (program, between) = (options.program.clone(), options.between.clone());
    let fail_if = options.fail_if.clone();
    let options = Options { program, between, fail_if, ..state.options.clone() };
    let campaign = make(&options);
    let outcome = measure(&campaign, &options, &mut state, &directory, interrupt)
        .and_then(|complete| write(&campaign, &options, &state, &directory, complete));
    if outcome.is_err() {
        // Only where it is empty: nobody needs it.
        let _ = std::fs::remove_dir(&directory);
    }
    outcome
}

/// The directory, made before an hour of measuring and not after it, and what is in it already.
fn begin(
    make: &dyn Fn(&Options) -> Campaign,
    options: &Options,
) -> Result<(PathBuf, State), LabError> {
    let name = make(options).name;
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

/// Measures all points that are not finished, until all are done or one ends early. An error where
/// something was already measured ends the measuring and is kept as that point's ending. Whether
/// all is done.
fn measure(
    campaign: &Campaign,
    options: &Options,
    state: &mut State,
    directory: &Path,
    interrupt: &Interrupt,
) -> Result<bool, LabError> {
    let mut site: Option<(&Feature, Box<dyn Site>)> = None;
    let mut left: Duration = campaign.points.iter().map(|point| point.plan.length()).sum();
    let (mut progress, mut complete) = (Progress::new(), true);
    for (place, point) in campaign.points.iter().enumerate() {
        left = left.saturating_sub(point.plan.length());
        if state.has(place) || (state.is_in_process() && point.takes_hosts()) {
            continue;
        }
        let of = format!("{} {} of {}", campaign.name, place + 1, campaign.points.len());
        progress.phase(&point.words(&of), left, point.plan.stop.narrow.is_some());
        let run = visit(&mut site, point, options, state, interrupt)
            .and_then(|site| site.run(point, interrupt, &mut |step| progress.step(step)));
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

/// An error is the run's ending where others were measured before it.
fn kept(run: Measured, something_before: bool) -> Measured {
    let ended = match run {
        Err(LabError::Interrupted) if something_before => Ended::Interrupted,
        Err(error) if something_before => Ended::Failed(error.to_string()),
        other => return other,
    };
    Ok((Run { samples: Vec::new(), ended }, None))
}

/// The site of a point's feature: the one that is there, or a new one in its place, with its
/// checks.
fn visit<'s>(
    site: &'s mut Option<(&'static Feature, Box<dyn Site>)>,
    point: &Point,
    options: &Options,
    state: &mut State,
    interrupt: &Interrupt,
) -> Result<&'s mut dyn Site, LabError> {
    let stays = site.as_ref().is_some_and(|(feature, _)| std::ptr::eq(*feature, point.feature));
    if !stays {
        if let Some((_, mut left)) = site.take() {
            state.note_checks(left.leave().into_iter().collect());
            state.commands.extend(left.commands());
            let command = "(from here on with new hosts)".to_owned();
            state.commands.push(Command { host: "here".into(), command });
        }
        let mut fresh = choose_site(point.feature, options, interrupt, state)?;
        state.meet(fresh.facts(), point.feature.note);
        let mut checks = fresh.checks(interrupt)?;
        for check in checks.iter_mut().filter(|_| point.feature.receiver_gro) {
            check.name += " (receiver with GRO)";
        }
        state.note_checks(checks);
        *site = Some((point.feature, fresh));
    }
    let (_, site) = site.as_mut().ok_or(LabError::Interrupted)?;
    Ok(site.as_mut())
}

/// Hosts in namespaces where they can be had; otherwise, or where asked for, all in process, if the
/// feature can be seen there and no receiver was named.
fn choose_site(
    feature: &'static Feature,
    options: &Options,
    interrupt: &Interrupt,
    state: &mut State,
) -> Result<Box<dyn Site>, LabError> {
    if let Some(between) = &options.between {
        interrupt.watch_signals()?;
        return Ok(Box::new(between::Site::find(feature, between, options, interrupt)?));
    }
    if let Some(make) = feature.site {
        return make(options, interrupt);
    }
    let root = is_root();
    let only_hosts = !feature.whole_guide || feature.receiver_gro || options.receiver_named;
    if !options.in_process {
        let made = Namespaces::make(feature, options, interrupt);
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
    Ok(Box::new(InProcess))
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
