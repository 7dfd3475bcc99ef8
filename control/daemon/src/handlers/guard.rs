//! Checks whether the client may make a request. A request that changes something is logged with
//! its client's name, and the state is on the disk before the response.

use super::peer;
use super::reply::Refusal;
use super::{Shared, actor, trace};
use crate::commands::Ended;
use crate::peer::Peer;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Refuses with 403, or passes the request on. 503: nothing can be changed while a worker does not
/// answer. 507: the change was made but cannot be stored.
pub(super) async fn admit(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let only_reads = only_reads(&request);
    if let Err(refusal) = peer::check(&peer, only_reads) {
        return refusal.into_response();
    }
    if only_reads {
        return next.run(request).await;
    }
    change(&shared, actor::name(&peer), request, next).await
}

/// Carries out a request that changes something: logs it, and writes the state to the disk before
/// the response.
pub(crate) async fn change(
    shared: &Shared,
    client: String,
    request: Request,
    next: Next,
) -> Response {
    // A task of its own: what a client that disconnects has changed is logged and stored too.
    let carried_out = tokio::spawn(carry_out(shared.clone(), client, request, next));
    match carried_out.await {
        Ok(answer) => answer.unwrap_or_else(Refusal::into_response),
        // The runtime ends, and the task with it.
        Err(_) => Refusal::from(Ended).into_response(),
    }
}

async fn carry_out(
    shared: Shared,
    client: String,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let ready = shared.run(|running| running.all_answer().map(|()| running.desired.kept_changes()));
    let before = ready.await?.map_err(Refusal::not_now)?;
    let line = format!("{} {}", request.method(), request.uri());
    let answer = actor::acting(client.clone(), next.run(request)).await;
    let answer = stored(&shared, before, answer).await.unwrap_or_else(Refusal::into_response);
    tracing::info!(target: "control::api::guard", by = client, status = answer.status().as_u16(), "{line}");
    Ok(answer)
}

/// Waits until what a request changed is on the disk. Returns its answer, or that it is not stored.
async fn stored(shared: &Shared, before: u64, answer: Response) -> Result<Response, Refusal> {
    if shared.run(|running| running.desired.kept_changes()).await? == before {
        return Ok(answer);
    }
    match shared.keep().await {
        Err(problem) if answer.status().is_success() => Err(Refusal::not_kept(
            problem.at("the change was made, but would not survive a restart"),
        )),
        _ => Ok(answer),
    }
}

/// Whether a request only reads. A trace has a body, but changes nothing.
fn only_reads(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        || *request.method() == Method::POST && request.uri().path() == trace::PATH
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn all_but_get_and_a_trace_is_for_admins() {
        let reads = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty());
            only_reads(&request.unwrap())
        };
        assert!(reads(Method::GET, "/v1/ports") && reads(Method::HEAD, "/v1/ports"));
        assert!(reads(Method::POST, "/v1/trace"));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            for path in ["/v1/ports", "/v1/trace/", "/v1/trace?x=/v1/trace", "/V1/trace"] {
                let is_trace = method == Method::POST && path.starts_with("/v1/trace?");
                assert_eq!(reads(method.clone(), path), is_trace, "{method} {path}");
            }
            assert!(method == Method::POST || !reads(method, "/v1/trace"));
        }
    }
}
