//! A helper process does for a daemon what takes CAP_SYS_ADMIN, which the daemon then gives up. It
//! enters network namespaces, and loads two programs for which the kernel asks for CAP_PERFMON, which
//! CAP_SYS_ADMIN implies: one that the verifier otherwise gives up, and one that reads the kernel's
//! description of a frame.
//!
//! The daemon starts it before it restricts itself. A socket of whole messages (`SOCK_SEQPACKET`)
//! is the helper's standard input; the daemon passes the other end to [`use_for_all`]. From then on
//! the helper makes every descriptor of another namespace that this process wants (`make`,
//! `attach`), and the programs (`steering_program`, `judge`). A process without a helper serves the same
//! requests itself.
//!
//! [`serve`] is the helper's side. It stores nothing, and ends when the daemon's end of the socket
//! closes. Requests come one at a time. A guest may have taken over the daemon, so any message may
//! arrive, and each gets an answer. A request can hang, for example at a path on a disk that does
//! not answer; [`when_closed`] ends the helper even then.

use super::request::{self, ANSWER, MOST_FILES, REQUEST, Refused, Wanted};
use crate::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, OnceLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for an answer. A namespace is entered within milliseconds, unless its path
/// leads to a disk that hangs.
const REPLY_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// How long to wait for a dismissed helper.
const FAREWELL: Duration = Duration::from_secs(1);

/// Error when a helper has ended. A second one cannot be started: the daemon has restricted itself.
const LOST: (io::ErrorKind, &str) = (
    io::ErrorKind::BrokenPipe,
    "the helper that enters namespaces no longer answers: restart the daemon",
);

