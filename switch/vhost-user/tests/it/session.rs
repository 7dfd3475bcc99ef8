//! Sessions from the outside: their sockets, numbers of queues and status.

use crate::requests::{GET_STATUS, SET_MTU, SET_STATUS};
use crate::support::options;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use test_guest::Guest;
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use vhost_user::{Features, Options, Session, SessionError, State, Step};
use virtqueue::Limit;
use waiting::until;

fn open(socket: &Path, pairs: u16) -> Session {
    Session::open(options(socket, pairs)).unwrap()
}

/// Returns the number of queues that a front end is told. With `owner_first` it sends `SET_OWNER`
/// before it asks.
fn queues(socket: &Path, owner_first: bool) -> u64 {
    let mut frontend = Frontend::connect(socket, 16).unwrap();
    if owner_first {
        frontend.set_owner().unwrap();
    }
    frontend.get_features().unwrap();
    frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(VhostUserProtocolFeatures::MQ).unwrap();
    frontend.get_queue_num().unwrap()
}

/// A session with a thread that waits in `changed` until `release` is dropped.
struct Stuck {
    session: Session,
    frontend: UnixStream,
    release: mpsc::Sender<()>,
    /// Receives a message for each call of `changed`.
    calls: mpsc::Receiver<()>,
}

impl Stuck {
    fn new(socket: &Path) -> Stuck {
        let (release, wait) = mpsc::channel();
        let (told, calls) = mpsc::channel();
        let wait = Mutex::new(wait);
        let changed = Box::new(move |_: &_| {
            let _ = told.send(());
            let _ = wait.lock().unwrap().recv();
        });
        let session = Session::open(Options { changed, ..options(socket, 1) }).unwrap();
        let frontend = UnixStream::connect(socket).unwrap();
        calls.recv().unwrap();
        Stuck { session, frontend, release, calls }
    }
}

/// Drops a value in another thread, and fails if that blocks.
fn drop_without_waiting(what: impl Send + 'static) {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        drop(what);
        done.send(())
    });
    wait.recv_timeout(Duration::from_secs(10)).unwrap();
}

/// Returns a TCP socket with a close that blocks until its peer reads or closes.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&slow, Some(Duration::from_secs(3600))).unwrap();
    (slow, peer)
}

/// Whether the socket of this local port is being closed (`FIN_WAIT1`).
fn is_closing(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    sockets
        .lines()
        .map(fields)
        .any(|fields| fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "04")
}

/// It had 38: two for each ring, although a kick of a receive queue wakes nobody.
#[test]
fn a_port_that_waits_for_its_guest_has_few_descriptors() {
    let folder = TempDir::new().unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What the process has once, such as the context that sends signals.
    let _first = open(&folder.path().join("first"), 1);
    let before = count();
    let _session = open(&folder.path().join("second"), 8);
    // One a pair of queues, one for commands, the socket, and four to wake its thread and worker.
    assert_eq!(count() - before, 8 + 1 + 1 + 4);
}

/// Each session took 5 s to end, one after the other, and kept its socket.
#[test]
fn stuck_sessions_hold_up_neither_their_ends_nor_their_successors() {
    let folder = TempDir::new().unwrap();
    let path = |number| folder.path().join(format!("s{number}"));
    let stuck: Vec<_> = (0..4).map(|number| Stuck::new(&path(number))).collect();
    let (sessions, rest): (Vec<_>, Vec<_>) =
        stuck.into_iter().map(|stuck| (stuck.session, (stuck.release, stuck.frontend))).unzip();
    drop_without_waiting(sessions);
    for number in 0..4 {
        assert!(!path(number).exists());
        let successor = open(&path(number), 1);
        let _guest = Guest::connect(&path(number), Features::VERSION_1.bits(), 1).unwrap();
        assert_eq!(successor.status().state, State::Running);
    }
    drop(rest);
}

/// The connection was closed under a lock that the session's owner takes.
#[test]
fn a_connection_whose_close_waits_holds_up_its_own_session_alone() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let Stuck { session, frontend, release, calls } = Stuck::new(&socket);
    let (slow, peer) = slow_to_close();
    let port = slow.local_addr().unwrap().port();
    // The session blocks in the first, incomplete message, and the second holds the socket.
    (&frontend).write_all(&[0; 12]).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [slow.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(&frontend, &[IoSlice::new(&[0; 12])], &mut control, SendFlags::empty()).unwrap();
    drop(slow);
    drop(release);
    calls.recv().unwrap();
    until("the close of the connection", || is_closing(port));
    drop_without_waiting(session);
    let successor = open(&socket, 1);
    let _guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    assert_eq!(successor.status().state, State::Running);
    assert!(is_closing(port), "it has not waited");
    drop(peer);
}

