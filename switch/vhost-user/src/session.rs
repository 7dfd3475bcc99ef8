//! A vNIC's session as its owner uses it: opening, rings, status, and the end of the thread that
//! [serves](serving) front ends.

mod serving;

pub(crate) use serving::Conversation;

use crate::lock::lock;
use crate::memory_pace::{MemoryPace, MessagePace};
use crate::migration::{Milestone, Milestones};
use crate::plug::Plug;
use crate::reconnect_backoff::ReconnectBackoff;
use crate::ring_slot;
use crate::signal::{self, Budget};
use crate::socket::Listener;
use crate::{Features, LogLimit, Options, RingSlot, SessionError, SocketRole, State, Status};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serving::{Entrance, go_on, serve, serve_all};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a front end may delay the end of its session by not reading answers, until it is cut
/// off.
const ANSWERS: Duration = Duration::from_secs(1);

/// How long the end of a session may take until a warning is logged and it is no longer watched.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long opening may wait for a resumed session: the front end decides how much has to be mapped
/// and closed.
const RESUMING: Duration = Duration::from_millis(100);

/// State that the session's thread and its owner share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// Two rings for each pair, the guest's receive ring first, then the control queue.
    pub(crate) rings: Vec<Arc<RingSlot>>,
    status: Mutex<Status>,
    pub(crate) milestones: Mutex<Milestones>,
    /// An eventfd that is readable when the session has to end.
    stop: OwnedFd,
    /// Whether the session ends because another process continues it.
    suspends: AtomicBool,
    /// The record for that process.
    record: Mutex<Option<OwnedFd>>,
    /// The front end's connection, to be shut down when the session ends.
    connection: Mutex<Option<UnixStream>>,
    /// Delays front ends that connect in a loop.
    pub(crate) reconnect_backoff: ReconnectBackoff,
    /// Limits the log messages about front ends.
    log_limit: Mutex<LogLimit>,
    /// Limits the time that signals to the front end take.
    pub(crate) signals: Arc<Budget>,
    /// Limits the time that changes of its memory map take.
    pub(crate) memory_pace: Mutex<MemoryPace>,
    /// Limits the time that its messages take.
    pub(crate) message_pace: Mutex<MessagePace>,
    pub(crate) plug: Plug,
    /// An eventfd that is readable when the configuration space has changed.
    changed: OwnedFd,
    /// The port's rate in Mb/s, as the guest reads it; `u32::MAX` if it has none.
    speed: AtomicU32,
    /// The front end's process, if its connection ended while pages of its guest were missing.
    pub(crate) interrupted: Mutex<Option<u32>>,
}

impl Shared {
    /// Changes the status.
    pub(crate) fn note<Answer>(&self, change: impl FnOnce(&mut Status) -> Answer) -> Answer {
        change(&mut lock(&self.status))
    }

    /// Logs a message that front ends can cause, unless the limit suppresses it. `log` gets the
    /// number of messages suppressed before, if there were some.
    fn tell(&self, log: impl FnOnce(Option<u64>)) {
        if let Some(untold) = lock(&self.log_limit).next(Instant::now()) {
            log((untold > 0).then_some(untold));
        }
    }

    /// Returns the port's rate in Mb/s; `None` if it has none.
    pub(crate) fn speed(&self) -> Option<u32> {
        Some(self.speed.load(Ordering::Relaxed)).filter(|speed| *speed != u32::MAX)
    }

    /// Has the session's thread tell the guest that the configuration space has changed, if its
    /// front end takes that.
    pub(crate) fn note_change(&self) {
        let _ = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
    }

    /// Cuts off the front end of a running guest, so that the guest sees its link down, if that is
    /// wanted, the front end takes no message about it, and the rings are split ones, which resume at
    /// another connection.
    pub(crate) fn unplug(&self) {
        let negotiated = self.note(|status| status.negotiated);
        let is_split = !negotiated.features.contains(Features::RING_PACKED);
        if negotiated.pairs > 0 && is_split && self.plug.pull() {
            self.cut(Shutdown::Both);
        }
    }

    /// Returns a descriptor that can be read when the session has to end.
    pub(crate) fn stop_fd(&self) -> io::Result<OwnedFd> {
        self.stop.try_clone()
    }

