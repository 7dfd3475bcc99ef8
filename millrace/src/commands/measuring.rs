//! Options that `validate`, `ladder`, `sweep` and `connections` share: how much to measure, where
//! to write the report, which run to resume, which result fails.

use crate::global::Global;
use crate::output::{self, Failure, INTERRUPTED, Outcome};
use clap::Args;
use lab::campaign::Campaign;
use lab::options::Options;
use lab::report::Threshold;
use lab::{Interrupt, LabError, report, runner};
use problem::Problem;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How much to measure, and where to write the report.
#[derive(Args)]
pub(crate) struct Measuring {
    /// Intervals per arm; per load in experiments with one arm.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: Option<u16>,
    /// Length of an interval in seconds [default: 1].
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Measure fewer intervals of half a second each.
    #[arg(long)]
    quick: bool,
    /// Stop early once every figure is known to within this percentage.
    #[arg(long, value_name = "PERCENT")]
    narrow: Option<f64>,
    /// Exit with 5 if, under any load, the first arm's figure is below (<) or above (>) this
    /// multiple of the second's: 'throughput < 2.0x', 'cycles_per_byte > 0.6x'. Keys are those of
    /// `comparisons` in the JSON; too few rounds also fail.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Threshold>,
    /// Directory of the report [default: ./millrace-report-DATE].
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Resume an interrupted run from its directory, with its original options.
    #[arg(long, value_name = "DIRECTORY")]
    resume: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    let allowed = (0.05..=3600.0).contains(&value);
    allowed.then(|| Duration::from_secs_f64(value)).ok_or("use 0.05 to 3600 seconds".to_owned())
}

impl Measuring {
    /// Returns the options of an experiment: typed ones override those of `--quick`, which override
    /// `base`.
    ///
    /// # Errors
    /// The program's own path is unknown.
    pub(crate) fn options(
        &self,
        base: impl FnOnce(PathBuf) -> Options,
        connections: &[u32],
    ) -> Result<Options, Failure> {
        let base = base(std::env::current_exe()?);
        let base = if self.quick { base.quick() } else { base };
        let typed = !connections.is_empty();
        Ok(Options {
            connections: if typed { connections.to_vec() } else { base.connections.clone() },
            repetitions: self.repetitions.map_or(base.repetitions, usize::from),
            interval: self.seconds.unwrap_or(base.interval),
            narrow: self.narrow.map(|percent| percent / 100.0).or(base.narrow),
            fail_if: self.fail_if.clone(),
            output: self.output.clone(),
            resume: self.resume.clone(),
            ..base
        })
    }
}

/// Runs an experiment and shows the report.
pub(crate) fn carry_out(
    make: &dyn Fn(&Options) -> Campaign,
    options: &Options,
    global: &Global,
) -> Outcome {
    let done = match runner::run(make, options, &Interrupt::default()) {
        Ok(done) => done,
        Err(LabError::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
        Err(error @ LabError::Threshold(_)) => {
            return Err(Failure::Usage(Problem::new(error.to_string())));
        }
        Err(LabError::NoDaemon(problem)) => return Err(Failure::Unreachable(*problem)),
        Err(error) => return Err(Failure::Failed(Problem::new(error.to_string()))),
    };
    output::show(global, &done.report, |report| {
        let page = done.directory.join("report.html");
        // The answer stands first, and once more where the reader's eye is after all tables.
        let (all, verdict) = (report::terminal(report), report::verdict(report));
        format!("{all}\nReport: {}\n\n{verdict}", page.display())
    })?;
    Ok(ExitCode::from(done.exit_code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;
    use config::VmmqMode;
    use lab::load::Sockets;
    use lab::options::{JumboOptions, RateOptions, RscOptions};
    use lab::vnic::Receivers;

    #[test]
    fn the_commands_that_reports_print_are_accepted() {
        let new = || Options::new(PathBuf::new());
        let receivers = Some(Receivers::Both);
        let rsc = |in_process| RscOptions { in_process, receivers, ..RscOptions::default() };
        let mut dynamic = Options { queues: vec![4], mtu: 9000, ..Options::sweep(PathBuf::new()) };
        dynamic.sweep.vmmq = vec![VmmqMode::Static, VmmqMode::Dynamic];
        dynamic.sweep.sockets = Sockets { receive: Some(131_072), send: None };
        let all = [
            ("rsc", Options { rsc: rsc(false), narrow: Some(0.02), ..new() }),
            ("rsc", Options { rsc: rsc(true), ..new() }),
            ("rsc", new().brief()),
            ("acl", new()),
            ("jumbo", Options { mtu: 9000, ..new() }),
            ("jumbo", Options { mtu: 9000, jumbo: JumboOptions { two_paths: true }, ..new() }),
            ("rate", Options::rate(PathBuf::new())),
            (
                "rate",
                Options {
                    rate: RateOptions { congestion: Some("bbr".into()), round_trip_ms: Some(20) },
                    ..new()
                },
            ),
            ("vmmq", Options::vmmq(2, PathBuf::new())),
            ("vrss", Options::vrss(4, PathBuf::new())),
            ("migration", Options::migration("guests/qemu".into(), PathBuf::new())),
            ("iscsi", Options { mtu: 9000, ..new() }),
            ("self", Options::self_test(PathBuf::new())),
            ("ladder", new()),
            ("ladder", Options::ladder(Some(4), PathBuf::new())),
            ("connections", Options::connections(PathBuf::new())),
            ("sweep", Options { queues: vec![1, 2], ..Options::sweep(PathBuf::new()) }),
            ("sweep", dynamic),
        ];
        for (experiment, options) in all {
            for options in [options.clone(), options.quick()] {
                let line = options.command(experiment);
                let parsed = Cli::try_parse_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
            }
        }
    }
}
