//! Dynamic VMMQ: the moves and their reasons, and what the balancer measures. It is set by the key `vmmq` of a port.

use super::Shared;
use crate::body::{VmmqLoadBody, VmmqMoveBody};
use axum::Json;
use axum::extract::State;
use std::time::Instant;

/// The last moves by load, oldest first, 1,024 at most: ports that have most lose their oldest first.
#[utoipa::path(get, path = "/v1/vmmq/moves", operation_id = "list_vmmq_moves", tag = "vmmq", responses(
    (status = 200, body = Vec<VmmqMoveBody>, description = "What moved, and the figures that caused it"),
))]
pub(super) async fn moves(State(shared): State<Shared>) -> Json<Vec<VmmqMoveBody>> {
    Json(shared.lock().vmmq_moves())
}

/// What the balancer measures, as sums so far. The daemon keeps nothing between two requests: whoever records asks again.
#[utoipa::path(get, path = "/v1/vmmq/load", operation_id = "show_vmmq_load", tag = "vmmq", responses(
    (status = 200, body = VmmqLoadBody, description = "Busy times and frames of workers, queues and entries"),
))]
pub(super) async fn load(State(shared): State<Shared>) -> Json<VmmqLoadBody> {
    Json(shared.lock().vmmq_load(Instant::now()))
}
