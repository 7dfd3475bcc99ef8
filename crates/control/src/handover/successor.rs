//! From one daemon to the next over a Unix socket, where no systemd keeps the descriptors: each in a message of its own with its
//! name, the manifest last. The old daemon has stopped its ports before it sends the first.

use super::{MANIFEST, Store, listener, message};
use crate::Problem;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long the old daemon may take to stop: its disk has 10 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// The old daemon's part: gives all that is kept to its successor.
pub(crate) fn hand_over(store: &Store, successor: &OwnedFd) {
    let content = store.content();
    let all = content.all();
    let sent = all.iter().try_for_each(|(name, file)| message::send(successor, name, Some(*file)));
    let sent = match content.manifest {
        Some(_) => sent,
        None => sent.and_then(|()| message::send(successor, "nothing is kept", None)),
    };
    match sent {
        Ok(()) => tracing::info!("{} descriptors were handed over", all.len()),
        Err(error) => tracing::warn!("the successor has gone: {error}"),
    }
}

/// The successor's part: asks the daemon of this API socket to stop, and takes what it has. Without one nothing is taken.
pub(crate) fn take_over(api: &Path, store: &Store) -> Result<(), Problem> {
    let path = listener::path(api);
    let failed = |error: &dyn std::fmt::Display| {
        Problem::new(format!("the daemon at {} does not hand over", api.display()))
            .seen(error)
            .wanted("a daemon of the same user and of a version that speaks the same")
            .remedy("stop it and start this one without --take-over; `systemctl restart` where systemd runs it")
    };
    let connection = match connected(&path) {
        Ok(connection) => connection,
        Err(Errno::NOENT | Errno::CONNREFUSED) => {
            tracing::info!("no daemon is there to take over from: all is opened anew");
            return Ok(());
        }
        Err(error) => return Err(failed(&error)),
    };
    let peer = socket_peercred(&connection).map_err(|error| failed(&error))?.uid;
    if peer != rustix::process::geteuid() {
        return Err(failed(&format!("it runs as user {}", peer.as_raw())));
    }
    message::send(&connection, &listener::greeting(), None).map_err(|error| failed(&error))?;
    let given = receive_all(&connection).map_err(|error| failed(&error))?;
    store.inherit(given);
    Ok(())
}

fn connected(path: &Path) -> Result<OwnedFd, Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Everything up to the manifest.
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
            Some((_, None)) => return Ok(given),
            None => return Err(io::Error::other("it ended before it had handed over all")),
        }
    }
}
