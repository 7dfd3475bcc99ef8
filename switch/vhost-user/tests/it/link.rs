//! A guest's link is set down: the front end is told by the end of its connection.

use crate::support::options;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use test_guest::{Guest, GuestError};
use vhost_user::{Features, Session, State, Status};
use waiting::until;

fn connect(socket: &Path, features: Features) -> Result<Guest, GuestError> {
    Guest::connect(socket, features.bits(), 1)
}

fn is_over(guest: &Guest) -> bool {
    let mut connection = guest.connection();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    connection.read(&mut [0]).unwrap() == 0
}

#[test]
fn a_guest_that_runs_is_cut_off_and_served_again_once_its_link_is_up() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let guest = connect(&socket, Features::VERSION_1).unwrap();
    assert_eq!(session.status().process, Some(std::process::id()));
    session.set_link(true);
    assert_eq!(session.status().state, State::Running);
    session.set_link(false);
    assert!(is_over(&guest));
    let has_ended = |status: &Status| status.state == State::Waiting && status.process.is_none();
    until("its end", || has_ended(&session.status()));
    assert!(session.status().is_unplugged);
    // QEMU keeps reconnecting, and shows the link as up once a connection is served.
    for _ in 0..3 {
        assert!(connect(&socket, Features::VERSION_1).is_err());
    }
    assert_eq!(session.status().connections, 1, "none of them was one");
    session.set_link(true);
    until("a guest", || connect(&socket, Features::VERSION_1).is_ok());
}

/// QEMU does not start without its back end.
#[test]
fn one_that_comes_while_its_link_is_down_is_served_until_it_runs() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    session.set_link(false);
    // Its last message may find the connection closed.
    let _ = connect(&socket, Features::VERSION_1);
    assert_eq!(session.status().connections, 1);
    until("its end", || session.status().state == State::Waiting);
    assert!(connect(&socket, Features::VERSION_1).is_err());
}

/// It could not go on where it was: QEMU keeps no inflight region for a network device.
#[test]
fn one_with_packed_rings_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let mut guest = connect(&socket, Features::VERSION_1 | Features::RING_PACKED).unwrap();
    session.set_link(false);
    guest.give_memory().unwrap();
    assert_eq!(session.status().state, State::Running);
}
