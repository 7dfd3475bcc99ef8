//! Dynamic VMMQ: moves with their reasons, and what the balancer measures. A port's key `vmmq`
//! turns it on.

use super::Shared;
use super::reply::Reply;
use api::body::{VmmqLoadBody, VmmqMoveBody};
use axum::Json;
use axum::extract::State;
use std::time::Instant;

/// The last moves by load, oldest first, at most 1,024. When full, the oldest move of the port with
/// most is dropped.
#[utoipa::path(get, path = "/v1/vmmq/moves", operation_id = "list_vmmq_moves", tag = "vmmq", responses(
    (status = 200, body = Vec<VmmqMoveBody>, description = "The moves, with the figures that caused them"),
))]
pub(super) async fn moves(State(shared): State<Shared>) -> Reply<Vec<VmmqMoveBody>> {
    Ok(Json(shared.run(|running| running.vmmq_moves()).await?))
}

/// What the balancer measures, as sums so far. The daemon stores nothing between two requests; a
/// recorder polls.
#[utoipa::path(get, path = "/v1/vmmq/load", operation_id = "show_vmmq_load", tag = "vmmq", responses(
    (status = 200, body = VmmqLoadBody, description = "Busy times and frames of workers, queues and entries"),
))]
pub(super) async fn load(State(shared): State<Shared>) -> Reply<VmmqLoadBody> {
    Ok(Json(shared.run(|running| running.vmmq_load(Instant::now())).await?))
}
