//! Front ends that use post-copy as they may not, and what of it reaches the port.

use crate::support::options;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use tempfile::TempDir;
use test_guest::Guest;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user::{Features, Session, State, Step, dock};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use waiting::until;

const ADVISE: u32 = 28;
const LISTEN: u32 = 29;
const END: u32 = 30;

/// Runs as the dock if the standard input says so.
#[test]
fn this_program_is_the_dock_too() {
    if socket_type(std::io::stdin()) == Ok(SocketType::SEQPACKET) {
        dock::serve(|| Ok(())).unwrap();
    }
}

fn start_dock() {
    let mut dock = Command::new(std::env::current_exe().unwrap());
    dock.args(["--exact", "post_copy::this_program_is_the_dock_too", "--nocapture"]);
    dock::start(dock).unwrap();
}

fn opened(folder: &TempDir, name: &str) -> Session {
    Session::open(options(&folder.path().join(name), 1)).unwrap()
}

fn connected(folder: &TempDir, name: &str) -> Guest {
    Guest::connect(&folder.path().join(name), Features::VERSION_1.bits(), 1).unwrap()
}

/// Returns why a front end was cut off.
fn reason(session: &Session) -> String {
    until("it is cut off", || matches!(session.status().state, State::Broken(_)));
    match session.status().state {
        State::Broken(reason) => reason,
        other => format!("{other:?}"),
    }
}

/// A front end of another back end would rely on it, and find out when its guest has moved.
#[test]
fn without_a_dock_post_copy_is_not_offered() {
    let folder = TempDir::new().unwrap();
    let _session = opened(&folder, "s");
    let mut guest = connected(&folder, "s");
    let offered = guest.frontend().get_protocol_features().unwrap();
    assert!(!offered.contains(VhostUserProtocolFeatures::PAGEFAULT));
    start_dock();
    let offered = guest.frontend().get_protocol_features().unwrap();
    assert!(offered.contains(VhostUserProtocolFeatures::PAGEFAULT));
}

#[test]
fn steps_out_of_their_order_cut_the_front_end_off_and_the_next_is_served() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let session = opened(&folder, "s");
    for (steps, why) in [
        (&[LISTEN][..], "advised"),
        (&[END], "listening"),
        (&[ADVISE, END], "listening"),
        (&[ADVISE, ADVISE], "already"),
    ] {
        let mut guest = connected(&folder, "s");
        for step in steps {
            if *step == ADVISE {
                drop(guest.frontend().postcopy_advise());
            } else {
                let _ = guest.ask(*step, None);
            }
        }
        let reason = reason(&session);
        assert!(reason.contains(why), "{steps:?}: {reason}");
    }
    let _guest = connected(&folder, "s");
    until("the next runs", || session.status().state == State::Running);
}

/// Memory that is whole would be read where a ferry says that pages are missing.
#[test]
fn a_guest_that_is_here_cannot_arrive() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let session = opened(&folder, "s");
    let mut guest = connected(&folder, "s");
    let _faults = guest.frontend().postcopy_advise().unwrap();
    assert_eq!(guest.ask(LISTEN, None).unwrap(), 1, "refused");
    let reason = reason(&session);
    assert!(reason.contains("must begin before"), "{reason}");
    assert_eq!(session.take_milestones(), []);
}

/// Between its table and its word that it knows the addresses, no page can be served.
#[test]
fn a_ring_before_the_addresses_are_known_is_refused() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let (_first, session) = (opened(&folder, "a"), opened(&folder, "b"));
    let mut guest = connected(&folder, "a");
    assert!(guest.move_hastily(&folder.path().join("b")).is_err());
    let reason = reason(&session);
    assert!(reason.contains("ring 0"), "{reason}");
}

/// The moves of a guest are told to people.
#[test]
fn a_guest_that_arrives_is_told_and_so_is_the_end() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let (_first, session) = (opened(&folder, "a"), opened(&folder, "b"));
    let mut guest = connected(&folder, "a");
    let arrival = guest.move_by_post_copy(&folder.path().join("b")).unwrap();
    let steps = || session.take_milestones().iter().map(|it| it.step).collect::<Vec<_>>();
    assert_eq!(steps(), [Step::Awaited]);
    guest.arrive(arrival).unwrap();
    assert_eq!(steps(), [Step::Complete]);
    assert_eq!(session.status().state, State::Running);
}

