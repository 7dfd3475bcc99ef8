//! Teams: shown and changed live.

use super::Shared;
use super::reply::{Body, Name, Refusal, Reply, found};
use crate::running::team;
use api::body::{TeamBody, TeamChange, TeamMapping};
use axum::Json;
use axum::extract::State;
use problem::Problem;
use std::time::Instant;

/// All teams.
#[utoipa::path(get, path = "/v1/teams", operation_id = "list_teams", tag = "team", responses(
    (status = 200, body = Vec<TeamBody>, description = "Members, algorithm and mappings, by port"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Reply<Vec<TeamBody>> {
    Ok(Json(shared.run(|running| team::bodies(&running.report())).await?))
}

/// One team.
#[utoipa::path(get, path = "/v1/teams/{name}", operation_id = "show_team", tag = "team",
    params(("name" = String, Path, description = "Name of the team's port")),
    responses(
        (status = 200, body = TeamBody, description = "Members, algorithm and mappings"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port, or it is not a team"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(name): Name) -> Reply<TeamBody> {
    found(&shared, move |running| team::body(&running.report(), &name)).await
}

/// Adds members to a team and removes members from it, while frames flow. If a member to add cannot
/// be opened, nothing changes.
#[utoipa::path(patch, path = "/v1/teams/{name}", operation_id = "change_team", tag = "team",
    params(("name" = String, Path, description = "Name of the team's port")),
    request_body = TeamChange,
    responses(
        (status = 200, body = TeamBody, description = "The change is in force"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port, or it is not a team"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "There is no such member or device, or the team would have none or more than 8"),
))]
pub(super) async fn change(
    State(shared): State<Shared>,
    Name(name): Name,
    Body(change): Body<TeamChange>,
) -> Reply<TeamBody> {
    let done = shared.change(move |running| {
        team::body(&running.report(), &name).map_err(Refusal::not_found)?;
        let wanted = team::with_members(&running.ports, running.config(), &name, &change);
        let steps = wanted.and_then(|wanted| running.reload(wanted, Instant::now()));
        steps.map_err(Refusal::refused)?;
        team::body(&running.report(), &name).map(Json).map_err(Refusal::not_found)
    });
    done.await?
}

/// Pins a vNIC to a member of a team, or unpins it: sets or removes `team-member` of the vNIC's
/// port.
#[utoipa::path(put, path = "/v1/teams/{name}/mappings", operation_id = "map_team_member", tag = "team",
    params(("name" = String, Path, description = "Name of the team's port")),
    request_body = TeamMapping,
    responses(
        (status = 200, body = TeamBody, description = "The mapping is in force"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port, or it is not a team"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "There is no such vNIC or member"),
))]
pub(super) async fn map(
    State(shared): State<Shared>,
    Name(name): Name,
    Body(mapping): Body<TeamMapping>,
) -> Reply<TeamBody> {
    let done = shared.change(move |running| {
        team::body(&running.report(), &name).map_err(Refusal::not_found)?;
        let patch = team::pin(&running.ports, &name, &mapping).map_err(Refusal::refused)?;
        running.patch(&mapping.vnic, &patch, Instant::now()).map_err(Refusal::refused)?;
        team::body(&running.report(), &name).map(Json).map_err(Refusal::not_found)
    });
    done.await?
}
