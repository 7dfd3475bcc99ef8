//! `fleet page`: one read-only page of the fleet for browsers on this machine, with the rules of
//! the daemon's page.
//!
//! It reads etcd with the rights of the person who started it, so it is served on loopback only. It
//! reads etcd at most once a second, for any number of viewers. Text from hosts and people is not
//! trusted: the scripts insert it as text, and the page's content security policy keeps it from
//! being run.

use crate::etcd::{Access, Etcd};
use crate::store::{Revision, Store};
use crate::{FleetStatus, Observer};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daemon::recent::Recent;
use daemon::site::{self, SCRIPT, STYLE, Words};
use problem::Problem;
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const WORDS: Words = Words { option: "--listen", instead: "use `millrace fleet`" };

/// How long an answer is reused.
const FRESH: Duration = Duration::from_secs(1);

/// How many revisions the history shows.
const HISTORY: u32 = 20;

/// Serves the page at a loopback address, until the process ends. `tell` gets the page's URL.
///
/// # Errors
/// Fails if the address can be reached from other machines or is in use, or the client of etcd
/// cannot be started.
pub fn serve(
    access: Arc<Access>,
    address: SocketAddr,
    tell: &mut dyn FnMut(&str),
) -> Result<(), Problem> {
    check_loopback(address)?;
    let reader = Reader::new(Store::new(Etcd::new(access)?));
    let listener = site::bind(address, WORDS)?;
    let bound = listener.local_addr().unwrap_or(address);
    tell(&format!("the page of the fleet is at http://{bound}/"));
    site::serve(listener, router(reader))
}

/// Checks that only this machine reaches the page, which shows the whole fleet.
fn check_loopback(address: SocketAddr) -> Result<(), Problem> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(Problem::new("the page of the fleet is served on loopback only")
        .seen(address)
        .wanted("an address of 127.0.0.0/8, or [::1]")
        .remedy("use --listen 127.0.0.1:9480; from another machine, `ssh -L 9480:127.0.0.1:9480`"))
}

fn router(reader: Reader) -> Router {
    let files = [
        ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
        ("/fleet.css", STYLE, include_str!("../page/fleet.css")),
        ("/main.js", SCRIPT, include_str!("../page/main.js")),
        ("/hosts.js", SCRIPT, include_str!("../page/hosts.js")),
        ("/host.js", SCRIPT, include_str!("../page/host.js")),
        ("/going_on.js", SCRIPT, include_str!("../page/going_on.js")),
    ];
    let routes = files.into_iter().fold(site::shared_files(), |routes, (path, kind, text)| {
        site::file(routes, path, kind, text)
    });
    let state = Router::new().route("/state", get(state)).with_state(Arc::new(reader));
    site::page(routes.merge(state), WORDS)
}

async fn state(State(reader): State<Arc<Reader>>) -> Response {
    // The client of etcd blocks, so it has a thread of its own.
    let read = tokio::task::spawn_blocking(move || reader.state(Instant::now())).await;
    let away = |told| site::problem(StatusCode::SERVICE_UNAVAILABLE, told);
    match read {
        Ok(Ok(state)) => ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], state)
            .into_response(),
        Ok(Err(problem)) => away(problem),
        Err(error) => away(Problem::new("the fleet cannot be read").seen(error)),
    }
}

/// Reads the fleet once for all viewers.
struct Reader {
    looks: Mutex<Looks>,
    recent: Recent<Result<Bytes, Problem>>,
}

/// State kept between reads of etcd.
struct Looks {
    store: Store,
    observer: Observer,
    /// The newest revisions when this was the desired one.
    history: Option<(u64, Vec<Applied>)>,
}

/// A revision in the history.
#[derive(Clone, Debug, Serialize)]
struct Applied {
    number: u64,
    author: String,
    at: u64,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    back_to: Option<u64>,
}

/// The data that the page shows.
#[derive(Serialize)]
struct Shown<'a> {
    status: &'a FleetStatus,
    history: &'a [Applied],
}

impl Reader {
    fn new(store: Store) -> Reader {
        let looks = Looks { store, observer: Observer::default(), history: None };
        Reader { looks: Mutex::new(looks), recent: Recent::lasting(FRESH) }
    }

    /// Returns the fleet as JSON, at most a second old, or the reason why it cannot be read.
    fn state(&self, now: Instant) -> Result<Bytes, Problem> {
        let look = || self.looks.lock().unwrap_or_else(PoisonError::into_inner).look();
        self.recent.read(now, look, Result::clone)
    }
}

impl Looks {
    fn look(&mut self) -> Result<Bytes, Problem> {
        let status = self.observer.look(&self.store)?;
        let newest = status.desired.as_ref().map_or(0, |desired| desired.revision);
        let history = match self.history.take().filter(|(known, _)| *known == newest) {
            Some((_, known)) => known,
            // Each revision has the whole model.
            None => self.store.history(HISTORY)?.into_iter().map(Applied::from).collect(),
        };
        let shown = Shown { status: &status, history: &history };
        let text = serde_json::to_vec(&shown)
            .map_err(|error| Problem::new("the fleet cannot be written as JSON").seen(error))?;
        self.history = Some((newest, history));
        Ok(Bytes::from(text))
    }
}

impl From<Revision> for Applied {
    fn from(revision: Revision) -> Applied {
        let Revision { number, author, at, message, back_to, .. } = revision;
        Applied { number, author, at, message, back_to }
    }
}

#[cfg(test)]
mod tests;
