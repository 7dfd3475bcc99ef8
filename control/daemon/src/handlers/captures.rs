//! Captures: the response to a start is the capture itself, for as long as it lasts. The client
//! writes the file with its own permissions; the daemon opens no file.

use super::Shared;
use super::reply::{Body, Name, Refusal, Reply, found};
use crate::actor;
use api::body::{CaptureBody, CaptureStart};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use problem::Problem;
use std::time::Instant;

/// Media type of a capture.
const PCAPNG: &str = "application/x-pcapng";

/// The last capture on each port.
#[utoipa::path(get, path = "/v1/captures", operation_id = "list_captures", tag = "captures", responses(
    (status = 200, body = Vec<CaptureBody>, description = "Running and ended captures, by port"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Reply<Vec<CaptureBody>> {
    Ok(Json(shared.run(|running| running.captures.bodies()).await?))
}

/// Captures on a port. The response is a pcapng file that continues until the capture is stopped,
/// reaches its limit, or the connection ends. If the client reads too slowly, frames are missed and
/// counted.
#[utoipa::path(post, path = "/v1/captures", operation_id = "start_capture", tag = "captures",
    request_body = CaptureStart,
    responses(
        (status = 200, body = Vec<u8>, content_type = PCAPNG, description = "The capture as it proceeds"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key or value is refused, a capture is already running, or too many are"),
))]
pub(super) async fn start(
    State(shared): State<Shared>,
    Body(start): Body<CaptureStart>,
) -> Result<impl IntoResponse, Refusal> {
    let started = shared.run(move |running| {
        running.report().port(&start.port).map_err(Refusal::not_found)?;
        let stream = running.start_capture(&start, Instant::now()).map_err(Refusal::refused)?;
        actor::log("a capture starts", &start);
        Ok::<_, Refusal>(stream)
    });
    let stream = started.await??;
    Ok(([(CONTENT_TYPE, PCAPNG)], axum::body::Body::new(stream)))
}

/// The last capture on a port.
#[utoipa::path(get, path = "/v1/captures/{port}", operation_id = "show_capture", tag = "captures",
    params(("port" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = CaptureBody, description = "The capture, running or ended"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There was no capture on this port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(port): Name) -> Reply<CaptureBody> {
    found(&shared, move |running| running.capture(&port)).await
}

/// Stops a capture. The client that started it still receives everything captured until then.
#[utoipa::path(delete, path = "/v1/captures/{port}", operation_id = "stop_capture", tag = "captures",
    params(("port" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = CaptureBody, description = "The capture has ended"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There was no capture on this port"),
))]
pub(super) async fn stop(State(shared): State<Shared>, Name(port): Name) -> Reply<CaptureBody> {
    found(&shared, move |running| running.stop_capture(&port)).await
}
