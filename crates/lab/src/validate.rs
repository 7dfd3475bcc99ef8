//! `millrace validate`: a feature on against off in one call, with the report.
//!
//! For RSC this is the whole of Microsoft's validation guide: activity 1 looks at the default configuration; activities
//! 2 and 3 measure with RSC on and off, alternating under connections that keep running; then round trips, and the
//! Linux bridge under the same load. Other features have checks of their own and the same measuring. Whatever was
//! measured is written, also when someone pressed Ctrl-C or a process died.

use crate::LabError;
use crate::experiment::{Arm, DEFAULT_REPETITIONS, Ended, Experiment, Run, StopRule};
use crate::experiments::{Feature, Load, ON, latency};
use crate::host::is_root;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::{self, ArmFigures, Case, Check, Machine, Report, SCHEMA, Written};
use crate::site::{Site, roughly};
use std::path::PathBuf;
use std::time::Duration;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connection counts, one after the other. At least one.
    pub connections: Vec<u32>,
    /// Intervals per arm.
    pub repetitions: usize,
    /// Length of an interval.
    pub interval: Duration,
    /// Ends a connection count early once all three figures are known this closely (0.02: within two per cent).
    pub narrow: Option<f64>,
    /// Two stacks in this process instead of hosts in namespaces. For RSC only.
    pub in_process: bool,
    /// MTU of every link, in bytes; with jumbo frames where those are what is validated.
    pub mtu: u16,
    /// Directory of the report; `None`: `millrace-report-DATE` here.
    pub output: Option<PathBuf>,
    /// The binary that knows `lab-host` and `run`; usually this one.
    pub program: PathBuf,
}

impl Options {
    /// What `validate` does without options.
    pub fn new(program: PathBuf) -> Options {
        Options {
            connections: vec![1],
            repetitions: DEFAULT_REPETITIONS,
            interval: Duration::from_secs(1),
            narrow: None,
            in_process: false,
            mtu: 1500,
            output: None,
            program,
        }
    }

    /// `--quick`: a first look, which sees differences of about 15 % and more.
    pub fn quick(mut self) -> Options {
        self.repetitions = 8;
        self.interval = Duration::from_millis(500);
        self
    }

    fn stop(&self) -> StopRule {
        StopRule { repetitions: self.repetitions, narrow: self.narrow, budget: None }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// To print, as text or JSON.
    pub report: Report,
    /// Where it was written.
    pub written: Written,
}

impl Outcome {
    /// 0; 130 after Ctrl-C; 1 where something broke on the way or a check failed.
    pub fn exit_code(&self) -> u8 {
        let ended =
            self.report.all_cases().iter().chain(&self.report.latency).map(|case| &case.ended);
        let mut code = u8::from(self.report.checks.iter().any(|check| !check.passed));
        for ended in ended {
            match ended {
                Ended::Interrupted => return 130,
                Ended::Failed(_) => code = 1,
                _ => {}
            }
        }
        code
    }
}

/// What has been measured so far.
#[derive(Default)]
struct Measured {
    cases: Vec<Case>,
    latency: Option<Case>,
    peer: Option<ArmFigures>,
}

/// Validates a feature. Call it while this process has one thread: an ordinary user's namespaces cannot be had later.
///
/// # Errors
/// Nothing could be measured, or the report could not be written.
pub fn run(
    feature: &'static Feature,
    options: &Options,
    interrupt: &Interrupt,
) -> Result<Outcome, LabError> {
    let date = report::now_utc();
    let directory = options
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("millrace-report-{}", date.replace(':', ""))));
    // Before an hour of measuring and not after it.
    std::fs::create_dir_all(&directory)
        .map_err(|source| LabError::Report { path: directory.clone(), source })?;
    let outcome = validate(feature, options, interrupt, date)
        .and_then(|report| Ok(Outcome { written: report::write(&report, &directory)?, report }));
    if outcome.is_err() {
        // Only where it is empty: nobody needs it.
        let _ = std::fs::remove_dir(&directory);
    }
    outcome
}

