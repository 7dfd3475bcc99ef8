//! Decides which requests are answered, and what a browser may do with the answers.
//!
//! `Host` must name this host, as for `[metrics]`. `Origin`, which a browser adds to requests of
//! pages, must be this page's own. A change also needs the token or a key, which the page sends as
//! a bearer token: a browser sends it for no other page by itself.
//!
//! The token toggles RSC, and nothing else. A key carries out all actions, but only for a client on
//! this host, so that none travels through a network in the clear, and only for a program of its
//! [user](owner). A proxy on this host may have clients elsewhere: a request with a proxy's headers is
//! refused, and a proxy of the key's user that adds none is believed.

use super::{Page, TRACE, owner, token_file};
use crate::handlers::{self, problem};
use crate::own_host::own_host;
use crate::page_keys::Holder;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderName, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use config::Section;
use netlink::owner::Ends;
use problem::Problem;
use std::net::SocketAddr;
use std::time::Instant;

/// Where the requests of actions begin.
const ACTIONS: &str = "/v1/";

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
    // An answer may have settings that a browser must not keep.
    answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// Answers a permitted request; refuses others with 401 or 403.
pub(super) async fn admit(
    State(page): State<Page>,
    Extension(ends): Extension<Ends>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(told) = own_page(Section::Web.option(), &request) {
        return problem(StatusCode::FORBIDDEN, told);
    }
    if request.uri().path().starts_with(ACTIONS) {
        return act(&page, ends, request, next).await;
    }
    if only_reads(&request) {
        return next.run(request).await;
    }
    match holder(&page, ends, &request).await {
        Ok(Some(holder)) => return carry_out(&page, ends, &holder, request, next).await,
        Ok(None) => {}
        Err(told) => return problem(StatusCode::FORBIDDEN, told),
    }
    let Some(file) = &page.token_file else {
        let told = Problem::new("the page is read-only")
            .seen(request.method())
            .wanted("GET, or `token-file` in [web]")
            .remedy("as an admin, open the address that `millrace page` prints, or use `millrace`");
        return problem(StatusCode::FORBIDDEN, told);
    };
    // Without a token in the request, the file is not opened.
    let Some(given) = bearer(request.headers()) else {
        return problem(StatusCode::UNAUTHORIZED, no_token());
    };
    match token_file::read(file) {
        Ok(token) if token.matches(given) => {
            let client = format!("the page, from {}", ends.client);
            handlers::change(&page.shared, client, request, next).await
        }
        Ok(_) => problem(StatusCode::UNAUTHORIZED, no_token()),
        Err(told) => {
            tracing::warn!(target: "control::web::trust", "{told}");
            problem(StatusCode::FORBIDDEN, unusable())
        }
    }
}

/// Answers a request of an action, which needs a key also to read: what it reads is not on the page.
async fn act(page: &Page, ends: Ends, request: Request, next: Next) -> Response {
    let is_here = is_from_here(page.listen, ends.client, request.headers());
    match holder(page, ends, &request).await {
        Ok(Some(_)) if only_reads(&request) => next.run(request).await,
        Ok(Some(holder)) => carry_out(page, ends, &holder, request, next).await,
        Ok(None) if !is_here => problem(StatusCode::FORBIDDEN, far(ends.client)),
        Ok(None) => problem(StatusCode::UNAUTHORIZED, no_key()),
        Err(told) => problem(StatusCode::FORBIDDEN, told),
    }
}

async fn carry_out(
    page: &Page,
    ends: Ends,
    holder: &Holder,
    request: Request,
    next: Next,
) -> Response {
    let client = format!("the page, from {}, with the key of {}", ends.client, holder.client);
    handlers::change(&page.shared, client, request, next).await
}

/// Returns the holder of the request's key; `None` without a key that counts here.
///
/// # Errors
/// The request is not from a program of the key's user.
fn holder(
    page: &Page,
    ends: Ends,
    request: &Request,
) -> impl Future<Output = Result<Option<Holder>, Problem>> + use<> {
    let headers = request.headers();
    let given = bearer(headers).filter(|_| is_from_here(page.listen, ends.client, headers));
    let given = given.map(ToOwned::to_owned);
    let (shared, pace, now) = (page.shared.clone(), page.key_pace.clone(), Instant::now());
    async move {
        let Some(given) = given else { return Ok(None) };
        pace.turn().await;
        let found = shared.run(move |running| running.page_keys.holder(&given, now).cloned());
        let found = found.await.ok().flatten();
        found.map(|holder| owner::check(ends, &holder).map(|()| holder)).transpose()
    }
}

/// Headers by which a proxy tells of its client.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Returns whether a request comes from a client on this host, and through no proxy that says so.
fn is_from_here(listen: SocketAddr, from: SocketAddr, headers: &HeaderMap) -> bool {
    is_this_host(listen, from) && !FORWARDED.iter().any(|name| headers.contains_key(*name))
}

/// Returns whether a client is on this host, so that its requests pass through no network. One that
/// opens the page by the address that it listens on has the same address.
fn is_this_host(listen: SocketAddr, from: SocketAddr) -> bool {
    let ip = from.ip().to_canonical();
    ip.is_loopback() || ip == listen.ip().to_canonical()
}

fn far(from: SocketAddr) -> Problem {
    Problem::new("a key is taken only from a browser on this host")
        .seen(format!("a request from {}", from.ip()))
        .wanted("a request that passes through no network in the clear")
        .remedy("open the page through `ssh -L 9478:127.0.0.1:9478 HOST`, with `listen = \"127.0.0.1:9478\"` in [web]")
}

fn no_key() -> Problem {
    Problem::new("the key is missing or wrong, or has ended")
        .wanted("`Authorization: Bearer KEY` with a key that lasts")
        .remedy("as an admin, run `millrace page` and open the address that it prints")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_a_proxy_passes_on_is_not_from_here() {
        let [listen, from] = ["127.0.0.1:80", "127.0.0.1:1"].map(|it| it.parse().unwrap());
        let is_here = |name: &'static str| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static("192.0.2.1"),
            )]);
            is_from_here(listen, from, &headers)
        };
        assert!(is_here("accept") && !FORWARDED.into_iter().any(is_here));
    }

    #[test]
    fn a_client_is_on_this_host_if_its_address_is() {
        for (listen, from, is_here) in [
            ("127.0.0.1:80", "127.0.0.1:1", true),
            ("[::]:80", "[::1]:1", true),
            ("[::]:80", "[::ffff:127.0.0.1]:1", true),
            ("[::]:80", "[::ffff:192.0.2.1]:1", false),
            ("0.0.0.0:80", "192.0.2.1:1", false),
            ("192.0.2.7:80", "192.0.2.7:1", true),
            ("192.0.2.7:80", "192.0.2.8:1", false),
        ] {
            let found = is_this_host(listen.parse().unwrap(), from.parse().unwrap());
            assert_eq!(found, is_here, "{from} at {listen}");
        }
    }
}
