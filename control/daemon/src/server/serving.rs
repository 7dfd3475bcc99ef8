//! Accepting clients: the API checks the process that connected, monitoring checks nothing.

use super::tcp_listener;
use crate::connections::{self, Connections, Kind, Limits, accept, hesitate};
use crate::metrics::Renderings;
use crate::peer::{Groups, Peer};
use crate::shared::Shared;
use axum::{Extension, Router};
use config::Section;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Accepts clients of the API until the daemon stops, and waits for their responses.
pub(super) async fn api(
    listener: UnixListener,
    shared: Shared,
    metrics: Arc<Renderings>,
    groups: Groups,
    mut stopped: watch::Receiver<bool>,
) {
    let router = crate::handlers::router(shared).layer(Extension(metrics));
    let (places, mut clients) = (Connections::default(), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        while clients.try_join_next().is_some() {}
        let Ok(stream) = accepted else {
            hesitate().await;
            continue;
        };
        let peer = Peer::of(&stream, &groups);
        // A connection without a place is closed.
        if let Some(place) = places.place(Kind::from(&peer)) {
            let router = router.clone().layer(Extension(peer));
            let answers = connections::serve(stream, router, place, Limits::API, stopped.clone());
            clients.spawn(answers);
        }
    }
    while clients.join_next().await.is_some() {}
}

/// Serves clients over TCP once the address is available.
pub(super) async fn tcp(
    section: Section,
    address: SocketAddr,
    router: Router,
    shared: Shared,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = tokio::select! {
        listener = tcp_listener::listen(section, address, &shared) => listener,
        _ = stopped.wait_for(|stop| *stop) => return,
    };
    accept(listener, router, stopped).await;
}
