//! `--metrics`: the agent's counters and health over TCP, by the libraries and rules of the
//! daemon's `[metrics] listen`.
//!
//! The agent's thread shows its figures on a [`Board`] after each round; another thread answers
//! from there, so a scrape never waits for etcd or the switch. A test compares the names with those
//! in `docs/metrics.md` and the alert rules.

use super::Agent;
use api::body::Severity;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daemon::metrics::family::{Families, number};
use daemon::site::{self, Words};
use problem::Problem;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

const WORDS: Words =
    Words { option: "--metrics", instead: "use `millrace fleet`, which changes the fleet" };

/// A round that takes longer than this hangs: requests to etcd and to the switch have shorter
/// timeouts.
const LONGEST_ROUND: Duration = Duration::from_mins(2);

/// The interval between attempts to listen: the switch's own ports may bring the address up.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Counters since the agent started.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Times that the switch did all steps.
    pub(super) applied: u64,
    /// Times that a step failed.
    pub(super) failed: u64,
    /// Times that the switch refused all.
    pub(super) refused: u64,
    /// Attempts to apply that followed one that had failed or was refused.
    pub(super) apply_retries: u64,
    /// Times that the lease was renewed.
    pub(super) renewals: u64,
}

/// The agent's state after a round.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    at: Instant,
    started: SystemTime,
    /// Whether etcd answered the last request; `None` if none was made yet.
    etcd: Option<bool>,
    answered_at: Option<Instant>,
    /// Whether the switch answered the last look.
    switch: bool,
    desired: u64,
    applied: u64,
    counts: Counts,
    read_retries: u64,
    report_retries: u64,
    claims_held: usize,
    claims_waited_for: usize,
    /// When certificates end, in seconds since 1970, with their owners.
    certificates_end: Vec<(&'static str, u64)>,
    /// Findings by severity, in the order of [`Severity::ALL`].
    findings: [usize; 3],
}

impl Agent {
    /// Returns what the metrics show until the next round.
    pub(super) fn figures(&self) -> Figures {
        let etcd = &self.store.etcd;
        let of_kind = |kind: &str| self.findings.iter().filter(move |it| it.kind == kind).count();
        Figures {
            at: Instant::now(),
            started: SystemTime::now(),
            etcd: Some(!etcd.is_away() && etcd.answered_at().is_some()),
            answered_at: etcd.answered_at(),
            switch: !self.enforcer.version.is_empty(),
            desired: self.reader.wanted,
            applied: self.enforcer.applied(),
            counts: self.counts.clone(),
            read_retries: self.reader.retries(),
            report_retries: self.reporter.retries(),
            claims_held: self.disk.kept().claims.len(),
            claims_waited_for: of_kind("claim_waits"),
            certificates_end: self.options.etcd.certificates_end(),
            findings: Severity::ALL.map(|severity| {
                self.findings.iter().filter(|finding| finding.severity == severity).count()
            }),
        }
    }
}

/// The latest figures, which the agent's thread writes and the HTTP thread reads.
#[derive(Clone)]
pub(super) struct Board(Arc<Mutex<Figures>>);

impl Board {
    fn new() -> Board {
        Board(Arc::new(Mutex::new(Figures {
            at: Instant::now(),
            started: SystemTime::now(),
            etcd: None,
            answered_at: None,
            switch: false,
            desired: 0,
            applied: 0,
            counts: Counts::default(),
            read_retries: 0,
            report_retries: 0,
            claims_held: 0,
            claims_waited_for: 0,
            certificates_end: Vec::new(),
            findings: [0; 3],
        })))
    }

    /// Replaces the figures; the process started when the first were made.
    pub(super) fn show(&self, figures: Figures) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Figures { started: shown.started, ..figures };
    }

    fn read(&self) -> Figures {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts the HTTP thread. Fails if it cannot be started.
pub(super) fn start(address: SocketAddr) -> Result<Board, Problem> {
    let board = Board::new();
    let routes = router(board.clone());
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || answer(address, routes))
        .map_err(|error| Problem::new("the thread of the metrics cannot be started").seen(error))?;
    Ok(board)
}

/// Serves requests once the address can be used.
fn answer(address: SocketAddr, routes: Router) {
    let mut told = false;
    let listener = loop {
        match site::bind(address, WORDS) {
            Ok(listener) => break listener,
            Err(problem) if told => tracing::debug!("{problem}"),
            Err(problem) => tracing::warn!("{problem}; it is tried again every second"),
        }
        told = true;
        std::thread::sleep(RETRY_INTERVAL);
    };
    if let Err(problem) = site::serve(listener, routes) {
        tracing::error!("metrics are not served: {problem}");
    }
}

