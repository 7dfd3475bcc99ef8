//! Accepts only requests for this host.
//!
//! With DNS rebinding a web page gives its domain name this host's address, and the browser sends
//! that name as `Host`. So requests are answered only if `Host` is an address, `localhost` or this
//! host's own name.

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use problem::Problem;
use std::net::IpAddr;

/// Returns the request's `Host`, if it names this host. The error's remedy refers to `option`, the
/// option or key that sets the listening address.
///
/// # Errors
/// `Host` is missing, or names another host.
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

/// Returns whether `host` is an address or this host's own name. Any other name could belong to
/// anyone.
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
