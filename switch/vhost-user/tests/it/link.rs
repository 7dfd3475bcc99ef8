//! A guest's link is set down: its front end is told by a message, or by the end of its connection.

use crate::support::options;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::{Guest, GuestError};
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost_user::{Features, Inherited, Session, State, Status};
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

/// What a driver takes that looks at its link's state.
const LOOKS: Features = Features::VERSION_1.union(Features::STATUS);

/// Returns a guest that hears of changes, and its front end's end of the channel.
fn hearing(socket: &Path, features: Features) -> (Guest, UnixStream) {
    let mut guest = connect(socket, features).unwrap();
    let channel = guest.give_channel().unwrap();
    channel.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (guest, channel)
}

/// Waits for a message about a change.
fn hear(channel: &mut UnixStream) {
    let mut head = [0; 12];
    channel.read_exact(&mut head).unwrap();
    let (words, _) = head.as_chunks();
    let words: Vec<_> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    assert_eq!(words, [2, 1, 0], "the configuration changed, and no answer is wanted");
}

/// Whether no message is there.
fn is_quiet(channel: &UnixStream) -> bool {
    channel.set_nonblocking(true).unwrap();
    let nothing = (&*channel).read(&mut [0]).is_err();
    channel.set_nonblocking(false).unwrap();
    nothing
}

/// Returns a field of two bytes of the configuration space.
fn field(guest: &mut Guest, offset: u32) -> u16 {
    let flags = VhostUserConfigFlags::WRITABLE;
    let (_, bytes) = guest.frontend().get_config(offset, 2, flags, &[0; 2]).unwrap();
    u16::from_le_bytes(*bytes.first_chunk().unwrap())
}

const STATUS: u32 = 6;
const SPEED: u32 = 12;

/// User-mode Linux does not connect again, so its guest lost its network with the link.
#[test]
fn one_that_hears_of_changes_keeps_its_connection() {
    for format in [Features::empty(), Features::RING_PACKED] {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("s");
        let session = Session::open(options(&socket, 1)).unwrap();
        let (mut guest, mut channel) = hearing(&socket, LOOKS | format);
        assert_eq!((field(&mut guest, STATUS), field(&mut guest, SPEED)), (1, u16::MAX));
        for (is_up, status) in [(false, 0), (true, 1)] {
            session.set_link(is_up);
            hear(&mut channel);
            assert_eq!(field(&mut guest, STATUS), status);
            assert_ne!(session.status().is_told, is_up);
        }
        session.set_speed(Some(1000));
        hear(&mut channel);
        assert_eq!(field(&mut guest, SPEED), 1000);
        assert!(is_quiet(&channel), "it hears of each change once");
        let status = session.status();
        assert_eq!((status.state, status.connections), (State::Running, 1));
    }
}

#[test]
fn one_that_gives_its_channel_while_the_link_is_down_hears_of_it() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    // Its driver is not ready, or it would be cut off.
    let mut guest = connect(&socket, LOOKS | Features::RING_PACKED).unwrap();
    session.set_link(false);
    assert_eq!(field(&mut guest, STATUS), 1, "nothing would tell it that the link is up again");
    let mut channel = guest.give_channel().unwrap();
    hear(&mut channel);
    assert_eq!(field(&mut guest, STATUS), 0);
}

/// The guest would not notice that its link is down.
#[test]
fn one_that_closed_its_channel_is_cut_off() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let (guest, channel) = hearing(&socket, LOOKS);
    drop(channel);
    session.set_link(false);
    assert!(is_over(&guest));
    until("its end", || session.status().state == State::Waiting);
    assert!(connect(&socket, LOOKS).is_err(), "it is refused as any other");
}

/// It may have a copy of the other end, and read what it wrote itself.
#[test]
fn what_comes_over_a_channel_is_not_read() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let (mut guest, mut channel) = hearing(&socket, LOOKS);
    channel.write_all(&[7; 20]).unwrap();
    session.set_link(false);
    hear(&mut channel);
    assert_eq!(field(&mut guest, STATUS), 0);
}

/// QEMU passes no change on to a network device's guest, and has its configuration space.
#[test]
fn one_without_a_configuration_space_is_cut_off() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let (mut guest, channel) = hearing(&socket, LOOKS);
    let agreed = VhostUserProtocolFeatures::BACKEND_REQ | VhostUserProtocolFeatures::REPLY_ACK;
    guest.frontend().set_protocol_features(agreed).unwrap();
    session.set_link(false);
    assert!(is_over(&guest));
    assert_eq!((&channel).read(&mut [0]).unwrap(), 0, "nothing was sent over it");
}

#[test]
fn one_that_asks_before_it_owns_is_offered_no_channel() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let _session = Session::open(options(&socket, 1)).unwrap();
    let offers = |owner_first: bool| {
        let mut frontend = Frontend::connect(&socket, 2).unwrap();
        if owner_first {
            frontend.set_owner().unwrap();
        }
        frontend.get_features().unwrap();
        let early = frontend.get_protocol_features().unwrap();
        // QEMU asks again for its next pair of queues.
        frontend.set_owner().unwrap();
        assert_eq!(frontend.get_protocol_features().unwrap(), early);
        early.contains(VhostUserProtocolFeatures::BACKEND_REQ)
    };
    assert_eq!([true, false].map(offers), [true, false]);
}

#[test]
fn one_that_never_reads_its_channel_holds_up_nothing() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let (mut guest, mut channel) = hearing(&socket, LOOKS);
    for _ in 0..1_000 {
        session.set_link(false);
        session.set_link(true);
        // It is answered, so the session's thread does not wait for the channel.
        guest.frontend().get_features().unwrap();
    }
    hear(&mut channel);
    assert_eq!(session.status().connections, 1);
}

#[test]
fn another_channel_takes_the_place_of_the_first() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let session = Session::open(options(&socket, 1)).unwrap();
    let (mut guest, mut first) = hearing(&socket, LOOKS);
    session.set_link(false);
    hear(&mut first);
    let mut second = guest.give_channel().unwrap();
    hear(&mut second);
    assert_eq!(first.read(&mut [0]).unwrap(), 0, "it is closed");
    session.set_link(true);
    hear(&mut second);
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = files();
    for _ in 0..50 {
        second = guest.give_channel().unwrap();
    }
    until("the others are closed", || files() <= before + 1);
    session.set_link(false);
    hear(&mut second);
}

/// A restart of the switch left the guest's link down for ever.
#[test]
fn a_channel_goes_on_in_the_next_process() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let mut session = Session::open(options(&socket, 1)).unwrap();
    let (mut guest, mut channel) = hearing(&socket, LOOKS);
    session.set_link(false);
    hear(&mut channel);
    let listener = session.listener().map(Result::unwrap);
    session.suspend();
    let left = session.suspended(Instant::now() + Duration::from_secs(10));
    assert!(left.is_some());
    let session =
        Session::open_with(options(&socket, 1), Inherited { listener, session: left }).unwrap();
    hear(&mut channel);
    assert_eq!(field(&mut guest, STATUS), 1, "its uplinks are looked at anew");
    session.set_link(false);
    hear(&mut channel);
    assert_eq!(session.status().connections, 1);
}
