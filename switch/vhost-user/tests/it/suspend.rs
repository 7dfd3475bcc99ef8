//! Sessions that go on in another process, which here is another session: the front end sends
//! nothing anew.

use crate::requests::{GET_STATUS, SET_MTU, SET_STATUS};
use crate::support::options;
use rustix::event::{EventfdFlags, eventfd};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;
use vhost::VhostBackend;
use vhost_user::{Access, Features, Inherited, Negotiated, Options, Session, SocketRole, State};
use virtqueue::Limit;
use waiting::until;

/// Suspends a session. Returns what it leaves to the next one.
fn left(mut session: Session) -> Inherited {
    let listener = session.listener().map(Result::unwrap);
    session.suspend();
    let session = session.suspended(Instant::now() + Duration::from_secs(10));
    Inherited { listener, session }
}

/// Another session goes on.
fn again(session: Session, options: Options) -> Session {
    Session::open_with(options, left(session)).unwrap()
}

/// Gives all that is available of a pair's sending ring back; how many frames there were.
fn serve(session: &Session, pair: u16) -> usize {
    let (_receive, send) = session.pair(pair).unwrap();
    let mut running = send.borrow().unwrap();
    let count = running.queue.take(Limit { chains: 64, bytes: usize::MAX }).unwrap();
    if running.queue.complete(count) {
        running.notify();
    }
    send.give_back(running);
    count
}

fn begin(socket: &Path, wanted: Features, pairs: u16) -> (Session, Guest) {
    let session = Session::open(options(socket, pairs)).unwrap();
    let guest = Guest::connect(socket, wanted.bits(), pairs).unwrap();
    (session, guest)
}

/// Returns the features of the formats, as guests take them.
fn formats() -> [Features; 3] {
    let split = Features::VERSION_1 | Features::MQ;
    [split, split | Features::EVENT_IDX, split | Features::RING_PACKED]
}

/// The rings run when the session is open, at their place, and each message is still understood and
/// answered.
#[test]
fn a_session_goes_on_where_it_stopped() {
    for wanted in formats() {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("s");
        let (mut session, mut guest) = begin(&socket, wanted, 2);
        guest.ask(SET_STATUS, Some(15)).unwrap();
        guest.ask(SET_MTU, Some(1400)).unwrap();
        for round in 1..=20_usize {
            for pair in 0..2 {
                (0..round).for_each(|_| assert!(guest.send(pair, &[0; 12], &[7; 60])));
            }
            let before = session.status();
            session = again(session, options(&socket, 2));
            assert!(session.is_adopted());
            let now = session.status();
            assert_eq!((&now.state, now.negotiated), (&State::Running, before.negotiated));
            assert_eq!((now.taken, now.memory), (before.taken, before.memory));
            assert_eq!([serve(&session, 0), serve(&session, 1)], [round, round], "{wanted:?}");
            assert_eq!([serve(&session, 0), serve(&session, 1)], [0, 0], "none twice");
        }
        assert_eq!(guest.ask(GET_STATUS, None).unwrap(), 15);
        // These wait for an acknowledgement.
        guest.plug_memory(1).unwrap();
        guest.give_memory().unwrap();
        guest.kick_anew(1).unwrap();
        let sent: u32 = (1..=20).sum();
        let packed = wanted.contains(Features::RING_PACKED);
        assert!(packed || guest.stop(1).unwrap() == sent);
        assert_eq!(session.status().connections, 1);
        assert_eq!(session.take_milestones(), []);
    }
}

/// The session may end between any two messages.
#[test]
fn one_that_does_not_run_yet_goes_on_too() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let (session, mut guest) = begin(&socket, Features::VERSION_1 | Features::LOG_ALL, 1);
    assert_eq!(session.status().state, State::Connected, "its rings wait for a log");
    let session = again(session, options(&socket, 1));
    assert!(session.status().awaits_log);
    guest.log(0).unwrap();
    assert_eq!(session.status().state, State::Running);
    assert_eq!(guest.stop(0).unwrap(), 0);
    let session = again(session, options(&socket, 1));
    assert_eq!(session.status().state, State::Connected, "one ring is stopped");
    guest.kick_anew(0).unwrap();
    assert_eq!(session.status().state, State::Running);
    let session = again(session, options(&socket, 1));
    drop(guest);
    until("the end", || session.status().state == State::Waiting);
    let _guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    until("the next one", || session.status().state == State::Running);
}

