//! `[metrics] listen`: counters and health over TCP, for monitoring. It is read-only and has no other path: everybody who reaches
//! the address may read.

use super::tcp_listener::{Section, own_host};
use crate::Problem;
use crate::api::{Shared, problem};
use crate::metrics;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Not which port: anybody may ask.
const HANGS: &str = "a worker does not answer\n";

/// All there is.
pub(super) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn(admit))
        .with_state(shared)
}

async fn page(State(shared): State<Shared>) -> Response {
    match metrics::text(&shared) {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(told) => problem(StatusCode::INTERNAL_SERVER_ERROR, told),
    }
}

/// Alive while all workers answer: only a restart helps where this says no.
async fn health(State(shared): State<Shared>) -> Response {
    let answering = shared.lock().all_answer();
    match answering {
        Ok(()) => "ok\n".into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, HANGS).into_response(),
    }
}

/// Ready while all workers answer and each port's device is open. What a guest does changes nothing about it.
async fn ready(State(shared): State<Shared>) -> Response {
    let (answering, closed) = {
        let running = shared.lock();
        (running.all_answer(), running.closed_ports())
    };
    if answering.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, HANGS).into_response();
    }
    if closed.is_empty() {
        return "ready\n".into_response();
    }
    // Names alone: a reason may name devices and paths, and anybody may ask.
    let text = closed.iter().map(|(name, _)| format!("port {name} is not open\n"));
    (StatusCode::SERVICE_UNAVAILABLE, text.collect::<String>()).into_response()
}

async fn admit(request: Request, next: Next) -> Response {
    if let Err(told) = own_host(Section::Metrics, &request) {
        return problem(StatusCode::FORBIDDEN, told);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let told = Problem::new("nothing can be changed here").seen(request.method()).wanted("GET");
        let told = told.remedy("use the API's Unix socket");
        return problem(StatusCode::METHOD_NOT_ALLOWED, told);
    }
    next.run(request).await
}
