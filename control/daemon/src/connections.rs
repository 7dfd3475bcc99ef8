//! Limits the number of connections, their timeouts and their lifetimes.

mod accepting;
mod places;
mod write_timeout;

pub(crate) use accepting::{accept, hesitate};
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
pub(crate) use places::{Connections, Kind, Place};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use write_timeout::WriteTimeout;

/// Longest time without progress in a write.
const WRITE: Duration = Duration::from_secs(30);
/// Maximum lifetime of a monitoring connection.
const LIFE: Duration = Duration::from_mins(1);

/// Timeouts of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Longest time for a request's head, and for an idle connection.
    head: Duration,
    /// Longest time without progress in a write.
    write: Duration,
    /// Maximum lifetime of the connection. After it only the current response is finished.
    life: Option<Duration>,
}

impl Limits {
    /// The API: no maximum lifetime, because a capture streams its response.
    pub(crate) const API: Limits =
        Limits { head: Duration::from_secs(10), write: WRITE, life: None };
    /// Monitoring: a maximum lifetime, because a client that reads byte by byte always makes
    /// progress, and would hold one of the connections that all clients of an address share.
    pub(crate) const METRICS: Limits =
        Limits { head: Duration::from_secs(2), write: WRITE, life: Some(LIFE) };
}

/// Answers the requests of one connection, until the connection ends, the daemon stops, a limit is
/// reached, or another connection needs its place.
pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    place: Place,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write));
    let router = TowerToHyperService::new(router);
    let Place { hold, mut taken } = place;
    let answers = server.serve_connection(
        stream,
        service_fn(move |request| {
            hold.has_head();
            router.call(request)
        }),
    );
    tokio::pin!(answers);
    let stop = async {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let old = async {
        match limits.life {
            Some(life) => tokio::time::sleep(life).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = answers.as_mut() => ended,
        () = stop => {
            answers.as_mut().graceful_shutdown();
            answers.await
        }
        () = old => {
            answers.as_mut().graceful_shutdown();
            // A response that is not sent by then is dropped.
            tokio::time::timeout(limits.write, answers).await.unwrap_or(Ok(()))
        }
        Ok(()) = &mut taken => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(target: "control::daemon::connections", "a connection has ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::RecvTimeoutError;

    const SHORT: Duration = Duration::from_millis(20);

    /// Serves a client that asks for more than a socket holds. The client reads byte by byte, or
    /// nothing.
    fn serve_client(limits: Limits, reads: bool) {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let (served, serving) = std::sync::mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let goes_on = || serving.recv_timeout(SHORT / 20) == Err(RecvTimeoutError::Timeout);
            while goes_on() && (!reads || client.read_exact(&mut [0]).is_ok()) {}
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let router = Router::new().route("/", get(async || "x".repeat(8 << 20)));
            let (_stopping, stopped) = watch::channel(false);
            let server = tokio::net::UnixStream::from_std(server).unwrap();
            let place = Connections::default().place(Kind::Stranger).unwrap();
            serve(server, router, place, limits, stopped).await;
        });
        drop(served);
        reader.join().unwrap();
    }

    /// 32 clients that read nothing held all places of monitoring forever.
    #[test]
    fn a_client_that_does_not_read_is_cut_off() {
        serve_client(Limits { head: SHORT, write: SHORT, life: None }, false);
    }

    #[test]
    fn a_client_of_monitoring_that_reads_byte_by_byte_is_cut_off() {
        serve_client(Limits { head: SHORT, write: SHORT, life: Some(SHORT) }, true);
    }
}
