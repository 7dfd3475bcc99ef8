//! Metrics of the switch as a whole, and of its workers.

use super::Scrape;
use super::family::{Families, Named, number, seconds};
use crate::log;
use api::body::{Severity, StateBody, WorkerBody};
use std::fmt;
use std::time::UNIX_EPOCH;

/// Name, help, and the counter.
type WorkerCounter = (Named, fn(&WorkerBody) -> u64);

const WORKER_COUNTERS: [WorkerCounter; 4] = [
    (("worker_busy_turns", "Turns of the worker that found frames"), |worker| worker.busy_turns),
    (("worker_idle_turns", "Turns of the worker that found no frames"), |worker| worker.idle_turns),
    (("worker_sleeps", "Times the worker slept"), |worker| worker.sleeps),
    (("worker_frames", "Frames the worker took"), |worker| worker.frames),
];

impl Scrape {
    pub(super) fn encode_switch(&self, out: &mut Families<'_>) -> fmt::Result {
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        out.info(("build", "Version of the daemon"), &version)?;
        out.gauge(("macs", "Learned addresses"), number(self.macs))?;
        let states = [StateBody::Up, StateBody::Down, StateBody::Broken];
        out.gauges(
            ("ports", "Ports by state"),
            states.map(|state| {
                let in_it = self.ports.iter().filter(|(port, _)| port.state == state);
                (vec![("state", state.name())], number(in_it.count()))
            }),
        )?;
        out.gauges(
            ("findings", "Findings of the health check, by severity"),
            Severity::ALL.map(|severity| {
                (vec![("severity", severity.name())], number(self.health.count(severity)))
            }),
        )?;
        out.counters(
            (
                "log_lines_dropped",
                "Lines of the log that were dropped because its reader did not keep up",
            ),
            [(Vec::new(), log::dropped())],
        )?;
        self.encode_state(out)?;
        self.encode_reloads(out)
    }

    fn encode_state(&self, out: &mut Families<'_>) -> fmt::Result {
        out.gauge(
            ("state_kept", "Whether ports added or changed through the API are on the disk"),
            i64::from(self.state.trouble.is_none()),
        )?;
        out.gauge(
            (
                "state_files_set_aside",
                "State files that could not be read in full and were set aside",
            ),
            number(self.state.aside.len()),
        )
    }

    fn encode_reloads(&self, out: &mut Families<'_>) -> fmt::Result {
        let reloads = &self.reloads;
        out.gauge(
            (
                "config_last_reload_successful",
                "Whether the last reading of the file succeeded in full",
            ),
            i64::from(reloads.last_succeeded),
        )?;
        let at = reloads.success_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        out.gauge(
            (
                "config_last_reload_success_timestamp_seconds",
                "When reading the file last succeeded in full, in seconds since 1970",
            ),
            at.as_secs_f64(),
        )?;
        let results = [("done", reloads.done), ("failed", reloads.failed)];
        out.counters(
            ("config_reloads", "Times that the file was reread, by result"),
            results.map(|(result, count)| (vec![("result", result)], count)),
        )
    }

    pub(super) fn encode_workers(&self, out: &mut Families<'_>) -> fmt::Result {
        let names: Vec<String> =
            self.workers.iter().map(|worker| worker.worker.to_string()).collect();
        let workers = || names.iter().map(|name| vec![("worker", &**name)]).zip(&self.workers);
        out.gauges(
            ("worker_answers", "Whether the worker answers; if not, its ports carry no frames"),
            workers().map(|(labels, worker)| (labels, i64::from(worker.answers))),
        )?;
        for (named, read) in WORKER_COUNTERS {
            out.counters(named, workers().map(|(labels, worker)| (labels, read(worker))))?;
        }
        out.counters(
            ("worker_busy_seconds", "Time in turns that took frames"),
            workers().map(|(labels, worker)| (labels, seconds(worker.busy_ns))),
        )?;
        out.counters(
            (
                "worker_waited_seconds",
                "Time for which the worker wanted to run and other programs had its processor",
            ),
            workers().map(|(labels, worker)| (labels, seconds(worker.waited_ns))),
        )
    }
}
