//! Opening devices: the only place that knows what kinds of ports there are.
//!
//! The rest of the crate sees an [`Opener`], so that tests run the whole control plane on memory ports.

mod xdp;

use crate::config::{Account, Compat, Namespace, PortConfig, Size, TeamAlgorithm};
use crate::handover::{Carrier, Keeping, Store, What};
use crate::{Problem, accounts, guest, sandbox};
use ports::Device;
use ports::link::{Link, LinkError};
use ports::packet::{self, PacketError, PacketOptions, Spread, StallWatch};
use ports::tap::{self, TapError, TapOptions};
use ports::team::{self, Algorithm, Member, MemberError, Team, TeamError, TeamOptions};
use ports::vhost::{
    self, Access, Inherited, Session, SessionError, SocketRole, Status, VhostOptions,
};
use ports::xdp::Fit;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A port's device, opened.
pub struct Opened {
    /// Its queues.
    pub device: Device,
    /// What the kernel does not do, and is done in software or lost, for people.
    pub degraded: Vec<String>,
    /// The link behind it.
    pub watch: Box<dyn Watch>,
}

/// Why a device did not open.
#[derive(Debug)]
pub struct OpenError {
    /// For people.
    pub reason: String,
    /// This process lacks a privilege.
    pub denied: bool,
}

/// A device as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceState {
    /// Whether it carries frames.
    pub condition: Condition,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Front ends that have connected so far, where the device is a guest's vNIC; else 0.
    pub connections: u64,
}

/// Whether a device carries frames, and why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It does.
    Up,
    /// Not now, for this reason.
    Down(String),
    /// Not until its guest starts anew. The device itself is sound and stays open.
    Broken(String),
    /// Not until it is opened anew.
    Failed(String),
    /// There is no such device any more.
    Gone,
}

/// Opens what the configuration names.
pub trait Opener: Send {
    /// Opens the port's device, and makes it where that is what its kind does.
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError>;
    /// Descriptors that outlive the process.
    fn store(&self) -> Store {
        Store::default()
    }
}

/// A device that is asked once a second.
pub trait Watch: Send {
    /// The device now.
    fn state(&self) -> DeviceState;
    /// The devices of the host that frames go through, each with its MTU: the port's own, and those below it.
    fn links(&self) -> Vec<(String, u16)> {
        Vec::new()
    }
    /// How flows are spread over several ingress queues, where that is the switch's doing.
    fn spread(&self) -> Spread {
        Spread::Single
    }
    /// By which way frames come, where the device's kind has several.
    fn way(&self) -> Option<&'static str> {
        None
    }
    /// The guest, where the device is one's vNIC.
    fn guest(&self) -> Option<Status> {
        None
    }
    /// Most memory that the guest may have mapped, where there is a limit.
    fn memory_limit(&self) -> Option<u64> {
        None
    }
    /// Shows the guest its link up or down.
    fn set_link(&self, _is_up: bool) {}
    /// What happened to the guest since this was last asked, in sentences.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }
    /// The team, where the device is one.
    fn team(&self) -> Option<&Team> {
        None
    }
    /// Asks for its end, so that another process may go on where this one stops. No worker has its queues any more.
    fn suspend(&self) {}
    /// Keeps what that process goes on by, if the device comes to its end in time.
    fn hand_over(&mut self, _until: Instant) {}
    /// Sets the device's own MTU, where the port's kind says that it is ours to set.
    fn set_mtu(&self, mtu: u16) -> Result<(), Problem>;
}

/// The devices of this host.
#[derive(Default)]
pub struct HostDevices {
    store: Store,
}

impl Opener for HostDevices {
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError> {
        if let Some(problem) = sandbox::refusal(port) {
            return Err(OpenError { reason: problem.to_string(), denied: false });
        }
        if let Some(name) = &port.tap {
            open_tap(port, name.as_str(), &self.store)
        } else if let Some(name) = &port.packet {
            open_packet(port, name.as_str())
        } else if let Some(name) = &port.xdp {
            xdp::open(port, name.as_str())
        } else if port.team.is_some() {
            open_team(port)
        } else if let Some(socket) = &port.vhost_user {
            open_vhost(port, socket.as_path(), &self.store)
        } else {
            Err(OpenError { reason: "the port names no device".into(), denied: false })
        }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }
}

