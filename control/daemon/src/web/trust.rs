//! Decides which requests are answered, and what a browser may do with the answers.
//!
//! `Host` must name this host, as for `[metrics]`. `Origin`, which a browser adds to requests of
//! pages, must be this page's own. A change also needs the token, which the page sends as a bearer
//! token: a browser sends it for no other page by itself.

use super::{Page, TRACE, token_file};
use crate::handlers::{self, problem};
use crate::own_host::own_host;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderName, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use config::Section;
use problem::Problem;
use std::net::SocketAddr;

/// Policy for browsers: load only the page's own files and requests, put no frame around the page,
/// and turn no text into markup or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of every answer.
const CONFINED: [(&str, &str); 5] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Adds the headers that restrict browsers.
pub(crate) async fn confine(mut answer: Response) -> Response {
    for (name, value) in CONFINED {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Answers a permitted request; refuses others with 401 or 403.
pub(super) async fn admit(
    State(page): State<Page>,
    Extension(from): Extension<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(told) = own_page(Section::Web.option(), &request) {
        return problem(StatusCode::FORBIDDEN, told);
    }
    if only_reads(&request) {
        return next.run(request).await;
    }
    let Some(file) = &page.token_file else {
        let told = Problem::new("the page is read-only")
            .seen(request.method())
            .wanted("GET, or `token-file` in [web]")
            .remedy("use `millrace`, or name a file with a token and start the daemon again");
        return problem(StatusCode::FORBIDDEN, told);
    };
    // Without a token in the request, the file is not opened.
    let Some(given) = bearer(request.headers()) else {
        return problem(StatusCode::UNAUTHORIZED, no_token());
    };
    match token_file::read(file) {
        Ok(token) if token.matches(given) => {
            handlers::change(&page.shared, format!("the page, from {from}"), request, next).await
        }
        Ok(_) => problem(StatusCode::UNAUTHORIZED, no_token()),
        Err(told) => {
            tracing::warn!(target: "control::web::trust", "{told}");
            problem(StatusCode::FORBIDDEN, unusable())
        }
    }
}

/// Returns whether a request changes nothing. A trace has a body, but changes nothing.
fn only_reads(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        || *request.method() == Method::POST && request.uri().path() == TRACE
}

/// Returns the problem without the path and mode of the file, which strangers must not see.
fn unusable() -> Problem {
    Problem::new("the token cannot be checked")
        .wanted("a file with a token that other users may not read")
        .remedy("the daemon's log says what is wrong with it")
}

fn no_token() -> Problem {
    Problem::new("the token is missing or wrong")
        .wanted("`Authorization: Bearer TOKEN` with the token of `token-file` in [web]")
        .remedy("type the token into the page again")
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Checks that the request is for this host and comes from no page of another origin. `option` is
/// the option or key that sets the address.
///
/// # Errors
/// The request is for another host, or comes from a page of another origin.
pub(crate) fn own_page(option: &str, request: &Request) -> Result<(), Problem> {
    let host = own_host(option, request)?;
    own_origin(option, request, &host)
}

/// Checks `Origin`. The scheme may be https: a proxy that speaks TLS passes on the host that the
/// browser asked for.
fn own_origin(option: &str, request: &Request, host: &str) -> Result<(), Problem> {
    let Some(origin) = request.headers().get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let of = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    if of.is_some_and(|of| of.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(Problem::new("the request comes from a page of another origin")
        .seen(origin)
        .wanted(format!("http://{host}"))
        .remedy(format!("open the page at the address that {option} names")))
}