/// QEMU with `queues=4` at a port of 2 was told 5, and found out only by a ring that was refused.
#[test]
fn qemu_is_told_pairs_and_cloud_hypervisor_rings() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let _session = open(&socket, 2);
    assert_eq!(queues(&socket, false), 2);
    assert_eq!(queues(&socket, true), 5, "two pairs and a control queue");
}

#[test]
fn a_front_end_that_connects_in_a_loop_is_slowed_down_and_named() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 2);
    for _ in 0..5 {
        queues(&socket, false);
    }
    until("a complaint", || matches!(session.status().state, State::Broken(_)));
    let State::Broken(reason) = session.status().state else { return };
    assert!(reason.contains("5 times") && reason.contains("2 queue pairs"), "{reason}");
    // The front end is served nevertheless, as frames prove.
    let guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    assert_eq!(session.status().state, State::Running);
    drop(guest);
    until("a complaint", || matches!(session.status().state, State::Broken(_)));
    let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    guest.send(0, &[0; 12], &[0; 60]);
    let (_receive, send) = session.pair(0).unwrap();
    let took = send.with(|running| {
        let taken = running.queue.take(Limit { chains: 1, bytes: usize::MAX });
        running.queue.complete(usize::MAX);
        taken
    });
    assert_eq!(took, Some(Ok(1)));
    let status = session.status();
    assert_eq!(
        status.mapped.iter().map(|range| range.end - range.start).sum::<u64>(),
        status.memory
    );
    assert!(status.memory > 0);
    drop(guest);
    until("the end", || session.status().state == State::Waiting);
    assert_eq!(session.status().mapped, []);
}

/// A request for a port's status must not wait for work that the port's guest causes in a worker.
#[test]
fn a_ring_in_use_does_not_hold_up_the_status() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let _guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    let (receive, _send) = session.pair(0).unwrap();
    let (told, hear) = mpsc::channel();
    let status = receive.with(|_| {
        thread::spawn(move || told.send(session.status()));
        hear.recv_timeout(Duration::from_secs(10))
    });
    assert_eq!(status.unwrap().unwrap().state, State::Running);
}

#[test]
fn a_stale_socket_is_replaced_and_our_own_removed() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    drop(UnixListener::bind(&socket).unwrap());
    drop(open(&socket, 1));
    assert!(!socket.exists());
}

#[test]
fn a_live_socket_of_another_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let theirs = UnixDatagram::bind(&socket).unwrap();
    let refused = Session::open(options(&socket, 1)).err().unwrap();
    assert!(matches!(refused, SessionError::NotOurs { .. }), "{refused}");
    assert!(refused.to_string().contains("remove it, or choose another"), "{refused}");
    assert!(UnixDatagram::unbound().unwrap().connect(&socket).is_ok());
    drop(theirs);
    std::fs::remove_file(&socket).unwrap();
    let _theirs = UnixListener::bind(&socket).unwrap();
    let refused = Session::open(options(&socket, 1)).err().unwrap();
    assert!(matches!(refused, SessionError::InUse { .. }), "{refused}");
}

#[test]
fn a_socket_that_took_the_place_of_ours_stays() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    // The new socket is made before ours is removed, so that it has another inode.
    let other = folder.path().join("t");
    let _theirs = UnixListener::bind(&other).unwrap();
    std::fs::rename(&other, &socket).unwrap();
    drop(session);
    assert!(socket.exists());
}

/// Each ring kept the region with which it was started, so one front end could use up the process's
/// mappings.
#[test]
fn an_inflight_region_is_refused_while_a_ring_runs() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    guest.stop(0).unwrap();
    assert!(guest.give_inflight().is_err());
    until("the end", || matches!(session.status().state, State::Broken(_)));
    let State::Broken(reason) = session.status().state else { return };
    assert!(reason.contains("while ring 1 runs") && reason.contains("stopped"), "{reason}");
    let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    guest.stop(0).unwrap();
    guest.stop(1).unwrap();
    guest.give_inflight().unwrap();
}

