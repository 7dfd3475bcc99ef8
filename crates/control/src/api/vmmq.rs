//! Dynamic VMMQ: the moves and their reasons. It is set by the key `vmmq` of a port.

use super::Shared;
use crate::body::VmmqMoveBody;
use axum::Json;
use axum::extract::State;

/// The last moves of queues by load, oldest first, 256 at most.
#[utoipa::path(get, path = "/v1/vmmq/moves", operation_id = "list_vmmq_moves", tag = "vmmq", responses(
    (status = 200, body = Vec<VmmqMoveBody>, description = "What moved, and the figures that caused it"),
))]
pub(super) async fn moves(State(shared): State<Shared>) -> Json<Vec<VmmqMoveBody>> {
    Json(shared.lock().vmmq_moves())
}
