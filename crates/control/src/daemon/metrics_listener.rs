//! `[metrics] listen`: counters and health over TCP, for monitoring. It is read-only and has no other path: everybody who reaches
//! the address may read.
//!
//! A page in a browser that resolves a name of its own to this address (DNS rebinding) sends that name as `Host`: requests are
//! answered only for an address, `localhost`, or this host's own name.

use crate::Problem;
use crate::api::{Shared, problem};
use crate::metrics;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// How long until an address that cannot be had is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens as soon as that is possible: the address may come up later, or by the switch's own ports. Until then `check` says why not.
pub(super) async fn listen(address: SocketAddr, shared: &Shared) -> TcpListener {
    loop {
        let listener = TcpListener::bind(address).await;
        let trouble = listener.as_ref().err().map(|error| {
            Problem::new(format!("metrics cannot be served on {address}"))
                .seen(error)
                .wanted("a free port of an address of this host")
                .remedy("free it, or correct `listen` in [metrics]; it is tried each second")
        });
        shared.lock().note_metrics(trouble, Instant::now());
        match listener {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// All there is.
pub(super) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn(admit))
        .with_state(shared)
}

async fn page(State(shared): State<Shared>) -> Response {
    match metrics::text(&shared) {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(told) => problem(StatusCode::INTERNAL_SERVER_ERROR, told),
    }
}

/// Healthy while all workers answer.
async fn health(State(shared): State<Shared>) -> Response {
    let answering = shared.lock().all_answer();
    match answering {
        Ok(()) => "ok\n".into_response(),
        // Not which port: anybody may ask.
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "a worker does not answer\n").into_response(),
    }
}

/// Ready once each port's device is open. What a guest does, changes nothing about it.
async fn ready(State(shared): State<Shared>) -> Response {
    let closed = shared.lock().closed_ports();
    if closed.is_empty() {
        return "ready\n".into_response();
    }
    // Names alone: a reason may name devices and paths, and anybody may ask.
    let text = closed.iter().map(|(name, _)| format!("port {name} is not open\n"));
    (StatusCode::SERVICE_UNAVAILABLE, text.collect::<String>()).into_response()
}

async fn admit(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if !is_this_host(host, own.trim_end()) {
        let told = Problem::new("the request is for another host")
            .seen(host)
            .wanted("an IP address, `localhost` or this host's name as Host")
            .remedy("use the address that `listen` in [metrics] names, or what `hostname` prints");
        return problem(StatusCode::FORBIDDEN, told);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let told = Problem::new("nothing can be changed here").seen(request.method()).wanted("GET");
        let told = told.remedy("use the API's Unix socket");
        return problem(StatusCode::METHOD_NOT_ALLOWED, told);
    }
    next.run(request).await
}

/// Whether it names this host by an address or its own name, which nobody gives to another, and not by any name, which could be
/// anybody's.
fn is_this_host(host: &str, own: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let label = own.split('.').next().unwrap_or_default();
    let names = ["localhost", own, label];
    names.iter().any(|own| !own.is_empty() && name.eq_ignore_ascii_case(own))
        || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_host_is_refused() {
        let own = "node1.example";
        for host in [
            "127.0.0.1:9477",
            "localhost:9477",
            "LOCALHOST",
            "[::1]:9477",
            "10.0.0.7",
            "node1:9477",
            "Node1.Example:9477",
        ] {
            assert!(is_this_host(host, own), "{host}");
        }
        for host in [
            "evil.example",
            "node1.evil.example:9477",
            "node1.example.evil",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "@",
        ] {
            assert!(!is_this_host(host, own), "{host}");
        }
        assert!(!is_this_host(":9477", "") && is_this_host("localhost", ""));
    }
}
