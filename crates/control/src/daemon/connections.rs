//! Connections: how many there may be, how long a head may take, and their end.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// How long a request's head may take, and a connection be idle.
const HEAD: Duration = Duration::from_secs(10);
/// Connections of one user, unless it is an admin.
const OF_A_USER: usize = 32;
/// Connections of all.
const OF_ALL: usize = 256;

/// The connections that there are, by user.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<BTreeMap<Option<u32>, usize>>>);

/// One of them. It is free again when this goes.
pub(super) struct Place {
    of: Connections,
    user: Option<u32>,
}

impl Connections {
    /// A place for a connection; `None`: there are too many. Admins are not limited one by one, nor by those of others.
    pub(super) fn place(&self, user: u32, admin: bool) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = counts.iter().filter(|(user, _)| user.is_some()).map(|(_, count)| count);
        let (key, taken) = match admin {
            true => (None, counts.get(&None).is_some_and(|count| *count >= OF_ALL)),
            false => {
                let own = counts.get(&Some(user)).copied().unwrap_or_default();
                (Some(user), own >= OF_A_USER || others.sum::<usize>() >= OF_ALL)
            }
        };
        (!taken).then(|| {
            *counts.entry(key).or_default() += 1;
            Place { of: self.clone(), user: key }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

/// Answers the requests of one connection, until it or the daemon ends.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let answers = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(answers);
    let stop = async {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let ended = tokio::select! {
        ended = answers.as_mut() => ended,
        () = stop => {
            answers.as_mut().graceful_shutdown();
            answers.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection has ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_the_places_of_others_and_none_those_of_admins() {
        let connections = Connections::default();
        let mut places = Vec::new();
        for user in 0..20 {
            places.extend((0..100).filter_map(|_| connections.place(user, false)));
        }
        assert_eq!(places.len(), OF_ALL);
        assert_eq!(places.iter().filter(|place| place.user == Some(0)).count(), OF_A_USER);
        places.extend((0..1000).filter_map(|_| connections.place(0, true)));
        assert_eq!(places.len(), 2 * OF_ALL);
        places.retain(|place| place.user != Some(1));
        assert!(connections.place(30, false).is_some() && connections.place(0, true).is_none());
        drop(places);
        assert!(connections.0.lock().unwrap().is_empty());
    }
}
