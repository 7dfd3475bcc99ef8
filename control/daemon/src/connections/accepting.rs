//! Accepts clients over TCP. Those of one address share its places. Each request carries the ends of
//! its connection.

use super::{Connections, Kind, Limits, serve};
use axum::{Extension, Router};
use netlink::owner::Ends;
use rustix::net::sockopt::socket_cookie;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Answers all clients of a listener until the daemon stops.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Connections::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        let Ok((stream, client)) = accepted else {
            hesitate().await;
            continue;
        };
        let (Ok(server), Ok(cookie)) = (stream.local_addr(), socket_cookie(&stream)) else {
            continue;
        };
        if let Some(place) = places.place(Kind::from(client.ip())) {
            let router = router.clone().layer(Extension(Ends { client, server, cookie }));
            tokio::spawn(serve(stream, router, place, Limits::METRICS, stopped.clone()));
        }
    }
}

/// Pauses after a failed accept, for example for lack of descriptors.
pub(crate) async fn hesitate() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