/// Pages that are written after it would not move with the guest.
#[test]
fn what_is_written_is_logged_as_before() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let (session, mut guest) = begin(&socket, Features::VERSION_1, 1);
    let log = guest.log(16).unwrap();
    let features = Features::VERSION_1 | Features::PROTOCOL_FEATURES | Features::LOG_ALL;
    guest.frontend().set_features(features.bits()).unwrap();
    assert_eq!(session.take_milestones().len(), 1);
    let session = again(session, options(&socket, 1));
    assert_eq!(session.take_milestones(), [], "no news");
    let read = || {
        let mut bytes = vec![0; usize::try_from(log.metadata().unwrap().len()).unwrap()];
        log.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    log.write_all_at(&vec![0; read().len()], 0).unwrap();
    guest.send(0, &[0; 12], &[7; 60]);
    assert_eq!(serve(&session, 0), 1);
    assert!(read()[16..].iter().any(|byte| *byte != 0), "the used ring's page");
    assert_eq!(read()[..16], [0; 16]);
}

/// The log of a migration that came to nothing stays, and memory that was plugged in since lies
/// beyond it.
#[test]
fn a_log_that_is_not_used_does_not_end_the_session() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let (session, mut guest) = begin(&socket, Features::VERSION_1, 1);
    guest.log(0).unwrap();
    guest.plug_memory(1).unwrap();
    let session = again(session, options(&socket, 1));
    assert_eq!(session.status().state, State::Running);
    guest.send(0, &[0; 12], &[7; 60]);
    assert_eq!(serve(&session, 0), 1);
}

/// A session that had stopped connected once more, and left a record of that.
#[test]
fn one_that_connects_leaves_the_front_end_that_it_served() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let front_end = UnixListener::bind(&socket).unwrap();
    let client = || Options { role: SocketRole::Client, ..options(&socket, 1) };
    let mut session = Session::open(client()).unwrap();
    let (mut connection, _) = front_end.accept().unwrap();
    for _ in 0..20 {
        session = again(session, client());
        // GET_FEATURES.
        connection.write_all([1, 1, 0].map(u32::to_ne_bytes).as_flattened()).unwrap();
        connection.read_exact(&mut [0; 20]).unwrap();
    }
    front_end.set_nonblocking(true).unwrap();
    assert!(front_end.accept().is_err(), "it connected anew");
}

/// Its session cannot end between two messages, so it has to connect again.
#[test]
fn a_front_end_in_the_middle_of_a_message_holds_up_nothing() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let (mut session, guest) = begin(&socket, Features::VERSION_1, 1);
    guest.connection().write_all(&[18, 0, 0, 0, 1, 0]).unwrap();
    // Until a session's thread has begun to read it.
    let end = Instant::now() + Duration::from_secs(10);
    let listener = loop {
        assert!(Instant::now() < end, "it always ends in time");
        thread::sleep(Duration::from_millis(1));
        let listener = session.listener().map(Result::unwrap);
        session.suspend();
        let Some(record) = session.suspended(Instant::now() + Duration::from_millis(50)) else {
            break listener;
        };
        let inherited = Inherited { listener, session: Some(record) };
        session = Session::open_with(options(&socket, 1), inherited).unwrap();
    };
    drop(session);
    let end = guest.connection();
    until("it is cut off", || matches!((&*end).read(&mut [0]), Ok(0) | Err(_)));
    let inherited = Inherited { listener, session: None };
    let session = Session::open_with(options(&socket, 1), inherited).unwrap();
    let _guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    until("the next one", || session.status().state == State::Running);
}

/// Waits up to 10 s until the flag is set. Returns whether it was.
fn wait_for(word: &AtomicBool) -> bool {
    waiting::within(Duration::from_secs(10), || word.load(Ordering::Acquire)).is_ok()
}

/// Returns the options of a port that blocks in `changed` while the first flag is set, until the
/// second is; it sets the third if that takes too long.
fn slow(socket: &Path, words: &Arc<[AtomicBool; 3]>) -> Options {
    let words = words.clone();
    let changed = move |_: &Negotiated| {
        let [from, until, missed] = &*words;
        if from.load(Ordering::Acquire) && !wait_for(until) {
            missed.store(true, Ordering::Release);
        }
    };
    Options { changed: Box::new(changed), ..options(socket, 1) }
}

