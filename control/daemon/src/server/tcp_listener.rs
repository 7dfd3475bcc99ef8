//! The TCP listener that `[metrics]` and `[web]` share: waits for its address, and accepts only
//! requests for this host.
//!
//! A web page whose domain name resolves to this address (DNS rebinding) sends that name as `Host`.
//! So requests are answered only if `Host` is an address, `localhost` or this host's own name.

use crate::handlers::Shared;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use problem::Problem;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// Time between attempts to bind.
const AGAIN: Duration = Duration::from_secs(1);

/// A service over TCP, by its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Metrics,
    Web,
}

impl Section {
    /// The section as written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Section::Metrics => "[metrics]",
            Section::Web => "[web]",
        }
    }

    /// The key that names the address, as messages name it.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Section::Metrics => "`listen` in [metrics]",
            Section::Web => "`listen` in [web]",
        }
    }

    /// A clause that says whether it is served.
    pub(crate) const fn served(self, served: bool) -> &'static str {
        match (self, served) {
            (Section::Metrics, true) => "metrics are served",
            (Section::Metrics, false) => "metrics cannot be served",
            (Section::Web, true) => "the page is served",
            (Section::Web, false) => "the page cannot be served",
        }
    }
}

impl Section {
    /// The remedy if the address cannot be bound.
    fn remedy(self) -> String {
        let name = self.name();
        let remedy = format!(
            "free the address, or correct `listen` in {name}; binding is retried every second"
        );
        match self {
            Section::Metrics => remedy,
            Section::Web => format!(
                "{remedy}. If another process listens there, it may show a fake page to collect tokens: replace the token"
            ),
        }
    }
}

/// Listens as soon as the address is available; the switch's own ports may bring it up. Until then
/// `check` shows the reason.
pub(super) async fn listen(section: Section, address: SocketAddr, shared: &Shared) -> TcpListener {
    loop {
        let listener = TcpListener::bind(address).await;
        let trouble = listener.as_ref().err().map(|error| {
            Problem::new(format!("{} on {address}", section.served(false)))
                .seen(error)
                .wanted("an address of this host with a free port")
                .remedy(section.remedy())
        });
        shared.lock().note_listener(section, trouble, Instant::now());
        match listener {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// The request's `Host`, if it names this host. `option` is what names the address, for the remedy.
pub(crate) fn own_host(option: &str, request: &Request) -> Result<String, Problem> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if is_this_host(host, own.trim_end()) {
        return Ok(host.to_owned());
    }
    Err(Problem::new("the request is for another host")
        .seen(host)
        .wanted("an IP address, `localhost` or this host's name as Host")
        .remedy(format!("use the address that {option} names, or what `hostname` prints")))
}

/// Whether `host` is an address or this host's own name. Any other name could belong to anyone.
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
