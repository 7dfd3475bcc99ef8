//! `[web] listen`: the page for people, in any browser, over TCP.
//!
//! Everybody who reaches the address sees what a reader of the API sees, but for the configuration,
//! in which the keys of RSS are, and may ask what the switch would do with a frame. With the token
//! of `token-file` RSC can be turned on and off, and nothing else. [`trust`] judges each request
//! first. The page is made of the files in `control/daemon/page`, as they are: nothing builds them,
//! and nothing comes from elsewhere.

pub(crate) mod assets;
mod pace;
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
use state::Cache;
use std::path::PathBuf;
use std::sync::Arc;

/// The one path whose POST changes nothing and takes no token.
const TRACE: &str = "/trace";

/// What handlers share.
#[derive(Clone)]
struct Page {
    shared: Shared,
    token_file: Option<PathBuf>,
    cache: Arc<Cache>,
    pace: Arc<Pace>,
}

impl FromRef<Page> for Shared {
    fn from_ref(page: &Page) -> Shared {
        page.shared.clone()
    }
}

/// All there is.
pub(crate) fn router(shared: Shared, token_file: Option<PathBuf>) -> Router {
    let cache = Arc::new(Cache::new(token_file.is_some()));
    let page = Page { shared, token_file, cache, pace: Arc::default() };
    let paced = middleware::from_fn_with_state(page.clone(), in_turn);
    Router::new()
        .route("/state", get(state))
        .route("/ports/{name}", get(port))
        .route("/ports/{name}/rsc", handlers::toggle_rsc())
        .route(TRACE, handlers::trace_frames().route_layer(paced))
        .merge(assets::router())
        .layer(middleware::from_fn_with_state(page.clone(), trust::admit))
        .layer(middleware::map_response(trust::confine))
        .with_state(page)
}

/// All of the switch in one answer.
async fn state(State(page): State<Page>) -> Response {
    json(page.cache.state(&page.shared))
}

/// One port, in detail.
async fn port(State(page): State<Page>, Path(name): Path<String>) -> Response {
    match page.cache.port(&page.shared, &name) {
        Some(port) => json(port),
        None => {
            let told = Problem::new(format!("there is no port {name}"));
            handlers::problem(StatusCode::NOT_FOUND, told)
        }
    }
}

/// Holds a trace back until its turn has come.
async fn in_turn(State(page): State<Page>, request: Request, next: Next) -> Response {
    page.pace.turn().await;
    next.run(request).await
}

fn json(text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response()
}
