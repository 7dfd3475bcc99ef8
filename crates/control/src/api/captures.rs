//! Captures: start, look, stop.

use super::Shared;
use super::reply::{self, Refusal, Reply};
use crate::Problem;
use crate::body::{CaptureBody, CaptureStart};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use std::time::Instant;

/// The last capture at each port.
#[utoipa::path(get, path = "/v1/captures", tag = "captures", responses((status = 200, body = Vec<CaptureBody>)))]
pub(super) async fn list(State(shared): State<Shared>) -> Json<Vec<CaptureBody>> {
    Json(shared.lock().captures())
}

/// Starts a capture. The daemon writes the file.
#[utoipa::path(post, path = "/v1/captures", tag = "captures", request_body = CaptureStart, responses(
    (status = 201, body = CaptureBody),
    (status = 400, body = Problem),
    (status = 404, body = Problem),
    (status = 422, body = Problem, description = "the file cannot be made, or a capture runs already"),
))]
pub(super) async fn start(
    State(shared): State<Shared>,
    body: Bytes,
) -> Result<(StatusCode, Json<CaptureBody>), Refusal> {
    let start: CaptureStart = reply::read(&body)?;
    let mut running = shared.lock();
    running.port_body(&start.port).map_err(Refusal::not_found)?;
    let body = running.start_capture(&start, Instant::now()).map_err(Refusal::refused)?;
    Ok((StatusCode::CREATED, Json(body)))
}

/// The last capture at a port.
#[utoipa::path(get, path = "/v1/captures/{port}", tag = "captures", params(("port" = String, Path)), responses(
    (status = 200, body = CaptureBody),
    (status = 404, body = Problem),
))]
pub(super) async fn show(
    State(shared): State<Shared>,
    Path(port): Path<String>,
) -> Reply<CaptureBody> {
    shared.lock().capture(&port).map(Json).map_err(Refusal::not_found)
}

/// Stops a capture; the file is complete when this returns.
#[utoipa::path(delete, path = "/v1/captures/{port}", tag = "captures", params(("port" = String, Path)), responses(
    (status = 200, body = CaptureBody),
    (status = 404, body = Problem),
))]
pub(super) async fn stop(
    State(shared): State<Shared>,
    Path(port): Path<String>,
) -> Reply<CaptureBody> {
    shared.lock().stop_capture(&port).map(Json).map_err(Refusal::not_found)
}
