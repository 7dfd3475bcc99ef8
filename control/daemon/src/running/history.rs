//! The poll's readings for the history, and the history for the API.

use super::Running;
use super::port::RunningPort;
use crate::history::{PortReading, Reading};
use api::body::{HistoryBody, HistoryResolution, Severity};
use datapath::PortCounters;
use problem::Problem;
use std::time::{Duration, Instant};

/// How often findings are counted: they take more time than counters.
const FINDINGS: Duration = Duration::from_secs(10);

impl Running {
    /// Takes the counters of the poll into the history.
    pub(super) fn remember(&mut self, now: Instant) {
        let findings = match self.findings {
            Some((at, findings)) if now.saturating_duration_since(at) < FINDINGS => findings,
            _ => self.count_findings(now),
        };
        let counters = |port: &RunningPort| {
            port.open().map(|open| reading(open.last.counters())).unwrap_or_default()
        };
        let ports = self.ports.iter().map(|(name, port)| (name.as_str(), counters(port))).collect();
        let busy_us = self.switch.workers().iter().map(|worker| worker.busy.0 / 1000).sum();
        self.history.take(now, Reading { ports, busy_us, findings });
    }

    fn count_findings(&mut self, now: Instant) -> u64 {
        let is_grave = |severity| matches!(severity, Severity::Error | Severity::Warning);
        let findings = self.health(now).findings;
        let count = findings.iter().filter(|finding| is_grave(finding.severity)).count() as u64;
        self.findings = Some((now, count));
        count
    }

    /// Returns the history of the switch, or of a port.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port.
    pub(crate) fn history_body(
        &self,
        port: Option<&str>,
        range_s: u64,
        resolution: HistoryResolution,
    ) -> Result<HistoryBody, Problem> {
        port.map_or(Ok(()), |name| self.ports.port(name).map(drop))?;
        Ok(self.history.body(port, range_s, resolution))
    }
}

fn reading(counters: &PortCounters) -> PortReading {
    [
        counters.ingress_bytes,
        counters.egress_bytes,
        counters.ingress_frames,
        counters.egress_frames,
        counters.dropped(),
    ]
}
