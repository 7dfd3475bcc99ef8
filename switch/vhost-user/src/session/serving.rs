//! The session's thread: serves one front end after the other, each until it disconnects or the
//! session ends.

use super::Shared;
use crate::backend::Backend;
use crate::control;
use crate::lock::lock;
use crate::message::{Message, Request};
use crate::resume::resume;
use crate::socket;
use crate::{SocketRole, State};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use vhost::vhost_user::{BackendReqHandler, Error, VhostUserBackendReqHandlerMut};

/// A pause that is longer than any wait needs.
const FAR: Duration = Duration::from_secs(3600);
/// How long to wait before connecting again.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Resumes the session of an earlier process's front end. `None` if that fails; then the front end
/// is cut off.
pub(super) fn go_on(shared: &Arc<Shared>, record: &OwnedFd) -> Option<(Conversation, UnixStream)> {
    let socket = shared.options.socket.display();
    match resume(shared, record) {
        Ok(resumed) => {
            tracing::info!(%socket, "a vhost-user front end stays connected");
            Some(resumed)
        }
        Err(error) => {
            tracing::warn!(%socket, "a vhost-user front end must reconnect: {error}");
            (shared.options.replaced)();
            None
        }
    }
}

/// How connections to front ends are made.
pub(super) enum Entrance {
    /// They connect to this socket, as long as the session listens.
    Listen(Weak<UnixListener>),
    /// They listen, and the session connects.
    Connect,
}

impl Entrance {
    /// Returns the socket at which the session listens, if it does.
    fn listener(&self) -> Option<Arc<UnixListener>> {
        match self {
            Entrance::Listen(listener) => listener.upgrade(),
            Entrance::Connect => None,
        }
    }

    /// Waits for the next front end. Returns its connection; `None` if the session has to end. A
    /// front end that was cut off because its link is down is refused.
    fn next(&self, shared: &Shared) -> Option<io::Result<UnixStream>> {
        match self {
            Entrance::Listen(listener) => {
                let listener = listener.upgrade()?;
                shared.wait(&[listener.as_fd()], None)?;
                let accepted = listener.accept().map(|(connection, _)| connection);
                Some(accepted.and_then(|connection| {
                    let is_refused = shared.plug.refuses(process_of(&connection));
                    if is_refused { Err(refused()) } else { Ok(connection) }
                }))
            }
            Entrance::Connect => {
                shared.wait(&[], Some(&Timespec::default()))?;
                if shared.plug.has_told() {
                    return Some(Err(refused()));
                }
                Some(socket::connect(&shared.options.socket))
            }
        }
    }
}

/// Returns the error for a front end that was cut off because its link is down.
fn refused() -> io::Error {
    io::ErrorKind::ConnectionRefused.into()
}

/// Returns the process at the other end: the one that connected, or that began to listen.
fn process_of(connection: &UnixStream) -> Option<u32> {
    let pid = socket_peercred(connection).ok()?.pid.as_raw_nonzero().get();
    u32::try_from(pid).ok()
}

/// Serves one front end after the other, until the session has to end.
pub(super) fn serve_all(shared: &Arc<Shared>, entrance: &Entrance) {
    loop {
        if let Some(pause) = shared.reconnect_backoff.pause()
            && shared.wait(&[], Some(&pause)).is_none()
        {
            return;
        }
        match entrance.next(shared) {
            None => return,
            Some(Ok(connection)) => greet(shared, entrance, connection),
            // There is no listener yet, or the connection is gone: try again after a moment.
            Some(Err(_)) => {
                if shared.wait(&[], Some(&RETRY)).is_none() {
                    return;
                }
            }
        }
    }
}

/// The state of one front end's connection, and the `vhost` crate's decoder of its messages.
pub(crate) struct Conversation {
    pub(crate) backend: Arc<Mutex<Backend>>,
    pub(crate) handler: BackendReqHandler<Mutex<Backend>>,
}

/// Sets up and serves a front end that has connected.
fn greet(shared: &Arc<Shared>, entrance: &Entrance, connection: UnixStream) {
    if shared.reconnect_backoff.pause().is_none() {
        shared.tell(|untold| {
            let socket = shared.options.socket.display();
            tracing::info!(%socket, untold, "a vhost-user front end is connected");
        });
    }
    (shared.options.replaced)();
    shared.note(|status| status.connections += 1);
    let backend = Arc::new(Mutex::new(Backend::new(shared.clone())));
    let ours = connection.try_clone().ok();
    let handler = BackendReqHandler::from_stream(connection, backend.clone());
    serve(shared, entrance, Conversation { backend, handler }, ours);
}