fn netns(port: &PortConfig) -> Option<PathBuf> {
    port.netns.as_ref().map(Namespace::path)
}

fn queues(port: &PortConfig) -> u16 {
    port.queues.map_or(1, |queues| queues.0)
}

fn open_tap(port: &PortConfig, name: &str, store: &Store) -> Result<Opened, OpenError> {
    let mut options = TapOptions::new(name);
    options.queues = queues(port);
    options.mtu = port.mtu.map(|mtu| mtu.0);
    options.netns = netns(port);
    options.napi = port.napi.unwrap_or(false);
    let kept = open_kept_tap(port, &options, store);
    let opened = kept
        .map_or_else(|| tap::open(&options), Ok)
        .map_err(|error| OpenError { denied: tap_denied(&error), reason: error.to_string() })?;
    let (link, spread) = (opened.link, Spread::Single);
    let keeping = What::of(port).map(|what| store.keep(port.name.as_str(), what, &opened.files));
    let watch = Box::new(HostLink { link, ours: true, spread, stalls: None, fit: None, keeping });
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch })
}

/// By what an earlier process left; `None`: it is to be opened anew.
fn open_kept_tap(port: &PortConfig, options: &TapOptions, store: &Store) -> Option<tap::Opened> {
    let (name, what) = (port.name.as_str(), What::of(port)?);
    let files = store.take(name, &what)?.files;
    let count = files.len();
    match tap::open_kept(options, files) {
        Ok(opened) => {
            tracing::info!("port {name} goes on with the descriptors of the process before");
            Some(opened)
        }
        Err(error) => {
            tracing::warn!("port {name} is opened anew: {error}");
            store.discard(name, count);
            None
        }
    }
}

fn open_packet(port: &PortConfig, name: &str) -> Result<Opened, OpenError> {
    let mut options = PacketOptions::new(name);
    options.netns = netns(port);
    options.queues = u8::try_from(queues(port)).unwrap_or(u8::MAX);
    options.promiscuous = port.promiscuous.unwrap_or(true);
    let opened = packet::open(&options)
        .map_err(|error| OpenError { denied: packet_denied(&error), reason: error.to_string() })?;
    let (link, spread, stalls) = (opened.link, opened.spread, Some(opened.stalls));
    let watch = HostLink { link, ours: false, spread, stalls, fit: None, keeping: None };
    let watch = Box::new(watch);
    Ok(Opened { device: opened.device, degraded: opened.degraded, watch })
}

/// The members are packet ports.
fn open_team(port: &PortConfig) -> Result<Opened, OpenError> {
    let options = TeamOptions {
        members: port.members(),
        netns: netns(port),
        algorithm: team_algorithm(port),
        fail_back: team_fail_back(port),
    };
    let path = options.netns.clone();
    let opener = move |name: &str| {
        Member::packet(name, path.as_deref()).map_err(|error| MemberError {
            denied: packet_denied(&error),
            reason: error.to_string(),
        })
    };
    let (device, team) = team::open(&options, Box::new(opener)).map_err(|error| OpenError {
        denied: matches!(error, TeamError::NoMember { denied: true, .. }),
        reason: error.to_string(),
    })?;
    let members = team.status().members;
    let degraded = members.iter().flat_map(|member| member.degraded.iter().cloned()).collect();
    Ok(Opened { device, degraded, watch: Box::new(HostTeam(team)) })
}

/// As the port has it, or by default.
pub(crate) fn team_algorithm(port: &PortConfig) -> Algorithm {
    match port.team_algorithm.unwrap_or_default() {
        TeamAlgorithm::HyperVPort => Algorithm::HyperVPort,
        TeamAlgorithm::Dynamic => Algorithm::Dynamic,
    }
}

