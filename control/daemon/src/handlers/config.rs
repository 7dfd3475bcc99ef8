//! The running configuration: shown, planned, replaced, and reread from the file.

use super::etag::Tagged;
use super::reply::{Asked, Body, Refusal};
use super::{Shared, etag};
use crate::running::Running;
use api::body::{PlanBody, SourceBody, StepBody, StepOutcome};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::ETAG;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use config::plan::Step;
use config::{Config, PortConfig};
use problem::Problem;
use serde::Deserialize;
use std::time::Instant;
use utoipa::IntoParams;

/// The running configuration: the file's ports with changes made through the API, and the ports
/// added through the API. `ETag` is the tag for `If-Match`.
#[utoipa::path(get, path = "/v1/config", operation_id = "show_config", tag = "config", responses(
    (status = 200, body = Config, description = "The running configuration", headers(("ETag" = String, description = "Its tag"))),
))]
pub(super) async fn show(State(shared): State<Shared>) -> Tagged<Config> {
    let config = shared.run(|running| running.config().clone()).await?;
    etag::tagged(etag::of(&config), config)
}

/// The configuration file, and the file that stores ports added through the API.
#[utoipa::path(get, path = "/v1/config/source", operation_id = "show_config_source", tag = "config", responses(
    (status = 200, body = SourceBody, description = "The files"),
))]
pub(super) async fn source(State(shared): State<Shared>) -> Json<SourceBody> {
    let keeper = shared.keeper();
    Json(SourceBody {
        file: shared.source().file().map(|file| file.display().to_string()),
        state: keeper.file().display().to_string(),
        not_kept: keeper.found().trouble.map(|problem| problem.to_string()).unwrap_or_default(),
    })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanQuery {
    /// Returns the steps without carrying them out.
    #[serde(default)]
    dry_run: bool,
}

/// What the fleet's agent says beside the ports.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FleetQuery {
    /// Returns the steps without carrying them out.
    #[serde(default)]
    dry_run: bool,
    /// The revision of the fleet that the ports come from, for the event.
    revision: Option<u64>,
}

impl PlanQuery {
    fn read(query: Result<Query<PlanQuery>, QueryRejection>) -> Result<PlanQuery, Refusal> {
        query.map(|Query(query)| query).map_err(|error| {
            let problem = Problem::new("the query cannot be read").seen(error.body_text());
            Refusal::bad_request(
                problem.wanted("dry_run=true or dry_run=false").remedy("write one of them"),
            )
        })
    }
}

/// Replaces the running configuration. Ports that do not differ are not touched. Added ports
/// persist, as with `POST /v1/ports`; changes to ports from the file last until the file is reread.
#[utoipa::path(put, path = "/v1/config", operation_id = "replace_config", tag = "config",
    params(PlanQuery, ("If-Match" = Option<String>, Header, description = "Only if the running configuration has one of these tags")),
    request_body = Config,
    responses(
        (status = 200, body = PlanBody, description = "The steps, all carried out or all planned, and the running configuration"),
        (status = 207, body = PlanBody, description = "The configuration was replaced, but some steps failed; each has its reason"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 412, body = Problem, description = "The running configuration does not match `If-Match`; nothing was changed"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key, a value or a rule refuses the configuration; nothing was changed"),
))]
pub(super) async fn put(
    State(shared): State<Shared>,
    query: Result<Query<PlanQuery>, QueryRejection>,
    headers: HeaderMap,
    Body(wanted): Body<Config>,
) -> Result<Planned, Refusal> {
    let query = PlanQuery::read(query)?;
    carry_out(&shared, query.dry_run, move |running| {
        etag::check(&headers, "the settings", &etag::of(running.config()))?;
        if query.dry_run {
            return Ok(running.desired.dry_run(&wanted).map(planned));
        }
        let steps = running.reload(wanted, Instant::now());
        running.end_keys_of_former_admins(Instant::now());
        Ok(steps)
    })
    .await
}

