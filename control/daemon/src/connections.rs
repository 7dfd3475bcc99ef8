//! Limits the number of connections, their timeouts and their lifetimes.

mod accepting;
mod write_timeout;

use crate::peer::{Access, Peer};
pub(crate) use accepting::{accept, hesitate};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use write_timeout::WriteTimeout;

/// Longest time for a request's head, and for an idle connection.
const HEAD: Duration = Duration::from_secs(10);
/// Longest time without progress in a write.
const WRITE: Duration = Duration::from_secs(30);
/// Maximum lifetime of a monitoring connection.
const LIFE: Duration = Duration::from_mins(1);
/// Most connections of one reader, and of all clients without access together.
const OF_A_USER: usize = 32;
/// Most connections of all readers, and of all admins.
const OF_ALL: usize = 256;

/// Timeouts of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Longest time without progress in a write.
    write: Duration,
    /// Maximum lifetime of the connection. After it only the current response is finished.
    life: Option<Duration>,
}

impl Limits {
    /// The API: no maximum lifetime, because a capture streams its response.
    pub(crate) const API: Limits = Limits { write: WRITE, life: None };
    /// Monitoring: a maximum lifetime, because a client that reads byte by byte always makes
    /// progress, and would hold one of the connections that all monitoring clients share.
    pub(crate) const METRICS: Limits = Limits { write: WRITE, life: Some(LIFE) };
}

/// The kind that a connection counts as. Each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Admin,
    Reader(u32),
    /// A client without access. All of them together have the limit of one user, because one user
    /// can have thousands of IDs (`/etc/subuid`).
    Stranger,
    Monitoring,
}

impl From<&Peer> for Kind {
    fn from(peer: &Peer) -> Kind {
        match peer.access {
            Access::Admin => Kind::Admin,
            Access::Read => Kind::Reader(peer.uid),
            Access::None => Kind::Stranger,
        }
    }
}

/// The open connections.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<BTreeMap<Kind, usize>>>);

/// A place for one connection, free again when dropped.
pub(crate) struct Place {
    of: Connections,
    kind: Kind,
}

impl Connections {
    /// Returns a place for a connection; `None` if there are too many of its kind.
    pub(crate) fn place(&self, kind: Kind) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.get(&kind).copied().unwrap_or_default();
        let readers = counts.iter().filter(|(kind, _)| matches!(kind, Kind::Reader(_)));
        let has_room = match kind {
            Kind::Admin => own < OF_ALL,
            Kind::Reader(_) => {
                own < OF_A_USER && readers.map(|(_, count)| count).sum::<usize>() < OF_ALL
            }
            Kind::Stranger | Kind::Monitoring => own < OF_A_USER,
        };
        has_room.then(|| {
            *counts.entry(kind).or_default() += 1;
            Place { of: self.clone(), kind }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.kind) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.kind);
            }
        }
    }
}

/// Answers the requests of one connection, until the connection ends, the daemon stops or a limit
/// is reached.
pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write));
    let answers = server.serve_connection(stream, TowerToHyperService::new(router));
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

    #[test]
    fn no_kind_takes_the_places_of_another() {
        let connections = Connections::default();
        let mut places: Vec<_> =
            (0..1000).filter_map(|_| connections.place(Kind::Stranger)).collect();
        assert_eq!(places.len(), OF_A_USER);
        for user in 0..20 {
            places.extend((0..100).filter_map(|_| connections.place(Kind::Reader(user))));
        }
        assert_eq!(places.len(), OF_A_USER + OF_ALL);
        let of_one = places.iter().filter(|place| place.kind == Kind::Reader(0));
        assert_eq!(of_one.count(), OF_A_USER);
        places.extend((0..1000).filter_map(|_| connections.place(Kind::Admin)));
        assert_eq!(places.len(), OF_A_USER + 2 * OF_ALL);
        places.retain(|place| place.kind != Kind::Reader(1));
        assert!(connections.place(Kind::Reader(30)).is_some());
        assert!(connections.place(Kind::Admin).is_none());
        drop(places);
        assert!(connections.0.lock().unwrap().is_empty());
    }

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
            serve(server, router, limits, stopped).await;
        });
        drop(served);
        reader.join().unwrap();
    }

    /// 32 clients that read nothing held all places of monitoring forever.
    #[test]
    fn a_client_that_does_not_read_is_cut_off() {
        serve_client(Limits { write: SHORT, life: None }, false);
    }

    #[test]
    fn a_client_of_monitoring_that_reads_byte_by_byte_is_cut_off() {
        serve_client(Limits { write: SHORT, life: Some(SHORT) }, true);
    }
}
