//! Closing the sockets of all ports at the same time, as a daemon does that ends: see
//! [`side_by_side`].
//!
//! Workers close ingress queues and the control thread the rest, so this is of the whole process.

use crate::{lock, side_by_side};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// What is to be closed, while [`at_once`] collects it.
static COLLECTED: Mutex<Option<Vec<OwnedFd>>> = Mutex::new(None);

/// Runs `close`, which drops ports, and returns when all their sockets are closed.
pub fn at_once(close: impl FnOnce()) {
    *lock(&COLLECTED) = Some(Vec::new());
    close();
    let files = lock(&COLLECTED).take().unwrap_or_default();
    let files: Vec<_> = files.into_iter().map(|file| Mutex::new(Some(file))).collect();
    side_by_side::map(&files, |file| drop(lock(file).take()));
}

/// The socket is about to be dropped. Where sockets are collected its close waits for no grace
/// period: it is not the last descriptor.
pub(crate) fn collect(socket: BorrowedFd<'_>) {
    // Without a descriptor more, the socket is closed by its owner.
    lock(&COLLECTED).iter_mut().for_each(|files| files.extend(socket.try_clone_to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    struct Owner(UnixStream);

    impl Drop for Owner {
        fn drop(&mut self) {
            collect(self.0.as_fd());
        }
    }

    fn is_closed(peer: &mut UnixStream) -> bool {
        peer.set_nonblocking(true).unwrap();
        peer.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    /// In one test: sockets are collected of the whole process.
    #[test]
    fn what_is_dropped_within_stays_open_until_the_end_and_else_is_closed_by_its_owner() {
        let mut pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let (owners, mut peers): (Vec<_>, Vec<_>) =
            pairs.drain(..).map(|(socket, peer)| (Owner(socket), peer)).unzip();
        at_once(|| {
            std::thread::spawn(|| drop(owners)).join().unwrap();
            assert!(!peers.iter_mut().any(is_closed));
        });
        assert!(peers.iter_mut().all(is_closed));
        let (socket, mut peer) = UnixStream::pair().unwrap();
        drop(Owner(socket));
        assert!(is_closed(&mut peer));
    }
}
