//! `millrace fleet mtu`: the hosts of a fleet prove by probes that the paths between them carry the
//! MTU.

use super::fleet_etcd::At;
use super::fleet_options::Author;
use crate::global::Global;
use crate::output::{self, Failure, INTERRUPTED, Outcome};
use clap::Args;
use fleet::CheckMtu;
use lab::Interrupt;
use path_mtu::picture;
use path_mtu::report::Report;
use problem::Problem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "\
Examples:
  a$ millrace fleet agent --host a --mtu-address 192.0.2.1     # on each host: its address on the path to be proven
  $  millrace fleet mtu
  $  millrace fleet mtu --mtu 9000 --svg paths.svg
  $  millrace fleet mtu --json | jq '.findings[] | {hop, at, error}'

The agents probe each other: every pair of up to 64 hosts, and of more a sample, with the chance of missing a fault. A finding names
the hop, the values seen and wanted, and the remedy (docs/jumbo.md). A host that is away, runs no responder or does not answer is
listed. Exits with 0 if nothing was found, with 1 otherwise, and with 3 if etcd does not answer.")]
pub(crate) struct Mtu {
    /// The MTU that every path must carry [default: that of most hosts' devices].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..=65_533))]
    mtu: Option<u16>,
    /// Probe this many peers of each host [default: all of up to 64 hosts, and 16 of more].
    #[arg(long, value_name = "PEERS", value_parser = clap::value_parser!(u16).range(2..))]
    sample: Option<u16>,
    /// Seed of the sample.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// How long the hosts may take to probe.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=600))]
    wait: u16,
    /// Write the matrix as a picture to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    at: At,
}

impl Mtu {
    pub(super) fn run(&self, global: &Global) -> Outcome {
        let interrupt = Interrupt::default();
        let failed = |error: lab::LabError| Failure::Failed(Problem::new(error.to_string()));
        interrupt.watch_signals().map_err(failed)?;
        let check = CheckMtu {
            mtu: self.mtu,
            peers: self.sample.map(usize::from),
            seed: self.seed,
            wait: Duration::from_secs(self.wait.into()),
            author: self.author.author.clone(),
        };
        self.at.work(|store| {
            let Some(report) = check.run(store, &mut output::tell, &|| interrupt.is_set())? else {
                return Ok(ExitCode::from(INTERRUPTED));
            };
            if let Some(path) = &self.svg {
                draw(&report, path)?;
            }
            output::show(global, &report, Report::text)?;
            Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }
}

fn draw(report: &Report, path: &Path) -> Result<(), Problem> {
    std::fs::write(path, picture::svg(report)).map_err(|error| {
        Problem::new(format!("writing {}", path.display()))
            .seen(error)
            .remedy("choose a file in a directory that you can write to")
    })
}
