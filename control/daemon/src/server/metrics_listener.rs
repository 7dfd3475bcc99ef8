//! `[metrics] listen`: counters and health over TCP, for monitoring. Read-only, with no other path:
//! anyone who reaches the address may read.

use crate::handlers::problem;
use crate::metrics::Renderings;
use crate::shared::Shared;
use crate::site::{self, Words};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use config::Section;
use std::sync::Arc;

/// The port is not named, because anyone may ask.
const HANGS: &str = "a worker does not answer\n";

/// Returns all routes.
pub(super) fn router(shared: Shared, metrics: Arc<Renderings>) -> Router {
    let routes = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(health))
        .route("/readyz", get(ready));
    let words = Words { option: Section::Metrics.option(), instead: "use the API's Unix socket" };
    site::read_only(routes.with_state(shared).layer(Extension(metrics)), words)
}

/// Counters at most half a second old.
async fn page(
    State(shared): State<Shared>,
    Extension(metrics): Extension<Arc<Renderings>>,
    headers: HeaderMap,
) -> Response {
    let answer = metrics.answer(&shared, &headers).await;
    answer.unwrap_or_else(|told| problem(StatusCode::INTERNAL_SERVER_ERROR, told))
}

/// Alive while all workers answer: if one does not, only a restart helps.
async fn health(State(shared): State<Shared>) -> Response {
    match shared.run(|running| running.all_answer()).await {
        Ok(Ok(())) => "ok\n".into_response(),
        Ok(Err(_)) => (StatusCode::SERVICE_UNAVAILABLE, HANGS).into_response(),
        Err(ended) => problem(StatusCode::SERVICE_UNAVAILABLE, ended.into()),
    }
}

/// Ready while all workers answer and each port's device is open. Guests do not affect it.
async fn ready(State(shared): State<Shared>) -> Response {
    let look = shared.run(|running| (running.all_answer(), running.ports.closed())).await;
    let (answering, closed) = match look {
        Ok(look) => look,
        Err(ended) => return problem(StatusCode::SERVICE_UNAVAILABLE, ended.into()),
    };
    if answering.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, HANGS).into_response();
    }
    if closed.is_empty() {
        return "ready\n".into_response();
    }
    // Only names: a reason may name devices and paths, and anyone may ask.
    let text = closed.iter().map(|(name, _)| format!("port {name} is not open\n"));
    (StatusCode::SERVICE_UNAVAILABLE, text.collect::<String>()).into_response()
}
