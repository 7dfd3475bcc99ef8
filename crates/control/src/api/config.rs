//! The configuration in force: shown, planned and replaced.

use super::Shared;
use super::reply::{Body, Refusal, Reply};
use crate::Problem;
use crate::body::PlanBody;
use crate::config::Config;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use std::time::Instant;
use utoipa::IntoParams;

/// The configuration in force. It includes changes made through the API, which are not in the file; a reload goes back
/// to the file.
#[utoipa::path(get, path = "/v1/config", operation_id = "show_config", tag = "config", responses(
    (status = 200, body = Config, description = "The configuration in force"),
))]
pub(super) async fn show(State(shared): State<Shared>) -> Json<Config> {
    Json(shared.lock().config().clone())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PutQuery {
    /// Returns the steps without carrying them out.
    #[serde(default)]
    dry_run: bool,
}

/// Replaces the configuration in force. Ports that do not differ are not touched.
#[utoipa::path(put, path = "/v1/config", operation_id = "replace_config", tag = "config",
    params(PutQuery), request_body = Config,
    responses(
        (status = 200, body = PlanBody, description = "The steps and the configuration now in force"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key, a value or a rule refuses the configuration; nothing was changed"),
))]
pub(super) async fn put(
    State(shared): State<Shared>,
    query: Result<Query<PutQuery>, QueryRejection>,
    Body(wanted): Body<Config>,
) -> Reply<PlanBody> {
    let Query(query) = query.map_err(|error| {
        let problem = Problem::new("the query cannot be read").seen(error.body_text());
        Refusal::bad_request(problem.wanted("dry_run=true or false").remedy("write one of them"))
    })?;
    let mut running = shared.lock();
    let steps = if query.dry_run {
        running.dry_run(&wanted)
    } else {
        running.reload(wanted, Instant::now())
    };
    let steps = steps.map_err(Refusal::refused)?;
    Ok(Json(PlanBody { steps, applied: !query.dry_run, config: running.config().clone() }))
}