fn router(board: Board) -> Router {
    let routes = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .with_state(board);
    site::read_only(routes, WORDS)
}

async fn page(State(board): State<Board>, headers: HeaderMap) -> Response {
    let figures = board.read();
    let started = figures.started;
    match daemon::metrics::write("millrace_fleet", Box::new(figures), started) {
        Ok(read) => read.response(&headers),
        Err(problem) => (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()).into_response(),
    }
}

/// Liveness: healthy while rounds end. If one does not, only a restart helps.
async fn health(State(board): State<Board>) -> Response {
    match board.read().at.elapsed() < LONGEST_ROUND {
        true => "ok\n".into_response(),
        false => unavailable("the agent's last round has not ended\n".to_owned()),
    }
}

/// Readiness: ready while etcd and the switch answer and the wanted revision is in force.
async fn ready(State(board): State<Board>) -> Response {
    match board.read().missing() {
        None => "ready\n".into_response(),
        Some(missing) => unavailable(format!("{missing}\n")),
    }
}

fn unavailable(text: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

impl Figures {
    /// Returns the reason why the agent is not ready; `None` if it is.
    fn missing(&self) -> Option<String> {
        let Figures { desired, applied, .. } = self;
        match (self.etcd, self.switch) {
            (None, _) => Some("the agent has just started".to_owned()),
            (Some(false), _) => Some("etcd does not answer".to_owned()),
            (_, false) => Some("the switch does not answer".to_owned()),
            _ => (desired != applied)
                .then(|| format!("revision {desired} is not in force; revision {applied} is")),
        }
    }

    fn encode_etcd(&self, out: &mut Families<'_>) -> fmt::Result {
        out.gauge(
            ("etcd_reachable", "Whether etcd answered the agent's last request"),
            i64::from(self.etcd == Some(true)),
        )?;
        let since = self.answered_at.map(|at| (Vec::new(), at.elapsed().as_secs_f64()));
        out.gauges(("etcd_answered_seconds", "Seconds since etcd last answered"), since)?;
        out.gauges(
            (
                "certificate_not_after_seconds",
                "When the certificate ends of this host and of etcd, in seconds since 1970",
            ),
            self.certificates_end.iter().map(|(whose, end)| (vec![("of", *whose)], *end)),
        )?;
        out.counters(
            ("lease_renewals", "Times that the lease of the host's status was renewed"),
            [(Vec::new(), self.counts.renewals)],
        )
    }

    fn encode_revision(&self, out: &mut Families<'_>) -> fmt::Result {
        out.gauge(
            ("revision_desired", "Revision that this host is to have; 0 if none"),
            self.desired,
        )?;
        out.gauge(
            ("revision_applied", "Revision that the switch has in full; 0 if none"),
            self.applied,
        )?;
        let counts = &self.counts;
        let applies =
            [("done", counts.applied), ("failed", counts.failed), ("refused", counts.refused)];
        out.counters(
            ("applies", "Times that the switch was given its ports, by result"),
            applies.map(|(result, count)| (vec![("result", result)], count)),
        )?;
        let retries = [
            ("read", self.read_retries),
            ("report", self.report_retries),
            ("apply", counts.apply_retries),
        ];
        out.counters(
            ("retries", "Attempts that followed a failed one, by what was tried"),
            retries.map(|(what, count)| (vec![("what", what)], count)),
        )
    }

    fn encode_claims(&self, out: &mut Families<'_>) -> fmt::Result {
        out.gauge(
            ("claims_held", "Claims on addresses that this host holds"),
            number(self.claims_held),
        )?;
        out.gauge(
            ("claims_waited_for", "Ports that are to come here and that another host holds"),
            number(self.claims_waited_for),
        )?;
        let findings = Severity::ALL.iter().zip(self.findings);
        out.gauges(
            ("findings", "Findings of the agent and of the switch, by severity"),
            findings.map(|(severity, count)| (vec![("severity", severity.name())], number(count))),
        )
    }
}

impl Collector for Figures {
    fn encode(&self, out: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Families(out);
        out.info(("build", "Version of the agent"), &vec![("version", env!("CARGO_PKG_VERSION"))])?;
        self.encode_etcd(&mut out)?;
        self.encode_revision(&mut out)?;
        self.encode_claims(&mut out)
    }
}

#[cfg(test)]
mod tests;
