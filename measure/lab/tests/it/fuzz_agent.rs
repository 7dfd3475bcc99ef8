//! Fuzz target: a peer sends arbitrary requests to an agent, with the token or without. The agent
//! may execute only requests with the token, about traffic and counters, with load to the peer
//! alone. It must refuse all others with a reason, and end the connection. A finding starts with
//! `FINDING` and its kind.
//!
//! `cargo test` runs it for a moment, `fuzz/run` under libFuzzer for a given time. `fuzz/prove`
//! checks that it finds the faults of `fuzz/faults`.

use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Uri};
use hyper_util::service::TowerToHyperService;
use lab::Interrupt;
use lab::host::{LENGTH_MAX, Listening, PATH, Reply, Request, Targets};
use lab::load::Bulk;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock, Mutex};
use tokio::runtime::{Builder, Runtime};

const TOKEN: &str = "0123456789abcdef";
/// The peer's address, as the agent sees it.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Choices of token, method, path and content type, choice of body, a number for the body, and
/// bytes for any of them.
type Attack = ((u8, u8, u8, u8), u8, u32, Vec<u8>);

static AGENT: LazyLock<Arc<Listening>> = LazyLock::new(|| {
    let any = ([127, 0, 0, 1], 0).into();
    Listening::start(any, (TOKEN.parse().unwrap(), Targets::Client), Interrupt::default(), |_| ())
        .unwrap()
});

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().unwrap());

#[test]
fn fuzz_agent() {
    bolero::check!().with_type::<Vec<Attack>>().for_each(|attacks| {
        let done = Arc::<Mutex<Vec<Request>>>::default();
        let list = done.clone();
        let router = AGENT.router(move |request| {
            list.lock().unwrap().push(request);
            Reply::Done { value: "did it".into() }
        });
        let service = TowerToHyperService::new(router);
        RUNTIME.block_on(async {
            for attack in attacks {
                let (request, body) = request(attack);
                let expected = Expected::of(&request, &body);
                let response = service.call(request.map(|()| Full::from(body))).await.unwrap();
                let done = std::mem::take(&mut *done.lock().unwrap());
                expected.hold(&done, response.status().as_u16());
                let closes = response.headers().get(CONNECTION).is_some_and(|kept| kept == "close");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                match serde_json::from_slice(&body) {
                    Ok(Reply::Done { value }) if !done.is_empty() => assert_eq!(value, "did it"),
                    Ok(Reply::Error { message }) if done.is_empty() => {
                        assert!(closes && !message.is_empty(), "FINDING (refusal) {body:?}");
                    }
                    _ => panic!("FINDING (answer) {done:?}: {body:?}"),
                }
            }
        });
    });
}

/// Builds a request. Most choices are valid ones, because random bytes are almost never a token or
/// JSON.
fn request(attack: &Attack) -> (hyper::Request<()>, Vec<u8>) {
    let ((token, method, path, kind), start, number, bytes) = attack;
    let mut request = hyper::Request::new(());
    *request.method_mut() = match method % 8 {
        0 => Method::GET,
        1 => Method::from_bytes(bytes).unwrap_or(Method::PUT),
        _ => Method::POST,
    };
    let other = String::from_utf8_lossy(bytes);
    *request.uri_mut() = match path % 8 {
        0 => "/v3/requests".parse().unwrap(),
        1 => format!("{PATH}{other}").parse().unwrap_or(Uri::from_static("/")),
        2 => format!("/{other}").parse().unwrap_or(Uri::from_static("*")),
        _ => Uri::from_static(PATH),
    };
    let headers = request.headers_mut();
    for value in tokens(*token, *number, bytes) {
        headers.append(AUTHORIZATION, value);
    }
    let kind = match kind % 8 {
        0 => Some("text/plain"),
        1 => None,
        _ => Some("application/json"),
    };
    let kind = kind.map(HeaderValue::from_static);
    headers.extend(kind.map(|kind| (CONTENT_TYPE, kind)));
    (request, [beginning(*start, *number).as_bytes(), bytes].concat())
}