/// As the port has it, or by default.
pub(crate) fn team_fail_back(port: &PortConfig) -> Duration {
    Duration::from_secs(port.team_fail_back.map_or(1, |seconds| seconds.0.into()))
}

fn vhost_options(port: &PortConfig, socket: &Path) -> Result<VhostOptions, OpenError> {
    let mut options = VhostOptions::new(socket);
    options.queues = queues(port);
    options.mac = port.mac.map(|mac| mac.0);
    options.mtu = port.mtu.map_or(options.mtu, |mtu| mtu.0);
    options.memory_limit = match port.memory_limit {
        Some(Size(0)) => u64::MAX,
        Some(Size(bytes)) => bytes,
        None => options.memory_limit,
    };
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

fn open_vhost(port: &PortConfig, socket: &Path, store: &Store) -> Result<Opened, OpenError> {
    let options = vhost_options(port, socket)?;
    let name = port.name.as_str();
    let left = What::of(port).and_then(|what| store.take(name, &what));
    let (mut files, session) = left.map(|left| (left.files, left.session)).unwrap_or_default();
    let inherited = Inherited { listener: files.pop(), session: session.and_then(Carrier::take) };
    let is_listening = inherited.listener.is_some();
    let opened = vhost::open_kept(&options, inherited)
        .map_err(|error| OpenError { denied: vhost_denied(&error), reason: error.to_string() })?;
    if is_listening && !opened.session.is_adopted() {
        store.discard(name, 1);
    }
    let keeping = keep_listener(port, &opened.session, store);
    let watch = Box::new(Guest { session: opened.session, options, keeping });
    Ok(Opened { device: opened.device, degraded: Vec::new(), watch })
}

/// Its socket outlives the process.
fn keep_listener(port: &PortConfig, session: &Session, store: &Store) -> Option<Keeping> {
    let (what, name) = (What::of(port)?, port.name.as_str());
    let listener = session.listener().filter(|_| what.files() > 0).transpose();
    let listener = listener.inspect_err(|error| {
        tracing::warn!("the socket of port {name} is not kept for the next process: {error}");
    });
    let files: Vec<_> = listener.ok()?.map(Arc::new).into_iter().collect();
    Some(store.keep(name, what, &files))
}

/// A group without a mode gets 0660: connecting takes the right to write, which a usual umask does not leave the group.
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

fn packet_denied(error: &PacketError) -> bool {
    match error {
        PacketError::Socket { source, .. }
        | PacketError::Set { source, .. }
        | PacketError::Ring { source, .. } => denied(source),
        PacketError::Down { .. } => false,
        PacketError::Link(error) => link_denied(error),
    }
}

fn tap_denied(error: &TapError) -> bool {
    match error {
        TapError::NoTun(source)
        | TapError::Attach { source, .. }
        | TapError::Set { source, .. } => denied(source),
        TapError::Link(error) => link_denied(error),
        TapError::Queues { .. } | TapError::Kept { .. } => false,
    }
}

fn link_denied(error: &LinkError) -> bool {
    match error {
        LinkError::NotPermitted { .. } => true,
        LinkError::Io { source, .. } | LinkError::Namespace { source, .. } => denied(source),
        _ => false,
    }
}

fn denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A link of this host.
struct HostLink {
    link: Link,
    /// The device is the switch's own, so its MTU is set with the port's.
    ours: bool,
    spread: Spread,
    /// Where it has rings that the kernel fills.
    stalls: Option<StallWatch>,
    /// Where it has sockets for what it was when it was opened.
    fit: Option<Fit>,
    /// Where its descriptors outlive the process.
    #[allow(dead_code, reason = "they are kept as long as this is there")]
    keeping: Option<Keeping>,
}

impl Watch for HostLink {
    fn state(&self) -> DeviceState {
        let Ok(mtu) = self.link.mtu() else {
            return DeviceState { condition: Condition::Gone, mtu: 0, connections: 0 };
        };
        let down = |reason: &str| Condition::Down(reason.to_owned());
        let condition = if !self.link.is_up().unwrap_or(false) {
            down("its device is administratively down")
        } else if !self.link.has_carrier().unwrap_or(false) {
            down("its device has no carrier")
        } else if let Some(queue) = self.stalls.as_ref().and_then(StallWatch::stalled) {
            Condition::Failed(format!(
                "the kernel fills the ring of queue {queue} no more, as it does after a train of SCTP or a UDP train to be \
                 fragmented: a peer on this host sends such trains"
            ))
        } else {
            Condition::Up
        };
        let misfit = self.fit.as_ref().and_then(|fit| fit.fault(&self.link));
        let condition = misfit.map_or(condition, Condition::Failed);
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        DeviceState { condition, mtu, connections: 0 }
    }

    fn links(&self) -> Vec<(String, u16)> {
        let of = |link: &Link| {
            Some((link.name().to_owned(), u16::try_from(link.mtu().ok()?).unwrap_or(u16::MAX)))
        };
        let lower = self.link.lower();
        [&self.link].into_iter().chain(&lower).filter_map(of).collect()
    }

    fn spread(&self) -> Spread {
        self.spread.clone()
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        if !self.ours {
            return Ok(());
        }
        self.link.set_mtu(mtu.into()).map_err(|error| Problem::new(error.to_string()))
    }
}

/// Several links of this host.
struct HostTeam(Team);

impl Watch for HostTeam {
    fn state(&self) -> DeviceState {
        let condition = self.0.trouble().map_or(Condition::Up, Condition::Down);
        DeviceState { condition, mtu: self.0.mtu(), connections: 0 }
    }

    fn links(&self) -> Vec<(String, u16)> {
        let members = self.0.status().members.into_iter();
        members.map(|member| (member.name, member.mtu)).collect()
    }

    fn team(&self) -> Option<&Team> {
        Some(&self.0)
    }

    /// The links are the host's own.
    fn set_mtu(&self, _: u16) -> Result<(), Problem> {
        Ok(())
    }
}

/// A guest behind a vhost-user socket. Dropping it ends the session.
struct Guest {
    session: Session,
    /// What it was opened with.
    options: VhostOptions,
    /// Its socket, and later its session, for the process that comes next.
    keeping: Option<Keeping>,
}

impl Watch for Guest {
    fn state(&self) -> DeviceState {
        let status = self.session.status();
        let condition = guest::condition(&status, &self.options.socket, self.options.role);
        DeviceState { condition, mtu: self.options.mtu, connections: status.connections }
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

    /// Another MTU opens the port anew, for the guest learns of it when its driver starts.
    fn set_mtu(&self, _: u16) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;

    /// By this the control plane knows that a guest has left although it never saw the port down.
    #[test]
    fn front_ends_that_connect_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm1.sock");
        let text = format!("[[port]]\nname='a'\nvhost-user='{}'", path.display());
        let config = Config::from_toml("t", &text).unwrap();
        let opened = HostDevices::default().open(&config.ports[0]).unwrap();
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

    /// How much memory the front end of this port may have mapped.
    #[test]
    fn memory_limit_reaches_the_session() {
        let limit = |key: &str| {
            let text = format!("[[port]]\nname='a'\nvhost-user='/v'\n{key}");
            let config = Config::from_toml("t", &text).unwrap();
            vhost_options(&config.ports[0], Path::new("s")).unwrap().memory_limit
        };
        assert_eq!(limit("memory-limit = '4GiB'"), 4 << 30);
        assert_eq!(limit("memory-limit = 0"), u64::MAX);
        assert_eq!(limit(""), VhostOptions::new("s").memory_limit);
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
            let _opened = HostDevices::default().open(&config.ports[0]).unwrap();
            let facts = std::fs::metadata(path.to_string()).unwrap();
            assert_eq!((facts.permissions().mode() & 0o777, facts.gid()), (wanted, group));
        }
    }
}
