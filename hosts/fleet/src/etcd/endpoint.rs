//! An endpoint: the address at which a member of etcd serves clients.

use problem::Problem;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An endpoint, written `https://HOST:PORT` or `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    tls: bool,
    /// `HOST:PORT`
    authority: String,
    /// HOST without the brackets of an IPv6 address.
    host: String,
}

impl Endpoint {
    /// Returns `HOST:PORT`, for the connection and for HTTP's `Host`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the name or address of the host, which its certificate has to name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the connection is TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether nothing sent to this endpoint leaves the machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
    }
}

impl FromStr for Endpoint {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Endpoint, Problem> {
        parse(text).ok_or_else(|| {
            Problem::new("not an etcd endpoint")
                .seen(text)
                .wanted("https://HOST:PORT, or http://HOST:PORT such as http://127.0.0.1:2379")
                .remedy("write it in this form")
        })
    }
}

fn parse(text: &str) -> Option<Endpoint> {
    let (scheme, rest) = text.split_once("://")?;
    let tls = match scheme {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = rest.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_good = match bare {
        Some(address) => address.parse::<IpAddr>().is_ok(),
        None => !host.is_empty() && !host.contains(['/', '@', ' ', ':', '[', ']']),
    };
    let host = bare.unwrap_or(host).to_owned();
    is_good.then(|| Endpoint { tls, authority: authority.to_owned(), host })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_endpoint_is_http_or_https_with_a_port() {
        for good in ["http://127.0.0.1:2379", "https://[::1]:2379/", "https://etcd.example:1"] {
            let endpoint: Endpoint = good.parse().unwrap();
            assert_eq!(endpoint.to_string(), good.trim_end_matches('/'));
            assert_eq!(endpoint.is_tls(), good.starts_with("https"));
        }
        for bad in [
            "127.0.0.1:2379",
            "http://a",
            "http://:1",
            "http://a:b",
            "http://a/b:1",
            "http://::1:2379",
            "unix://a:1",
            "",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_loopback_is_loopback() {
        let is_loopback =
            |host: &str| format!("http://{host}:2379").parse::<Endpoint>().unwrap().is_loopback();
        assert!(["127.0.0.1", "127.9.9.9", "[::1]", "localhost"].iter().all(|it| is_loopback(it)));
        let others = ["10.0.0.1", "etcd.example", "localhost.example", "127.0.0.1.example", "[::]"];
        assert!(!others.iter().any(|it| is_loopback(it)));
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_written_the_same(text in "https?://(\\[?[0-9a-z.:-]{1,12}\\]?):[0-9]{1,6}/?") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string(), text.trim_end_matches('/'));
            }
        }
    }
}
