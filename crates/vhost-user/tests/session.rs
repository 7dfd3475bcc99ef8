//! Sessions as front ends and people see them: sockets, numbers of queues, status.
#![allow(clippy::unwrap_used, reason = "what goes wrong here fails the test")]

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost_user::{Access, Features, Options, Session, SessionError, SocketRole, State};

fn options(socket: &Path, pairs: u16) -> Options {
    Options {
        socket: socket.to_owned(),
        role: SocketRole::Server,
        access: Access::default(),
        pairs,
        mtu: 1500,
        mac: None,
        changed: Box::new(|_| {}),
    }
}

fn open(socket: &Path, pairs: u16) -> Session {
    Session::open(options(socket, pairs)).unwrap()
}

/// What a front end is told about queues, which says that it is the owner first, or not yet.
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

fn until(what: &str, look: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !look() {
        assert!(Instant::now() < end, "{what} did not come about");
        thread::sleep(Duration::from_millis(1));
    }
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
    // It is served all the same, and a ring that starts ends the complaint.
    let guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
    assert_eq!(session.status().state, State::Running);
    drop(guest);
    until("the end", || session.status().state == State::Waiting);
}

/// Who asks for the status of a port must not wait for what its guest makes a worker do.
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
    // The new one is made first, so that it has another inode.
    let other = folder.path().join("t");
    let _theirs = UnixListener::bind(&other).unwrap();
    std::fs::rename(&other, &socket).unwrap();
    drop(session);
    assert!(socket.exists());
}
