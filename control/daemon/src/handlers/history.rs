//! What passed in the last minutes and hours, for the switch or for one port.

use super::Shared;
use super::reply::{Asked, Refusal, Reply};
use crate::history::longest;
use api::body::{HistoryBody, HistoryResolution};
use axum::Json;
use axum::extract::State;
use axum::routing::{MethodRouter, get};
use problem::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

/// Seconds that are told if the range is not named.
const USUAL: u64 = longest(HistoryResolution::Second);

/// The part of the history to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// Only this port; absent: the switch.
    port: Option<String>,
    /// How far back, in seconds: at most 600 by the second, and 86400 by the minute; absent: 600.
    #[param(minimum = 1, maximum = 86400)]
    range_s: Option<u64>,
    /// Absent: by the second if the range is at most 600 s.
    #[param(inline)]
    resolution: Option<HistoryResolution>,
}

/// What passed in the last minutes and hours, for the switch or for one port.
#[utoipa::path(get, path = "/v1/history", operation_id = "show_history", tag = "switch", params(Part), responses(
    (status = 200, body = HistoryBody, description = "Counts of each second or minute, oldest first"),
    (status = 400, body = Problem, description = "The query cannot be read"),
    (status = 404, body = Problem, description = "There is no such port"),
    (status = 422, body = Problem, description = "So much is not kept"),
))]
pub(super) async fn show(
    State(shared): State<Shared>,
    Asked(part): Asked<Part>,
) -> Reply<HistoryBody> {
    let range_s = part.range_s.unwrap_or(USUAL);
    let resolution = part.resolution.unwrap_or(match range_s {
        ..=USUAL => HistoryResolution::Second,
        _ => HistoryResolution::Minute,
    });
    check(range_s, resolution).map_err(Refusal::refused)?;
    let shown =
        shared.run(move |running| running.history_body(part.port.as_deref(), range_s, resolution));
    shown.await?.map(Json).map_err(Refusal::not_found)
}

/// Serves the same to the page.
pub(crate) fn route<S: Clone + Send + Sync + 'static>() -> MethodRouter<S>
where
    Shared: axum::extract::FromRef<S>,
{
    get(show)
}

fn check(range_s: u64, resolution: HistoryResolution) -> Result<(), Problem> {
    let longest = longest(resolution);
    if (1..=longest).contains(&range_s) {
        return Ok(());
    }
    let wanted = format!("1 to {longest} s, for {} s each", resolution.seconds());
    let remedy = "name a shorter range, or `resolution=minute`";
    Err(Problem::new("the history does not reach so far")
        .seen(range_s)
        .wanted(wanted)
        .remedy(remedy))
}