/// Serves one front end until it disconnects, breaks the protocol, makes place for another, or the
/// session has to end.
pub(super) fn serve(
    shared: &Shared,
    entrance: &Entrance,
    conversation: Conversation,
    connection: Option<UnixStream>,
) {
    let Conversation { backend, mut handler } = conversation;
    let process = connection.as_ref().and_then(process_of);
    shared.plug.connect(process);
    let is_guests = shared.options.role == SocketRole::Server;
    shared.note(|status| status.process = process.filter(|_| is_guests));
    *lock(&shared.connection) = connection;
    // In a resumed session the rings may run already while the link has to be down.
    shared.unplug();
    let (began, is_loop) = (Instant::now(), shared.reconnect_backoff.pause().is_some());
    shared.reconnect_backoff.begin();
    let ended = converse(shared, &mut Place::of(process, entrance), &backend, &mut handler);
    let suspends = ended.is_none() && shared.suspends.load(Ordering::Acquire);
    if suspends {
        suspend(shared, &backend);
    }
    drop(handler);
    drop(backend);
    if !suspends {
        (shared.options.replaced)();
    }
    // Closed without the lock: the front end can make the close block.
    let connection = lock(&shared.connection).take();
    drop(connection);
    shared.note(|status| status.process = None);
    if !suspends {
        tell_of_end(shared, ended, began.elapsed(), is_loop);
    }
}

/// Stores the record from which the next process resumes the session. Called before this process
/// unmaps guest memory, which takes long for a large guest.
fn suspend(shared: &Shared, backend: &Mutex<Backend>) {
    // The connection belongs to the next process from now on: the end of this session must not shut
    // it down.
    let connection = lock(&shared.connection).take();
    let record = connection.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
    match record.and_then(|connection| lock(backend).suspend(connection.as_fd())) {
        Ok(record) => *lock(&shared.record) = Some(record),
        Err(error) => {
            let socket = shared.options.socket.display();
            tracing::warn!(%socket, "a vhost-user front end must reconnect: {error}");
        }
    }
}

/// Logs why a connection ended and updates the status. `ended` is `None` if the session ended.
fn tell_of_end(shared: &Shared, ended: Option<Error>, lasted: Duration, is_loop: bool) {
    let socket = &shared.options.socket;
    if shared.reconnect_backoff.end(lasted)
        && let Some(complaint) = shared.reconnect_backoff.complaint(shared.options.pairs)
    {
        shared.tell(|untold| {
            tracing::warn!(socket = %socket.display(), untold, "{complaint}");
        });
    }
    match ended {
        None | Some(Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)) => {
            if !is_loop {
                shared.tell(|untold| {
                    tracing::info!(socket = %socket.display(), untold, "the vhost-user front end disconnected");
                });
            }
        }
        Some(error) => {
            let reason = format!("the front end was cut off: {error}");
            shared.tell(|untold| {
                tracing::warn!(socket = %socket.display(), untold, "{reason}");
            });
            shared.note(|status| status.state = State::Broken(reason));
        }
    }
}

/// The place of a front end at a socket, which another may take once its process has ended: its
/// connection lasts as long as any process has the other end.
struct Place<'e> {
    /// A descriptor that is readable once the process has ended; `None` if it has, or is not known.
    process: Option<OwnedFd>,
    /// The socket at which others wait; `None` while they have to.
    others: Option<Arc<UnixListener>>,
    entrance: &'e Entrance,
}

impl<'e> Place<'e> {
    /// The place of a front end of this process. Where the process is not known, as in another
    /// namespace of processes, no other takes it.
    fn of(process: Option<u32>, entrance: &'e Entrance) -> Place<'e> {
        let process = process.and_then(|process| Pid::from_raw(process.cast_signed()));
        let opened = process.map(|process| pidfd_open(process, PidfdFlags::empty()));
        let mut place = Place { process: None, others: None, entrance };
        match opened {
            Some(Ok(process)) => place.process = Some(process),
            Some(Err(Errno::SRCH)) => place.end(),
            _ => {}
        }
        place
    }

    /// Notes that the process has ended.
    fn end(&mut self) {
        (self.process, self.others) = (None, self.entrance.listener());
    }

    /// Returns what to wait for, for [`Place::is_taken`].
    fn source(&self) -> Option<BorrowedFd<'_>> {
        let process = self.process.as_ref().map(AsFd::as_fd);
        process.or(self.others.as_ref().map(|others| others.as_fd()))
    }

