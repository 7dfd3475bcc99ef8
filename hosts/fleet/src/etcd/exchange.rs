//! Sends one HTTP request, on a connection of its own.

use super::error::Refusal;
use super::{Endpoint, Etcd, EtcdError};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::fmt::Display;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout of connecting: an endpoint that takes longer is skipped.
const CONNECT: Duration = Duration::from_secs(2);
/// Timeout of a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes of an answer. A longer one is an error.
const LONGEST: usize = 64 << 20;
/// The most bytes of a refusal that are read; the text of a longer one is left out.
const LONGEST_REFUSAL: usize = 64 << 10;

/// A path below etcd's client URL, and the token of the requesting user.
type Asked<'a> = (&'a str, Option<&'a str>);

/// A connection, by TLS or not.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Sends a request. Returns the body of the answer.
pub(super) async fn ask(etcd: &Etcd, asked: Asked<'_>, body: Vec<u8>) -> Result<Bytes, EtcdError> {
    let (answer, connection) = begin(etcd, asked, body).await?;
    let whole = timeout(ANSWER_TIMEOUT, Limited::new(answer, LONGEST).collect()).await;
    connection.abort();
    match whole {
        Err(error) => Err(lost(etcd, &error)),
        Ok(Err(error)) => Err(lost(etcd, &error)),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

/// Sends a request. Returns the answer once its headers are read, and the task that drives the
/// connection.
pub(super) async fn begin(
    etcd: &Etcd,
    (path, token): Asked<'_>,
    body: Vec<u8>,
) -> Result<(Incoming, JoinHandle<()>), EtcdError> {
    let (stream, endpoint) = connect(etcd).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(etcd, &error))?;
    let connection = tokio::spawn(async move {
        // An error also reaches the task that waits for the answer.
        let _ = connection.await;
    });
    // Without `Accept` the gateway uses the common name of etcd's own certificate as the user of a
    // request without a token.
    let mut request = Request::post(path)
        .header("host", endpoint.authority())
        .header("accept", "application/json")
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| lost(etcd, &error))?;
    let answer = match timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
        Err(error) => Err(lost(etcd, &error)),
        Ok(answer) => answer.map_err(|error| cut(etcd, endpoint, &error)),
    };
    let answer = answer.inspect_err(|_| connection.abort())?;
    let status = answer.status();
    if status.is_success() {
        return Ok((answer.into_body(), connection));
    }
    let refusal = Limited::new(answer.into_body(), LONGEST_REFUSAL);
    let text = timeout(ANSWER_TIMEOUT, refusal.collect()).await;
    connection.abort();
    let text = text.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    Err(Refusal::read(&text).map_or_else(|| lost(etcd, &status), Refusal::error))
}

fn lost(etcd: &Etcd, error: &dyn Display) -> EtcdError {
    EtcdError::unreachable(&etcd.access.endpoints, error)
}

/// Returns the error of a connection that ended before the answer. With TLS 1.3 etcd checks this
/// client's certificate only after the handshake.
fn cut(etcd: &Etcd, endpoint: &Endpoint, error: &hyper::Error) -> EtcdError {
    let tls = etcd.access.tls.as_ref().and_then(|tls| tls.problem(endpoint, error));
    tls.map_or_else(|| lost(etcd, error), |problem| EtcdError::Unreachable(Box::new(problem)))
}

/// Connects to the endpoint that answered last, or to the next that accepts a connection.
async fn connect(etcd: &Etcd) -> Result<(Box<dyn Connection>, &Endpoint), EtcdError> {
    let endpoints = &etcd.access.endpoints;
    let mut last = lost(etcd, &"no endpoint was given");
    for place in 0..endpoints.len() {
        let place = (etcd.current.get() + place) % endpoints.len();
        let Some(endpoint) = endpoints.get(place) else { continue };
        match open(etcd, endpoint).await {
            Ok(stream) => {
                etcd.current.set(place);
                return Ok((stream, endpoint));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to an endpoint, by TLS if it has that, within a timeout for both: a member that has
/// just started accepts connections before it has a leader, and begins TLS only then.
async fn open(etcd: &Etcd, endpoint: &Endpoint) -> Result<Box<dyn Connection>, EtcdError> {
    let connecting = timeout(CONNECT, TcpStream::connect(endpoint.authority())).await;
    let stream = connecting.map_err(|error| lost(etcd, &error))?;
    let stream = stream.map_err(|error| lost(etcd, &error))?;
    let Some(tls) = etcd.access.tls.as_ref().filter(|_| endpoint.is_tls()) else {
        return Ok(Box::new(stream));
    };
    let secure = timeout(ANSWER_TIMEOUT, tls.secure(endpoint, stream)).await;
    let secure = secure.map_err(|error| lost(etcd, &error))?.map_err(|error| {
        let problem = tls.problem(endpoint, &error);
        problem.map_or_else(|| lost(etcd, &error), |it| EtcdError::Unreachable(Box::new(it)))
    })?;
    Ok(Box::new(secure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{Access, Identity, Transaction, fake};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NOTHING: Transaction = Transaction { compare: Vec::new(), success: Vec::new() };

    #[test]
    fn a_member_without_a_leader_is_not_asked_again_while_another_answers() {
        let [bad, good] =
            [(503, r#"{"code":14,"message":"no leader"}"#), (200, "{}")].map(|(status, body)| {
                fake::member(move |_| (status, body.to_owned())).parse().unwrap()
            });
        let access = Access::new(&[bad, good], &Identity::default(), false).unwrap();
        let etcd = Etcd::new(Arc::new(access)).unwrap();
        let write = || etcd.transact(&NOTHING);
        let answers: Vec<bool> = (0..4).map(|_| write().is_ok()).collect();
        assert_eq!(answers[1..], [true; 3]);
    }

    #[test]
    fn a_read_is_tried_again_and_a_write_is_not() {
        for code in [13, 14] {
            let asked = AtomicUsize::new(0);
            let answer = move |_| match asked.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => (503, format!("{{\"code\":{code},\"message\":\"unexpected EOF\"}}")),
                _ => (200, "{}".to_owned()),
            };
            let only = fake::member(answer).parse().unwrap();
            let access = Access::new(&[only], &Identity::default(), false).unwrap();
            let etcd = Etcd::new(Arc::new(access)).unwrap();
            assert!(etcd.get("key").is_ok());
            assert!(etcd.transact(&NOTHING).is_err());
        }
    }
}