fn validate(
    feature: &'static Feature,
    options: &Options,
    interrupt: &Interrupt,
    date: String,
) -> Result<Report, LabError> {
    let mut notes: Vec<String> = feature.note.map(str::to_owned).into_iter().collect();
    let mut site = choose_site(feature, options, interrupt, &mut notes)?;
    let mut checks = site.checks(interrupt)?;
    let mut measured = Measured::default();
    measure(feature, options, &mut site, interrupt, &mut measured)?;
    let Some(first) = measured.cases.first().cloned() else { return Err(LabError::Interrupted) };
    checks.extend(wire_check(&first, &site));
    checks.extend((feature.proof)(&first));
    notes.extend(explanations(&first, &site));
    let hz = first.median(ON, "time_stamp_hz");
    Ok(Report {
        schema: SCHEMA,
        experiment: feature.name.into(),
        title: feature.title.into(),
        millrace: env!("CARGO_PKG_VERSION").into(),
        date,
        bench: site.facts(),
        machine: Machine::read(hz),
        first,
        cases: if measured.cases.len() > 1 { measured.cases } else { Vec::new() },
        latency: measured.latency,
        peer: measured.peer,
        checks,
        commands: site.commands(),
        notes,
        measures: feature.measures,
        latency_measures: latency::MEASURES,
    })
}

/// Hosts in namespaces where they can be had; otherwise, or where asked for, all in process, if the feature can be seen
/// there.
fn choose_site(
    feature: &'static Feature,
    options: &Options,
    interrupt: &Interrupt,
    notes: &mut Vec<String>,
) -> Result<Site, LabError> {
    let root = is_root();
    if !options.in_process {
        let why = match Site::namespaces(feature, &options.program, options.mtu, interrupt) {
            other if !feature.whole_guide => return other,
            Err(LabError::NamespaceRefused(why)) => why,
            // What an ordinary user's switch may not do differs from kernel to kernel.
            Err(error @ (LabError::HostDied { .. } | LabError::Switch(_))) if !root => {
                error.to_string()
            }
            other => return other,
        };
        notes.push(format!(
            "Hosts in network namespaces could not be had ({why}), so all ran in process."
        ));
    }
    interrupt.watch_signals()?;
    Ok(Site::InProcess)
}

/// Runs phase after phase until all are done or one ends early. An error where something was already measured ends
/// the measuring and is kept as that phase's ending.
fn measure(
    feature: &Feature,
    options: &Options,
    site: &mut Site,
    interrupt: &Interrupt,
    measured: &mut Measured,
) -> Result<(), LabError> {
    let bulk = feature.experiment(options.mtu, options.interval, options.stop());
    let trips = latency::experiment(&bulk);
    let peer = peer_experiment(&bulk);
    let beside = usize::from(feature.whole_guide);
    let counts = options.connections.len();
    let mut progress =
        Progress::new(roughly(&[(&bulk, counts), (&trips, beside), (&peer, beside)]));
    for count in options.connections.iter().copied() {
        progress.phase(&format!("{}, connections {count}", feature.name), bulk.length());
        let run = site.run(&bulk, Load::Bulk(count), interrupt, &mut |step| progress.step(step));
        let case = Case::new(&bulk, count, kept(run, !measured.cases.is_empty())?);
        let ended = goes_on(&case.ended);
        measured.cases.push(case);
        if !ended {
            return Ok(());
        }
    }
    if !feature.whole_guide {
        return Ok(());
    }
    progress.phase("Round trips", trips.length());
    let run = site.run(&trips, Load::RoundTrips, interrupt, &mut |step| progress.step(step));
    let case = Case::new(&trips, 1, kept(run, true)?);
    let ended = goes_on(&case.ended);
    measured.latency = Some(case);
    if !ended {
        return Ok(());
    }
    progress.phase("Linux bridge", peer.length());
    let load = Load::Bulk(options.connections.first().copied().unwrap_or(1));
    if let Ok(Some(run)) = site.run_peer(&peer, load, interrupt, &mut |step| progress.step(step)) {
        let label = peer.arms.first().map_or("", |arm| arm.label.as_str());
        measured.peer =
            Some(ArmFigures::of(label, run.samples.iter().map(|sample| &sample.values)));
    }
    Ok(())
}

