//! Opening a guest's port, and watching the guest behind it.

use crate::accounts;
use crate::contract::{Condition, DeviceState, OpenError, Opened, Watch};
use crate::guest;
use crate::link::denied;
use crate::store::{Carrier, Keeping, Store, What};
use config::{Account, Compat, PortConfig, Rate, Size};
use ports::vhost::{
    self, Access, Inherited, Session, SessionError, SocketRole, State, Status, VhostOptions,
};
use problem::Problem;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Opens the port of the guest at `socket`.
pub(crate) fn open(
    port: &PortConfig,
    socket: &Path,
    queues: u16,
    store: &Store,
) -> Result<Opened, OpenError> {
    let options = options(port, socket, queues)?;
    let name = port.name.as_str();
    let left = What::of(port, queues).and_then(|what| store.take(name, &what));
    // A front end that has to connect again may belong to another guest.
    let resumed = left.as_ref().filter(|left| left.session.is_some());
    let earlier_mac = resumed.and_then(|left| left.address).map(|address| address.0);
    let (mut files, session) = left.map(|left| (left.files, left.session)).unwrap_or_default();
    let listener = files.pop().and_then(Arc::into_inner);
    let is_listening = listener.is_some();
    let inherited = Inherited { listener, session: session.and_then(Carrier::take) };
    let opened = vhost::open_kept(&options, inherited);
    if is_listening && !opened.as_ref().is_ok_and(|opened| opened.session.is_adopted()) {
        store.forget_left(name, 1);
    }
    let opened = opened
        .map_err(|error| OpenError { denied: vhost_denied(&error), reason: error.to_string() })?;
    let keeping = keep_listener(port, queues, &opened.session, store);
    let watch = Box::new(Guest { session: opened.session, options, keeping });
    Ok(Opened { device: opened.device, degraded: Vec::new(), watch, earlier_mac })
}

fn options(port: &PortConfig, socket: &Path, queues: u16) -> Result<VhostOptions, OpenError> {
    let mut options = VhostOptions::new(socket);
    options.queues = queues;
    options.mac = port.mac.map(|mac| mac.0);
    options.mtu = port.mtu.map_or(options.mtu, |mtu| mtu.0);
    options.memory_limit = match port.memory_limit {
        Some(Size(0)) => u64::MAX,
        Some(Size(bytes)) => bytes,
        None => options.memory_limit,
    };
    options.speed = speed(port.rate);
    options.compat = port.compat.map(|compat| match compat {
        Compat::OvsDpdk => vhost::Compat::OvsDpdk,
        Compat::OvsDpdkTso => vhost::Compat::OvsDpdkTso,
    });
    options.role = match port.vhost_client {
        Some(true) => SocketRole::Client,
        _ => SocketRole::Server,
    };
    options.access =
        access(port).map_err(|problem| OpenError { reason: problem.to_string(), denied: false })?;
    Ok(options)
}

/// Returns a rate in whole Mb/s, at least 1, as guests read it.
fn speed(rate: Option<Rate>) -> Option<u32> {
    rate.map(|Rate(bits)| u32::try_from(bits / 1_000_000).unwrap_or(u32::MAX - 1).max(1))
}

/// Keeps the socket's descriptor for the next process.
fn keep_listener(
    port: &PortConfig,
    queues: u16,
    session: &Session,
    store: &Store,
) -> Option<Keeping> {
    let (what, name) = (What::of(port, queues)?, port.name.as_str());
    let listener = session.listener().filter(|_| what.files() > 0).transpose();
    let listener = listener.inspect_err(|error| {
        tracing::warn!(target: "control::devices::vhost", "the socket of port {name} is not kept for the next process: {error}");
    });
    let files: Vec<_> = listener.ok()?.map(Arc::new).into_iter().collect();
    Some(store.keep(name, what, &files))
}

/// Returns the socket's mode, owner and group. A group without a mode gets 0660: connecting needs
/// write permission, which the usual umask removes from the group.
fn access(port: &PortConfig) -> Result<Access, Problem> {
    let number = |account: &Option<Account>, find: fn(&str) -> Result<u32, Problem>| {
        account.as_ref().map(|account| find(account.as_str())).transpose()
    };
    Ok(Access {
        mode: port.socket_mode.map(|mode| mode.0).or(port.socket_group.is_some().then_some(0o660)),
        owner: number(&port.socket_owner, accounts::user)?,
        group: number(&port.socket_group, accounts::group)?,
    })
}

fn vhost_denied(error: &SessionError) -> bool {
    matches!(error, SessionError::Io { source, .. } if denied(source))
}

/// A guest behind a vhost-user socket. Dropping it ends the session.
struct Guest {
    session: Session,
    /// The options with which it was opened.
    options: VhostOptions,
    /// Keeps the socket, and later the session, for the next process.
    keeping: Option<Keeping>,
}

impl Watch for Guest {
    fn state(&self) -> DeviceState {
        let status = self.session.status();
        // A guest that is connected needs no socket.
        let condition = if status.state == State::Waiting && self.session.has_lost_socket() {
            let socket = self.options.socket.display();
            Condition::Failed(format!("its socket {socket} was deleted or replaced"))
        } else {
            guest::condition(&status, &self.options.socket, self.options.role)
        };
        DeviceState {
            condition,
            mtu: self.options.mtu,
            connections: status.connections,
            connected: matches!(status.state, State::Connected | State::Running),
        }
    }

