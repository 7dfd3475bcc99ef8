//! The rules of a port, with the frames that each matched.

use super::Shared;
use super::reply::{Body, Name, Refusal, Reply, found};
use crate::running::acl;
use api::body::{AclAdd, AclBody};
use axum::Json;
use axum::extract::State;
use problem::Problem;
use std::time::Instant;

/// The rules of a port in order, with counters.
#[utoipa::path(get, path = "/v1/ports/{name}/acl", operation_id = "show_acl", tag = "acl",
    params(("name" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = AclBody, description = "The rules"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(name): Name) -> Reply<AclBody> {
    found(&shared, move |running| acl::body(&running.report(), &name)).await
}

/// Adds a rule, at the end or at a given number. The rule is in force when this returns; other
/// ports are not touched.
#[utoipa::path(post, path = "/v1/ports/{name}/acl", operation_id = "add_acl_rule", tag = "acl",
    params(("name" = String, Path, description = "Name of the port")),
    request_body = AclAdd,
    responses(
        (status = 200, body = AclBody, description = "The rules, with the new one"),
        (status = 400, body = Problem, description = "The body is not JSON, or a key or value is not allowed"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "The rule exists already, or there are too many"),
))]
pub(super) async fn add(
    State(shared): State<Shared>,
    Name(name): Name,
    Body(add): Body<AclAdd>,
) -> Reply<AclBody> {
    let done = shared.change(move |running| {
        acl::body(&running.report(), &name).map_err(Refusal::not_found)?;
        let added =
            running.change(Instant::now(), |ports, wanted| acl::add(ports, wanted, &name, add));
        added.map_err(Refusal::refused)?;
        acl::body(&running.report(), &name).map(Json).map_err(Refusal::not_found)
    });
    done.await?
}

/// Removes the rule with this number; later rules move up by one.
#[utoipa::path(delete, path = "/v1/ports/{name}/acl/{number}", operation_id = "remove_acl_rule", tag = "acl",
    params(
        ("name" = String, Path, description = "Name of the port"),
        ("number" = usize, Path, minimum = 1, description = "Number of the rule"),
    ),
    responses(
        (status = 200, body = AclBody, description = "The remaining rules"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port or rule"),
))]
pub(super) async fn remove(
    State(shared): State<Shared>,
    Name((name, number)): Name<(String, String)>,
) -> Reply<AclBody> {
    let done = shared.change(move |running| {
        let remove = |ports: &_, wanted: &mut _| acl::remove(ports, wanted, &name, &number);
        running.change(Instant::now(), remove).map_err(Refusal::not_found)?;
        acl::body(&running.report(), &name).map(Json).map_err(Refusal::not_found)
    });
    done.await?
}
