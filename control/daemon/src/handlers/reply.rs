//! Bodies and errors of the API: reads requests, and answers refusals as a [`Problem`].

use super::refusals::PROBLEM_JSON;
use crate::commands::Ended;
use crate::running::Running;
use crate::shared::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use problem::Problem;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::time::Duration;

/// Longest time to receive a body.
const BODY: Duration = Duration::from_secs(10);

/// A problem and its status.
pub(super) struct Refusal(StatusCode, Box<Problem>);

/// What handlers return.
pub(super) type Reply<T> = Result<Json<T>, Refusal>;

/// Returns the result of a [short command](Shared::run) about what a path names.
///
/// # Errors
/// There is no such thing, or the switch's thread has ended.
pub(super) async fn found<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&mut Running) -> Result<T, Problem> + Send + 'static,
) -> Reply<T> {
    shared.run(work).await?.map(Json).map_err(Refusal::not_found)
}

impl Refusal {
    /// Refuses with any status.
    pub(super) fn of(status: StatusCode, problem: Problem) -> Refusal {
        Refusal(status, Box::new(problem))
    }

    /// Refuses with status 400: the request cannot be read, because its body is not JSON or its
    /// path not UTF-8.
    pub(super) fn bad_request(problem: Problem) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, Box::new(problem))
    }

    /// Refuses with 403: the client may not do this.
    pub(super) fn forbidden(problem: Problem) -> Refusal {
        Refusal(StatusCode::FORBIDDEN, Box::new(problem))
    }

    /// Refuses with 404: the resource does not exist.
    pub(super) fn not_found(problem: Problem) -> Refusal {
        Refusal(StatusCode::NOT_FOUND, Box::new(problem))
    }

    /// Refuses with 405: the resource does not support this method.
    pub(super) fn wrong_method(problem: Problem) -> Refusal {
        Refusal(StatusCode::METHOD_NOT_ALLOWED, Box::new(problem))
    }

    /// Refuses with 409: the name is taken.
    pub(super) fn conflict(problem: Problem) -> Refusal {
        Refusal(StatusCode::CONFLICT, Box::new(problem))
    }

    /// Refuses with 412: the settings changed since the client read them.
    pub(super) fn changed_meanwhile(problem: Problem) -> Refusal {
        Refusal(StatusCode::PRECONDITION_FAILED, Box::new(problem))
    }

    /// Refuses with 503: not possible at the moment.
    pub(super) fn not_now(problem: Problem) -> Refusal {
        Refusal(StatusCode::SERVICE_UNAVAILABLE, Box::new(problem))
    }

    /// Refuses with 507: done but not stored, because the state cannot be written.
    pub(super) fn not_kept(problem: Problem) -> Refusal {
        Refusal(StatusCode::INSUFFICIENT_STORAGE, Box::new(problem))
    }

    /// Refuses with 422: valid JSON, but a key, a value or a rule is refused.
    pub(super) fn refused(problem: Problem) -> Refusal {
        Refusal(StatusCode::UNPROCESSABLE_ENTITY, Box::new(problem))
    }
}

/// 503: the daemon is stopping.
impl From<Ended> for Refusal {
    fn from(ended: Ended) -> Refusal {
        Refusal::not_now(ended.into())
    }
}

/// The body of a refusal: the members of RFC 9457 and those of [`Problem`].
#[derive(Serialize)]
struct Refused<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: String,
    #[serde(flatten)]
    problem: &'a Problem,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(status, problem) = self;
        let body = Refused {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: problem.to_string(),
            problem: &problem,
        };
        (status, [(CONTENT_TYPE, PROBLEM_JSON)], Json(body)).into_response()
    }
}

/// A JSON body, whatever its content type says.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Refusal> {
        let bytes = tokio::time::timeout(BODY, Bytes::from_request(request, state));
        let bytes = bytes.await.map_err(|_| {
            let problem = Problem::new("the body did not arrive within 10 s");
            let problem =
                problem.wanted("the complete body").remedy("send the body without pauses");
            Refusal::of(StatusCode::REQUEST_TIMEOUT, problem)
        })?;
        let bytes = bytes.map_err(|error| {
            let problem = Problem::new("the body cannot be read").seen(error.body_text());
            Refusal(
                error.status(),
                Box::new(problem.wanted("at most 2 MiB").remedy("send a smaller body")),
            )
        })?;
        config::from_json(&bytes).map(Body).map_err(|problem| {
            let is_json = serde_json::from_slice::<IgnoredAny>(&bytes).is_ok();
            if is_json { Refusal::refused(problem) } else { Refusal::bad_request(problem) }
        })
    }
}

/// One or several names from the path.
pub(super) struct Name<T = String>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Name<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name<T>, Refusal> {
        let name = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Name(name)).map_err(|error| {
            let problem = Problem::new("the path cannot be read").seen(error.body_text());
            Refusal::bad_request(
                problem.wanted("a name in UTF-8").remedy("percent-encode the name"),
            )
        })
    }
}

/// The query string.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Refusal> {
        let asked = Query::from_request_parts(parts, state).await;
        asked.map(|Query(asked)| Asked(asked)).map_err(|error| {
            let problem = Problem::new("the query cannot be read").seen(error.body_text());
            let remedy = "GET /v1/openapi.json lists the parameters of each path";
            Refusal::bad_request(problem.wanted("parameters of this path").remedy(remedy))
        })
    }
}
