//! `millrace validate`: proves a feature on this host, on against off.

use crate::cli::Global;
use crate::output::{self, Failure, Outcome};
use clap::{Args, Subcommand};
use control::Problem;
use lab::validate::{Options, Outcome as Validated};
use lab::{Interrupt, LabError, experiments, report};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Receive segment coalescing in the vSwitch: CPU, cycles per byte, throughput, round trips
    Rsc(Rsc),
    /// Large send offload of a guest that sends
    Lso(Lso),
    /// Jumbo frames against MTU 1500, all links switched live
    Jumbo(Jumbo),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate rsc                            # about two minutes
  millrace validate rsc --quick --connections 1,16
  millrace validate rsc --in-process --json        # where namespaces are not allowed

Sender, switch and receiver run in network namespaces of their own, which end with the command; nothing of the host's
network is touched. RSC is toggled while the connections keep running, in A B B A order.
Exits with 1 when a check fails or something breaks on the way, and with 130 after Ctrl-C; what was measured is written
all the same.")]
pub(crate) struct Rsc {
    #[command(flatten)]
    measuring: Measuring,
    /// Two TCP stacks in this process instead of hosts in namespaces.
    #[arg(long)]
    in_process: bool,
    /// MTU of every link, in bytes.
    #[arg(long, default_value = "1500", value_parser = clap::value_parser!(u16).range(1280..=9216))]
    mtu: u16,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace validate lso --quick

The guest behind the vNIC sends; its LSO is turned off and on while the connections keep running. Needs namespaces.
Exit codes are those of `validate rsc`.")]
pub(crate) struct Lso {
    #[command(flatten)]
    measuring: Measuring,
    /// MTU of every link, in bytes.
    #[arg(long, default_value = "1500", value_parser = clap::value_parser!(u16).range(1280..=9216))]
    mtu: u16,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace validate jumbo                          # about one minute
  millrace validate jumbo --quick --mtu 4000

The MTU of every link from sender to receiver is switched between 1500 and --mtu while the connections keep running.
First a full frame of each size is sent end to end; where it is lost, the hop is named and nothing is measured.
Needs namespaces and `ping`. Exit codes are those of `validate rsc`.")]
pub(crate) struct Jumbo {
    #[command(flatten)]
    measuring: Measuring,
    /// MTU with jumbo frames, in bytes.
    #[arg(long, default_value = "9000", value_parser = clap::value_parser!(u16).range(1501..=9216))]
    mtu: u16,
}

/// How much is measured, and where it is written.
#[derive(Args)]
struct Measuring {
    /// Connection counts, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: Vec<u32>,
    /// Intervals per arm [default: 24, which sees differences of 5 % and more].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: Option<u16>,
    /// Length of an interval [default: 1].
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// A first look: 8 intervals of half a second.
    #[arg(long)]
    quick: bool,
    /// Stop early once every figure is known within so many per cent.
    #[arg(long, value_name = "PERCENT")]
    narrow: Option<f64>,
    /// Directory of the report [default: ./millrace-report-DATE].
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    let allowed = (0.05..=3600.0).contains(&value);
    allowed.then(|| Duration::from_secs_f64(value)).ok_or("0.05 to 3600 are possible".to_owned())
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let (feature, options) = match &arguments.what {
        What::Rsc(rsc) => {
            let options = options(&rsc.measuring, rsc.mtu)?;
            (experiments::rsc::FEATURE, Options { in_process: rsc.in_process, ..options })
        }
        What::Lso(lso) => (experiments::lso::FEATURE, options(&lso.measuring, lso.mtu)?),
        What::Jumbo(jumbo) => (experiments::jumbo::FEATURE, options(&jumbo.measuring, jumbo.mtu)?),
    };
    match lab::validate::run(feature, &options, &Interrupt::default()) {
        Ok(validated) => show(&validated, global),
        Err(LabError::Interrupted) => Ok(ExitCode::from(130)),
        Err(error) => Err(Failure::Failed(Problem::new(error.to_string()))),
    }
}

fn options(measuring: &Measuring, mtu: u16) -> Result<Options, Failure> {
    let base = Options::new(std::env::current_exe()?);
    let base = if measuring.quick { base.quick() } else { base };
    Ok(Options {
        connections: measuring.connections.clone(),
        repetitions: measuring.repetitions.map_or(base.repetitions, usize::from),
        interval: measuring.seconds.unwrap_or(base.interval),
        narrow: measuring.narrow.map(|percent| percent / 100.0),
        mtu,
        output: measuring.output.clone(),
        ..base
    })
}

fn show(validated: &Validated, global: &Global) -> Outcome {
    output::show(global, &validated.report, |report| {
        format!("{}\nReport: {}", report::terminal(report), validated.written.html.display())
    })?;
    Ok(ExitCode::from(validated.exit_code()))
}
