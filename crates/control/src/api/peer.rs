//! The client of a connection, as far as the kernel knows it.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::net::{TcpListener, UnixListener};

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A process of this user connected to the Unix socket.
    User(u32),
    /// Not known: a client over TCP.
    Unknown,
}

impl Peer {
    /// Whether it could do itself what the daemon does with files: it is root, or the daemon's own user.
    pub(super) fn is_trusted_with_files(self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        matches!(self, Peer::User(user) if user == 0 || user == own)
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        stream.io().peer_cred().map_or(Peer::Unknown, |peer| Peer::User(peer.uid()))
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(_: IncomingStream<'_, TcpListener>) -> Peer {
        Peer::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_the_socket_s_group_is_not_trusted_with_files() {
        let own = rustix::process::geteuid().as_raw();
        assert!(Peer::User(own).is_trusted_with_files() && Peer::User(0).is_trusted_with_files());
        assert!(!Peer::User(own + 1).is_trusted_with_files());
        assert!(!Peer::Unknown.is_trusted_with_files());
    }
}
