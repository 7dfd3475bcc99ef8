//! The switch as a whole: state, workers, learned addresses, health, metrics.

use super::Shared;
use super::reply::{Asked, Refusal, Reply};
use crate::metrics::{self, Renderings};
use crate::running::pictures;
use api::body::{EventBody, HealthBody, MacBody, MtuBody, SwitchBody, WorkerBody};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use problem::Problem;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Instant;
use utoipa::IntoParams;

/// The switch as a whole.
#[utoipa::path(get, path = "/v1/switch", operation_id = "show_switch", tag = "switch", responses(
    (status = 200, body = SwitchBody, description = "State, workers and last events"),
))]
pub(super) async fn show(State(shared): State<Shared>) -> Reply<SwitchBody> {
    Ok(Json(shared.run(move |running| running.switch_body(Instant::now())).await?))
}

/// All workers.
#[utoipa::path(get, path = "/v1/workers", operation_id = "list_workers", tag = "switch", responses(
    (status = 200, body = Vec<WorkerBody>, description = "All workers"),
))]
pub(super) async fn workers(State(shared): State<Shared>) -> Reply<Vec<WorkerBody>> {
    Ok(Json(shared.run(move |running| running.report().workers()).await?))
}

/// Learned addresses.
#[utoipa::path(get, path = "/v1/macs", operation_id = "list_macs", tag = "switch", responses(
    (status = 200, body = Vec<MacBody>, description = "All learned addresses"),
))]
pub(super) async fn macs(State(shared): State<Shared>) -> Reply<Vec<MacBody>> {
    Ok(Json(shared.run(move |running| running.report().macs()).await?))
}

/// The addresses to forget.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Forgotten {
    /// Only addresses learned on this port; all if absent.
    port: Option<String>,
}

/// Forgets learned addresses, all or those of one port. Each is learned again from the next frame
/// it sends.
#[utoipa::path(delete, path = "/v1/macs", operation_id = "forget_macs", tag = "switch", params(Forgotten), responses(
    (status = 204, description = "The addresses are forgotten"),
    (status = 400, body = Problem, description = "The query cannot be read"),
    (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn forget_macs(
    State(shared): State<Shared>,
    Asked(forgotten): Asked<Forgotten>,
) -> Result<StatusCode, Refusal> {
    let forgotten = shared.run(move |running| running.forget_macs(forgotten.port.as_deref()));
    forgotten.await?.map_err(Refusal::not_found)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The events to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct After {
    /// Only events with a greater `id`; absent: all stored events, the last 64.
    after: Option<u64>,
}

/// The last events, oldest first.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events", tag = "switch", params(After), responses(
    (status = 200, body = Vec<EventBody>, description = "Events, by `id`"),
    (status = 400, body = Problem, description = "The query cannot be read"),
))]
pub(super) async fn events(
    State(shared): State<Shared>,
    Asked(After { after }): Asked<After>,
) -> Reply<Vec<EventBody>> {
    Ok(Json(
        shared.run(move |running| running.journal.events_after(after.unwrap_or_default())).await?,
    ))
}

/// Health: ports that carry no frames, and settings that are valid but do not do what their owner
/// expects.
#[utoipa::path(get, path = "/v1/health", operation_id = "show_health", tag = "switch", responses(
    (status = 200, body = HealthBody, description = "Findings, worst first"),
))]
pub(super) async fn health(State(shared): State<Shared>) -> Reply<HealthBody> {
    Ok(Json(shared.run(move |running| running.health(Instant::now())).await?))
}

/// MTUs of ports and devices, and those that do not match.
#[utoipa::path(get, path = "/v1/mtu", operation_id = "show_mtu", tag = "switch", responses(
    (status = 200, body = MtuBody, description = "Ports by name, with findings"),
))]
pub(super) async fn mtu(State(shared): State<Shared>) -> Reply<MtuBody> {
    Ok(Json(
        shared.run(move |running| pictures::mtu_body(&running.report(), Instant::now())).await?,
    ))
}

/// All counters, in Prometheus' text format or, if `Accept` prefers it, as OpenMetrics.
#[utoipa::path(get, path = "/metrics", operation_id = "show_metrics", tag = "switch", responses(
    (status = 200, description = "The counters", content(
        (String = metrics::TEXT),
        (String = metrics::OPEN_METRICS),
    )),
    (status = 422, body = Problem, description = "The metrics could not be written"),
))]
pub(super) async fn metrics(
    State(shared): State<Shared>,
    Extension(metrics): Extension<Arc<Renderings>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    metrics.answer(&shared, &headers).await.map_err(Refusal::refused)
}
