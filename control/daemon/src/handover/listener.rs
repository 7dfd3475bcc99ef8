//! The socket at which a successor asks for this process's descriptors. It lies beside the API's
//! socket and serves only processes of the same user.

use crate::handover::rights::Rights;
use crate::state::Identity;
use devices::store::{VERSION, message};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// Longest time to wait for a successor's greeting, which it sends at once.
const GREETING_TIMEOUT: Duration = Duration::from_millis(100);

/// The successor's second message: nothing keeps it from starting. Only then does this daemon stop.
pub(super) const READY: &str = "ready";
/// Longest time until then. What takes long, the successor does before it connects.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// Two keys of the answer to the greeting, which is a list of `KEY: VALUE`. A reader ignores others.
const DESCRIPTORS: &str = "descriptors";
const STATE: &str = "state";

/// What a daemon has that its successor needs: the answer to the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// How many descriptors it hands over.
    pub(crate) descriptors: usize,
    /// The state directory that it has locked.
    pub(crate) state: Option<Identity>,
    /// What it could do at its start; `None` of a version that does not say.
    pub(crate) rights: Option<Rights>,
}

/// The socket; its file is removed on drop.
pub(crate) struct Listener {
    path: PathBuf,
    /// A SEQPACKET socket, although the type is one for streams: the runtime only accepts.
    socket: UnixListener,
}

/// Returns the path, beside the API's socket.
pub(super) fn path(api: &Path) -> PathBuf {
    let mut path = api.as_os_str().to_owned();
    path.push(".handover");
    path.into()
}

/// Returns a successor's first message.
pub(super) fn greeting() -> String {
    format!("millrace hand-over {VERSION} when ready")
}

impl Offer {
    fn to_text(self) -> String {
        let mut answer = vec![(DESCRIPTORS, self.descriptors.to_string())];
        answer.extend(self.state.map(|state| (STATE, state.to_text())));
        self.rights.iter().for_each(|rights| rights.write(&mut answer));
        let answer: Vec<_> = answer.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        answer.join(", ")
    }

    /// Reads the answer to the greeting; `None` if it is another message.
    pub(super) fn read(text: &str) -> Option<Offer> {
        let pairs = text.split(", ").map(|part| part.split_once(": "));
        let pairs: Vec<_> = pairs.collect::<Option<_>>()?;
        let value = |key: &str| pairs.iter().find(|(its, _)| *its == key).map(|(_, value)| *value);
        let state = match value(STATE) {
            Some(state) => Some(Identity::read(state)?),
            None => None,
        };
        let descriptors = value(DESCRIPTORS)?.parse().ok()?;
        Some(Offer { descriptors, state, rights: Rights::read(value) })
    }
}

impl Listener {
    /// Listens beside the API's socket, which this process holds. A file at that path is left over
    /// from a crash and is replaced.
    ///
    /// # Errors
    /// The old file cannot be removed, or the socket cannot be bound.
    pub(crate) fn bind(api: &Path) -> io::Result<Listener> {
        let path = path(api);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The file is made with the socket's own mode.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        listen(&socket, 1)?;
        Ok(Listener { path, socket: UnixListener::from_std(socket.into())? })
    }

    /// Waits for the next admitted successor that is ready and returns its connection.
    pub(crate) async fn next(&self, offer: impl Fn() -> Offer) -> OwnedFd {
        loop {
            let accepted = self.socket.accept().await;
            let Ok(connection) = accepted.and_then(|(connection, _)| blocking(connection)) else {
                // For example for lack of descriptors: pause before the next attempt.
                tokio::time::sleep(GREETING_TIMEOUT).await;
                continue;
            };
            match admit(&connection).and_then(|()| is_ready(&connection, offer())) {
                Ok(()) => return connection,
                Err(reason) => {
                    tracing::warn!(target: "control::handover::listener", "a hand-over was refused: {reason}");
                    // The successor may be gone.
                    let _ = message::send(&connection, &format!("refused: {reason}"), None);
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may already be gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn blocking(connection: UnixStream) -> io::Result<OwnedFd> {
    let connection = connection.into_std()?;
    connection.set_nonblocking(false)?;
    Ok(connection.into())
}

/// Admits a process of the same user and version. The error is the reason for refusal.
fn admit(connection: &OwnedFd) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let (peer, own) = (socket_peercred(connection), rustix::process::geteuid());
    let peer = peer.map_err(|error| error.to_string())?;
    if peer.uid != own {
        let (peer, own) = (peer.uid.as_raw(), own.as_raw());
        return Err(format!("it runs as user {peer}, this daemon as user {own}"));
    }
    set_socket_timeout(connection, Timeout::Recv, Some(GREETING_TIMEOUT))
        .map_err(|error| error.to_string())?;
    let (said, _) = message::receive(connection).map_err(failed)?.ok_or("it sent no greeting")?;
    if said != greeting() {
        return Err(format!("it sent `{said}`, this daemon expects `{}`", greeting()));
    }
    Ok(())
}

/// Waits until an admitted process is ready, for it may yet find that it cannot start.
fn is_ready(connection: &OwnedFd, offer: Offer) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    message::send(connection, &offer.to_text(), None).map_err(failed)?;
    set_socket_timeout(connection, Timeout::Recv, Some(READY_TIMEOUT))
        .map_err(|error| error.to_string())?;
    match message::receive(connection).map_err(failed)? {
        Some((said, _)) if said == READY => Ok(()),
        _ => Err("it gave up".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;

    /// A successor that could not start had ended the daemon that ran.
    #[test]
    fn a_successor_is_one_only_when_it_is_ready() {
        let pair = || {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            socketpair(AddressFamily::UNIX, kind, flags, None).unwrap()
        };
        let state = Some(Identity { device: 64_769, inode: u64::MAX });
        let offer = Offer { descriptors: 7, state, rights: Some(Rights::now()) };
        let meet = |said: &[&str]| {
            let (own, new) = pair();
            said.iter().for_each(|text| message::send(&new, text, None).unwrap());
            rustix::net::shutdown(&new, rustix::net::Shutdown::Write).unwrap();
            (admit(&own).and_then(|()| is_ready(&own, offer)), new)
        };
        let (ready, new) = meet(&[&greeting(), READY]);
        assert_eq!(ready, Ok(()));
        let (text, _) = message::receive(&new).unwrap().unwrap();
        assert_eq!(Offer::read(&text), Some(offer));
        let without = Offer { state: None, rights: None, ..offer };
        assert_eq!(Offer::read(&without.to_text()), Some(without));
        assert_eq!(Offer::read("descriptors: 7, of a later version: 1"), Some(without));
        for other in ["descriptors: 7, state: 1", "state: 1:2", "refused: no", "", "descriptors: x"]
        {
            assert_eq!(Offer::read(other), None, "{other}");
        }
        assert_eq!(meet(&[&greeting()]).0, Err("it gave up".into()));
        assert_eq!(meet(&[&greeting(), "no"]).0, Err("it gave up".into()));
        assert!(meet(&["millrace hand-over 4", READY]).0.is_err());
    }
}
