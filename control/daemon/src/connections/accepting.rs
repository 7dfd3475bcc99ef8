//! Accepts clients over TCP. Users of this host have places of their own; clients of another host
//! share those of their address. Each request carries the ends of its connection.

use super::{Connections, Kind, Limits, serve};
use crate::peer::OVERFLOW;
use axum::{Extension, Router};
use netlink::owner::{Ends, of_client};
use rustix::net::sockopt::socket_cookie;
use std::net::{IpAddr, Ipv4Addr};
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
        let ends = Ends { client, server, cookie };
        if let Some(place) = places.place(kind(ends)) {
            let router = router.clone().layer(Extension(ends));
            tokio::spawn(serve(stream, router, place, Limits::METRICS, stopped.clone()));
        }
    }
}

/// Returns the kind that a connection counts as. One over loopback counts as its user's: all users
/// share those addresses, so one of them could hold the places of the others.
fn kind(ends: Ends) -> Kind {
    if !ends.client.ip().to_canonical().is_loopback() {
        return Kind::from(ends.client.ip());
    }
    of_user(of_client(ends).ok().flatten())
}

/// Returns the kind of a connection over loopback. All that no user can be named for count as one
/// address, whichever of 127.0.0.0/8 they come from.
fn of_user(user: Option<u32>) -> Kind {
    match user {
        Some(0) => Kind::Root,
        Some(OVERFLOW) | None => Kind::from(IpAddr::from(Ipv4Addr::LOCALHOST)),
        Some(user) => Kind::Reader(user),
    }
}

/// Pauses after a failed accept, for example for lack of descriptors.
pub(crate) async fn hesitate() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};

    /// 32 connections of one user over loopback kept the page and the metrics from all others.
    #[test]
    fn connections_over_loopback_count_as_their_users() {
        let own = rustix::process::geteuid().as_raw();
        for at in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let listener = TcpListener::bind((at, 0)).unwrap();
            let mut client = Some(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (stream, from) = listener.accept().unwrap();
            let cookie = socket_cookie(&stream).unwrap();
            let ends = Ends { client: from, server: stream.local_addr().unwrap(), cookie };
            assert_eq!(kind(ends), of_user(Some(own)), "{at}");
            client.take();
            assert_eq!(kind(ends), of_user(None), "{at}: closed");
        }
    }

    #[test]
    fn who_shares_places_with_whom() {
        assert_eq!(of_user(Some(0)), Kind::Root);
        assert_eq!(of_user(Some(7)), Kind::Reader(7));
        assert_eq!(of_user(Some(OVERFLOW)), of_user(None), "that number stands for many");
        let remote = SocketAddr::from(([192, 0, 2, 1], 1));
        let ends = Ends { client: remote, server: remote, cookie: 0 };
        assert_eq!(kind(ends), Kind::Monitoring(remote.ip()));
    }
}