/// Rereads the configuration file, as SIGHUP does, and changes only the file's ports. Changes made
/// to them through the API are undone. Keys of the page end if their users are not named as admins
/// any more.
#[utoipa::path(post, path = "/v1/config/reload", operation_id = "reload_config", tag = "config", params(PlanQuery),
    responses(
        (status = 200, body = PlanBody, description = "The steps, all carried out or all planned, and the running configuration"),
        (status = 207, body = PlanBody, description = "The file was applied, but some steps failed; each has its reason"),
        (status = 400, body = Problem, description = "The query cannot be read"),
        (status = 422, body = Problem, description = "There is no file, or it cannot be read, or it is refused; nothing was changed"),
))]
pub(super) async fn reload(
    State(shared): State<Shared>,
    query: Result<Query<PlanQuery>, QueryRejection>,
) -> Result<Planned, Refusal> {
    let query = PlanQuery::read(query)?;
    let file = shared.source().read_again().await;
    carry_out(&shared, query.dry_run, move |running| {
        if query.dry_run {
            return Ok(file.and_then(|file| running.desired.dry_run_file(file)).map(planned));
        }
        let steps = file.and_then(|file| running.reload_file(file, Instant::now()));
        running.end_keys_of_former_admins(Instant::now());
        running.journal.note_reload(steps.as_ref().is_ok_and(|steps| all_done(steps)));
        Ok(steps)
    })
    .await
}

/// Replaces the fleet's ports with those that the fleet's agent wants on this host. Ports of the
/// file stay, and so do ports of the API unless the fleet wants their names or devices: the file
/// wins, then the fleet. The ports persist, as with `POST /v1/ports`.
#[utoipa::path(put, path = "/v1/config/fleet", operation_id = "replace_fleet", tag = "config",
    params(FleetQuery),
    request_body = Vec<PortConfig>,
    responses(
        (status = 200, body = PlanBody, description = "The steps, all carried out or all planned, and the running configuration"),
        (status = 207, body = PlanBody, description = "The fleet's ports were replaced, but some steps failed; each has its reason"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key or a value of a port cannot be read; nothing was changed"),
))]
pub(super) async fn put_fleet(
    State(shared): State<Shared>,
    Asked(query): Asked<FleetQuery>,
    Body(ports): Body<Vec<PortConfig>>,
) -> Result<Planned, Refusal> {
    carry_out(&shared, query.dry_run, move |running| {
        if query.dry_run {
            return Ok(running.desired.dry_run_fleet(ports).map(planned));
        }
        let steps = running.replace_fleet(ports, Instant::now());
        if let (Some(revision), Ok(steps)) = (query.revision, &steps) {
            running.journal.note_fleet(revision, steps, Instant::now());
        }
        Ok(steps)
    })
    .await
}

/// The steps of a plan, or why it was refused.
type Steps = Result<Vec<StepBody>, Problem>;

/// A plan with its tag.
type Planned = (StatusCode, [(HeaderName, String); 1], Json<PlanBody>);

fn planned(steps: Vec<Step>) -> Vec<StepBody> {
    steps.into_iter().map(StepBody::planned).collect()
}

fn all_done(steps: &[StepBody]) -> bool {
    steps.iter().all(|step| step.outcome != StepOutcome::Failed)
}

/// Sends the switch a plan, or a dry run, which waits for no plan. Returns its steps with the
/// configuration that is in force then.
async fn carry_out(
    shared: &Shared,
    dry_run: bool,
    plan: impl FnOnce(&mut Running) -> Result<Steps, Refusal> + Send + 'static,
) -> Result<Planned, Refusal> {
    let work = move |running: &mut Running| {
        let steps = plan(running)?.map_err(Refusal::refused)?;
        Ok::<_, Refusal>((steps, running.config().clone()))
    };
    let (steps, config) =
        if dry_run { shared.run(work).await?? } else { shared.change(work).await?? };
    let failed = !all_done(&steps);
    let etag = etag::of(&config);
    let status = if failed { StatusCode::MULTI_STATUS } else { StatusCode::OK };
    let body = PlanBody { steps, applied: !dry_run && !failed, etag: etag.clone(), config };
    Ok((status, [(ETAG, etag)], Json(body)))
}
