//! The requests of the page's actions: those of the API, at the same paths, by the same handlers. So
//! what the API refuses is refused here, in the same words.

use super::{Shared, acl, captures, ports, queues, rsc};
use axum::Router;
use axum::extract::FromRef;
use axum::routing::{delete, get, post, put};

/// Returns the routes. They check no client: the page lets only requests with a key of an admin in.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S>
where
    Shared: FromRef<S>,
{
    Router::new()
        .route("/v1/ports", post(ports::add))
        .route("/v1/ports/{name}", get(ports::show).patch(ports::patch).delete(ports::remove))
        .route("/v1/ports/{name}/acl", get(acl::show).post(acl::add))
        .route("/v1/ports/{name}/acl/{number}", delete(acl::remove))
        .route("/v1/ports/{name}/queues/{queue}", put(queues::set))
        .route("/v1/ports/{name}/rsc", put(rsc::set))
        .route("/v1/captures", post(captures::start))
        .route("/v1/captures/{port}", delete(captures::stop))
}
