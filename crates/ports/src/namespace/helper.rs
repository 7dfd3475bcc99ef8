//! A helper: a process that does for a daemon what takes CAP_SYS_ADMIN, which the daemon therefore gives up. It enters network
//! namespaces, and loads the one program that the kernel's verifier follows to its end only for those with CAP_PERFMON, which
//! CAP_SYS_ADMIN stands for.
//!
//! The daemon starts it before it restricts itself, over a socket of whole messages (`SOCK_SEQPACKET`) that is the helper's
//! standard input, and hands the other end to [`use_for_all`]. From then on every descriptor of another namespace that this process
//! wants (`make`, `attach`) comes from there, and so does the program (`steering_program`). A process without a helper serves the
//! same requests itself.
//!
//! [`serve`] is the helper's side. It stores nothing, and ends with the daemon, whose end of the socket closes. Requests come one at
//! a time. The daemon may have been taken over by a guest, so any message may come, and gets an answer.

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
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer is waited for. A namespace is entered within milliseconds, unless its path leads to a disk that hangs.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// How long a helper that is dismissed is waited for.
const FAREWELL: Duration = Duration::from_secs(1);

/// What is said of a helper that was there. A second one cannot be started: the daemon has restricted itself.
const LOST: (io::ErrorKind, &str) = (
    io::ErrorKind::BrokenPipe,
    "the helper that enters namespaces no longer answers: restart the daemon",
);

/// Whom this process asks, once that is settled; until then it serves itself.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// Whom a process asks that enters no namespace itself.
pub(super) struct Helper {
    /// `None`: there is none, or no more.
    connection: Mutex<Option<Connection>>,
    /// What is said then.
    lacking: (io::ErrorKind, &'static str),
}

struct Connection {
    socket: OwnedFd,
    process: Child,
}

/// From now on this process enters no namespace itself: the helper at the other end of the socket does. Once in its life.
pub fn use_for_all(socket: OwnedFd, process: Child) {
    let connection = Mutex::new(Some(Connection { socket, process }));
    let _ = HELPER.set(Helper { connection, lacking: LOST });
}

/// From now on this process enters no namespace, for this reason. Once in its life.
pub fn enter_none(reason: &'static str) {
    let lacking = (io::ErrorKind::PermissionDenied, reason);
    let _ = HELPER.set(Helper { connection: Mutex::new(None), lacking });
}

/// Whether this process has had a helper that enters namespaces no more.
pub fn has_ended() -> bool {
    HELPER.get().is_some_and(|helper| helper.lacking == LOST && !helper.runs())
}

/// Ends the helper, if there is one, and waits for that, so that nothing is left of the daemon when it has ended.
pub fn end() {
    if let Some(helper) = HELPER.get() {
        dismiss(&mut lock(&helper.connection), FAREWELL);
    }
}

/// The program that steers the queues of an uplink, for these maps. Without a helper this process loads it itself, which takes
/// CAP_BPF and CAP_PERFMON.
pub(crate) fn steering_program(maps: [BorrowedFd<'_>; MOST_FILES]) -> io::Result<OwnedFd> {
    let nowhere = Path::new("");
    match get().map(|helper| helper.ask(nowhere, Wanted::Steering, &maps)) {
        Some(Ok(program)) => Ok(program),
        Some(Err(Refused::Making(error))) => Err(error),
        Some(Err(Refused::Entry(_))) | None => super::here(Wanted::Steering, &maps),
    }
}

/// Whom this process asks.
pub(super) fn get() -> Option<&'static Helper> {
    HELPER.get()
}

impl Helper {
    /// One request and its answer.
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
            .and_then(|connection| exchange(connection.socket.as_fd(), &message, files).ok());
        if answer.is_none() {
            dismiss(&mut connection, Duration::ZERO);
        }
        let (kind, lacking) = self.lacking;
        answer.unwrap_or_else(|| Err(Refused::Entry(io::Error::new(kind, lacking))))
    }

