//! The client's side of a capture: writes the bytes to the client's own file.

use super::{Client, ClientError, REQUEST_TIMEOUT, broken_answer, unreachable_at};
use crate::body::{CaptureBody, CaptureStart};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use problem::Problem;
use std::io::{self, Write};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Why a capture failed.
#[derive(Debug)]
pub enum CaptureError {
    /// The daemon refused it, or closed the connection.
    Daemon(ClientError),
    /// The file could not be created.
    File(Problem),
    /// The file could not be written; the body, if the daemon still sent it, says how much was
    /// captured.
    Write(std::io::Error, Option<CaptureBody>),
}

impl From<ClientError> for CaptureError {
    fn from(error: ClientError) -> CaptureError {
        CaptureError::Daemon(error)
    }
}

impl Client {
    /// Captures until the capture ends, and stops it at SIGINT or SIGTERM; a second signal ends the
    /// process. The file is created once the daemon has accepted the request. Returns the capture.
    ///
    /// # Errors
    /// The daemon refuses the capture or closes the connection, or the file cannot be created or
    /// written.
    pub fn run_capture<W: Write>(
        &self,
        start: &CaptureStart,
        make: impl FnOnce() -> Result<W, Problem>,
    ) -> Result<CaptureBody, CaptureError> {
        match self.runtime.block_on(self.receive(start, make)) {
            Ok(()) => Ok(self.capture(&start.port)?),
            Err(CaptureError::Write(error, _)) => {
                Err(CaptureError::Write(error, self.stop_capture(&start.port).ok()))
            }
            Err(error) => Err(error),
        }
    }

    async fn receive<W: Write>(
        &self,
        start: &CaptureStart,
        make: impl FnOnce() -> Result<W, Problem>,
    ) -> Result<(), CaptureError> {
        let lost = |error: &dyn std::error::Error| unreachable_at(&self.socket, error);
        let mut stop = stop_signals().map_err(|error| lost(&error))?;
        let stream = TokioIo::new(self.stream().await?);
        let (mut sender, connection) =
            http1::handshake(stream).await.map_err(|error| lost(&error))?;
        tokio::spawn(connection);
        let body = serde_json::to_vec(start).map_err(|error| broken_answer(&error))?;
        let request = Request::builder().method(Method::POST).uri("/v1/captures");
        let request = request.header("host", "millrace").header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| lost(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| lost(&error))?;
        let (status, mut body) = (answer.status(), answer.into_body());
        if !status.is_success() {
            let text = body.collect().await.map_err(|error| lost(&error))?.to_bytes();
            return Err(super::refused(status, &text).into());
        }
        let mut file = make().map_err(CaptureError::File)?;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => Some(frame),
                Some(()) = stop.recv() => None,
            };
            match frame {
                Some(Some(frame)) => {
                    let chunk =
                        frame.map_err(|error| lost(&error))?.into_data().unwrap_or_default();
                    file.write_all(&chunk).map_err(|error| CaptureError::Write(error, None))?;
                }
                Some(None) => break,
                None => self.end_capture(&start.port).await?,
            }
        }
        file.flush().map_err(|error| CaptureError::Write(error, None))
    }

    /// Stops the capture; everything captured so far still arrives.
    async fn end_capture(&self, port: &str) -> Result<(), ClientError> {
        let path = format!("/v1/captures/{}", super::escape(port));
        let ended = self.exchange(Method::DELETE, &path, Bytes::new(), None);
        let ended = tokio::time::timeout(REQUEST_TIMEOUT, ended).await;
        ended.map_err(|error| unreachable_at(&self.socket, &error))?.map(drop)
    }
}

/// Returns a channel that reports the first SIGINT or SIGTERM. The second one ends the process,
/// even if its other thread waits for a hanging daemon or a pipe that is not read.
fn stop_signals() -> io::Result<UnboundedReceiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    drop(inside);
    let (tell, told) = unbounded_channel();
    let watch = async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        };
        next().await;
        // The capture may have ended by itself.
        let _ = tell.send(());
        std::process::exit(next().await);
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(watch))?;
    Ok(told)
}
