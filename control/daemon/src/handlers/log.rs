//! The levels of the log, shown and set while the daemon runs.

use super::reply::{Body, Refusal, Reply};
use crate::log;
use api::body::{LogBody, LogChange};
use axum::Json;
use problem::Problem;

/// The levels of the log.
#[utoipa::path(get, path = "/v1/log", operation_id = "show_log", tag = "switch", responses(
    (status = 200, body = LogBody, description = "The current levels"),
    (status = 422, body = Problem, description = "This process does not own its log"),
))]
pub(super) async fn show() -> Reply<LogBody> {
    log::levels().map(Json).map_err(Refusal::refused)
}

/// Sets the log level, of all targets or of one, until the daemon stops.
#[utoipa::path(put, path = "/v1/log", operation_id = "set_log", tag = "switch", request_body = LogChange, responses(
    (status = 200, body = LogBody, description = "The change is in force"),
    (status = 400, body = Problem, description = "The body is not JSON"),
    (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
    (status = 422, body = Problem, description = "A key or value is refused"),
))]
pub(super) async fn set(Body(change): Body<LogChange>) -> Reply<LogBody> {
    log::change(&change).map(Json).map_err(Refusal::refused)
}