/// A front end that asked for 65535 rings of 65535 entries made the switch allocate 34 GB of huge
/// pages.
#[test]
fn an_inflight_region_is_for_rings_of_the_port_and_within_its_memory_limit() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(Options { memory_limit: 8192, ..options(&socket, 1) }).unwrap();
    let refused = |num_queues, queue_size, word: &str| {
        let mut frontend = adding_memory(&socket);
        let file = memfd_create("inflight", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 1 << 40).unwrap();
        let said = VhostUserInflight { mmap_size: 1 << 40, mmap_offset: 0, num_queues, queue_size };
        assert!(frontend.set_inflight_fd(&said, file.as_raw_fd()).is_err());
        until("the end", || matches!(session.status().state, State::Broken(_)));
        let State::Broken(reason) = session.status().state else { return };
        assert!(reason.contains(word), "{reason}");
    };
    refused(65535, 256, "65535 rings of 256: this port has");
    refused(2, 65535, "2 rings of 65535");
    refused(2, 32768, "memory-limit is 8192");
}

/// Returns a front end that adds memory region by region, with a reply to each.
fn adding_memory(socket: &Path) -> Frontend {
    let mut frontend = Frontend::connect(socket, 2).unwrap();
    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    frontend.set_features(features).unwrap();
    frontend.get_protocol_features().unwrap();
    let protocol = VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
    frontend.set_protocol_features(protocol).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    frontend
}

/// The number of regions had no limit.
#[test]
fn a_front_end_has_as_many_memory_regions_as_were_announced() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let mut frontend = adding_memory(&socket);
    let slots = frontend.get_max_mem_slots().unwrap();
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 4096).unwrap();
    let mut add = |number| {
        frontend.add_mem_region(&VhostUserMemoryRegionInfo {
            guest_phys_addr: number << 20,
            memory_size: 4096,
            userspace_addr: number << 20,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        })
    };
    for number in 0..slots {
        add(number).unwrap();
    }
    assert!(add(slots).is_err());
    until("the end", || matches!(session.status().state, State::Broken(_)));
    let State::Broken(reason) = session.status().state else { return };
    assert!(reason.contains("than the 509 served,"), "{reason}");
}

/// A sparse file of terabytes was mapped, and its pages that a worker touched counted as the
/// switch's memory.
#[test]
fn a_front_end_has_as_much_memory_as_its_port_allows() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let limited = Options { memory_limit: 8192, ..options(&socket, 1) };
    let session = Session::open(limited).unwrap();
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 1 << 45).unwrap();
    let region = |place: u64, size| VhostUserMemoryRegionInfo {
        guest_phys_addr: place << 20,
        memory_size: size,
        userspace_addr: place << 20,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    };
    let is_cut_off = || {
        until("the end", || matches!(session.status().state, State::Broken(_)));
        let State::Broken(reason) = session.status().state else { return };
        assert!(reason.contains("memory-limit is 8192"), "{reason}");
    };
    let frontend = adding_memory(&socket);
    assert!(frontend.set_mem_table(&[region(0, 1 << 44)]).is_err());
    is_cut_off();
    let mut frontend = adding_memory(&socket);
    frontend.add_mem_region(&region(0, 4096)).unwrap();
    frontend.add_mem_region(&region(1, 4096)).unwrap();
    assert!(frontend.add_mem_region(&region(2, 4096)).is_err());
    is_cut_off();
    let mut frontend = adding_memory(&socket);
    assert!(frontend.add_mem_region(&region(0, 12288)).is_err());
    is_cut_off();
}

/// A guest ran with an announced MTU of 9000 bytes at a port of 1500, and all its large frames were
/// lost.
#[test]
fn a_guest_that_was_told_of_a_larger_mtu_does_not_start() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    guest.stop(0).unwrap();
    assert_eq!(guest.ask(SET_MTU, Some(9000)).unwrap(), 1, "refused");
    let State::Broken(reason) = session.status().state else { panic!("it is well") };
    assert!(reason.contains("9000") && reason.contains("1500"), "{reason}");
    assert_eq!(guest.ask(SET_MTU, Some(1500)).unwrap(), 0);
    guest.kick_anew(0).unwrap();
    assert_eq!(session.status().state, State::Running, "with one that fits");
    assert_eq!(guest.ask(SET_MTU, Some(9000)).unwrap(), 1);
    assert!(guest.kick_anew(0).is_err(), "it starts all the same");
    until("the end", || matches!(session.status().state, State::Broken(_)));
    let State::Broken(reason) = session.status().state else { panic!("it is well") };
    assert!(reason.contains("9000"), "{reason}");
}

#[test]
fn a_device_status_reads_back_and_0_stops_the_rings() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let mut guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    assert_eq!(guest.ask(GET_STATUS, None).unwrap(), 0);
    for status in [1, 3, 11, 15] {
        assert_eq!(guest.ask(SET_STATUS, Some(status)).unwrap(), 0);
        assert_eq!(guest.ask(GET_STATUS, None).unwrap(), status);
    }
    assert_eq!(session.status().state, State::Running);
    guest.ask(SET_STATUS, Some(0)).unwrap();
    assert_eq!(session.status().state, State::Connected);
    for ring in 0..2 {
        guest.kick_anew(ring).unwrap();
    }
    assert_eq!(session.status().state, State::Running);
}

