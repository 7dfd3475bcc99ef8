//! Receive-side scaling: shown and changed live.

use super::Shared;
use super::reply::{Body, Name, Refusal, Reply, found};
use crate::actor;
use crate::running::rss;
use api::body::{RssBody, RssChange};
use axum::Json;
use axum::extract::State;
use problem::Problem;
use std::time::Instant;

/// How frames toward all ports are spread over their queues.
#[utoipa::path(get, path = "/v1/rss", operation_id = "list_rss", tag = "rss", responses(
    (status = 200, body = Vec<RssBody>, description = "Steering, key, types and table, by port"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Reply<Vec<RssBody>> {
    Ok(Json(shared.run(|running| rss::bodies(&running.report())).await?))
}

/// How frames toward one port are spread over its queues.
#[utoipa::path(get, path = "/v1/ports/{name}/rss", operation_id = "show_rss", tag = "rss",
    params(("name" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = RssBody, description = "Steering, key, types and table"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(name): Name) -> Reply<RssBody> {
    found(&shared, move |running| rss::body(&running.report(), &name)).await
}

/// Changes entries of a port's indirection table, the whole table, the key or the types, from the
/// next frame on. Entries last until the port is reopened. Frames of a flow in its old queue may be
/// read after frames in the new one.
#[utoipa::path(patch, path = "/v1/ports/{name}/rss", operation_id = "change_rss", tag = "rss",
    params(("name" = String, Path, description = "Name of the port")),
    request_body = RssChange,
    responses(
        (status = 200, body = RssBody, description = "The change is in force"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "There is no such entry or queue, the port is not open, or a key or value is refused"),
))]
pub(super) async fn change(
    State(shared): State<Shared>,
    Name(name): Name,
    Body(change): Body<RssChange>,
) -> Reply<RssBody> {
    let done = shared.change(move |running| {
        rss::body(&running.report(), &name).map_err(Refusal::not_found)?;
        let told = serde_json::to_value(&change).unwrap_or_default();
        running.change_rss(&name, change, Instant::now()).map_err(Refusal::refused)?;
        actor::log(&format!("port {name}: rss is changed"), &told);
        rss::body(&running.report(), &name).map(Json).map_err(Refusal::not_found)
    });
    done.await?
}
