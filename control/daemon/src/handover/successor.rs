//! Hands descriptors from one daemon to the next over a Unix socket, if systemd does not keep them:
//! each in its own message with its name, the manifest last. The old daemon stops its ports before
//! it sends the first, and that only once the new one, which has checked what it can, says that it is
//! ready.

use super::listener::{self, Offer};
use super::rights::Rights;
use crate::descriptors;
use crate::state::Identity;
use devices::store::{MANIFEST, Store, message};
use problem::Problem;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Pid;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The message sent instead of descriptors.
const NOTHING: &str = "nothing is kept";

/// Longest time for the old daemon to stop; its disk alone may take 10 s.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends all kept descriptors to the successor. The old daemon calls this.
pub(crate) fn hand_over(store: &Store, successor: &OwnedFd) {
    store.with_all(|all| hand_over_all(all, successor));
}

fn hand_over_all(all: &[(String, BorrowedFd<'_>)], successor: &OwnedFd) {
    let sent = all.iter().try_for_each(|(name, file)| {
        match message::send(successor, name, Some(*file)) {
            // Goes on: other sessions and devices, and the manifest, can still be sent.
            Err(error) if !has_gone(&error) => {
                tracing::warn!(target: "control::handover::successor", "descriptor {name} was not handed over: {error}");
                Ok(())
            }
            sent => sent,
        }
    });
    let sent = match all.last() {
        Some((name, _)) if name == MANIFEST => sent,
        _ => sent.and_then(|()| message::send(successor, NOTHING, None)),
    };
    match sent {
        Ok(()) => {
            tracing::info!(target: "control::handover::successor", "{} descriptors were handed over", all.len())
        }
        Err(error) => {
            tracing::warn!(target: "control::handover::successor", "the successor is gone: {error}")
        }
    }
}

fn has_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut | WouldBlock)
}

/// The daemon that runs, connected. It goes on, also if this is dropped, until [`Predecessor::end`].
pub(crate) struct Predecessor {
    api: PathBuf,
    connection: OwnedFd,
    offer: Offer,
}

impl Predecessor {
    /// Connects to the daemon at this API socket; `None` if none runs there. It waits for a second,
    /// so checks that take time come before.
    ///
    /// # Errors
    /// The daemon runs as another user, refuses, or does not answer in time; or this process, which has
    /// these rights, may do less than that one, or may not have as many descriptors.
    pub(crate) fn meet(api: &Path, rights: &Rights) -> Result<Option<Predecessor>, Problem> {
        let connection = match connected(&listener::path(api)) {
            Ok(connection) => connection,
            Err(Errno::NOENT | Errno::CONNREFUSED) => {
                tracing::info!(target: "control::handover::successor", "there is no daemon to take over from: all devices are opened anew");
                return Ok(None);
            }
            Err(error) => return Err(failed(api, &error)),
        };
        let peer = socket_peercred(&connection).map_err(|error| failed(api, &error))?;
        if peer.uid != rustix::process::geteuid() {
            return Err(failed(api, &format!("it runs as user {}", peer.uid.as_raw())));
        }
        let greeted = message::send(&connection, &listener::greeting(), None);
        let offer = greeted.and_then(|()| receive_offer(&connection));
        let offer = offer.map_err(|error| failed(api, &error))?;
        if let Some(old) = &offer.rights {
            rights.suffice_for(old, Pid::as_raw(Some(peer.pid)))?;
        }
        descriptors::room_for(offer.descriptors as u64)?;
        Ok(Some(Predecessor { api: api.to_owned(), connection, offer }))
    }

    /// Returns whether this directory's lock is the daemon's, which it releases at its end.
    pub(crate) fn has_locked(&self, state: &Path) -> bool {
        self.offer.state.is_some() && self.offer.state == Identity::of(state)
    }

    /// Tells the daemon to stop, and takes its descriptors.
    ///
    /// # Errors
    /// It gave up waiting and goes on, or ended without handing over everything.
    pub(crate) fn end(self, store: &Store) -> Result<(), Problem> {
        let told = message::send(&self.connection, listener::READY, None);
        let given = told.and_then(|()| receive_all(&self.connection));
        store.inherit(given.map_err(|error| failed(&self.api, &error))?);
        Ok(())
    }
}

fn failed(api: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(format!("the daemon at {} does not hand over its ports", api.display()))
        .seen(error)
        .wanted("a daemon of the same user and of a compatible version")
        .remedy("stop it and start this one without --take-over; if systemd runs it, use `systemctl restart`")
}

fn connected(path: &Path) -> Result<OwnedFd, Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
    set_socket_timeout(&socket, Timeout::Send, Some(RECEIVE_TIMEOUT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn receive_offer(connection: &OwnedFd) -> io::Result<Offer> {
    let (text, _) = message::receive(connection)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Offer::read(&text).ok_or_else(|| io::Error::other(text))
}

/// Receives everything up to the manifest.
fn receive_all(connection: &OwnedFd) -> io::Result<Vec<(String, OwnedFd)>> {
    let mut given = Vec::new();
    loop {
        match message::receive(connection)? {
            Some((name, Some(file))) => {
                let is_last = name == MANIFEST;
                given.push((name, file));
                if is_last {
                    return Ok(given);
                }
            }
            Some((text, None)) if text.starts_with("refused: ") => {
                return Err(io::Error::other(text));
            }
            Some((text, None)) if text == NOTHING => return Ok(given),
            // The kernel could not pass this message's descriptor. The old daemon has stopped, so
            // this one goes on with the others.
            Some((name, None)) => {
                let limit = descriptors::limit();
                tracing::warn!(
                    target: "control::handover::successor", "{name} arrived without its descriptor: the limit is {limit} (RLIMIT_NOFILE)"
                );
                if name == MANIFEST {
                    return Ok(given);
                }
            }
            None => {
                return Err(io::Error::other(
                    "it closed the connection before it had handed over everything",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;
    use std::os::fd::AsFd;

    /// The successor had the shell's limit of descriptors. It mistook the first descriptor that did
    /// not arrive for the end, and had nothing.
    #[test]
    fn a_descriptor_that_does_not_arrive_is_not_the_end_of_the_list() {
        let flags = SocketFlags::CLOEXEC;
        let (old, new) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        message::send(&old, "a.0", None).unwrap();
        for name in ["b.0", MANIFEST] {
            message::send(&old, name, Some(new.as_fd())).unwrap();
        }
        let given = receive_all(&new).unwrap();
        let names: Vec<_> = given.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b.0", MANIFEST]);
        message::send(&old, NOTHING, None).unwrap();
        assert!(receive_all(&new).unwrap().is_empty());
    }
}
