//! Ports: list, get, add, change, remove, counters.

use super::Shared;
use super::reply::{self, Refusal, Reply};
use crate::Problem;
use crate::body::{CountersBody, PortBody};
use crate::config::PortConfig;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use std::time::Instant;

/// All ports, by name.
#[utoipa::path(get, path = "/v1/ports", tag = "ports", responses((status = 200, body = Vec<PortBody>)))]
pub(super) async fn list(State(shared): State<Shared>) -> Json<Vec<PortBody>> {
    Json(shared.lock().port_bodies())
}

/// Opens one more port. Unlike a port of the file, one that does not open is refused.
#[utoipa::path(post, path = "/v1/ports", tag = "ports", request_body = PortConfig, responses(
    (status = 201, body = PortBody),
    (status = 400, body = Problem, description = "not a port"),
    (status = 409, body = Problem, description = "the name is taken"),
    (status = 422, body = Problem, description = "the port breaks a rule or does not open"),
))]
pub(super) async fn add(
    State(shared): State<Shared>,
    body: Bytes,
) -> Result<(StatusCode, Json<PortBody>), Refusal> {
    let port: PortConfig = reply::read(&body)?;
    let name = port.name.to_string();
    let mut running = shared.lock();
    let taken = running.config().port(&name).is_some();
    let refusal = if taken { Refusal::conflict } else { Refusal::refused };
    running.add(port, Instant::now()).map_err(refusal)?;
    let body = running.port_body(&name).map_err(Refusal::not_found)?;
    Ok((StatusCode::CREATED, Json(body)))
}

/// One port.
#[utoipa::path(get, path = "/v1/ports/{name}", tag = "ports", params(("name" = String, Path)), responses(
    (status = 200, body = PortBody),
    (status = 404, body = Problem),
))]
pub(super) async fn show(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Reply<PortBody> {
    shared.lock().port_body(&name).map(Json).map_err(Refusal::not_found)
}

/// Changes keys of a port while it runs: a JSON merge patch with the keys of the file; null takes a key away. Keys that name
/// the device close it and open it again.
#[utoipa::path(patch, path = "/v1/ports/{name}", tag = "ports", params(("name" = String, Path)),
    request_body = Object,
    responses(
        (status = 200, body = PortBody),
        (status = 400, body = Problem, description = "not JSON"),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "a value is refused"),
))]
pub(super) async fn patch(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    body: Bytes,
) -> Reply<PortBody> {
    let change = reply::read(&body)?;
    let mut running = shared.lock();
    running.port_body(&name).map_err(Refusal::not_found)?;
    running.patch(&name, &change, Instant::now()).map_err(Refusal::refused)?;
    running.port_body(&name).map(Json).map_err(Refusal::not_found)
}

/// Removes a port; when this returns nothing touches its device any more.
#[utoipa::path(delete, path = "/v1/ports/{name}", tag = "ports", params(("name" = String, Path)), responses(
    (status = 204),
    (status = 404, body = Problem),
))]
pub(super) async fn remove(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    shared.lock().remove(&name, Instant::now()).map_err(Refusal::not_found)?;
    Ok(StatusCode::NO_CONTENT)
}

/// One port's counters since it was opened.
#[utoipa::path(get, path = "/v1/ports/{name}/counters", tag = "ports", params(("name" = String, Path)), responses(
    (status = 200, body = CountersBody),
    (status = 404, body = Problem),
))]
pub(super) async fn counters(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Reply<CountersBody> {
    shared.lock().counters(&name).map(Json).map_err(Refusal::not_found)
}
