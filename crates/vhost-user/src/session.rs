//! A vNIC's session: the thread that waits for front ends and serves one after the other.

use crate::attempts::Attempts;
use crate::backend::Backend;
use crate::early::Early;
use crate::lock::lock;
use crate::signal;
use crate::socket::{self, Listener};
use crate::{Options, RingSlot, SessionError, SocketRole, State, Status};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vhost::vhost_user::{BackendReqHandler, Error, VhostUserBackendReqHandlerMut};

/// How long a client waits before it tries to connect again.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long the end of a session may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the session's thread and its owner share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// Two for each pair, the guest's receiving one first, and the control queue.
    pub(crate) rings: Vec<Arc<RingSlot>>,
    status: Mutex<Status>,
    /// Readable when the session is to end.
    stop: OwnedFd,
    /// What to cut when the session is to end.
    connection: Mutex<Option<UnixStream>>,
    /// Whether front ends come and go in a loop.
    pub(crate) attempts: Attempts,
    /// Held by each thread that writes to a pipe of the front end.
    pub(crate) pipe_writers: Arc<()>,
}

impl Shared {
    /// Changes the status.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Status)) {
        change(&mut lock(&self.status));
    }

    /// Waits for one of these or the end; `None`: the end.
    fn wait(&self, fds: &[BorrowedFd<'_>], timeout: Option<&Timespec>) -> Option<Vec<bool>> {
        let all = std::iter::once(self.stop.as_fd()).chain(fds.iter().copied());
        let mut polled: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        while let Err(rustix::io::Errno::INTR) = poll(&mut polled, timeout) {}
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        (ready.next() == Some(false)).then(|| ready.collect())
    }
}

/// A vNIC, until it is dropped: then the guest is cut off and the socket removed.
pub struct Session {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Listens, or starts to connect. Rings come when a front end does.
    pub fn open(options: Options) -> Result<Session, SessionError> {
        if !(1..=Options::PAIRS).contains(&options.pairs) {
            return Err(SessionError::Pairs { pairs: options.pairs });
        }
        let path = options.socket.clone();
        let failed = |doing| {
            let path = path.clone();
            move |source| SessionError::Io { doing, path, source }
        };
        let listener = match options.role {
            SocketRole::Server => Some(Listener::bind(&options)?),
            SocketRole::Client => None,
        };
        signal::prepare().map_err(failed("signal the guest of"))?;
        let rings = (0..=2 * options.pairs).map(|_| RingSlot::new().map(Arc::new));
        let rings = rings.collect::<Result<_, _>>().map_err(failed("make rings for"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed("wait at")(error.into()))?;
        let offered = options.offered();
        let status = Mutex::new(Status { offered, ..Status::default() });
        let connection = Mutex::new(None);
        let shared = Arc::new(Shared {
            options,
            rings,
            status,
            stop,
            connection,
            attempts: Attempts::default(),
            pipe_writers: Arc::default(),
        });
        let served = shared.clone();
        let thread = thread::Builder::new()
            .name("vhost-user".into())
            .spawn(move || serve_all(&served, listener.as_ref()))
            .map_err(failed("start a thread for"))?;
        Ok(Session { shared, thread: Some(thread) })
    }

    /// The rings of a pair: the one the guest receives from, the one it sends by.
    pub fn pair(&self, pair: u16) -> Option<(Arc<RingSlot>, Arc<RingSlot>)> {
        let first = 2 * usize::from(pair.min(self.shared.options.pairs));
        match self.shared.rings.get(first..first + 2)? {
            [receive, send] => Some((receive.clone(), send.clone())),
            _ => None,
        }
    }

    /// How it is doing. Takes no lock that a guest can hold for long (see the crate's head).
    pub fn status(&self) -> Status {
        let mut status = lock(&self.shared.status).clone();
        let fault = |(number, ring): (usize, &Arc<RingSlot>)| Some((number, ring.fault()?));
        if let Some((number, fault)) = self.shared.rings.iter().enumerate().find_map(fault)
            && status.state != State::Waiting
        {
            status.state = State::Broken(format!("ring {number}: {fault}"));
        }
        if status.state == State::Waiting
            && let Some(complaint) = self.shared.attempts.complaint(self.shared.options.pairs)
        {
            status.state = State::Broken(complaint);
        }
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        // The session's thread closes it.
        if let Some(connection) = lock(&self.shared.connection).as_ref() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            join(thread, &self.shared.options.socket);
        }
    }
}

