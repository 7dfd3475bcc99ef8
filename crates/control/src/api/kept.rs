//! What changes the configuration is answered once the state is on the disk.

use super::Shared;
use super::reply::Refusal;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Answers 507 where a change is in force and cannot be kept.
pub(super) async fn keep(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let answer = next.run(request).await;
    if reads {
        return answer;
    }
    match shared.keep().await {
        Err(problem) if answer.status().is_success() => {
            Refusal::not_kept(problem.at("the change is in force and would not outlast a restart"))
                .into_response()
        }
        _ => answer,
    }
}
