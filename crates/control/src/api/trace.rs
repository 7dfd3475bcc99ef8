//! What the switch would do with frames: asked of a copy of it, which no frame leaves.

use super::Shared;
use super::reply::{Body, Refusal, Reply};
use crate::Problem;
use crate::body::{TraceBody, TraceRequest};
use axum::Json;
use axum::extract::State;
use tokio::sync::Semaphore;

/// The one path whose POST readers may use as well.
pub(super) const PATH: &str = "/v1/trace";

/// Copies of a switch of many ports take memory and time: one at a time.
static ONE: Semaphore = Semaphore::const_new(1);

/// Says step by step what the switch would do with frames, and does it with none: no frame leaves, nothing is learned or
/// counted. It answers for the settings, addresses and rate limits of this moment; that a device has no room is not foreseen.
#[utoipa::path(post, path = "/v1/trace", operation_id = "trace", tag = "trace", request_body = TraceRequest, responses(
    (status = 200, body = TraceBody, description = "The steps, what leaves and what is dropped"),
    (status = 400, body = Problem, description = "The body is not JSON"),
    (status = 404, body = Problem, description = "There is no such port"),
    (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
    (status = 422, body = Problem, description = "A frame cannot be read, there are too many, or the port is not open"),
))]
pub(super) async fn trace(
    State(shared): State<Shared>,
    Body(request): Body<TraceRequest>,
) -> Reply<TraceBody> {
    let one_at_a_time = ONE.acquire().await;
    let prepared = {
        let running = shared.lock();
        running.port_body(&request.port).map_err(Refusal::not_found)?;
        running.prepare_trace(&request).map_err(Refusal::refused)?
    };
    // The client may go away meanwhile, and the copy is there until the work has ended.
    let run = || {
        let traced = prepared.run();
        drop(one_at_a_time);
        traced
    };
    let traced = tokio::task::spawn_blocking(run).await;
    let lost = |error| Problem::new("the trace was not finished").seen(error);
    traced.map(Json).map_err(|error| Refusal::refused(lost(error)))
}