/// Messages of features that were not negotiated were accepted.
#[test]
fn what_was_not_agreed_on_cuts_the_front_end_off() {
    for request in [19, SET_MTU, SET_STATUS] {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("s");
        let _session = open(&socket, 1);
        let mut connection = UnixStream::connect(&socket).unwrap();
        let head = [request, 1, 8, 0, 0].map(u32::to_ne_bytes);
        connection.write_all(head.as_flattened()).unwrap();
        assert_eq!(connection.read(&mut [0]).unwrap(), 0);
    }
}

/// Memory written before the log exists would be in no log, so the guest would find old content on
/// its new host.
#[test]
fn rings_kicked_before_there_is_the_log_they_need_wait_for_it() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let wanted = Features::VERSION_1 | Features::LOG_ALL;
    let mut guest = Guest::connect(&socket, wanted.bits(), 1).unwrap();
    assert_eq!(session.status().state, State::Connected, "its rings wait");
    let (receive, _send) = session.pair(0).unwrap();
    assert!(receive.with(|_| ()).is_none());
    assert_eq!(guest.stop(0).unwrap(), 0, "one is stopped");
    guest.log(0).unwrap();
    assert_eq!(session.status().state, State::Connected);
    assert!(receive.with(|_| ()).is_none(), "and stays so");
    guest.kick_anew(0).unwrap();
    assert_eq!(session.status().state, State::Running);
    // The next front end's migration is cancelled before it has sent its log.
    drop(guest);
    until("the end", || session.status().state == State::Waiting);
    let mut guest = Guest::connect(&socket, wanted.bits(), 1).unwrap();
    assert_eq!(session.status().state, State::Connected);
    guest
        .frontend()
        .set_features((wanted | Features::PROTOCOL_FEATURES).bits() & !Features::LOG_ALL.bits())
        .unwrap();
    assert_eq!(session.status().state, State::Running);
}

#[test]
fn a_ring_that_is_given_a_base_waits_for_no_log() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = open(&socket, 1);
    let wanted = Features::VERSION_1 | Features::LOG_ALL;
    let mut guest = Guest::connect(&socket, wanted.bits(), 1).unwrap();
    assert!(session.status().awaits_log);
    for ring in 0..2 {
        guest.frontend().set_vring_base(ring, 0).unwrap();
    }
    assert!(!session.status().awaits_log);
}

const LOGGED: Features =
    Features::VERSION_1.union(Features::PROTOCOL_FEATURES).union(Features::LOG_ALL);

/// Returns a session with a guest that has begun to migrate.
fn moving(socket: &Path) -> (Session, Guest) {
    let session = open(socket, 1);
    let mut guest = Guest::connect(socket, Features::VERSION_1.bits(), 1).unwrap();
    guest.log(0).unwrap();
    guest.frontend().set_features(LOGGED.bits()).unwrap();
    (session, guest)
}

fn steps(session: &Session) -> Vec<Step> {
    session.take_milestones().iter().map(|milestone| milestone.step).collect()
}

/// QEMU's messages at that time were reported as a move away, a return, and another migration.
#[test]
fn a_driver_that_is_loaded_anew_ends_no_migration() {
    let folder = TempDir::new().unwrap();
    let (session, mut guest) = moving(&folder.path().join("s"));
    let bases = [0, 1].map(|ring| guest.stop(ring).unwrap());
    guest.frontend().set_features(LOGGED.bits()).unwrap();
    for (ring, base) in bases.into_iter().enumerate() {
        guest.frontend().set_vring_base(ring, u16::try_from(base).unwrap()).unwrap();
        guest.kick_anew(ring).unwrap();
    }
    guest.log(0).unwrap();
    let steps = steps(&session);
    assert!(matches!(steps[..], [Step::Logged, Step::Stopped(_), Step::Returned(_)]), "{steps:?}");
}

/// The migration was reported as cancelled, with the guest staying.
#[test]
fn a_guest_that_was_reset_in_mid_migration_has_stopped() {
    let folder = TempDir::new().unwrap();
    let (session, mut guest) = moving(&folder.path().join("s"));
    guest.ask(SET_STATUS, Some(0)).unwrap();
    guest.frontend().set_features((LOGGED - Features::LOG_ALL).bits()).unwrap();
    let steps = steps(&session);
    assert!(matches!(steps[..], [Step::Logged, Step::Stopped(_)]), "{steps:?}");
}
