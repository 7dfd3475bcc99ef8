//! What the switch would do with frames, found on a copy of the switch that no frame leaves.

use super::Shared;
use super::reply::{Body, Refusal, Reply};
use crate::running::trace;
use api::body::{TraceBody, TraceRequest};
use axum::Json;
use axum::extract::{FromRef, State};
use axum::routing::{MethodRouter, post};
use problem::Problem;
use tokio::sync::Semaphore;

/// The only path with a POST that readers may use.
pub(super) const PATH: &str = "/v1/trace";

/// A copy of a switch with many ports takes memory and time, so there is only one at a time.
static ONE: Semaphore = Semaphore::const_new(1);

/// [`trace`] for a router with another state.
pub(crate) fn route<S: Clone + Send + Sync + 'static>() -> MethodRouter<S>
where
    Shared: FromRef<S>,
{
    post(trace)
}

/// Reports step by step what the switch would do with frames. No frame is sent, and nothing is
/// learned or counted. The result holds for the current settings, addresses and rate limits; it
/// does not predict drops for lack of room in a device.
#[utoipa::path(post, path = "/v1/trace", operation_id = "trace", tag = "trace", request_body = TraceRequest, responses(
    (status = 200, body = TraceBody, description = "The steps, the frames that leave and those that are dropped"),
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
    let prepared = shared.run(move |running| {
        running.report().port(&request.port).map_err(Refusal::not_found)?;
        trace::prepare(&running.report(), &request).map_err(Refusal::refused)
    });
    let prepared = prepared.await??;
    // The client may disconnect meanwhile; the copy exists until the work has ended.
    let run = || {
        let traced = prepared.run();
        drop(one_at_a_time);
        traced
    };
    let traced = tokio::task::spawn_blocking(run).await;
    let lost = |error| Problem::new("the trace could not be completed").seen(error);
    traced.map(Json).map_err(|error| Refusal::refused(lost(error)))
}
