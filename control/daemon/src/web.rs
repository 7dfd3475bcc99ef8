//! `[web] listen`: the page for people, in any browser, over TCP.
//!
//! Anyone who reaches the address sees what a reader of the API sees, except the configuration,
//! which contains the keys of RSS. They may also ask what the switch would do with a frame. With
//! the token of `token-file` they can turn RSC on and off. With a key that an admin got through the
//! API's socket, that user's browser on this host can send the [requests of actions](handlers::actions).
//! [`trust`] judges each request first. The page consists of the files in `control/daemon/page`, unchanged: there is no
//! build step, and nothing is loaded from elsewhere.

pub(crate) mod assets;
mod owner;
mod pace;
mod sparks;
mod state;
mod token_file;
pub(crate) mod trust;

use crate::handlers;
use crate::shared::Shared;
use axum::Router;
use axum::extract::{FromRef, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pace::Pace;
use problem::Problem;
use sparks::Sparks;
use state::Cache;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The one path that accepts POST without a token, because it changes nothing.
const TRACE: &str = "/trace";

/// Time from one answer with a history, or with flows, to the next: each takes a fraction of a millisecond of the
/// thread for which all other clients wait.
const PAST_APART: Duration = Duration::from_millis(20);

/// The state that handlers share.
#[derive(Clone)]
struct Page {
    shared: Shared,
    /// Where the page is served.
    listen: SocketAddr,
    token_file: Option<PathBuf>,
    /// Limits how often keys are looked up: by the thread for which all other clients wait.
    key_pace: Arc<Pace>,
    cache: Arc<Cache>,
    sparks: Arc<Sparks>,
}

impl FromRef<Page> for Shared {
    fn from_ref(page: &Page) -> Shared {
        page.shared.clone()
    }
}

/// Returns the page's routes.
pub(crate) fn router(shared: Shared, listen: SocketAddr, token_file: Option<PathBuf>) -> Router {
    let cache = Arc::new(Cache::new(token_file.is_some()));
    let key_pace = Arc::new(Pace::new(PAST_APART));
    let page = Page { shared, listen, token_file, key_pace, cache, sparks: Arc::default() };
    let paced = |pace| middleware::from_fn_with_state(Arc::new(pace), in_turn);
    Router::new()
        .route("/state", get(state))
        .route("/ports/{name}", get(port))
        .route("/ports/{name}/rsc", handlers::toggle_rsc())
        .merge(handlers::actions())
        .route("/sparks", get(sparks))
        .route("/history", handlers::history().route_layer(paced(Pace::new(PAST_APART))))
        .route("/flows", handlers::flows().route_layer(paced(Pace::new(PAST_APART))))
        .route(TRACE, handlers::trace_frames().route_layer(paced(Pace::default())))
        .merge(assets::router())
        .layer(middleware::from_fn_with_state(page.clone(), trust::admit))
        .layer(middleware::map_response(trust::confine))
        .with_state(page)
}

/// Answers with the whole state of the switch.
async fn state(State(page): State<Page>) -> Response {
    match page.cache.state(&page.shared).await {
        Ok(state) => json(state),
        Err(ended) => handlers::problem(StatusCode::SERVICE_UNAVAILABLE, ended.into()),
    }
}

/// Answers with the last hour of each port, in a few characters.
async fn sparks(State(page): State<Page>) -> Response {
    match page.sparks.all(&page.shared).await {
        Ok(sparks) => json(sparks),
        Err(ended) => handlers::problem(StatusCode::SERVICE_UNAVAILABLE, ended.into()),
    }
}

/// Answers with one port, in detail.
async fn port(State(page): State<Page>, Path(name): Path<String>) -> Response {
    match page.cache.port(&page.shared, &name).await {
        Ok(Some(port)) => json(port),
        Ok(None) => {
            let told = Problem::new(format!("there is no port {name}"));
            handlers::problem(StatusCode::NOT_FOUND, told)
        }
        Err(ended) => handlers::problem(StatusCode::SERVICE_UNAVAILABLE, ended.into()),
    }
}

/// Delays a request until its turn has come.
async fn in_turn(State(pace): State<Arc<Pace>>, request: Request, next: Next) -> Response {
    pace.turn().await;
    next.run(request).await
}

fn json(text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response()
}