/// Rings lie in the memory that it would replace.
#[test]
fn another_table_while_the_memory_arrives_is_refused() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let (_first, session) = (opened(&folder, "a"), opened(&folder, "b"));
    let mut guest = connected(&folder, "a");
    let _arrival = guest.move_by_post_copy(&folder.path().join("b")).unwrap();
    assert!(guest.give_memory().is_err());
    let reason = reason(&session);
    assert!(reason.contains("post-copy"), "{reason}");
}

/// A guest that masks an interrupt gives its ring another descriptor, and gets it back later.
#[test]
fn another_call_descriptor_is_used_at_once() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let (_first, session) = (opened(&folder, "a"), opened(&folder, "b"));
    let mut guest = connected(&folder, "a");
    let arrival = guest.move_by_post_copy(&folder.path().join("b")).unwrap();
    let call = EventFd::new(EFD_NONBLOCK).unwrap();
    guest.frontend().set_vring_call(1, &call).unwrap();
    until("what was used before", || call.read().is_ok());
    assert!(guest.send(0, &[0; 12], &[7; 60]));
    until("the frame was taken", || call.read().is_ok());
    assert_eq!(guest.stop(1).unwrap(), 1);
    guest.kick_anew(1).unwrap();
    assert!(guest.send(0, &[0; 12], &[7; 60]));
    until("and after its ring was stopped", || call.read().is_ok());
    guest.arrive(arrival).unwrap();
    assert_eq!(session.status().state, State::Running);
}

/// Returns the processes that this test's dock has started.
fn ferries() -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|it| Some(it.ok()?.path()));
    let own = std::process::id().to_string();
    let is_ours = |stat: &str| {
        let (name, rest) = stat.rsplit_once(") ")?;
        let parent = rest.split(' ').nth(1)?;
        let line = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
        let its_parent = line.rsplit_once(") ")?.1.split(' ').nth(1)?.to_owned();
        let (process, name) = name.split_once(" (")?;
        let is_ours = name == "millrace-ferry" && its_parent == own;
        is_ours.then(|| Pid::from_raw(process.parse().ok()?)).flatten()
    };
    let stats = processes.filter_map(|it| std::fs::read_to_string(it.join("stat")).ok());
    stats.filter_map(|stat| is_ours(&stat)).collect()
}

/// Each is a process, which ends with its guest's arrival or its connection.
#[test]
fn no_ferry_is_left() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let (_first, _session) = (opened(&folder, "a"), opened(&folder, "b"));
    assert_eq!(ferries(), []);
    let mut guest = connected(&folder, "a");
    let arrival = guest.move_by_post_copy(&folder.path().join("b")).unwrap();
    assert_eq!(ferries().len(), 1);
    guest.arrive(arrival).unwrap();
    until("it has ended", || ferries().is_empty());
    drop(guest);
    let mut guest = connected(&folder, "a");
    let _arrival = guest.move_by_post_copy(&folder.path().join("b")).unwrap();
    drop(guest);
    until("the second has ended", || ferries().is_empty());
}

/// Its front end can have a ferry go on after its session.
#[test]
fn a_ferry_that_does_not_end_is_killed() {
    start_dock();
    let folder = TempDir::new().unwrap();
    let (_first, _session) = (opened(&folder, "a"), opened(&folder, "b"));
    let mut guest = connected(&folder, "a");
    let _arrival = guest.move_by_post_copy(&folder.path().join("b")).unwrap();
    for ferry in ferries() {
        kill_process(ferry, Signal::STOP).unwrap();
    }
    drop(guest);
    until("it has ended", || ferries().is_empty());
    let mut guest = connected(&folder, "a");
    drop(guest.frontend().postcopy_advise().unwrap());
    assert_eq!(ferries().len(), 1, "the dock goes on");
}