    /// Shuts the connection down, so that the session's thread no longer waits for it. That thread
    /// closes it.
    fn cut(&self, how: Shutdown) {
        if let Some(connection) = lock(&self.connection).as_ref() {
            let _ = connection.shutdown(how);
        }
    }

    /// Waits until one of `fds` is readable or `timeout` has passed. Returns which are readable;
    /// `None` if the session has to end.
    fn wait(&self, fds: &[BorrowedFd<'_>], timeout: Option<&Timespec>) -> Option<Vec<bool>> {
        let all = std::iter::once(self.stop.as_fd()).chain(fds.iter().copied());
        let mut polled: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        while let Err(rustix::io::Errno::INTR) = poll(&mut polled, timeout) {}
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        (ready.next() == Some(false)).then(|| ready.collect())
    }
}

/// The session of a vNIC. Dropping it cuts the guest off and removes the socket. The drop does not
/// wait for the front end, and another session may listen at the same path at once.
pub struct Session {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The listening socket, if there is one. The session's thread uses it only while it waits for
    /// a front end, so dropping it frees the path even if that thread is stuck.
    listener: Option<Listener>,
}

/// State that an earlier process left for a session.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The socket at which it listened.
    pub listener: Option<OwnedFd>,
    /// The record that [`Session::suspended`] returned, with a front end that is still connected.
    pub session: Option<OwnedFd>,
}

impl Session {
    /// Listens, or starts to connect. Rings can be used once a front end has set them up.
    ///
    /// # Errors
    /// Fails if the number of queue pairs is out of range or the socket cannot be set up.
    pub fn open(options: Options) -> Result<Session, SessionError> {
        Session::open_with(options, Inherited::default())
    }

    /// Opens a session with the state that an earlier process left, as far as it is usable. Rings
    /// usually run when this returns, unless their memory takes longer to map. If the session
    /// cannot be resumed, its front end is cut off, so that it reconnects.
    ///
    /// # Errors
    /// Fails as [`Session::open`] does.
    pub fn open_with(options: Options, inherited: Inherited) -> Result<Session, SessionError> {
        if !(1..=Options::PAIRS).contains(&options.pairs) {
            return Err(SessionError::Pairs { pairs: options.pairs });
        }
        let path = options.socket.clone();
        let failed = |doing| {
            let path = path.clone();
            move |source| SessionError::Io { doing, path, source }
        };
        let listener = match options.role {
            SocketRole::Server => Some(listen(&options, inherited.listener)?),
            SocketRole::Client => None,
        };
        signal::prepare().map_err(failed("signal the guest of"))?;
        let signals = Arc::new(Budget::new().map_err(failed("signal the guest of"))?);
        let rings = rings(options.pairs).map_err(failed("make rings for"))?;
        let (stop, changed) =
            event().and_then(|stop| Ok((stop, event()?))).map_err(failed("wait at"))?;
        let speed = AtomicU32::new(options.speed.unwrap_or(u32::MAX));
        let offered = options.offered();
        // Counted before a status is read: a resumed session is not another connection.
        let connections = inherited.session.is_some().into();
        let status = Mutex::new(Status { offered, connections, ..Status::default() });
        let shared = Arc::new(Shared {
            options,
            rings,
            status,
            milestones: Mutex::default(),
            stop,
            suspends: AtomicBool::new(false),
            record: Mutex::default(),
            connection: Mutex::default(),
            reconnect_backoff: ReconnectBackoff::default(),
            log_limit: Mutex::default(),
            signals,
            memory_pace: Mutex::default(),
            message_pace: Mutex::default(),
            plug: Plug::default(),
            changed,
            speed,
            interrupted: Mutex::default(),
        });
        let served = shared.clone();
        let entrance = match &listener {
            Some(listener) => Entrance::Listen(Arc::downgrade(&listener.socket)),
            None => Entrance::Connect,
        };
        let (told, resumes) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("vhost-user".into())
            .spawn(move || {
                let resumed = inherited.session.and_then(|record| go_on(&served, &record));
                let _ = told.send(());
                resumed
                    .into_iter()
                    .for_each(|(it, from)| serve(&served, &entrance, it, Some(from)));
                serve_all(&served, &entrance);
            })
            .map_err(failed("start a thread for"))?;
        let _ = resumes.recv_timeout(RESUMING);
        Ok(Session { shared, thread: Some(thread), listener })
    }

