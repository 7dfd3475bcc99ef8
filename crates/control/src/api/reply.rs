//! Errors as HTTP answers, and bodies read in our own words.

use crate::Problem;
use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

/// A problem and its status.
pub(super) struct Refusal(StatusCode, Box<Problem>);

/// What handlers return.
pub(super) type Reply<T> = Result<Json<T>, Refusal>;

impl Refusal {
    /// 400: the request cannot be read.
    pub(super) fn bad_request(problem: Problem) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, Box::new(problem))
    }

    /// 404: there is no such thing.
    pub(super) fn not_found(problem: Problem) -> Refusal {
        Refusal(StatusCode::NOT_FOUND, Box::new(problem))
    }

    /// 405: not with this method.
    pub(super) fn wrong_method(problem: Problem) -> Refusal {
        Refusal(StatusCode::METHOD_NOT_ALLOWED, Box::new(problem))
    }

    /// 409: it is there already.
    pub(super) fn conflict(problem: Problem) -> Refusal {
        Refusal(StatusCode::CONFLICT, Box::new(problem))
    }

    /// 422: understood, and refused.
    pub(super) fn refused(problem: Problem) -> Refusal {
        Refusal(StatusCode::UNPROCESSABLE_ENTITY, Box::new(problem))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

/// A JSON body, whatever its content type says.
pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    crate::config::from_json(body).map_err(Refusal::bad_request)
}
