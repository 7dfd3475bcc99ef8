//! Receive segment coalescing: shown and toggled live.

use super::Shared;
use super::reply::{self, Refusal, Reply};
use crate::Problem;
use crate::body::{RscBody, RscChange};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use std::time::Instant;

/// Coalescing toward all ports.
#[utoipa::path(get, path = "/v1/rsc", tag = "rsc", responses((status = 200, body = Vec<RscBody>)))]
pub(super) async fn list(State(shared): State<Shared>) -> Json<Vec<RscBody>> {
    Json(shared.lock().rsc_bodies())
}

/// Toggles coalescing of all ports. `on` turns it on for vNICs and leaves uplinks as they are.
#[utoipa::path(put, path = "/v1/rsc", tag = "rsc", request_body = RscChange, responses(
    (status = 200, body = Vec<RscBody>),
    (status = 400, body = Problem),
))]
pub(super) async fn set_all(State(shared): State<Shared>, body: Bytes) -> Reply<Vec<RscBody>> {
    let change: RscChange = reply::read(&body)?;
    let mut running = shared.lock();
    running.set_rsc(None, change.policy, Instant::now()).map_err(Refusal::refused)?;
    Ok(Json(running.rsc_bodies()))
}

/// Coalescing toward one port.
#[utoipa::path(get, path = "/v1/ports/{name}/rsc", tag = "rsc", params(("name" = String, Path)), responses(
    (status = 200, body = RscBody),
    (status = 404, body = Problem),
))]
pub(super) async fn show(State(shared): State<Shared>, Path(name): Path<String>) -> Reply<RscBody> {
    shared.lock().rsc_body(&name).map(Json).map_err(Refusal::not_found)
}

/// Toggles coalescing of one port; open trains are drained before this returns.
#[utoipa::path(put, path = "/v1/ports/{name}/rsc", tag = "rsc", params(("name" = String, Path)),
    request_body = RscChange,
    responses(
        (status = 200, body = RscBody),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
))]
pub(super) async fn set(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    body: Bytes,
) -> Reply<RscBody> {
    let change: RscChange = reply::read(&body)?;
    let mut running = shared.lock();
    running.set_rsc(Some(&name), change.policy, Instant::now()).map_err(Refusal::not_found)?;
    running.rsc_body(&name).map(Json).map_err(Refusal::not_found)
}
