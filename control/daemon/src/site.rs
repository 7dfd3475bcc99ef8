//! Read-only sites over TCP: those of the daemon, and of programs beside it, for monitoring and
//! browsers.
//!
//! Connections have the daemon's limits. Requests are answered only if they read and their `Host`
//! is this host, so that no page of another origin reads a site by DNS rebinding.

use crate::connections::accept;
use crate::handlers;
use crate::own_host::own_host;
use crate::web::{assets, trust};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use problem::Problem;
use std::net::{SocketAddr, TcpListener};
use tokio::sync::watch;

/// Media type of a page's scripts.
pub const SCRIPT: &str = assets::SCRIPT;
/// Media type of a page's style sheets.
pub const STYLE: &str = assets::STYLE;

/// Texts that refusals contain.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The option or key that names the address.
    pub option: &'static str,
    /// What to do instead of a change.
    pub instead: &'static str,
}

/// Returns routes that answer only reading requests for this host.
pub fn read_only(routes: Router, words: Words) -> Router {
    routes.layer(middleware::from_fn_with_state(words, admit))
}

/// Returns routes like [`read_only`], for a page in browsers: they also refuse requests of other
/// origins and tell browsers to load nothing else.
pub fn page(routes: Router, words: Words) -> Router {
    read_only(routes, words)
        .layer(middleware::from_fn_with_state(words, admit_own))
        .layer(middleware::map_response(trust::confine))
}

/// Returns routes for the files that all pages share: the style sheet, and scripts that know
/// nothing of what is shown.
pub fn shared_files() -> Router {
    assets::shared()
}

/// Adds a file of a page.
pub fn file(routes: Router, path: &str, kind: &'static str, text: &'static str) -> Router {
    assets::file(routes, path, kind, text)
}

/// Returns a problem as an answer.
pub fn problem(status: StatusCode, problem: Problem) -> Response {
    handlers::problem(status, problem)
}

async fn admit(State(words): State<Words>, request: Request, next: Next) -> Response {
    if let Err(told) = own_host(words.option, &request) {
        return problem(StatusCode::FORBIDDEN, told);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let told = Problem::new("nothing can be changed here").seen(request.method()).wanted("GET");
        return problem(StatusCode::METHOD_NOT_ALLOWED, told.remedy(words.instead));
    }
    next.run(request).await
}

async fn admit_own(State(words): State<Words>, request: Request, next: Next) -> Response {
    match trust::own_page(words.option, &request) {
        Ok(()) => next.run(request).await,
        Err(told) => problem(StatusCode::FORBIDDEN, told),
    }
}

/// Listens on an address.
///
/// # Errors
/// The address is not this host's, or is in use.
pub fn bind(address: SocketAddr, words: Words) -> Result<TcpListener, Problem> {
    TcpListener::bind(address).map_err(|error| {
        Problem::new(format!("{address} cannot be served"))
            .seen(error)
            .wanted("an address of this host with a free port")
            .remedy(format!("free the address, or correct {}", words.option))
    })
}

/// Answers requests on this thread while the process lives.
///
/// # Errors
/// The server cannot be started.
pub fn serve(listener: TcpListener, routes: Router) -> Result<(), Problem> {
    let failed = |error| Problem::new("the server cannot be started").seen(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    listener.set_nonblocking(true).map_err(failed)?;
    runtime.map_err(failed)?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let (_stopping, stopped) = watch::channel(false);
        accept(listener, routes, stopped).await;
        Ok(())
    })
}