    fn guest(&self) -> Option<Status> {
        Some(self.session.status())
    }

    fn memory_limit(&self) -> Option<u64> {
        Some(self.options.memory_limit).filter(|limit| *limit < u64::MAX)
    }

    fn set_link(&self, is_up: bool) {
        self.session.set_link(is_up);
    }

    fn set_rate(&self, rate: Option<Rate>) {
        self.session.set_speed(speed(rate));
    }

    fn news(&self) -> Vec<String> {
        self.session.take_milestones().iter().map(guest::milestone).collect()
    }

    fn suspend(&self) {
        self.session.suspend();
    }

    fn hand_over(&mut self, until: Instant) {
        if let Some(session) = self.session.suspended(until)
            && let Some(keeping) = &self.keeping
        {
            keeping.add_session(session);
        }
    }

    /// A changed MTU reopens the port instead, because the guest reads it only when its driver
    /// starts.
    fn set_mtu(&self, _: u16) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostDevices, Opener};
    use config::{Config, Scale};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// The count tells the control plane that a guest has left although it never saw the port down.
    #[test]
    fn front_ends_that_connect_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm1.sock");
        let text = format!("[[port]]\nname='a'\nvhost-user='{}'", path.display());
        let config = Config::from_toml("t", &text).unwrap();
        let opened = HostDevices::default().open(&config.ports[0], Scale::ONE).unwrap();
        assert_eq!(opened.watch.state().connections, 0);
        for count in 1..=2 {
            let _connection = UnixStream::connect(&path).unwrap();
            let end = Instant::now() + Duration::from_secs(60);
            while opened.watch.state().connections != count {
                assert!(Instant::now() < end, "connection {count} is not seen");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_rate_is_read_as_a_speed() {
        let seen = |bits| speed(Some(Rate(bits)));
        assert_eq!(speed(None), None);
        assert_eq!(seen(2_500_000_000), Some(2500));
        assert_eq!(seen(64_000), Some(1), "0 would be no link");
        assert_eq!(seen(u64::MAX), Some(u32::MAX - 1), "not the number for unknown");
    }

    /// The port's key limits the memory that its front end may have mapped.
    #[test]
    fn memory_limit_reaches_the_session() {
        let limit = |key: &str| {
            let text = format!("[[port]]\nname='a'\nvhost-user='/v'\n{key}");
            let config = Config::from_toml("t", &text).unwrap();
            options(&config.ports[0], Path::new("s"), 1).unwrap().memory_limit
        };
        assert_eq!(limit("memory-limit = '4GiB'"), 4 << 30);
        assert_eq!(limit("memory-limit = 0"), u64::MAX);
        assert_eq!(limit(""), VhostOptions::new("s").memory_limit);
    }

    /// The port kept waiting at a socket that no front end could find.
    #[test]
    fn a_socket_that_was_deleted_is_made_anew_unless_a_guest_is_connected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm1.sock");
        let text = format!("[[port]]\nname='a'\nvhost-user='{}'", path.display());
        let config = Config::from_toml("t", &text).unwrap();
        let opened = HostDevices::default().open(&config.ports[0], Scale::ONE).unwrap();
        let condition = || opened.watch.state().condition;
        let reaches = |is_wanted: &dyn Fn(&Condition) -> bool| {
            let end = Instant::now() + Duration::from_secs(60);
            while !is_wanted(&condition()) {
                assert!(Instant::now() < end, "{:?}", condition());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let connection = UnixStream::connect(&path).unwrap();
        let is_connected =
            |now: &Condition| matches!(now, Condition::Down(why) if why.contains("is connected"));
        reaches(&is_connected);
        std::fs::remove_file(&path).unwrap();
        assert!(is_connected(&condition()), "it needs no socket");
        drop(connection);
        reaches(
            &|now| matches!(now, Condition::Failed(why) if why.contains("was deleted or replaced")),
        );
        drop(opened);
        let opened = HostDevices::default().open(&config.ports[0], Scale::ONE).unwrap();
        assert!(matches!(opened.watch.state().condition, Condition::Down(_)));
    }

    /// `socket-group` alone left the socket at 0755, so its group could not connect.
    #[test]
    fn a_socket_with_a_group_takes_connections_from_that_group() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm1.sock");
        let group = rustix::process::getegid().as_raw();
        for (mode, wanted) in [("", 0o660), ("socket-mode = '0600'", 0o600)] {
            let path = path.display();
            let text =
                format!("[[port]]\nname='a'\nvhost-user='{path}'\nsocket-group='{group}'\n{mode}");
            let config = Config::from_toml("t", &text).unwrap();
            let _opened = HostDevices::default().open(&config.ports[0], Scale::ONE).unwrap();
            let facts = std::fs::metadata(path.to_string()).unwrap();
            assert_eq!((facts.permissions().mode() & 0o777, facts.gid()), (wanted, group));
        }
    }
}