    /// Looks at what [`Place::source`] has. Returns whether another front end waits for the place.
    fn is_taken(&mut self) -> bool {
        if self.process.is_some() {
            self.end();
            return false;
        }
        self.others.is_some()
    }
}

/// Serves messages, commands and owed signals as they come. Returns why the connection ended;
/// `None` if the session has to end.
fn converse(
    shared: &Shared,
    place: &mut Place<'_>,
    backend: &Mutex<Backend>,
    handler: &mut BackendReqHandler<Mutex<Backend>>,
) -> Option<Error> {
    let commands = shared.rings.last()?.ready_fd()?;
    let connection = lock(&shared.connection).as_ref()?.try_clone().ok()?;
    let began = Instant::now();
    let (mut messages_from, mut commands_from) = (began, began);
    loop {
        let never = Instant::now() + FAR;
        let ferry = lock(backend).ferry();
        let now_or_never =
            |source: Option<_>| source.map_or((commands, never), |source| (source, began));
        let sources = [
            (connection.as_fd(), messages_from),
            (shared.signals.owed_fd(), began),
            (commands, commands_from),
            now_or_never(place.source()),
            (shared.changed.as_fd(), began),
            now_or_never(ferry.as_ref().map(|ferry| ferry.as_fd())),
        ];
        let [is_message, is_owed, is_command, is_other, is_change, is_stranded] =
            ready(shared, sources)?;
        if is_stranded {
            let reason = "the process that waits for the guest's pages (post-copy) has ended";
            return Some(Error::ReqHandlerError(io::Error::other(reason)));
        }
        if is_other && place.is_taken() {
            let socket = shared.options.socket.display();
            shared.tell(|untold| {
                tracing::warn!(%socket, untold, "another front end takes the place of one whose process has ended");
            });
            return Some(Error::Disconnected);
        }
        if is_owed {
            lock(backend).send_owed();
        }
        if is_change {
            let _ = rustix::io::read(&shared.changed, &mut [0; 8]);
            lock(backend).tell_change();
        }
        if is_command {
            let began = Instant::now();
            lock(backend).serve_control();
            commands_from = Instant::now() + control::pause_after(began.elapsed());
        }
        if is_message {
            let began = Instant::now();
            if let Err(error) = serve_one(&connection, backend, handler) {
                return Some(error);
            }
            let now = Instant::now();
            let pause = lock(&shared.message_pace).pause(now, now - began);
            messages_from = now + pause.max(lock(backend).take_pause());
        }
    }
}

/// Waits until one of the sources can be read, each looked at only from its time on, or until such
/// a pause ends. Returns which can be read; `None` if the session has to end.
pub(super) fn ready<const COUNT: usize>(
    shared: &Shared,
    sources: [(BorrowedFd<'_>, Instant); COUNT],
) -> Option<[bool; COUNT]> {
    let now = Instant::now();
    let pauses = sources.map(|(_, from)| from.checked_duration_since(now));
    let timeout = pauses.iter().flatten().min().and_then(|pause| (*pause).try_into().ok());
    let open = sources.iter().zip(pauses).filter(|(_, pause)| pause.is_none());
    let open: Vec<_> = open.map(|((fd, _), _)| *fd).collect();
    let mut polled = shared.wait(&open, timeout.as_ref())?.into_iter();
    Some(pauses.map(|pause| pause.is_none() && polled.next() == Some(true)))
}

fn serve_one(
    connection: &UnixStream,
    backend: &Mutex<Backend>,
    handler: &mut BackendReqHandler<Mutex<Backend>>,
) -> Result<(), Error> {
    let message = Message::peek(connection);
    if let Some(message) = message
        && let Some(needed) = message.needs()
    {
        let files = message.take(connection).map_err(Error::SocketBroken)?;
        let answer = lock(backend).answer(message.request, needed, files)?;
        return message.reply(connection, answer).map_err(Error::SocketBroken);
    }
    match (handler.handle_request(), message) {
        (
            Err(Error::InactiveFeature(_)),
            Some(early @ Message { request: Request::Enable { ring, enable }, .. }),
        ) => {
            lock(backend).set_vring_enable(ring, enable)?;
            early.reply(connection, 0).map_err(Error::SocketBroken)
        }
        (result, _) => result,
    }
}
