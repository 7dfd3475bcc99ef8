//! A blocking client of the API, for the command line and the lab.
//!
//! Each request has its own connection to the daemon's Unix socket. Not for use inside an async
//! runtime.

mod capture;

use crate::body::{
    AclAdd, AclBody, CaptureBody, CountersBody, EventBody, HealthBody, LogBody, LogChange, MacBody,
    MtuBody, PlanBody, PortBody, QueueBody, QueueMove, RscBody, RscChange, RscSetting, RssBody,
    RssChange, SourceBody, SwitchBody, TeamBody, TeamChange, TeamMapping, TraceBody, TraceRequest,
    VmmqLoadBody, VmmqMoveBody,
};
pub use capture::CaptureError;
use config::{Config, PortConfig};
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

/// Longest time for a request; after that the daemon is taken to hang.
const PATIENCE: Duration = Duration::from_secs(30);
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
    /// The problem.
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
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable_at(socket, &error))?;
        let client = Client { socket: socket.to_owned(), runtime };
        client.runtime.block_on(client.stream())?;
        Ok(client)
    }

    /// The switch as a whole.
    pub fn switch(&self) -> Result<SwitchBody, ClientError> {
        self.get("/v1/switch")
    }

    /// All ports, by name.
    pub fn ports(&self) -> Result<Vec<PortBody>, ClientError> {
        self.get("/v1/ports")
    }

    /// One port.
    pub fn port(&self, name: &str) -> Result<PortBody, ClientError> {
        self.get(&format!("/v1/ports/{}", escape(name)))
    }

    /// A port, and the ETag of its settings.
    pub fn tagged_port(&self, name: &str) -> Result<(PortBody, String), ClientError> {
        let path = format!("/v1/ports/{}", escape(name));
        let (tag, body) = self.request_tagged(Method::GET, &path, Bytes::new(), None)?;
        Ok((read(&body)?, tag.unwrap_or_default()))
    }

    /// Changes keys of a port. The daemon refuses if the settings no longer have this ETag.
    pub fn change_tagged_port(
        &self,
        name: &str,
        change: &serde_json::Value,
        etag: &str,
    ) -> Result<PortBody, ClientError> {
        let body = serde_json::to_vec(change).map_err(|error| broken_answer(&error))?;
        let path = format!("/v1/ports/{}", escape(name));
        read(&self.request(Method::PATCH, &path, body.into(), Some(etag))?)
    }

    /// Adds a port.
    pub fn add_port(&self, port: &PortConfig) -> Result<PortBody, ClientError> {
        self.send(Method::POST, "/v1/ports", port)
    }

    /// Changes keys of a port, spelled as in the file; null removes a key.
    pub fn change_port(
        &self,
        name: &str,
        change: &serde_json::Value,
    ) -> Result<PortBody, ClientError> {
        self.patch(&format!("/v1/ports/{}", escape(name)), change)
    }

    /// Removes a port.
    pub fn remove_port(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/ports/{}", escape(name)))
    }

    /// One port's counters since it was opened.
    pub fn counters(&self, name: &str) -> Result<CountersBody, ClientError> {
        self.get(&format!("/v1/ports/{}/counters", escape(name)))
    }

    /// The rules of a port, with counters.
    pub fn acl(&self, name: &str) -> Result<AclBody, ClientError> {
        self.get(&format!("/v1/ports/{}/acl", escape(name)))
    }

    /// Adds a rule to a port; it is in force when this returns.
    pub fn add_rule(&self, name: &str, rule: &AclAdd) -> Result<AclBody, ClientError> {
        self.post(&format!("/v1/ports/{}/acl", escape(name)), rule)
    }

    /// Removes a port's rule of this number.
    pub fn remove_rule(&self, name: &str, number: usize) -> Result<AclBody, ClientError> {
        let path = format!("/v1/ports/{}/acl/{number}", escape(name));
        read(&self.request(Method::DELETE, &path, Bytes::new(), None)?)
    }

    /// The levels of the log.
    pub fn log(&self) -> Result<LogBody, ClientError> {
        self.get("/v1/log")
    }

    /// Sets a level of the log until the daemon stops.
    pub fn set_log(&self, change: &LogChange) -> Result<LogBody, ClientError> {
        self.put("/v1/log", change)
    }

    /// Coalescing toward one port, or toward all.
    pub fn rsc(&self, port: Option<&str>) -> Result<Vec<RscBody>, ClientError> {
        match port {
            Some(name) => Ok(vec![self.get(&format!("/v1/ports/{}/rsc", escape(name)))?]),
            None => self.get("/v1/rsc"),
        }
    }

    /// Toggles coalescing on one port, or on all; it is done when this returns.
    pub fn set_rsc(
        &self,
        port: Option<&str>,
        policy: RscSetting,
    ) -> Result<Vec<RscBody>, ClientError> {
        let change = RscChange { policy };
        match port {
            Some(name) => Ok(vec![self.put(&format!("/v1/ports/{}/rsc", escape(name)), &change)?]),
            None => self.put("/v1/rsc", &change),
        }
    }

    /// How frames toward one port, or all, are spread over its queues.
    pub fn rss(&self, port: Option<&str>) -> Result<Vec<RssBody>, ClientError> {
        match port {
            Some(name) => Ok(vec![self.get(&format!("/v1/ports/{}/rss", escape(name)))?]),
            None => self.get("/v1/rss"),
        }
    }

    /// Changes it; the change is in force when this returns.
    pub fn change_rss(&self, port: &str, change: &RssChange) -> Result<RssBody, ClientError> {
        self.patch(&format!("/v1/ports/{}/rss", escape(port)), change)
    }

    /// One team, or all.
    pub fn teams(&self, port: Option<&str>) -> Result<Vec<TeamBody>, ClientError> {
        match port {
            Some(name) => Ok(vec![self.get(&format!("/v1/teams/{}", escape(name)))?]),
            None => self.get("/v1/teams"),
        }
    }

    /// Adds members to a team and removes others; it is done when this returns.
    pub fn change_team(&self, port: &str, change: &TeamChange) -> Result<TeamBody, ClientError> {
        self.patch(&format!("/v1/teams/{}", escape(port)), change)
    }

    /// Pins a vNIC to a member of a team, or unpins it.
    pub fn map_team(&self, port: &str, mapping: &TeamMapping) -> Result<TeamBody, ClientError> {
        self.put(&format!("/v1/teams/{}/mappings", escape(port)), mapping)
    }

    /// Which worker serves which queue.
    pub fn queues(&self) -> Result<Vec<QueueBody>, ClientError> {
        self.get("/v1/queues")
    }

    /// Moves a queue to another worker, which has it when this returns.
    pub fn move_queue(
        &self,
        port: &str,
        queue: usize,
        worker: usize,
    ) -> Result<QueueBody, ClientError> {
        self.put(&format!("/v1/ports/{}/queues/{queue}", escape(port)), &QueueMove { worker })
    }

    /// The last moves of queues by load, oldest first.
    pub fn vmmq_moves(&self) -> Result<Vec<VmmqMoveBody>, ClientError> {
        self.get("/v1/vmmq/moves")
    }

    /// The balancer's measurements, as sums so far.
    pub fn vmmq_load(&self) -> Result<VmmqLoadBody, ClientError> {
        self.get("/v1/vmmq/load")
    }

    /// Learned addresses.
    pub fn macs(&self) -> Result<Vec<MacBody>, ClientError> {
        self.get("/v1/macs")
    }

    /// Forgets learned addresses: those of a port, or all.
    pub fn forget_macs(&self, port: Option<&str>) -> Result<(), ClientError> {
        match port {
            Some(port) => self.delete(&format!("/v1/macs?port={}", escape(port))),
            None => self.delete("/v1/macs"),
        }
    }

    /// Events with a greater number than this, oldest first.
    pub fn events(&self, after: u64) -> Result<Vec<EventBody>, ClientError> {
        self.get(&format!("/v1/events?after={after}"))
    }

    /// What the switch would do with frames.
    pub fn trace(&self, request: &TraceRequest) -> Result<TraceBody, ClientError> {
        self.post("/v1/trace", request)
    }

    /// Configuration health.
    pub fn health(&self) -> Result<HealthBody, ClientError> {
        self.get("/v1/health")
    }

    /// MTUs of ports and devices.
    pub fn mtu(&self) -> Result<MtuBody, ClientError> {
        self.get("/v1/mtu")
    }

    /// The running configuration.
    pub fn config(&self) -> Result<Config, ClientError> {
        self.get("/v1/config")
    }

    /// The configuration file, and the file that stores ports added through the API.
    pub fn config_source(&self) -> Result<SourceBody, ClientError> {
        self.get("/v1/config/source")
    }

    /// Has the daemon reread its file, or only returns the steps.
    pub fn reload_config(&self, dry_run: bool) -> Result<PlanBody, ClientError> {
        let path = format!("/v1/config/reload?dry_run={dry_run}");
        read(&self.request(Method::POST, &path, Bytes::new(), None)?)
    }

    /// Replaces the running configuration if it still has this tag.
    pub fn replace_config(&self, config: &Config, etag: &str) -> Result<PlanBody, ClientError> {
        let body = serde_json::to_vec(config).map_err(|error| broken_answer(&error))?;
        read(&self.request(Method::PUT, "/v1/config", body.into(), Some(etag))?)
    }

    /// Replaces the running configuration, or only returns the steps.
    pub fn put_config(&self, config: &Config, dry_run: bool) -> Result<PlanBody, ClientError> {
        self.put(&format!("/v1/config?dry_run={dry_run}"), config)
    }

    /// Replaces the fleet's ports on this host with those of this revision.
    pub fn put_fleet(&self, revision: u64, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        self.put(&format!("/v1/config/fleet?revision={revision}"), &ports)
    }

    /// Plans the steps that would replace the fleet's ports on this host.
    pub fn plan_fleet(&self, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        self.put("/v1/config/fleet?dry_run=true", &ports)
    }

    /// The last capture on a port.
    pub fn capture(&self, port: &str) -> Result<CaptureBody, ClientError> {
        self.get(&format!("/v1/captures/{}", escape(port)))
    }

    /// Stops a capture; its client still receives the rest.
    pub fn stop_capture(&self, port: &str) -> Result<CaptureBody, ClientError> {
        let path = format!("/v1/captures/{}", escape(port));
        read(&self.request(Method::DELETE, &path, Bytes::new(), None)?)
    }

    /// Any resource.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        read(&self.request(Method::GET, path, Bytes::new(), None)?)
    }

    /// Replaces a resource.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::PUT, path, body)
    }

    /// Changes a resource.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::PATCH, path, body)
    }

    /// Creates a resource.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(Method::POST, path, body)
    }

    /// Removes a resource.
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.request(Method::DELETE, path, Bytes::new(), None).map(drop)
    }

    /// The body of the answer as text, for resources that are not JSON.
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

    /// The body with its `ETag`.
    fn request_tagged(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        if_match: Option<&str>,
    ) -> Result<(Option<String>, Bytes), ClientError> {
        let answer = async {
            match tokio::time::timeout(PATIENCE, self.exchange(method, path, body, if_match)).await
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
        let lost = |error: hyper::Error| unreachable_at(&self.socket, &error);
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
        let until = Instant::now() + PATIENCE;
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

/// The error of a refused request.
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

/// Percent-encodes characters that a path cannot contain, so that any name can be requested as
/// typed.
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
