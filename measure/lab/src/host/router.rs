//! The HTTP side of a host: requests are posted to one resource. A connection is a conversation,
//! and what its requests started ends with it.
//!
//! A child serves its parent as it is. An agent's peers pass [`listen`](super::listen) first.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;

/// Where requests are posted. The number tells two versions of the messages apart.
pub const PATH: &str = "/v4/requests";
/// Longest head of a request, and longest body, in bytes. The longest body that is ever sent is a
/// tenth of it.
pub const LENGTH_MAX: usize = 16 * 1024;

/// Why a request is not done. The conversation ends with it.
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

/// The resource, behind which `handle` does what is asked.
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
    request: Result<Json<Request>, JsonRejection>,
) -> Result<Json<Reply>, Refusal> {
    let Json(request) = request.map_err(|why| Refusal(why.status(), why.body_text()))?;
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

/// Serves one connection until it ends, or until `over` says why it has to. Requests are handled on
/// this thread: it may be in another network namespace, and programs that are started end with it.
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
