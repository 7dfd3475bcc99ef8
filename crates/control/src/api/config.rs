//! The configuration in force: shown, planned, replaced, and read again from the file.

use super::reply::{Body, Refusal};
use super::{Shared, etag};
use crate::Problem;
use crate::body::{PlanBody, SourceBody, StepBody, StepOutcome};
use crate::config::Config;
use crate::plan::Step;
use crate::running::Running;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::ETAG;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde::Deserialize;
use std::time::Instant;
use utoipa::IntoParams;

/// The configuration in force: the file's ports with the changes that the API has made to them, and the ports that the API has
/// added. `ETag` is the tag for `If-Match`.
#[utoipa::path(get, path = "/v1/config", operation_id = "show_config", tag = "config", responses(
    (status = 200, body = Config, description = "The configuration in force", headers(("ETag" = String, description = "Its tag"))),
))]
pub(super) async fn show(State(shared): State<Shared>) -> impl IntoResponse {
    let config = shared.lock().config().clone();
    ([(ETAG, etag::of(&config))], Json(config))
}

/// Where the configuration comes from, and where ports are kept that the API has added.
#[utoipa::path(get, path = "/v1/config/source", operation_id = "show_config_source", tag = "config", responses(
    (status = 200, body = SourceBody, description = "The files"),
))]
pub(super) async fn source(State(shared): State<Shared>) -> Json<SourceBody> {
    let keeper = shared.keeper();
    Json(SourceBody {
        file: shared.source().file().map(|file| file.display().to_string()),
        state: keeper.file().display().to_string(),
        not_kept: keeper.trouble().map(|problem| problem.to_string()).unwrap_or_default(),
    })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanQuery {
    /// Returns the steps without carrying them out.
    #[serde(default)]
    dry_run: bool,
}

impl PlanQuery {
    fn read(query: Result<Query<PlanQuery>, QueryRejection>) -> Result<PlanQuery, Refusal> {
        query.map(|Query(query)| query).map_err(|error| {
            let problem = Problem::new("the query cannot be read").seen(error.body_text());
            Refusal::bad_request(
                problem.wanted("dry_run=true or false").remedy("write one of them"),
            )
        })
    }
}

/// Replaces the configuration in force. Ports that do not differ are not touched; ports that come are kept, as `POST /v1/ports`
/// has it, and changes to ports of the file are in force until the file is read again.
#[utoipa::path(put, path = "/v1/config", operation_id = "replace_config", tag = "config",
    params(PlanQuery, ("If-Match" = Option<String>, Header, description = "Only if the configuration in force has one of these tags")),
    request_body = Config,
    responses(
        (status = 200, body = PlanBody, description = "The steps, all of them done or all of them planned, and the configuration in force"),
        (status = 207, body = PlanBody, description = "The configuration is in force, and some steps failed: each says why"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 412, body = Problem, description = "Another configuration is in force than `If-Match` says; nothing was changed"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key, a value or a rule refuses the configuration; nothing was changed"),
))]
pub(super) async fn put(
    State(shared): State<Shared>,
    query: Result<Query<PlanQuery>, QueryRejection>,
    headers: HeaderMap,
    Body(wanted): Body<Config>,
) -> Result<impl IntoResponse, Refusal> {
    let query = PlanQuery::read(query)?;
    let mut running = shared.lock();
    etag::check(&headers, &etag::of(running.config()))?;
    let steps = if query.dry_run {
        running.dry_run(&wanted).map(planned)
    } else {
        running.reload(wanted, Instant::now())
    };
    Ok(answer(&running, steps.map_err(Refusal::refused)?, query.dry_run))
}

/// Reads the configuration file again, as SIGHUP does, and touches the file's ports only. What the API has changed at them is
/// undone.
#[utoipa::path(post, path = "/v1/config/reload", operation_id = "reload_config", tag = "config", params(PlanQuery),
    responses(
        (status = 200, body = PlanBody, description = "The steps, all of them done or all of them planned, and the configuration in force"),
        (status = 207, body = PlanBody, description = "The file is in force, and some steps failed: each says why"),
        (status = 400, body = Problem, description = "The query cannot be read"),
        (status = 422, body = Problem, description = "There is no file, it cannot be read or is refused; nothing was changed"),
))]
pub(super) async fn reload(
    State(shared): State<Shared>,
    query: Result<Query<PlanQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let query = PlanQuery::read(query)?;
    let file = shared.source().read_again().await;
    let mut running = shared.lock();
    let steps = match file {
        Ok(file) if query.dry_run => running.dry_run_file(file).map(planned),
        file => {
            let steps = file.and_then(|file| running.reload_file(file, Instant::now()));
            if !query.dry_run {
                running.note_reload(steps.as_ref().is_ok_and(|steps| all_done(steps)));
            }
            steps
        }
    };
    Ok(answer(&running, steps.map_err(Refusal::refused)?, query.dry_run))
}

fn planned(steps: Vec<Step>) -> Vec<StepBody> {
    steps.into_iter().map(StepBody::planned).collect()
}

fn all_done(steps: &[StepBody]) -> bool {
    steps.iter().all(|step| step.outcome != StepOutcome::Failed)
}

fn answer(running: &Running, steps: Vec<StepBody>, dry_run: bool) -> impl IntoResponse + use<> {
    let failed = !all_done(&steps);
    let config = running.config().clone();
    let etag = etag::of(&config);
    let status = if failed { StatusCode::MULTI_STATUS } else { StatusCode::OK };
    (
        status,
        [(ETAG, etag.clone())],
        Json(PlanBody { steps, applied: !dry_run && !failed, etag, config }),
    )
}