/// The start of all ports waited for one front end: its files were mapped and closed by the
/// thread that opened the port.
#[test]
fn a_session_that_takes_long_to_go_on_does_not_hold_up_the_start() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let (session, _guest) = begin(&socket, Features::VERSION_1, 1);
    let words = Arc::new([true, false, false].map(AtomicBool::new));
    let session = Session::open_with(slow(&socket, &words), left(session)).unwrap();
    assert_eq!(session.status().connections, 1, "it counts at once");
    words[1].store(true, Ordering::Release);
    until("it goes on", || session.status().state == State::Running);
    assert!(!words[2].load(Ordering::Acquire), "the start waited for it");
}

/// It was waited for the end of unmapping, which takes as long as a guest is large; all sessions
/// share the time that there is.
#[test]
fn what_is_left_is_there_before_the_session_s_end() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let words = Arc::new([false, false, false].map(AtomicBool::new));
    let session = Session::open(slow(&socket, &words)).unwrap();
    let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    words[0].store(true, Ordering::Release);
    let inherited = left(session);
    words[1].store(true, Ordering::Release);
    assert!(inherited.session.is_some(), "it was left behind");
    assert!(!words[2].load(Ordering::Acquire));
    let next = Session::open_with(options(&socket, 1), inherited).unwrap();
    assert!(guest.send(0, &[0; 12], &[7; 60]));
    assert_eq!(serve(&next, 0), 1);
}

/// The port is another one, or the descriptor holds no record.
#[test]
fn a_front_end_that_cannot_be_served_on_is_cut_off_and_connects_again() {
    let event = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let narrower = |socket: &Path| options(socket, 1);
    let smaller = |socket: &Path| Options { memory_limit: 4096, ..options(socket, 2) };
    let same = |socket: &Path| options(socket, 2);
    type Kind = (&'static str, fn(&Path) -> Options, bool);
    let kinds: [Kind; 3] =
        [("pairs", narrower, false), ("memory", smaller, false), ("record", same, true)];
    for (name, next, is_strange) in kinds {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("s");
        let (session, guest) = begin(&socket, Features::VERSION_1 | Features::MQ, 2);
        let mut inherited = left(session);
        if is_strange {
            inherited.session = Some(event());
        }
        let session = Session::open_with(next(&socket), inherited).unwrap();
        let mut end = guest.connection();
        assert_eq!(end.read(&mut [0]).unwrap(), 0, "{name}");
        until("it waits", || session.status().state == State::Waiting);
        let _next = UnixStream::connect(&socket).unwrap();
        until("the next one", || session.status().state == State::Connected);
    }
}

/// The name of a group that means another number by now left the socket to the old one.
#[test]
fn a_socket_of_another_group_than_is_configured_is_made_anew() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let own = std::fs::metadata(folder.path()).unwrap().gid();
    let of =
        |group| Options { access: Access { group, ..Access::default() }, ..options(&socket, 1) };
    let session = Session::open(of(None)).unwrap();
    let session = again(session, of(Some(own)));
    assert!(session.is_adopted());
    // A process without the right to change the owner cannot make the socket anew either.
    match Session::open_with(of(Some(own + 1)), left(session)) {
        Ok(session) => assert!(!session.is_adopted()),
        Err(error) => assert!(error.to_string().contains("owner"), "{error}"),
    }
}

/// If another socket was put at the path meanwhile, front ends connect to that one.
#[test]
fn a_socket_of_another_path_is_not_taken() {
    let folder = TempDir::new().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let inherited = left(Session::open(options(&one, 1)).unwrap());
    assert!(one.exists(), "left for the next process");
    let session = Session::open_with(options(&other, 1), inherited).unwrap();
    assert!(!session.is_adopted());
    let _guest = Guest::connect(&other, Features::VERSION_1.bits(), 1).unwrap();
    let inherited =
        Inherited { listener: Some(eventfd(0, EventfdFlags::CLOEXEC).unwrap()), session: None };
    drop(session);
    assert!(!Session::open_with(options(&other, 1), inherited).unwrap().is_adopted());
}