    /// Duplicates the socket at which the session listens, for the next process; `None` if it does
    /// not listen.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn listener(&self) -> Option<io::Result<OwnedFd>> {
        let listener = self.listener.as_ref()?;
        Some(listener.socket.as_fd().try_clone_to_owned())
    }

    /// Whether the socket at which the session listens was deleted or replaced, so that no front end
    /// can connect.
    pub fn has_lost_socket(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::is_lost)
    }

    /// Whether the session listens at the socket of an earlier process.
    pub fn is_adopted(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_adopted)
    }

    /// Asks the session to end between two messages and leave its front end connected, for another
    /// process to continue. No worker may use its rings any more.
    pub fn suspend(&self) {
        self.shared.suspends.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
    }

    /// Waits until `until` for the end that [`Session::suspend`] asked for. Returns the record for
    /// the other process ([`Inherited::session`]); `None` if there is no front end, or it did not
    /// let the session end in time.
    pub fn suspended(&mut self, until: Instant) -> Option<OwnedFd> {
        self.listener.iter_mut().for_each(Listener::leave);
        loop {
            // In this order, so that the record of a thread that has ended is seen.
            let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            let record = lock(&self.shared.record).take();
            if has_ended || record.is_some() {
                // Not joined: the thread may still unmap the guest's memory.
                drop(self.thread.take());
                return record;
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Sets whether the guest sees its link up, see the head of this crate.
    pub fn set_link(&self, is_up: bool) {
        self.shared.note(|status| status.is_unplugged = !is_up);
        self.shared.plug.set(is_up);
        self.shared.note_change();
        self.shared.unplug();
    }

    /// Sets the speed that the guest reads, in Mb/s; `None` if it is not limited.
    pub fn set_speed(&self, speed: Option<u32>) {
        let speed = speed.unwrap_or(u32::MAX);
        if self.shared.speed.swap(speed, Ordering::Relaxed) != speed {
            self.shared.note_change();
        }
    }

    /// Returns the rings of a pair: the guest's receive ring and its transmit ring. `None` if there
    /// is no such pair.
    pub fn pair(&self, pair: u16) -> Option<(Arc<RingSlot>, Arc<RingSlot>)> {
        let first = 2 * usize::from(pair.min(self.shared.options.pairs));
        match self.shared.rings.get(first..first + 2)? {
            [receive, send] => Some((receive.clone(), send.clone())),
            _ => None,
        }
    }

    /// Returns the steps of migrations since the last call.
    pub fn take_milestones(&self) -> Vec<Milestone> {
        lock(&self.shared.milestones).take()
    }

    /// Returns a snapshot of the session. It takes no lock that a guest can hold for long (see the
    /// crate's head).
    pub fn status(&self) -> Status {
        let mut status = lock(&self.shared.status).clone();
        status.is_told = self.shared.plug.is_told();
        let fault = |(number, ring): (usize, &Arc<RingSlot>)| Some((number, ring.fault()?));
        if let Some((number, fault)) = self.shared.rings.iter().enumerate().find_map(fault)
            && status.state != State::Waiting
        {
            status.state = State::Broken(format!("ring {number}: {fault}"));
        }
        if status.state == State::Waiting
            && let Some(complaint) =
                self.shared.reconnect_backoff.complaint(self.shared.options.pairs)
        {
            status.state = State::Broken(complaint);
        }
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        drop(self.listener.take());
        // A read of the session's thread ends. The front end hears of it when that thread closes
        // the connection, after it has stopped the rings: it must not start them elsewhere before.
        self.shared.cut(Shutdown::Read);
        if let Some(thread) = self.thread.take() {
            let shared = self.shared.clone();
            // If no thread can be made, the end of the session's thread is not watched.
            let _ = thread::Builder::new()
                .name("vhost-end".into())
                .spawn(move || see_off(&thread, &shared));
        }
    }
}

/// Watches the end of a session's thread, cuts off a front end that delays it, and logs a warning
/// if it takes too long: the front end can make the close of its files block.
fn see_off(thread: &JoinHandle<()>, shared: &Shared) {
    let began = Instant::now();
    while !thread.is_finished() {
        let waited = began.elapsed();
        if waited >= ANSWERS {
            shared.cut(Shutdown::Both);
        }
        if waited >= END_TIMEOUT {
            let socket = shared.options.socket.display();
            tracing::warn!(%socket, "a front end delays the end of its session: not waiting for it");
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Makes the slots: a receive and a transmit queue for each pair, and the control queue. A host can
/// have thousands of ports, so a slot has a descriptor only where kicks wake somebody.
fn rings(pairs: u16) -> io::Result<Vec<Arc<RingSlot>>> {
    let nudge = ring_slot::nudge()?;
    let pair = |_| Ok([RingSlot::without_kicks(), RingSlot::with_kicks(nudge.clone())?]);
    let pairs = (0..pairs).map(pair).collect::<io::Result<Vec<_>>>()?;
    let control = RingSlot::with_kicks(nudge.clone())?;
    Ok(pairs.into_iter().flatten().chain([control]).map(Arc::new).collect())
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Listens at the configured path, with the socket of an earlier process if that can be used.
fn listen(options: &Options, inherited: Option<OwnedFd>) -> Result<Listener, SessionError> {
    let path = options.socket.display();
    match inherited.map(|socket| Listener::adopt(options, socket)) {
        Some(Ok(listener)) => return Ok(listener),
        Some(Err(error)) => {
            tracing::warn!(socket = %path, "the kept socket cannot be used and is created anew: {error}")
        }
        None => {}
    }
    Listener::bind(options)
}

#[cfg(test)]
mod tests {
    use super::serving::ready;
    use super::*;
    use crate::backend::Backend;
    use crate::carrier::Reader;
    use crate::control::Command;
    use crate::signal::tests::AT_CLOSE;
    use crate::{Access, Negotiated, dock};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::net::sockopt::socket_type;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    use std::cell::RefCell;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::path::Path;

    use std::rc::Rc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use test_guest::Guest;
    use vhost::vhost_user::VhostUserBackendReqHandlerMut;
    use vhost::vhost_user::message::{VhostUserLog, VhostUserSingleMemoryRegion};
    use virtqueue::{Limit, Reserved};

    /// Returns a session in a folder, and a guest that runs.
    fn connected(folder: &Path) -> (Session, Guest) {
        connected_to(folder, Box::new(|_| {}))
    }

    fn connected_to(
        folder: &Path,
        changed: Box<dyn Fn(&Negotiated) + Send + Sync>,
    ) -> (Session, Guest) {
        let session = opened(folder, changed);
        let socket = &session.shared.options.socket;
        let guest = Guest::connect(socket, Features::VERSION_1.bits(), 1).unwrap();
        (session, guest)
    }

    fn opened(folder: &Path, changed: Box<dyn Fn(&Negotiated) + Send + Sync>) -> Session {
        let options = Options {
            socket: folder.join("s"),
            role: SocketRole::Server,
            access: Access::default(),
            pairs: 1,
            mtu: 1500,
            mac: None,
            memory_limit: u64::MAX,
            speed: None,
            compat: None,
            changed,
            commanded: Box::new(|_| {}),
            replaced: Box::new(|| {}),
            announcement: Box::new(|_| Vec::new()),
        };
        Session::open(options).unwrap()
    }

    /// The signal was owed at the descriptor that was replaced, and never sent.
    #[test]
    fn an_error_descriptor_that_comes_after_the_fault_is_signalled() {
        let folder = tempfile::TempDir::new().unwrap();
        let (session, guest) = connected(folder.path());
        let mut backend = Backend::new(session.shared.clone());
        let mut errors = || {
            let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
            let theirs = File::from(ours.try_clone().unwrap());
            backend.set_vring_err(1, Some(theirs)).unwrap();
            rustix::io::read(&ours, &mut [0; 8]).is_ok()
        };
        assert!(!errors(), "there is no fault");
        // More buffers are available than the ring has.
        let mut index = guest.rings(1).unwrap().driver;
        index.0 += 2;
        assert!(guest.memory().write(index, &1000u16.to_le_bytes()));
        let (_receive, send) = session.pair(0).unwrap();
        send.with(|running| running.queue.take(Limit { chains: 1, bytes: usize::MAX }).is_ok());
        assert!(send.fault().is_some());
        assert!(errors());
    }

    /// The next process was told of offloads that the guest does not take any more, and refused the
    /// session.
    #[test]
    fn offloads_go_with_the_features_that_they_are_of() {
        let folder = tempfile::TempDir::new().unwrap();
        let session = opened(folder.path(), Box::new(|_| {}));
        let mut backend = Backend::new(session.shared.clone());
        let all = Features::VERSION_1 | Features::GUEST_CSUM | Features::GUEST_TSO4;
        let all = all | Features::CTRL_GUEST_OFFLOADS;
        backend.set_features(all.bits()).unwrap();
        assert!(backend.carry_out(Command::SetOffloads(Features::GUEST_CSUM)));
        backend.set_features(Features::VERSION_1.bits()).unwrap();
        let (connection, _other) = UnixStream::pair().unwrap();
        let record = backend.suspend(connection.as_fd()).unwrap();
        let mut next = Backend::new(session.shared.clone());
        next.resume(Reader::open(&record).unwrap()).unwrap();
    }

    /// The front end can make the close of its file block, and with it every worker that wants the
    /// ring.
    #[test]
    fn no_message_closes_an_eventfd_under_its_ring_s_lock() {
        let folder = tempfile::TempDir::new().unwrap();
        let (session, _guest) = connected(folder.path());
        let mut backend = Backend::new(session.shared.clone());
        let rings = session.shared.rings.clone();
        let closed = Rc::new(RefCell::new(Vec::new()));
        let noted = closed.clone();
        let look = move || noted.borrow_mut().push(rings.iter().any(|ring| ring.is_locked()));
        AT_CLOSE.set(Some(Box::new(look)));
        let event = || Some(File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        for file in [event, || None] {
            backend.set_vring_call(0, event()).unwrap();
            backend.set_vring_err(0, event()).unwrap();
            backend.set_vring_call(0, file()).unwrap();
            backend.set_vring_err(0, file()).unwrap();
        }
        backend.set_vring_call(0, event()).unwrap();
        backend.set_vring_err(0, event()).unwrap();
        backend.reset_device().unwrap();
        drop(backend);
        AT_CLOSE.set(None);
        assert_eq!(*closed.borrow(), [false; 8]);
    }

    /// A guest that refilled its control queue for ever kept a processor of the host busy.
    #[test]
    fn commands_without_end_leave_most_of_the_time_to_others() {
        const STEP: Duration = Duration::from_millis(1);
        let folder = tempfile::TempDir::new().unwrap();
        let steps = Arc::new(AtomicU32::new(0));
        let counted = steps.clone();
        let step = move |_: &Negotiated| {
            counted.fetch_add(1, Ordering::Relaxed);
            thread::sleep(STEP);
        };
        let (session, _guest) = connected_to(folder.path(), Box::new(step));
        let control = session.shared.rings.last().unwrap();
        let (before, began) = (steps.load(Ordering::Relaxed), Instant::now());
        while began.elapsed() < 300 * STEP {
            control.look_again();
            thread::sleep(STEP / 10);
        }
        let steps = steps.load(Ordering::Relaxed) - before;
        assert!((2..=100).contains(&steps), "{steps} steps of {STEP:?} in 300");
    }

    /// A front end that changed its map of up to 32 regions in a loop, or connected again, held the
    /// lock of the process's addresses.
    #[test]
    fn changes_of_a_map_are_paced_whatever_its_size_and_over_connections() {
        let folder = tempfile::TempDir::new().unwrap();
        let session = opened(folder.path(), Box::new(|_| {}));
        let add = || {
            let mut backend = Backend::new(session.shared.clone());
            let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, 4096).unwrap();
            let said = VhostUserSingleMemoryRegion::new(0, 4096, 0, 0);
            backend.add_mem_region(&said, file.into(), None).unwrap();
            backend.take_pause()
        };
        assert_eq!(add(), Duration::ZERO);
        lock(&session.shared.memory_pace).pause(Instant::now(), Duration::from_secs(2));
        assert!(add() > Duration::ZERO);
    }

    /// Signals and commands are served while messages wait.
    #[test]
    fn what_pauses_is_not_read_and_holds_up_nothing_else() {
        let folder = tempfile::TempDir::new().unwrap();
        let (session, _guest) = connected(folder.path());
        let signal = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let (fd, now) = (signal.as_fd(), Instant::now());
        let later = now + Duration::from_secs(3600);
        let sources = [(fd, later), (fd, now), (fd, now)];
        assert_eq!(ready(&session.shared, sources), Some([false, true, true]));
    }

    /// A front end replaced its log 9,537 times a second.
    #[test]
    fn a_log_is_paced_like_a_map() {
        let folder = tempfile::TempDir::new().unwrap();
        let session = opened(folder.path(), Box::new(|_| {}));
        let mut backend = Backend::new(session.shared.clone());
        let file = || {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, 4096).unwrap();
            File::from(file)
        };
        let region = VhostUserSingleMemoryRegion::new(0, 4096, 0, 0);
        backend.add_mem_region(&region, file(), None).unwrap();
        let mut replace = || {
            backend.set_log_base(&VhostUserLog::new(4096, 0), file()).unwrap();
            backend.take_pause()
        };
        assert_eq!(replace(), Duration::ZERO);
        lock(&session.shared.memory_pace).pause(Instant::now(), Duration::from_secs(2));
        assert!(replace() > Duration::ZERO);
    }

    /// Connects its standard input, in a process of its own, if it was started to.
    #[test]
    fn connects_for_its_parent() {
        if let Some(socket) = std::env::var_os(CONNECT_TO) {
            let to = SocketAddrUnix::new(Path::new(&socket)).unwrap();
            connect(std::io::stdin(), &to).unwrap();
        }
    }

    /// Names the socket for [`connects_for_its_parent`].
    const CONNECT_TO: &str = "MILLRACE_TEST_CONNECT_TO";

    /// A child that had inherited the connection kept the port from every other front end.
    #[test]
    fn a_front_end_takes_the_place_of_one_whose_process_has_ended() {
        let folder = tempfile::TempDir::new().unwrap();
        let session = opened(folder.path(), Box::new(|_| {}));
        let path = &session.shared.options.socket;
        let left = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "session::tests::connects_for_its_parent"]);
        child.env(CONNECT_TO, path).stdin(left.try_clone().unwrap());
        assert!(child.output().unwrap().status.success());
        waiting::until("the child's is served", || session.status().connections == 1);
        let mut next = UnixStream::connect(path).unwrap();
        waiting::until("the next is served", || session.status().connections == 2);
        let _third = UnixStream::connect(path).unwrap();
        // GET_FEATURES: while it is answered, the third waits.
        for _ in 0..2 {
            next.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            next.read_exact(&mut [0; 20]).unwrap();
        }
        assert_eq!(session.status().connections, 2, "its process lives");
        drop(next);
        waiting::until("the third is served", || session.status().connections == 3);
    }

    #[test]
    fn a_signal_that_is_too_dear_for_a_worker_arrives() {
        let folder = tempfile::TempDir::new().unwrap();
        let (session, guest) = connected(folder.path());
        let (receive, _send) = session.pair(0).unwrap();
        signal::spend(&session.shared.signals);
        guest.was_called(0);
        receive.with(|running| running.notify());
        waiting::until("the session has signalled", || guest.was_called(0));
    }

    /// Runs as the dock if the standard input says so.
    #[test]
    fn this_program_is_the_dock_too() {
        if socket_type(std::io::stdin()) == Ok(SocketType::SEQPACKET) {
            dock::serve(|| Ok(())).unwrap();
        }
    }

    /// The ferry slept until a later signal, with frames before it.
    #[test]
    fn a_signal_to_a_ferry_that_is_too_dear_for_a_worker_arrives() {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "session::tests::this_program_is_the_dock_too", "--nocapture"]);
        dock::start(program).unwrap();
        let [from, to] = [(); 2].map(|()| tempfile::TempDir::new().unwrap());
        let (_first, mut guest) = connected(from.path());
        let session = opened(to.path(), Box::new(|_| {}));
        let _arrival = guest.move_by_post_copy(&session.shared.options.socket).unwrap();
        signal::spend(&session.shared.signals);
        let (receive, _send) = session.pair(0).unwrap();
        receive.with(|running| {
            assert!(matches!(running.queue.reserve(60, 1), Ok(Reserved::Buffers(_))));
            assert!(running.queue.publish());
            running.notify();
        });
        waiting::until("the ferry has carried the frame", || guest.receive(0).is_some());
    }
}
