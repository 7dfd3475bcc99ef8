//! The configuration in force: shown, planned and replaced.

use super::Shared;
use super::reply::{Refusal, Reply};
use crate::Problem;
use crate::body::PlanBody;
use crate::config::Config;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use std::time::Instant;
use utoipa::IntoParams;

/// What is in force. Changes through the API are in it and not in the file; a reload goes back to the file.
#[utoipa::path(get, path = "/v1/config", tag = "config", responses((status = 200, body = Config)))]
pub(super) async fn show(State(shared): State<Shared>) -> Json<Config> {
    Json(shared.lock().config().clone())
}

#[derive(Deserialize, IntoParams)]
pub(super) struct PutQuery {
    /// Only shows the steps.
    #[serde(default)]
    dry_run: bool,
}

/// Makes another configuration the one in force. Ports that do not differ are not touched.
#[utoipa::path(put, path = "/v1/config", tag = "config", params(PutQuery), request_body = Config, responses(
    (status = 200, body = PlanBody),
    (status = 400, body = Problem, description = "not a configuration, or it breaks a rule"),
))]
pub(super) async fn put(
    State(shared): State<Shared>,
    query: Result<Query<PutQuery>, QueryRejection>,
    body: Bytes,
) -> Reply<PlanBody> {
    let Query(query) = query.map_err(|error| {
        let problem = Problem::new("the query cannot be read").seen(error.body_text());
        Refusal::bad_request(problem.wanted("dry_run=true or false").remedy("write one of them"))
    })?;
    let wanted = Config::from_json(&body).map_err(Refusal::bad_request)?;
    let mut running = shared.lock();
    let steps = if query.dry_run {
        running.dry_run(&wanted)
    } else {
        running.reload(wanted, Instant::now())
    };
    let steps = steps.map_err(Refusal::refused)?;
    Ok(Json(PlanBody { steps, applied: !query.dry_run, config: running.config().clone() }))
}
