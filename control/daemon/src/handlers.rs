//! The REST API, version 1: one file per noun, and an OpenAPI document generated from the same
//! handlers.
//!
//! One tokio thread runs all handlers. A handler sends a closure to the thread that owns the
//! running switch and waits for the result without blocking (see `commands`): `shared.run` reads,
//! or changes something at once; `shared.change` may carry out a plan. While a plan is in work,
//! reads are answered between two of its steps, and further changes wait for its end. A read then
//! shows the wanted configuration, and of the ports those that are in the switch. A closure that
//! asks the workers waits up to 2 s for their answers, and so do those behind it. Preconditions
//! (`If-Match`, an unused name) are checked in the closure that makes the change. Every error is a
//! [`Problem`].

mod acl;
mod actions;
mod captures;
mod config;
mod etag;
mod flows;
mod guard;
mod history;
mod log;
mod page;
mod peer;
mod ports;
mod queues;
mod refusals;
mod reply;
mod rsc;
mod rss;
mod switch;
mod team;
mod trace;
mod vmmq;

use crate::actor;
use crate::shared::Shared;
pub(crate) use actions::routes as actions;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
pub(crate) use flows::route as flows;
pub(crate) use guard::change;
pub(crate) use history::route as history;
use problem::Problem;
use reply::Refusal;
pub(crate) use rsc::toggle as toggle_rsc;
use std::sync::Arc;
pub(crate) use trace::route as trace_frames;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(info(
    title = "Millrace",
    description = "A user-space virtual switch. Settings are spelled as in the configuration file, facts in snake case, \
                   receive segment coalescing as in Get-NetAdapterRsc.",
    license(name = "Apache-2.0")
))]
struct Document;

/// Returns all routes. Each request must carry its [`Peer`](crate::peer::Peer).
pub(crate) fn router(shared: Shared) -> Router {
    let (router, mut document) = documented().split_for_parts();
    refusals::describe(&mut document);
    // Shared: each connection has a router of its own, and the document takes 2 MB.
    let document = Arc::new(document);
    router
        .route("/v1/openapi.json", get(async move || Json(&*document).into_response()))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::admit))
        .with_state(shared)
}

/// A problem as a response.
pub(crate) fn problem(status: StatusCode, problem: Problem) -> Response {
    Refusal::of(status, problem).into_response()
}

/// Returns the OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = documented().split_for_parts().1;
    refusals::describe(&mut document);
    document
}

fn documented() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(switch::show))
        .routes(routes!(switch::workers))
        .routes(routes!(queues::list))
        .routes(routes!(queues::show, queues::set))
        .routes(routes!(switch::macs, switch::forget_macs))
        .routes(routes!(switch::events))
        .routes(routes!(log::show, log::set))
        .routes(routes!(page::issue, page::end))
        .routes(routes!(switch::health))
        .routes(routes!(switch::mtu))
        .routes(routes!(switch::metrics))
        .routes(routes!(history::show))
        .routes(routes!(flows::list))
        .routes(routes!(ports::list, ports::add))
        .routes(routes!(ports::show, ports::patch, ports::remove))
        .routes(routes!(ports::counters))
        .routes(routes!(acl::show, acl::add))
        .routes(routes!(acl::remove))
        .routes(routes!(rsc::list, rsc::set_all))
        .routes(routes!(rsc::show_switch, rsc::set_switch))
        .routes(routes!(rsc::show, rsc::set))
        .routes(routes!(rss::list))
        .routes(routes!(rss::show, rss::change))
        .routes(routes!(team::list))
        .routes(routes!(team::show, team::change))
        .routes(routes!(team::map))
        .routes(routes!(vmmq::moves))
        .routes(routes!(vmmq::load))
        .routes(routes!(config::show, config::put))
        .routes(routes!(config::put_fleet))
        .routes(routes!(config::source))
        .routes(routes!(config::reload))
        .routes(routes!(trace::trace))
        .routes(routes!(captures::list, captures::start))
        .routes(routes!(captures::show, captures::stop))
}

async fn unknown_path(uri: Uri) -> impl IntoResponse {
    Refusal::not_found(
        Problem::new("there is no such resource")
            .seen(uri.path())
            .wanted("a path in /v1/openapi.json")
            .remedy("GET /v1/openapi.json lists all paths"),
    )
}

async fn unknown_method(method: Method, uri: Uri) -> impl IntoResponse {
    Refusal::wrong_method(
        Problem::new(format!("{} does not support this method", uri.path()))
            .seen(method)
            .wanted("a method in /v1/openapi.json")
            .remedy("GET /v1/openapi.json lists the methods of each path"),
    )
}