/// Waits for a session's thread, [`PATIENCE`] at most: closing a file of the front end can block for as long as it likes.
fn join(thread: JoinHandle<()>, socket: &Path) {
    let end = Instant::now() + PATIENCE;
    while !thread.is_finished() {
        if Instant::now() >= end {
            tracing::warn!(socket = %socket.display(), "a front end holds up the end of its session: left behind");
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let _ = thread.join();
}

/// One front end after the other, until the end.
fn serve_all(shared: &Arc<Shared>, listener: Option<&Listener>) {
    loop {
        if let Some(pause) = shared.attempts.pause()
            && shared.wait(&[], Some(&pause)).is_none()
        {
            return;
        }
        let connection = match listener {
            Some(listener) => {
                if shared.wait(&[listener.socket.as_fd()], None).is_none() {
                    return;
                }
                listener.socket.accept().map(|(connection, _)| connection)
            }
            None => socket::connect(&shared.options.socket),
        };
        match connection {
            Ok(connection) => serve(shared, connection),
            // No listener yet, or the connection is gone: try again after a moment.
            Err(_) => {
                if shared.wait(&[], Some(&RETRY)).is_none() {
                    return;
                }
            }
        }
    }
}

/// One front end, until it goes, breaks the protocol, or the end.
fn serve(shared: &Arc<Shared>, connection: UnixStream) {
    let socket = &shared.options.socket;
    *lock(&shared.connection) = connection.try_clone().ok();
    shared.note(|status| status.connections += 1);
    let (began, is_loop) = (Instant::now(), shared.attempts.pause().is_some());
    shared.attempts.begin();
    if !is_loop {
        tracing::info!(socket = %socket.display(), "a vhost-user front end is connected");
    }
    let backend = Arc::new(Mutex::new(Backend::new(shared.clone())));
    let mut handler = BackendReqHandler::from_stream(connection, backend.clone());
    let ended = converse(shared, &backend, &mut handler);
    drop(handler);
    drop(backend);
    // Closed without the lock: closing what the front end sent may block for as long as it likes.
    let connection = lock(&shared.connection).take();
    drop(connection);
    if shared.attempts.end(began.elapsed())
        && let Some(complaint) = shared.attempts.complaint(shared.options.pairs)
    {
        tracing::warn!(socket = %socket.display(), "{complaint}");
    }
    match ended {
        None | Some(Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)) => {
            if !is_loop {
                tracing::info!(socket = %socket.display(), "the vhost-user front end has gone");
            }
        }
        Some(error) => {
            let reason = format!("the front end was cut off: {error}");
            tracing::warn!(socket = %socket.display(), "{reason}");
            shared.note(|status| status.state = State::Broken(reason));
        }
    }
}

/// Messages and commands as they come; why it ended, `None` at the end of the session.
fn converse(
    shared: &Shared,
    backend: &Mutex<Backend>,
    handler: &mut BackendReqHandler<Mutex<Backend>>,
) -> Option<Error> {
    let control = shared.rings.last()?;
    let connection = lock(&shared.connection).as_ref()?.try_clone().ok()?;
    loop {
        let ready = shared.wait(&[connection.as_fd(), control.ready_fd()], None)?;
        if ready.get(1) == Some(&true) {
            lock(backend).serve_control();
        }
        if ready.first() == Some(&true)
            && let Err(error) = serve_one(&connection, backend, handler)
        {
            return Some(error);
        }
    }
}

fn serve_one(
    connection: &UnixStream,
    backend: &Mutex<Backend>,
    handler: &mut BackendReqHandler<Mutex<Backend>>,
) -> Result<(), Error> {
    let early = Early::peek(connection);
    match (handler.handle_request(), early) {
        (Err(Error::InactiveFeature(_)), Some(early)) => {
            lock(backend).set_vring_enable(early.ring, early.enable)?;
            early.acknowledge(connection).map_err(Error::SocketBroken)
        }
        (result, _) => result,
    }
}
