//! Receive segment coalescing: shown and toggled live.

use super::etag::Tagged;
use super::reply::{Body, Name, Refusal, Reply};
use super::{Shared, etag};
use crate::running::{Running, rsc};
use api::body::{RscBody, RscChange, SwitchRscBody, SwitchRscChange};
use axum::Json;
use axum::extract::{FromRef, State};
use axum::http::HeaderMap;
use axum::routing::{MethodRouter, put};
use config::Config;
use problem::Problem;
use std::time::Instant;

/// [`set`] for a router of another kind.
pub(crate) fn toggle<S: Clone + Send + Sync + 'static>() -> MethodRouter<S>
where
    Shared: FromRef<S>,
{
    put(set)
}

/// Coalescing toward all ports.
#[utoipa::path(get, path = "/v1/rsc", operation_id = "list_rsc", tag = "rsc", responses(
    (status = 200, body = Vec<RscBody>, description = "Settings, state and statistics, by port"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Reply<Vec<RscBody>> {
    Ok(Json(shared.run(|running| running.report().all_rsc()).await?))
}

/// Toggles coalescing on all ports. `on` turns it on for vNICs and leaves uplinks unchanged.
#[utoipa::path(put, path = "/v1/rsc", operation_id = "set_all_rsc", tag = "rsc", request_body = RscChange, responses(
    (status = 200, body = Vec<RscBody>, description = "The change is in force"),
    (status = 400, body = Problem, description = "The body is not JSON"),
    (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
    (status = 422, body = Problem, description = "A key or value is refused"),
))]
pub(super) async fn set_all(
    State(shared): State<Shared>,
    Body(change): Body<RscChange>,
) -> Reply<Vec<RscBody>> {
    let done = shared.change(move |running| {
        let toggle = |ports: &_, wanted: &mut _| rsc::set(ports, wanted, None, change.policy);
        running.change(Instant::now(), toggle).map_err(Refusal::refused)?;
        Ok(Json(running.report().all_rsc()))
    });
    done.await?
}

/// Coalescing on the host and in the switch.
#[utoipa::path(get, path = "/v1/switch/rsc", operation_id = "show_switch_rsc", tag = "rsc", responses(
    (status = 200, body = SwitchRscBody, description = "Settings and state"),
))]
pub(super) async fn show_switch(State(shared): State<Shared>) -> Reply<SwitchRscBody> {
    Ok(Json(shared.run(|running| running.report().switch_rsc()).await?))
}

/// Turns coalescing of the whole switch on or off, also for ports that are added later. Settings of
/// ports stay.
#[utoipa::path(put, path = "/v1/switch/rsc", operation_id = "set_switch_rsc", tag = "rsc", request_body = SwitchRscChange, responses(
    (status = 200, body = SwitchRscBody, description = "The change is in force"),
    (status = 400, body = Problem, description = "The body is not JSON"),
    (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
    (status = 422, body = Problem, description = "A key or value is refused"),
))]
pub(super) async fn set_switch(
    State(shared): State<Shared>,
    Body(change): Body<SwitchRscChange>,
) -> Reply<SwitchRscBody> {
    let done = shared.change(move |running| {
        let toggle = |_: &_, wanted: &mut Config| {
            wanted.switch.software_rsc = change.software_rsc_enabled;
            Ok(())
        };
        running.change(Instant::now(), toggle).map_err(Refusal::refused)?;
        Ok(Json(running.report().switch_rsc()))
    });
    done.await?
}

/// Returns coalescing toward a port, with the tag of its setting.
fn tagged(running: &Running, name: &str) -> Tagged<RscBody> {
    let body = running.report().rsc(name).map_err(Refusal::not_found)?;
    etag::tagged(tag(running, name)?, body)
}

/// Returns the tag of `rsc` of a port, so that other settings and statistics do not change it.
fn tag(running: &Running, name: &str) -> Result<String, Refusal> {
    let body = running.report().port(name).map_err(Refusal::not_found)?;
    Ok(etag::of(&body.config.rsc))
}

/// Coalescing toward one port. `ETag` is the tag of its setting, for `If-Match`.
#[utoipa::path(get, path = "/v1/ports/{name}/rsc", operation_id = "show_rsc", tag = "rsc",
    params(("name" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = RscBody, description = "Settings, state and statistics", headers(("ETag" = String, description = "The tag of the setting"))),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(name): Name) -> Tagged<RscBody> {
    shared.run(move |running| tagged(running, &name)).await?
}

/// Toggles coalescing on one port; open trains are delivered before this returns.
#[utoipa::path(put, path = "/v1/ports/{name}/rsc", operation_id = "set_rsc", tag = "rsc",
    params(("name" = String, Path, description = "Name of the port"), ("If-Match" = Option<String>, Header, description = "Only if the port's setting has one of these tags")),
    request_body = RscChange,
    responses(
        (status = 200, body = RscBody, description = "The change is in force", headers(("ETag" = String, description = "The tag of the setting"))),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 412, body = Problem, description = "The port's setting does not match `If-Match`; nothing was changed"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key or value is refused"),
))]
pub(super) async fn set(
    State(shared): State<Shared>,
    Name(name): Name,
    headers: HeaderMap,
    Body(change): Body<RscChange>,
) -> Tagged<RscBody> {
    let done = shared.change(move |running| {
        etag::check(&headers, &format!("the RSC settings of port {name}"), &tag(running, &name)?)?;
        let toggle =
            |ports: &_, wanted: &mut _| rsc::set(ports, wanted, Some(&name), change.policy);
        running.change(Instant::now(), toggle).map_err(Refusal::not_found)?;
        tagged(running, &name)
    });
    done.await?
}
