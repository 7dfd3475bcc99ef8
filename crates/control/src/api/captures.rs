//! Captures: start, look, stop.

use super::reply::{Body, Name, Refusal, Reply};
use super::{Peer, Shared};
use crate::Problem;
use crate::body::{CaptureBody, CaptureStart};
use crate::capture_files;
use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use std::time::Instant;

/// The last capture at each port.
#[utoipa::path(get, path = "/v1/captures", operation_id = "list_captures", tag = "captures", responses(
    (status = 200, body = Vec<CaptureBody>, description = "Running and ended captures, by port"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Json<Vec<CaptureBody>> {
    Json(shared.lock().captures())
}

/// Starts a capture. The daemon writes the file.
#[utoipa::path(post, path = "/v1/captures", operation_id = "start_capture", tag = "captures",
    request_body = CaptureStart,
    responses(
        (status = 201, body = CaptureBody, description = "The capture runs"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key or value is refused, the file cannot be created, or a capture is already running"),
))]
pub(super) async fn start(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Body(start): Body<CaptureStart>,
) -> Result<(StatusCode, Json<CaptureBody>), Refusal> {
    let mut running = shared.lock();
    running.port_body(&start.port).map_err(Refusal::not_found)?;
    let directory = (!peer.is_trusted_with_files()).then(capture_files::directory);
    let body = running
        .start_capture(&start, directory.as_deref(), Instant::now())
        .map_err(Refusal::refused)?;
    Ok((StatusCode::CREATED, Json(body)))
}

/// The last capture at a port.
#[utoipa::path(get, path = "/v1/captures/{port}", operation_id = "show_capture", tag = "captures",
    params(("port" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = CaptureBody, description = "The capture, running or ended"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There was no capture at this port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(port): Name) -> Reply<CaptureBody> {
    shared.lock().capture(&port).map(Json).map_err(Refusal::not_found)
}

/// Stops a capture; the file is complete when this returns.
#[utoipa::path(delete, path = "/v1/captures/{port}", operation_id = "stop_capture", tag = "captures",
    params(("port" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = CaptureBody, description = "The capture has ended"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There was no capture at this port"),
))]
pub(super) async fn stop(State(shared): State<Shared>, Name(port): Name) -> Reply<CaptureBody> {
    shared.lock().stop_capture(&port).map(Json).map_err(Refusal::not_found)
}
