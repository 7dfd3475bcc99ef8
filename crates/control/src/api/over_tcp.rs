//! What is asked of requests over TCP, where every local user and every web page in a local browser can reach the API.
//!
//! A page sends requests with its own `Origin`, or with the name of a host of its own that resolves to this one (DNS
//! rebinding); what it sends without asking first is never `application/json`. Other local programs can still do
//! anything: there is no authentication.

use super::reply::Refusal;
use crate::Problem;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// Lets a request through, or refuses it.
pub(crate) async fn admit(request: Request, next: Next) -> Response {
    match refusal(request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(headers: &HeaderMap) -> Option<Refusal> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST).unwrap_or_default();
    if !is_this_host(host) {
        return Some(Refusal::forbidden(
            Problem::new("the request is for another host")
                .seen(host)
                .wanted("an IP address or `localhost` as Host")
                .remedy("use the address that --tcp names"),
        ));
    }
    if let Some(origin) = text(ORIGIN)
        && origin.strip_prefix("http://") != Some(host)
    {
        return Some(Refusal::forbidden(
            Problem::new("the request comes from a web page")
                .seen(origin)
                .wanted("no Origin but the API's own")
                .remedy("use another program than a browser"),
        ));
    }
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || text(CONTENT_LENGTH).is_some_and(|length| length != "0");
    let kind = text(CONTENT_TYPE).unwrap_or_default();
    (has_body && !is_json(kind)).then(|| {
        Refusal::wrong_type(
            Problem::new("the body's type is not JSON")
                .seen(kind)
                .wanted("application/json")
                .remedy("send it with Content-Type: application/json"),
        )
    })
}

/// Whether it names this host and not a name, which could be anybody's.
fn is_this_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind == "application/merge-patch+json"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&'static str, &'static str)]) -> u16 {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), value.parse().expect("a header's value"))
        });
        refusal(&headers.collect()).map_or(200, |refusal| refusal.into_response().status().into())
    }

    #[test]
    fn a_page_of_another_host_is_refused() {
        for host in ["127.0.0.1:8008", "localhost:8008", "LOCALHOST", "[::1]:8008", "10.0.0.7"] {
            assert_eq!(status(&[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "evil.example:8008", "127.0.0.1.evil.example", "", "a b", "@"]
        {
            assert_eq!(status(&[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&[]), 403);
        let from = |origin| status(&[("host", "localhost:8008"), ("origin", origin)]);
        for origin in ["http://evil.example", "null", "https://localhost:8008", "http://localhost"]
        {
            assert_eq!(from(origin), 403, "{origin}");
        }
        assert_eq!(from("http://localhost:8008"), 200);
    }

    #[test]
    fn what_a_page_may_send_without_asking_is_refused() {
        let sent = |kind, length| {
            status(&[("host", "[::1]"), ("content-type", kind), ("content-length", length)])
        };
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            assert_eq!(sent(kind, "9"), 415, "{kind}");
            assert_eq!(sent(kind, "0"), 200, "{kind}");
        }
        assert_eq!(status(&[("host", "localhost"), ("transfer-encoding", "chunked")]), 415);
        assert_eq!(sent("application/json; charset=utf-8", "9"), 200);
    }
}
