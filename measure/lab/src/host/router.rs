//! The HTTP side of a host: one resource, to which requests are posted. A connection is a
//! conversation; what its requests started ends with it.
//!
//! A child serves its parent with this router alone. For an agent, [`listen`](super::listen) checks
//! each request first.

use super::protocol::{Reply, Request};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{CONNECTION, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use strict::Strictly;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;

/// Path that requests are posted to. Its number is the version of the messages.
pub const PATH: &str = "/v5/requests";
/// Maximum length of a request's head, and of its body, in bytes. The longest body that is ever
/// sent is a tenth of it.
pub const LENGTH_MAX: usize = 16 * 1024;

/// Refusal of a request, which ends the conversation: status and message.
#[derive(Clone)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(status, message) = self.clone();
        let headers = [(CONNECTION, "close"), (WWW_AUTHENTICATE, "Bearer")];
        (status, headers, Extension(self), Json(Reply::Error { message })).into_response()
    }
}

type Handler = Arc<Mutex<dyn FnMut(Request) -> Result<Reply, Refusal> + Send>>;

/// Returns a router whose only resource passes each request to `handle`.
pub(super) fn router(
    handle: impl FnMut(Request) -> Result<Reply, Refusal> + Send + 'static,
) -> Router {
    let handler: Handler = Arc::new(Mutex::new(handle));
    Router::new()
        .route(PATH, post(answer))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .layer(DefaultBodyLimit::max(LENGTH_MAX))
        .with_state(handler)
}

async fn answer(
    State(handler): State<Handler>,
    request: Result<Json<Strictly<Request>>, JsonRejection>,
) -> Result<Json<Reply>, Refusal> {
    let Json(Strictly(request)) = request.map_err(|why| Refusal(why.status(), why.body_text()))?;
    let mut handle = handler.lock().unwrap_or_else(PoisonError::into_inner);
    (*handle)(request).map(Json)
}

async fn unknown(method: Method, uri: Uri) -> Refusal {
    let message = format!(
        "{method} {} is not supported, only POST {PATH}: use the same Millrace version on both hosts",
        uri.path()
    );
    Refusal(StatusCode::NOT_FOUND, message)
}

/// Serves one connection until it ends, or until `over` returns the reason to end it. Requests are
/// handled on this thread, because it may be in another network namespace and because programs that
/// it starts end with it.
///
/// # Errors
/// The stream cannot be opened, the connection breaks, or `over` ends it.
pub(super) fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    stream: impl FnOnce() -> io::Result<S>,
    router: Router,
    over: impl Future<Output = io::Error>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let connection = http1::Builder::new()
            .max_buf_size(LENGTH_MAX)
            .half_close(true)
            .serve_connection(TokioIo::new(stream()?), TowerToHyperService::new(router));
        tokio::select! {
            served = connection => served.map_err(io::Error::other),
            why = over => Err(why),
        }
    })
}
