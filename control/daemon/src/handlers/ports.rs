//! Ports: list, get, add, change, remove, counters.

use super::etag::Tagged;
use super::reply::{Body, Name, Refusal, Reply, found};
use super::{Shared, etag};
use crate::running::Running;
use api::body::{CountersBody, PortBody};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use config::PortConfig;
use problem::Problem;
use std::time::Instant;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// All ports, by name.
#[utoipa::path(get, path = "/v1/ports", operation_id = "list_ports", tag = "ports", responses(
    (status = 200, body = Vec<PortBody>, description = "All ports, by name"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Reply<Vec<PortBody>> {
    Ok(Json(shared.run(|running| running.report().listed_ports()).await?))
}

/// Adds a port. Unlike a port from the file, a port whose device cannot be opened is refused.
#[utoipa::path(post, path = "/v1/ports", operation_id = "add_port", tag = "ports", request_body = PortConfig, responses(
    (status = 201, body = PortBody, description = "The port is open"),
    (status = 400, body = Problem, description = "The body is not JSON"),
    (status = 409, body = Problem, description = "The name is taken"),
    (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
    (status = 422, body = Problem, description = "A key, a value or a rule refuses the port, or its device cannot be opened"),
))]
pub(super) async fn add(
    State(shared): State<Shared>,
    Body(port): Body<PortConfig>,
) -> Result<(StatusCode, Json<PortBody>), Refusal> {
    let name = port.name.to_string();
    let added = shared.change(move |running| {
        let taken = running.config().port(&name).is_some();
        let refusal = if taken { Refusal::conflict } else { Refusal::refused };
        running.add(port, Instant::now()).map_err(refusal)?;
        running.report().port(&name).map_err(Refusal::not_found)
    });
    Ok((StatusCode::CREATED, Json(added.await??)))
}

/// One port. `ETag` is the tag of its settings, for `If-Match`.
#[utoipa::path(get, path = "/v1/ports/{name}", operation_id = "show_port", tag = "ports",
    params(("name" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = PortBody, description = "The port", headers(("ETag" = String, description = "The tag of its settings"))),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(name): Name) -> Tagged<PortBody> {
    let body = shared.run(move |running| running.report().listed_port(&name)).await?;
    tagged(body.map_err(Refusal::not_found)?)
}

fn tagged(body: PortBody) -> Tagged<PortBody> {
    etag::tagged(etag::of(&body.config), body)
}

/// Refuses a request whose tag does not match the port's settings.
fn check(headers: &HeaderMap, running: &Running, name: &str) -> Result<(), Refusal> {
    let body = running.report().port(name).map_err(Refusal::not_found)?;
    let what = format!("the settings of port {name}");
    etag::check(headers, &what, &etag::of(&body.config))
}

/// The schema of a change: the keys of a port, each optional, without its name. The body itself is
/// read as any JSON.
struct PortChange;

impl PartialSchema for PortChange {
    fn schema() -> RefOr<Schema> {
        let mut schema = PortConfig::schema();
        if let RefOr::T(Schema::Object(port)) = &mut schema {
            port.properties.retain(|key, _| key != "name");
            port.required.clear();
            port.description =
                Some("Keys of a port to change; null removes a key (RFC 7396).".into());
        }
        schema
    }
}

impl ToSchema for PortChange {}

/// Changes keys of a running port: a JSON merge patch with the keys of the file; null removes a
/// key. Keys that name the device reopen the port. If a step fails, an open port returns to its
/// previous settings.
#[utoipa::path(patch, path = "/v1/ports/{name}", operation_id = "change_port", tag = "ports",
    params(("name" = String, Path, description = "Name of the port"), ("If-Match" = Option<String>, Header, description = "Only if the port's settings have one of these tags")),
    request_body = PortChange,
    responses(
        (status = 200, body = PortBody, description = "The port after the change", headers(("ETag" = String, description = "The tag of its settings"))),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 412, body = Problem, description = "The port's settings do not match `If-Match`; nothing was changed"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "A key, a value or a rule refuses the change, or it cannot be carried out"),
))]
pub(super) async fn patch(
    State(shared): State<Shared>,
    Name(name): Name,
    headers: HeaderMap,
    Body(change): Body<serde_json::Value>,
) -> Tagged<PortBody> {
    let changed = shared.change(move |running| {
        check(&headers, running, &name)?;
        running.patch(&name, &change, Instant::now()).map_err(Refusal::refused)?;
        running.report().port(&name).map_err(Refusal::not_found)
    });
    changed.await?.and_then(tagged)
}

/// Removes a port; when this returns, nothing uses its device.
#[utoipa::path(delete, path = "/v1/ports/{name}", operation_id = "remove_port", tag = "ports",
    params(("name" = String, Path, description = "Name of the port"), ("If-Match" = Option<String>, Header, description = "Only if the port's settings have one of these tags")),
    responses(
        (status = 204, description = "The port is removed"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 412, body = Problem, description = "The port's settings do not match `If-Match`; nothing was changed"),
        (status = 422, body = Problem, description = "The port is removed, but a device or another port could not be updated"),
))]
pub(super) async fn remove(
    State(shared): State<Shared>,
    Name(name): Name,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let removed = shared.change(move |running| {
        check(&headers, running, &name)?;
        running.remove(&name, Instant::now()).map_err(Refusal::refused)
    });
    removed.await??;
    Ok(StatusCode::NO_CONTENT)
}

/// One port's counters since it was opened.
#[utoipa::path(get, path = "/v1/ports/{name}/counters", operation_id = "show_counters", tag = "ports",
    params(("name" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = CountersBody, description = "The counters; all zero while the device is not open"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn counters(
    State(shared): State<Shared>,
    Name(name): Name,
) -> Reply<CountersBody> {
    found(&shared, move |running| running.report().counters(&name)).await
}