    fn runs(&self) -> bool {
        let mut connection = lock(&self.connection);
        let Some(Connection { process, .. }) = connection.as_mut() else { return false };
        let runs = matches!(process.try_wait(), Ok(None));
        if !runs {
            dismiss(&mut connection, Duration::ZERO);
        }
        runs
    }
}

/// Without its socket a helper ends, which is waited for this long. One that does not answer is not asked again, for what goes on with
/// it is unknown.
fn dismiss(connection: &mut Option<Connection>, patience: Duration) {
    let Some(Connection { socket, mut process }) = connection.take() else { return };
    drop(socket);
    let start = Instant::now();
    while matches!(process.try_wait(), Ok(None)) && start.elapsed() < patience {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Outer error: the helper cannot be asked any more.
fn exchange(
    socket: BorrowedFd<'_>,
    message: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<Result<OwnedFd, Refused>> {
    send(socket, message, files)?;
    let readable = &mut [PollFd::new(&socket, PollFlags::IN)];
    if retry_on_intr(|| poll(readable, Some(&PATIENCE)))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut bytes = [0; ANSWER];
    let (length, mut files) = receive(socket, &mut bytes)?;
    let answer = length.and_then(|length| request::decode_answer(bytes.get(..length)?));
    match (answer, files.pop(), files.is_empty()) {
        (Some(Ok(())), Some(file), true) => Ok(Ok(file)),
        (Some(Err(refused)), None, _) => Ok(Err(refused)),
        _ => Err(io::Error::other("an answer that is none")),
    }
}

/// Serves requests until the other end closes.
pub fn serve(socket: impl AsFd) -> io::Result<()> {
    let mut bytes = vec![0; REQUEST];
    loop {
        let (length, files) = receive(socket.as_fd(), &mut bytes)?;
        if length == Some(0) {
            return Ok(());
        }
        let made = answer(length.and_then(|length| bytes.get(..length)), &files);
        let answer = request::encode_answer(&made);
        send(socket.as_fd(), &answer, made.as_ref().ok().map(OwnedFd::as_fd).as_slice())?;
    }
}

/// What is made for a message; `None`: it was too long.
fn answer(message: Option<&[u8]>, files: &[OwnedFd]) -> Result<OwnedFd, Refused> {
    let malformed = || Refused::Making(Errno::INVAL.into());
    let (path, wanted) = message.and_then(request::decode).ok_or_else(malformed)?;
    if files.len() != wanted.files() {
        return Err(malformed());
    }
    let files: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
    match wanted {
        Wanted::Steering => super::here(wanted, &files).map_err(Refused::Making),
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

/// One message with its descriptors: its length, `None` if it or they were too many; 0 at the end.
fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(Option<usize>, Vec<OwnedFd>)> {
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
    let whole = !message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok((whole.then_some(message.bytes), files))
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

    /// A daemon's end, while a helper serves the other one in a thread.
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
            let steering = request::encode(Path::new(""), Wanted::Steering).unwrap();
            let maps = [stray.as_fd(); MOST_FILES];
            assert_eq!(refusal(exchange(socket, &steering, &maps[1..])), malformed);
            // Of the right number, and no maps.
            assert!(!refusal(exchange(socket, &steering, &maps)).0);
        });
    }

    proptest! {
        /// A daemon that was taken over sends what it likes.
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

    #[test]
    fn a_helper_that_ended_or_answers_nonsense_is_asked_no_more() {
        let helper = |socket| {
            let process = std::process::Command::new("true").spawn().unwrap();
            let connection = Mutex::new(Some(Connection { socket, process }));
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
        // Says that it made something, and sends nothing with it.
        send(its.as_fd(), &[0; ANSWER], &[]).unwrap();
        let lying = helper(ours);
        assert_eq!(told(&lying), LOST.1);
        assert!(!lying.runs());
    }
}