/// An error is the run's ending where others were measured before it.
fn kept(run: Result<Run, LabError>, something_before: bool) -> Result<Run, LabError> {
    match run {
        Err(LabError::Interrupted) if something_before => {
            Ok(Run { samples: Vec::new(), ended: Ended::Interrupted })
        }
        Err(error) if something_before => {
            Ok(Run { samples: Vec::new(), ended: Ended::Failed(error.to_string()) })
        }
        other => other,
    }
}

fn goes_on(ended: &Ended) -> bool {
    !matches!(ended, Ended::Interrupted | Ended::Failed(_))
}

/// The same load through another switch has one arm and nothing to alternate with.
fn peer_experiment(bulk: &Experiment) -> Experiment {
    let arm = Arm { name: "linux_bridge".into(), label: "Linux bridge, GRO on".into() };
    let repetitions = (bulk.stop.repetitions / 2).max(1);
    let stop = StopRule { repetitions, ..bulk.stop };
    Experiment { arms: vec![arm], stop, ..bulk.clone() }
}

/// That frames came one by one.
fn wire_check(case: &Case, site: &Site) -> Option<Check> {
    let (largest, seen) = (site.frame_bytes()?, case.median(ON, "frame_bytes_on_the_wire")?);
    Some(Check {
        name: "Frames on the wire".into(),
        passed: seen <= largest,
        seen: format!("{seen:.0} bytes on average; {largest:.0} are the most at this MTU"),
    })
}

/// What a reader should know before believing the numbers.
fn explanations(case: &Case, site: &Site) -> Vec<String> {
    let mut notes = vec![
        "Improvement is the median of the paired ratios of A B B A rounds, with its 98 % bootstrap interval. MB are 2^20 \
         bytes, as NTttcp counts; bytes are those the receiver's application read. Cycles/Byte is NTttcp's formula with the \
         measured frequency of the time stamp counter."
            .to_owned(),
    ];
    if !matches!(site, Site::InProcess) {
        notes.push(
            "Avg. CPU % is of the whole machine, on which sender, switch and receiver all run; the guide measures \
             the receiver's machine alone."
                .to_owned(),
        );
    }
    let steal =
        case.arms.values().filter_map(|arm| arm.median("steal_percent")).fold(0.0, f64::max);
    if steal > 2.0 {
        notes.push(format!("The hypervisor gave {steal:.0} % of this machine's time to others: repeat when it is quiet."));
    }
    notes.extend(strangers(case));
    match &case.ended {
        Ended::Interrupted => {
            notes.push("Interrupted: the figures are of what was measured until then.".into())
        }
        Ended::Failed(why) => notes
            .push(format!("Ended early: {why}. The figures are of what was measured until then.")),
        _ => {}
    }
    notes
}

/// A warning where other programs were busy beside the experiment: their time is in Avg. CPU % and Cycles/Byte.
fn strangers(case: &Case) -> Option<String> {
    let arm = case.arms_in_order().next()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let sides =
        ["sender_cpu_s_per_s", "switch_cpu_s_per_s", "receiver_cpu_s_per_s", "softirq_cpu_s_per_s"];
    let ours: f64 = sides.iter().filter_map(|side| arm.median(side)).sum();
    let others = arm.median("cpu_percent")? / 100.0 * processors - ours;
    (others > 0.2 * processors).then(|| {
        format!(
            "Other programs used {others:.1} of {processors} processors meanwhile, which is in Avg. CPU % and Cycles/Byte: \
             repeat when the machine is quiet."
        )
    })
}
