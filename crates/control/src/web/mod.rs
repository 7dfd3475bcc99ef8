//! `[web] listen`: the page for people, in any browser, over TCP.
//!
//! Everybody who reaches the address sees what a reader of the API sees, but for the configuration, in which the keys of RSS are.
//! With the token of `token-file` RSC can be turned on and off, and nothing else. [`trust`] judges each request first. The page is
//! made of the files in `crates/control/page`, as they are: nothing builds them, and nothing comes from elsewhere.

mod assets;
mod state;
mod token_file;
mod trust;

use crate::Problem;
use crate::api::{self, Shared};
use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use state::Cache;
use std::path::PathBuf;
use std::sync::Arc;

/// What handlers share.
#[derive(Clone)]
struct Page {
    shared: Shared,
    token_file: Option<PathBuf>,
    cache: Arc<Cache>,
}

impl FromRef<Page> for Shared {
    fn from_ref(page: &Page) -> Shared {
        page.shared.clone()
    }
}

/// All there is.
pub(crate) fn router(shared: Shared, token_file: Option<PathBuf>) -> Router {
    let cache = Arc::new(Cache::new(token_file.is_some()));
    let page = Page { shared, token_file, cache };
    Router::new()
        .route("/state", get(state))
        .route("/ports/{name}", get(port))
        .route("/ports/{name}/rsc", api::toggle_rsc())
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
            api::problem(StatusCode::NOT_FOUND, told)
        }
    }
}

fn json(text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response()
}
