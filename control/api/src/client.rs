//! A blocking client of the API, for the command line and the lab.
//!
//! Each request has its own connection to the daemon's Unix socket. A client has an async runtime
//! of its own, so it cannot be used inside another one.

mod capture;
mod resources;

pub use capture::CaptureError;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use problem::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// Timeout of a request, after which the daemon counts as hung.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between attempts to connect while the daemon's backlog is full.
const AGAIN: Duration = Duration::from_millis(5);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("{0}")]
    Unreachable(Box<Problem>),
    /// The daemon refused the request, with a reason.
    #[error("{0}")]
    Refused(Box<Problem>),
}

impl ClientError {
    /// Returns the problem.
    pub fn problem(&self) -> &Problem {
        match self {
            ClientError::Unreachable(problem) | ClientError::Refused(problem) => problem,
        }
    }
}

/// A connection to the daemon.
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// Finds the daemon on its socket.
    ///
    /// # Errors
    /// No daemon answers there.
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable_at(socket, &error))?;
        let client = Client { socket: socket.to_owned(), runtime };
        client.runtime.block_on(client.stream())?;
        Ok(client)
    }

    /// Returns a resource.
    ///
    /// # Errors
    /// The daemon does not answer, refuses the request, or answers something else.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        read(&self.request(Method::GET, path, Bytes::new(), None)?)
    }

    /// Replaces a resource. Returns the answer.
    ///
    /// # Errors
    /// The daemon does not answer, refuses the request, or answers something else.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::PUT, path, body)
    }

    /// Changes a resource. Returns the answer.
    ///
    /// # Errors
    /// The daemon does not answer, refuses the request, or answers something else.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::PATCH, path, body)
    }

    /// Creates a resource. Returns the answer.
    ///
    /// # Errors
    /// The daemon does not answer, refuses the request, or answers something else.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::POST, path, body)
    }

    /// Removes a resource.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the request.
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, path, Bytes::new(), None).map(drop)
    }

    /// Returns the body of the answer as text, for resources that are not JSON.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the request.
    pub fn text(&self, path: &str) -> Result<String, ClientError> {
        let body = self.request(Method::GET, path, Bytes::new(), None)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| broken_answer(&error))?;
        read(&self.request(method, path, body.into(), None)?)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<Bytes, ClientError> {
        self.request_tagged(method, path, body, if_match).map(|(_, body)| body)
    }

    /// Returns a resource with its `ETag`.
    fn get_tagged<T: DeserializeOwned>(&self, path: &str) -> Result<(T, String), ClientError> {
        let (tag, body) = self.request_tagged(Method::GET, path, Bytes::new(), None)?;
        Ok((read(&body)?, tag.unwrap_or_default()))
    }

    /// Returns the body with its `ETag`.
    fn request_tagged(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<(Option<String>, Bytes), ClientError> {
        let answer = async {
            match tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(method, path, body, if_match))
                .await
            {
                Ok(answer) => answer,
                Err(error) => Err(unreachable_at(&self.socket, &error)),
            }
        };
        let (status, tag, body) = self.runtime.block_on(answer)?;
        if status.is_success() {
            return Ok((tag, body));
        }
        Err(refused(status, &body))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<(StatusCode, Option<String>, Bytes), ClientError> {
        let lost = |error: hyper::Error| lost_at(&self.socket, &error);
        let stream = self.stream().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "millrace")
            .header("content-type", "application/json");
        if let Some(etag) = if_match {
            request = request.header("if-match", etag);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| unreachable_at(&self.socket, &error))?;
        let response = sender.send_request(request).await.map_err(lost)?;
        let status = response.status();
        let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok());
        let tag = tag.map(str::to_owned);
        let body = response.into_body().collect().await.map_err(lost)?.to_bytes();
        connection.abort();
        Ok((status, tag, body))
    }

    /// Connects. While the daemon's backlog is full, retries for as long as a request may take.
    async fn stream(&self) -> Result<UnixStream, ClientError> {
        let until = Instant::now() + REQUEST_TIMEOUT;
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                    tokio::time::sleep(AGAIN).await;
                }
                stream => return stream.map_err(|error| unreachable_at(&self.socket, &error)),
            }
        }
    }
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| broken_answer(&error))
}

/// Returns the error of a refused request.
fn refused(status: StatusCode, body: &Bytes) -> ClientError {
    let problem = serde_json::from_slice(body).unwrap_or_else(|_| {
        Problem::new(format!("the daemon answered {status}")).seen(String::from_utf8_lossy(body))
    });
    ClientError::Refused(Box::new(problem))
}

fn broken_answer(error: &serde_json::Error) -> ClientError {
    let problem = Problem::new("the daemon's answer cannot be read")
        .seen(error)
        .wanted(format!("an answer from version {}", env!("CARGO_PKG_VERSION")))
        .remedy("restart the daemon, so that it runs this program's version");
    ClientError::Refused(Box::new(problem))
}

fn unreachable_at(socket: &Path, error: &dyn std::error::Error) -> ClientError {
    let problem = Problem::new(format!("no daemon answers on {}", socket.display()))
        .seen(error)
        .wanted("a running `millrace run`")
        .remedy(
            "start the daemon with `systemctl start millrace` or `millrace run -c FILE`, or name its socket with --socket",
        );
    ClientError::Unreachable(Box::new(problem))
}

/// Returns the error of a connection that the daemon closed without an answer.
fn lost_at(socket: &Path, error: &hyper::Error) -> ClientError {
    let problem = Problem::new(format!(
        "the daemon on {} closed the connection without an answer",
        socket.display()
    ))
    .seen(error)
    .wanted("at most 64 connections of one user (of a reader 32), and a daemon that goes on running")
    .remedy(
        "end the programs of this user that hold connections (`ss -xp` lists them); if there are none, read the daemon's log",
    );
    ClientError::Unreachable(Box::new(problem))
}

/// Returns the name with the characters percent-encoded that a path cannot contain, so that any
/// name can be requested as typed.
fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, accept, bind, listen, socket};

    /// The client said that no daemon ran, and to start it.
    #[test]
    fn a_connection_that_is_closed_is_told_from_a_daemon_that_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let daemon = std::thread::spawn(move || {
            (0..2).for_each(|_| drop(listener.accept().unwrap()));
        });
        let client = Client::connect(&path).unwrap();
        let problem = client.get::<()>("/v1/switch").unwrap_err().problem().clone();
        assert!(problem.error.contains("closed the connection"), "{problem}");
        daemon.join().unwrap();
        let problem = client.get::<()>("/v1/switch").unwrap_err().problem().clone();
        assert!(problem.error.contains("no daemon answers"), "{problem}");
    }

    /// A stranger that kept the backlog full kept out admins, with "no daemon answers".
    #[test]
    fn a_full_backlog_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let first = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let client = {
            let path = path.clone();
            std::thread::spawn(move || Client::connect(&path).map(drop))
        };
        // There is room only once it was refused for want of it.
        std::thread::sleep(AGAIN * 10);
        accept(&listener).unwrap();
        client.join().unwrap().unwrap();
        drop(first);
    }
}
