//! Closes the descriptors of many ports at the same time, by [`side_by_side`].
//!
//! Workers close ingress queues and the control thread closes the rest, so the collection belongs
//! to the whole process.

use crate::{lock, side_by_side};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// Descriptors to close, while [`at_once`] collects them.
static COLLECTED: Mutex<Option<Vec<OwnedFd>>> = Mutex::new(None);

/// Descriptors of ports that have been dropped.
#[must_use]
pub struct Collected(Vec<Mutex<Option<OwnedFd>>>);

/// Runs `close`, which drops ports, and returns when all their descriptors are closed.
pub fn at_once(close: impl FnOnce()) {
    collected(close).close_meanwhile(|| ());
}

/// Runs `close`, which drops ports, and returns their descriptors, which are still open.
pub fn collected(close: impl FnOnce()) -> Collected {
    *lock(&COLLECTED) = Some(Vec::new());
    close();
    let files = lock(&COLLECTED).take().unwrap_or_default();
    Collected(files.into_iter().map(|file| Mutex::new(Some(file))).collect())
}

impl Collected {
    /// Closes them, and calls `meanwhile` again and again until all are closed.
    pub fn close_meanwhile(self, meanwhile: impl FnMut()) {
        side_by_side::map_meanwhile(&self.0, |file| drop(lock(file).take()), meanwhile);
    }
}

/// Collects a descriptor that is about to be dropped. While descriptors are collected the owner's
/// close waits for no grace period: its own is not the last one.
pub(crate) fn collect(socket: BorrowedFd<'_>) {
    // If no descriptor is left for a copy, the owner's close closes the socket.
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

    /// One test for both, because sockets are collected for the whole process.
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
