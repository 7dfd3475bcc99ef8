//! All counters in the text formats of Prometheus, written on request.
//!
//! A [`Collector`] reads the workers' own counters, so metrics cost the data path nothing. The
//! switch's thread copies the values, and the caller's writes them. `docs/metrics.md` lists
//! each name; a test compares it, and the dashboard and alert rules in `packaging/`, with the
//! metrics written here.

pub mod family;
mod format;
mod ports;
mod process;
mod renderings;
mod switch;

pub use format::{Exposition, OPEN_METRICS, TEXT};
pub(crate) use renderings::Renderings;

use crate::running::{Reloads, Running, team};
use crate::shared::Shared;
use crate::state::Found;
use api::body::{CountersBody, HealthBody, PortBody, TeamBody, WorkerBody};
use family::Families;
use problem::Problem;
use process::Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::{Instant, SystemTime};

/// Returns the daemon's metrics.
///
/// # Errors
/// A metric cannot be written, or the switch's thread has ended.
async fn read(shared: &Shared) -> Result<Exposition, Problem> {
    let scrape = shared.run(|running| Scrape::of(running)).await?;
    let started = scrape.started;
    write("millrace", Box::new(scrape), started)
}

/// Returns the metrics of `collector`, with names that begin with `prefix`, and those of the
/// process, which started at `started`.
///
/// # Errors
/// A metric cannot be written.
pub fn write(
    prefix: &str,
    collector: Box<dyn Collector>,
    started: SystemTime,
) -> Result<Exposition, Problem> {
    let process = Process::now(started);
    let (mut own, mut usual) = (Registry::with_prefix(prefix), Registry::default());
    own.register_collector(collector);
    usual.register_collector(Box::new(process));
    let mut page = String::new();
    text::encode_registry(&mut page, &own)
        .and_then(|()| text::encode(&mut page, &usual))
        .map_err(|error| Problem::new("writing the metrics").seen(error))?;
    Ok(Exposition::of(page))
}

/// All values that a scrape reports, read at one moment.
#[derive(Debug)]
struct Scrape {
    started: SystemTime,
    ports: Vec<(PortBody, CountersBody)>,
    teams: Vec<TeamBody>,
    macs: usize,
    workers: Vec<WorkerBody>,
    health: HealthBody,
    reloads: Reloads,
    state: Found,
}

impl Scrape {
    fn of(running: &Running) -> Scrape {
        let report = running.report();
        Scrape {
            started: running.journal.started(),
            ports: report.counted_ports(),
            teams: team::bodies(&report),
            macs: report.learned(),
            workers: report.workers(),
            health: running.health(Instant::now()),
            reloads: running.journal.reloads(),
            state: running.journal.state().clone(),
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, out: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Families(out);
        self.encode_switch(&mut out)?;
        self.encode_workers(&mut out)?;
        self.encode_ports(&mut out)?;
        self.encode_queues(&mut out)?;
        self.encode_guests(&mut out)?;
        self.encode_teams(&mut out)
    }
}
