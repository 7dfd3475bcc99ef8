//! Who talks to whom.

use super::Shared;
use super::reply::{Asked, Refusal, Reply};
use crate::flows::Wanted;
use api::body::FlowsBody;
use axum::Json;
use axum::extract::State;
use axum::routing::{MethodRouter, get};
use problem::Problem;
use serde::Deserialize;
use std::time::Instant;
use utoipa::IntoParams;
use wire::Prefix;

/// Flows that are listed if no number is named, and at most.
const USUAL: u16 = 100;
const MOST: u16 = 4096;

/// The flows to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// Only flows from or to this port.
    port: Option<String>,
    /// Only flows with this source or destination; a prefix such as `10.0.0.0/8` stands for all of
    /// its addresses.
    ip: Option<String>,
    /// Only flows of which frames were dropped, those with the most drops first.
    #[serde(default)]
    drops: bool,
    /// How many to list; absent: 100.
    #[param(minimum = 1, maximum = 4096)]
    limit: Option<u16>,
}

/// The flows of the last minutes, the largest first: who talks to whom, how much, and what was
/// dropped for which reason.
#[utoipa::path(get, path = "/v1/flows", operation_id = "list_flows", tag = "switch", params(Part), responses(
    (status = 200, body = FlowsBody, description = "The flows"),
    (status = 400, body = Problem, description = "The query cannot be read"),
    (status = 404, body = Problem, description = "There is no such port"),
    (status = 422, body = Problem, description = "The address cannot be read, or so many are not listed"),
))]
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(part): Asked<Part>,
) -> Reply<FlowsBody> {
    let wanted = part.wanted().map_err(Refusal::refused)?;
    let listed = shared.run(move |running| running.flows_body(&wanted, Instant::now()));
    listed.await?.map(Json).map_err(Refusal::not_found)
}

/// Serves the same to the page.
pub(crate) fn route<S: Clone + Send + Sync + 'static>() -> MethodRouter<S>
where
    Shared: axum::extract::FromRef<S>,
{
    get(list)
}

impl Part {
    fn wanted(self) -> Result<Wanted, Problem> {
        let limit = self.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::new("so many flows are not listed")
                .seen(limit)
                .wanted(format!("1 to {MOST} flows"))
                .remedy("name fewer, or one port or address"));
        }
        let ip = self.ip.map(|text| prefix(&text)).transpose()?;
        Ok(Wanted { port: self.port, ip, drops: self.drops, limit: limit.into() })
    }
}

/// Reads an address, or a prefix.
fn prefix(text: &str) -> Result<Prefix, Problem> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let read = || {
        let address = address.parse().ok()?;
        match length {
            Some(length) => Prefix::new(address, length.parse().ok()?),
            None => Some(Prefix { first: address, last: address }),
        }
    };
    read().ok_or_else(|| {
        Problem::new("the address cannot be read")
            .seen(text)
            .wanted("an IP address, or a prefix")
            .remedy("write, for example, 10.0.0.1 or fd00::/8")
    })
}