/// The helper that this process asks, once set; until then the process serves itself.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// The helper of a process that does not enter namespaces itself.
pub(super) struct Helper {
    /// `None`: there is no helper, or it has ended.
    connection: Mutex<Option<Connection>>,
    /// The error when there is no connection.
    lacking: (io::ErrorKind, &'static str),
}

struct Connection {
    /// `None`: the helper gets no more requests, and has not ended yet.
    socket: Option<OwnedFd>,
    process: Child,
}

/// Makes the helper at the other end of the socket enter namespaces for this process from now on.
/// Called at most once.
pub fn use_for_all(socket: OwnedFd, process: Child) {
    let connection = Mutex::new(Some(Connection { socket: Some(socket), process }));
    let _ = HELPER.set(Helper { connection, lacking: LOST });
}

/// Makes every later request for a namespace fail for this reason. Called at most once.
pub fn enter_none(reason: &'static str) {
    let lacking = (io::ErrorKind::PermissionDenied, reason);
    let _ = HELPER.set(Helper { connection: Mutex::new(None), lacking });
}

/// Whether this process had a helper that no longer serves.
pub fn has_ended() -> bool {
    HELPER.get().is_some_and(|helper| helper.lacking == LOST && !helper.runs())
}

/// Ends the helper, if there is one, and waits for its end, so that no process is left when the
/// daemon has ended.
pub fn end() {
    if let Some(helper) = HELPER.get() {
        dismiss(&mut lock(&helper.connection), FAREWELL);
    }
}

/// Returns the program that steers the queues of an uplink, for these maps. Without a helper this
/// process loads it itself, which takes CAP_BPF and CAP_PERFMON. Fails if the kernel or the helper
/// refuses.
pub(crate) fn steering_program(maps: [BorrowedFd<'_>; 4]) -> io::Result<OwnedFd> {
    program(Wanted::Steering, &maps)
}

/// Returns the kernel path's judge for these maps, in the order of
/// [`Maps`](crate::kernel_path::program::Maps), under the same conditions.
pub(crate) fn judge(maps: [BorrowedFd<'_>; 5]) -> io::Result<OwnedFd> {
    program(Wanted::Judge, &maps)
}

fn program(wanted: Wanted, maps: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    match get().map(|helper| helper.ask(Path::new(""), wanted, maps)) {
        Some(Ok(program)) => Ok(program),
        Some(Err(Refused::Making(error))) => Err(error),
        Some(Err(Refused::Entry(_))) | None => super::here(wanted, maps),
    }
}

/// Returns the helper that this process asks.
pub(super) fn get() -> Option<&'static Helper> {
    HELPER.get()
}

impl Helper {
    /// Sends one request and returns its answer. Fails if the helper refuses or has ended.
    pub(super) fn ask(
        &self,
        path: &Path,
        wanted: Wanted,
        files: &[BorrowedFd<'_>],
    ) -> Result<OwnedFd, Refused> {
        let message = request::encode(path, wanted)
            .ok_or_else(|| Refused::Entry(Errno::NAMETOOLONG.into()))?;
        let mut connection = lock(&self.connection);
        let answer = connection
            .as_ref()
            .and_then(|connection| connection.socket.as_ref())
            .and_then(|socket| exchange(socket.as_fd(), &message, files).ok());
        if answer.is_none() {
            dismiss(&mut connection, Duration::ZERO);
        }
        let (kind, lacking) = self.lacking;
        answer.unwrap_or_else(|| Err(Refused::Entry(io::Error::new(kind, lacking))))
    }

    /// Whether the helper runs. Never waits: a helper that is being asked counts as running.
    fn runs(&self) -> bool {
        let mut connection = match self.connection.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        let Some(Connection { socket, process }) = connection.as_mut() else { return false };
        let runs = socket.is_some() && matches!(process.try_wait(), Ok(None));
        if !runs {
            dismiss(&mut connection, Duration::ZERO);
        }
        runs
    }
}

/// Closes the helper's socket, which ends it, and waits this long for the end; if it takes longer,
/// a later call collects it. A helper that does not answer is not asked again, because it may still
/// answer the last request.
fn dismiss(connection: &mut Option<Connection>, timeout: Duration) {
    let Some(Connection { socket, process }) = connection.as_mut() else { return };
    drop(socket.take());
    let start = Instant::now();
    while matches!(process.try_wait(), Ok(None)) {
        if start.elapsed() >= timeout {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    *connection = None;
}

/// Sends a request and receives the answer. The outer error means that the helper cannot be asked
/// any more. The inner error concerns this request alone, and the next one gets its own answer.
fn exchange(
    socket: BorrowedFd<'_>,
    message: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<Result<OwnedFd, Refused>> {
    match send(socket, message, files) {
        Err(error) if has_gone(&error) => return Err(error),
        // The request was not sent, for example for lack of memory or because too many descriptors
        // are in flight.
        Err(error) => return Ok(Err(Refused::Making(error))),
        Ok(()) => {}
    }
    let readable = &mut [PollFd::new(&socket, PollFlags::IN)];
    if retry_on_intr(|| poll(readable, Some(&REPLY_TIMEOUT)))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut bytes = [0; ANSWER];
    let mut received = receive(socket, &mut bytes)?;
    let answer = received.length.and_then(|length| request::decode_answer(bytes.get(..length)?));
    match (answer, received.files.pop(), received.files.is_empty(), received.lacks_files) {
        (Some(Ok(())), Some(file), true, false) => Ok(Ok(file)),
        // The descriptor was made, and this process has no room for it.
        (Some(Ok(())), _, _, true) => Ok(Err(Refused::Making(Errno::MFILE.into()))),
        (Some(Err(refused)), None, _, false) => Ok(Err(refused)),
        _ => Err(io::Error::other("an answer that is none")),
    }
}

/// Whether the process at the other end has closed its socket.
fn has_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}

/// Calls `end` on its own thread when the other end closes, even while [`serve`] hangs in a
/// request. The helper uses it to end its process. A signal at the daemon's death
/// (`PR_SET_PDEATHSIG`) would not do: it would miss a helper that a living daemon has dismissed,
/// and Landlock keeps a restricted daemon, as the sender, from signalling the helper.
///
/// # Errors
/// Fails if no thread can be started.
pub fn when_closed(
    socket: impl AsFd + Send + 'static,
    end: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let wait = move || {
        // No event is requested: the closing of the other end is always reported.
        let closed = &mut [PollFd::new(&socket, PollFlags::empty())];
        while let Err(Errno::INTR | Errno::NOMEM) = poll(closed, None) {}
        end();
    };
    thread::Builder::new().name("daemon".into()).spawn(wait).map(drop)
}

/// Serves requests until the other end closes.
///
/// # Errors
/// Fails if the socket cannot be read.
pub fn serve(socket: impl AsFd) -> io::Result<()> {
    let mut bytes = vec![0; REQUEST];
    loop {
        let Received { length, files, lacks_files } = receive(socket.as_fd(), &mut bytes)?;
        if length == Some(0) {
            return Ok(());
        }
        let message = length.and_then(|length| bytes.get(..length));
        let made = match lacks_files {
            true => Err(Refused::Making(Errno::MFILE.into())),
            false => answer(message, &files),
        };
        reply(&made, |answer, file| send(socket.as_fd(), answer, file.as_slice()))?;
    }
}

/// Sends an answer. If the descriptor cannot be sent, for example because too many are in flight,
/// the answer holds the reason.
fn reply(
    made: &Result<OwnedFd, Refused>,
    mut send: impl FnMut(&[u8], Option<BorrowedFd<'_>>) -> io::Result<()>,
) -> io::Result<()> {
    let file = made.as_ref().ok().map(OwnedFd::as_fd);
    match send(&request::encode_answer(made), file) {
        Err(error) if file.is_some() && !has_gone(&error) => {
            let refused: Result<OwnedFd, _> = Err(Refused::Making(error));
            send(&request::encode_answer(&refused), None)
        }
        sent => sent,
    }
}

/// Makes what a message asks for; the message is `None` if it was too long. Fails if it is
/// malformed or the kernel refuses.
fn answer(message: Option<&[u8]>, files: &[OwnedFd]) -> Result<OwnedFd, Refused> {
    let malformed = || Refused::Making(Errno::INVAL.into());
    let (path, wanted) = message.and_then(request::decode).ok_or_else(malformed)?;
    if files.len() != wanted.files() {
        return Err(malformed());
    }
    let files: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
    match wanted {
        _ if wanted.is_program() => super::here(wanted, &files).map_err(Refused::Making),
        _ => super::there(&path, wanted, &files),
    }
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let pieces = [IoSlice::new(bytes)];
    retry_on_intr(|| sendmsg(socket, &pieces, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// A received message.
struct Received {
    /// Its length, 0 at the end; `None` if it is longer than the buffer.
    length: Option<usize>,
    files: Vec<OwnedFd>,
    /// Whether descriptors did not arrive: there were too many, or more than this process may have
    /// open.
    lacks_files: bool,
}

fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let pieces = &mut [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = retry_on_intr(|| recvmsg(socket, pieces, &mut control, flags))?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    let length = (!message.flags.contains(ReturnFlags::TRUNC)).then_some(message.bytes);
    Ok(Received { length, files, lacks_files: message.flags.contains(ReturnFlags::CTRUNC) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::Hook;
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// Runs a test with a daemon's end, while a helper serves the other end in a thread.
    fn with_helper(test: impl FnOnce(BorrowedFd<'_>)) {
        let (ours, its) = pair();
        thread::scope(|scope| {
            let serving = scope.spawn(move || serve(its));
            test(ours.as_fd());
            drop(ours);
            serving.join().unwrap().unwrap();
        });
    }

    fn refusal(answer: io::Result<Result<OwnedFd, Refused>>) -> (bool, Option<i32>) {
        match answer.unwrap().unwrap_err() {
            Refused::Entry(error) => (true, error.raw_os_error()),
            Refused::Making(error) => (false, error.raw_os_error()),
        }
    }

    #[test]
    fn what_cannot_be_entered_is_told_and_the_helper_goes_on() {
        with_helper(|socket| {
            let nowhere = Path::new("/run/netns/there is no such");
            let message = request::encode(nowhere, Wanted::Links).unwrap();
            for _ in 0..2 {
                let told = refusal(exchange(socket, &message, &[]));
                assert_eq!(told, (true, Some(libc::ENOENT)));
            }
            let file = request::encode(Path::new("/etc/passwd"), Wanted::Links).unwrap();
            assert!(refusal(exchange(socket, &file, &[])).0, "a file is no namespace");
        });
    }

    #[test]
    fn descriptors_that_a_request_has_no_use_for_are_refused() {
        let (stray, _) = pair();
        with_helper(|socket| {
            let malformed = (false, Some(libc::EINVAL));
            let tap = request::encode(Path::new("/nowhere"), Wanted::Tap).unwrap();
            assert_eq!(refusal(exchange(socket, &tap, &[stray.as_fd()])), malformed);
            let wanted = Wanted::Attached { interface: 1, hook: Hook::Generic };
            let attached = request::encode(Path::new("/nowhere"), wanted).unwrap();
            assert_eq!(refusal(exchange(socket, &attached, &[])), malformed);
            assert_eq!(refusal(exchange(socket, &[0; REQUEST + 1], &[])), malformed);
            for wanted in [Wanted::Steering, Wanted::Judge] {
                let program = request::encode(Path::new(""), wanted).unwrap();
                let maps = vec![stray.as_fd(); wanted.files()];
                assert_eq!(refusal(exchange(socket, &program, &maps[1..])), malformed);
                // The right number of files, which are no maps.
                assert!(!refusal(exchange(socket, &program, &maps)).0);
            }
        });
    }

    proptest! {
        /// A daemon that was taken over may send anything.
        #[test]
        fn each_message_gets_an_answer_and_none_ends_the_helper(
            messages in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..REQUEST + 9), any::<bool>()), 1..9),
        ) {
            let (stray, _) = pair();
            with_helper(|socket| for (message, with_file) in &messages {
                let file = with_file.then_some(stray.as_fd());
                exchange(socket, message, file.as_slice()).unwrap().unwrap_err();
            });
        }
    }

    /// Sends an answer with more descriptors than are received, which looks as it does to a process
    /// that may open no more.
    fn send_too_many(socket: BorrowedFd<'_>, answer: &[u8]) {
        const MANY: usize = 4 * MOST_FILES;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [socket; MANY];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(socket, &[IoSlice::new(answer)], &mut control, SendFlags::empty()).unwrap();
    }

    /// The helper was dismissed, and no namespace was entered until the daemon was restarted.
    #[test]
    fn a_descriptor_that_does_not_arrive_fails_one_request() {
        let (ours, its) = pair();
        let made: Result<(), Refused> = Ok(());
        let made = request::encode_answer(&made);
        send_too_many(its.as_fd(), &made);
        let message = request::encode(Path::new("/n"), Wanted::Links).unwrap();
        let told = refusal(exchange(ours.as_fd(), &message, &[]));
        assert_eq!(told, (false, Some(libc::EMFILE)));
        send(its.as_fd(), &made, &[its.as_fd()]).unwrap();
        exchange(ours.as_fd(), &message, &[]).unwrap().unwrap();
    }

    /// A request that the kernel refuses to send ended the helper, too.
    #[test]
    fn a_request_that_cannot_be_sent_fails_alone() {
        with_helper(|socket| {
            // Longer than the socket's buffer.
            let told = refusal(exchange(socket, &vec![0; 64 << 20], &[]));
            assert_eq!(told, (false, Some(libc::EMSGSIZE)));
            let message = request::encode(Path::new("/nowhere"), Wanted::Links).unwrap();
            assert_eq!(refusal(exchange(socket, &message, &[])), (true, Some(libc::ENOENT)));
        });
    }

    /// The helper ended.
    #[test]
    fn what_was_made_and_cannot_be_sent_is_answered_with_the_reason() {
        let (file, _) = pair();
        let mut sent = Vec::new();
        let answered = reply(&Ok(file), |answer, file| {
            sent.push((request::decode_answer(answer).unwrap().is_ok(), file.is_some()));
            if file.is_some() { Err(Errno::TOOMANYREFS.into()) } else { Ok(()) }
        });
        answered.unwrap();
        assert_eq!(sent, [(true, true), (false, false)]);
        let (file, _) = pair();
        let ended = reply(&Ok(file), |_, _| Err(Errno::PIPE.into())).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::BrokenPipe);
    }

    /// `status` and the control plane waited as long as a request took, up to 10 s.
    #[test]
    fn whether_a_helper_runs_is_known_while_it_is_asked() {
        let (ours, its) = pair();
        let process = std::process::Command::new("true").spawn().unwrap();
        let connection = Mutex::new(Some(Connection { socket: Some(ours), process }));
        let helper = Helper { connection, lacking: LOST };
        thread::scope(|scope| {
            let path = Path::new("/n");
            let asking = scope.spawn(|| helper.ask(path, Wanted::Links, &[]).is_err());
            // The lock is held from before the request is sent until there is an answer.
            receive(its.as_fd(), &mut [0; REQUEST]).unwrap();
            assert!(helper.runs());
            drop(its);
            assert!(asking.join().unwrap());
        });
        assert!(!helper.runs());
    }

    /// A helper that hung in a request outlived the daemon.
    #[test]
    fn a_helper_learns_that_it_is_dismissed_while_a_request_hangs() {
        let (ours, its) = pair();
        let (told, ended) = std::sync::mpsc::channel();
        // Receives nothing: a request hangs, and the next one waits.
        send(ours.as_fd(), &[0; REQUEST], &[]).unwrap();
        when_closed(its, move || told.send(()).unwrap()).unwrap();
        assert!(ended.try_recv().is_err());
        drop(ours);
        ended.recv().unwrap();
    }

    #[test]
    fn a_helper_that_ends_after_it_was_dismissed_is_collected() {
        let (ours, _its) = pair();
        let mut command = std::process::Command::new("cat");
        let mut process = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take();
        let mut connection = Some(Connection { socket: Some(ours), process });
        dismiss(&mut connection, Duration::ZERO);
        assert!(connection.as_ref().is_some_and(|connection| connection.socket.is_none()));
        drop(input);
        dismiss(&mut connection, Duration::MAX);
        assert!(connection.is_none());
    }

    #[test]
    fn a_helper_that_ended_or_answers_nonsense_is_asked_no_more() {
        let helper = |socket| {
            let process = std::process::Command::new("true").spawn().unwrap();
            let connection = Mutex::new(Some(Connection { socket: Some(socket), process }));
            Helper { connection, lacking: LOST }
        };
        let told = |helper: &Helper| {
            let Err(Refused::Entry(error)) = helper.ask(Path::new("/n"), Wanted::Tap, &[]) else {
                panic!("an answer")
            };
            error.to_string()
        };
        let (ours, its) = pair();
        drop(its);
        let ended = helper(ours);
        assert_eq!([told(&ended), told(&ended)], [LOST.1; 2]);
        let (ours, its) = pair();
        // Claims that it made something, and sends no descriptor.
        send(its.as_fd(), &[0; ANSWER], &[]).unwrap();
        let lying = helper(ours);
        assert_eq!(told(&lying), LOST.1);
        assert!(!lying.runs());
    }
}