/// Returns `Authorization` headers: attempts of a stranger, or the token.
fn tokens(choice: u8, number: u32, bytes: &[u8]) -> Vec<HeaderValue> {
    let cut = number as usize % (TOKEN.len() + 1);
    let bytes = HeaderValue::from_bytes(bytes).ok();
    match choice % 16 {
        0 => Vec::new(),
        1 => bytes.into_iter().collect(),
        2 => bytes.into_iter().chain([right()]).collect(),
        3 => vec![bearer(&TOKEN[..cut])],
        4 => vec![bearer(&format!("{TOKEN}{number}"))],
        5 => vec![bearer(&TOKEN.replace('7', &number.to_string()))],
        6 => vec![HeaderValue::from_static(TOKEN)],
        7 => vec![HeaderValue::from_static("Basic 0123456789abcdef")],
        8 => vec![bearer("")],
        _ => vec![right()],
    }
}

fn right() -> HeaderValue {
    bearer(TOKEN)
}

fn bearer(token: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("Bearer {token}")).unwrap()
}

/// Returns the start of a body; the attack's bytes follow.
fn beginning(choice: u8, number: u32) -> String {
    let long = " ".repeat(LENGTH_MAX);
    let to = if number.is_multiple_of(2) { "127.0.0.1" } else { "10.0.0.1" };
    let bulk = format!("{{\"connections\":{number},\"buffer_bytes\":{}}}", number % 5_000_000);
    match choice % 12 {
        0 => format!("{{\"read\":{{\"link\":\"{number}"),
        1 => format!("{{\"answer\":{{\"port\":{}}}}}", number % 70_000),
        2 => format!("{{\"send\":{{\"to\":\"{to}:5001\",\"bulk\":{bulk}}}}}"),
        3 => {
            format!("{{\"listen\":{{\"at\":\"[::]:{}\",\"bulk\":{bulk}}}}}", number % 70_000)
        }
        4 => format!(
            "{{\"round_trips\":{{\"to\":\"{to}:4999\",\"milliseconds\":{}}}}}",
            number % 100_000
        ),
        5 => "{\"run\":{\"program\":\"sh\",\"arguments\":[]}}".to_owned(),
        6 => "{\"start\":{\"program\":\"sh\",\"arguments\":[]}}".to_owned(),
        7 => "{\"become\":{\"program\":\"sh\",\"arguments\":[]}}".to_owned(),
        8 => "\"ready\"".to_owned(),
        9 => format!("\"machine\"{long}"),
        10 => format!("\"machine\"{}", &long[9..]),
        _ => String::new(),
    }
}

/// The outcomes that a request may have.
struct Expected {
    /// Whether the token is among the headers.
    known: bool,
    /// The request that the agent must execute; `None` if anything is wrong with it.
    must: Option<Request>,
}

impl Expected {
    fn of(request: &hyper::Request<()>, body: &[u8]) -> Expected {
        let mut given = request.headers().get_all(AUTHORIZATION).iter();
        let known = given.any(|value| *value == right());
        let kind = request.headers().get(CONTENT_TYPE);
        let proper = request.method() == Method::POST
            && request.uri().path() == PATH
            && kind.is_some_and(|kind| kind == "application/json")
            && request.headers().get(AUTHORIZATION) == Some(&right());
        let must = strict::from_json(body).ok();
        let must = must.filter(|asked| proper && body.len() <= LENGTH_MAX && is_for_peers(asked));
        Expected { known, must }
    }

    fn hold(&self, done: &[Request], status: u16) {
        assert!(self.known || done.is_empty(), "FINDING (stranger) {done:?}");
        assert!(self.known || status == 401, "FINDING (stranger) {status}");
        assert!(done.iter().all(is_for_peers), "FINDING (forbidden) {done:?}");
        assert_eq!(done.is_empty(), status != 200, "FINDING (status) {done:?}: {status}");
        assert!(done.first() == self.must.as_ref(), "FINDING (done) {done:?}, not {:?}", self.must);
    }
}

/// Returns whether a request is about counters, or about traffic within the limits.
fn is_for_peers(request: &Request) -> bool {
    let possible = |bulk: &Bulk| {
        (1..=10_000).contains(&bulk.connections) && (1..=4 << 20).contains(&bulk.buffer_bytes)
    };
    match request {
        Request::Run { .. }
        | Request::Start { .. }
        | Request::Become { .. }
        | Request::Delay { .. } => false,
        Request::Listen { at, bulk } => at.port() >= 1024 && possible(bulk),
        Request::Answer { port } => *port >= 1024,
        Request::Send { to, bulk } => to.ip() == PEER && possible(bulk),
        Request::RoundTrips { to, milliseconds } => to.ip() == PEER && *milliseconds <= 60_000,
        Request::Ready
        | Request::Machine
        | Request::Link { .. }
        | Request::Limit { .. }
        | Request::StopSending
        | Request::Read { .. } => true,
    }
}
