//! Commands of guests: who is offered the features for them, and how long what they set lasts.

use crate::support::options;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost_user::{Compat, Features, GuestSettings, Inherited, Options, Session};
use waiting::until;
use wire::Mac;
use wire::toeplitz::HashTypes;

/// The settings that a session told last.
pub(crate) type Told = Arc<Mutex<Arc<GuestSettings>>>;

/// Returns options for four queue pairs of a session that tells the settings of its guest.
pub(crate) fn telling(socket: &Path, told: &Told) -> Options {
    let told = told.clone();
    let commanded = move |settings: &Arc<GuestSettings>| {
        *told.lock().unwrap() = settings.clone();
    };
    Options { commanded: Box::new(commanded), ..options(socket, 4) }
}

pub(crate) fn told(told: &Told) -> Arc<GuestSettings> {
    told.lock().unwrap().clone()
}

/// All that a driver of the last kernels takes beside its rings.
pub(crate) fn wanted() -> Features {
    Features::VERSION_1
        | Features::MQ
        | Features::CTRL_VQ
        | Features::CTRL_RX
        | Features::CTRL_RX_EXTRA
        | Features::CTRL_VLAN
        | Features::CTRL_MAC_ADDR
        | Features::CTRL_GUEST_OFFLOADS
        | Features::GUEST_CSUM
        | Features::RSS
        | Features::HASH_REPORT
}

/// Returns the content of a command that sets a table of one entry.
fn table(queue: u16) -> Vec<u8> {
    let words = [2, 0, 0, queue, queue, 4].into_iter();
    let words = words.flat_map(|word: u16| word.to_le_bytes());
    words.chain([40]).chain([7; 40]).collect()
}

/// QEMU would pass RSS on to its guest, keep the driver's commands, and send us nothing. OpenVMM,
/// which asks as early but once, was taken for QEMU, and its guests had no RSS.
#[test]
fn a_front_end_that_asks_early_and_again_is_not_offered_what_needs_commands() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let offers = |options: Options, owner_first: bool| {
        let _session = Session::open(options).unwrap();
        let frontend = Frontend::connect(&socket, 16).unwrap();
        if owner_first {
            frontend.set_owner().unwrap();
        }
        let ask = || Features::from_bits_truncate(frontend.get_features().unwrap());
        let first = ask();
        frontend.set_owner().unwrap();
        let second = ask();
        assert_eq!(ask(), second, "it stays the same");
        (first, second)
    };
    let four = |_: ()| options(&socket, 4);
    let (first, second) = offers(four(()), true);
    assert!(first == second && first.contains(Features::COMMANDED));
    let (first, second) = offers(four(()), false);
    assert!(first.contains(Features::COMMANDED), "OpenVMM asks no more");
    assert_eq!(second, first - Features::COMMANDED, "QEMU asks again, and goes by this answer");
    let (one, _) = offers(options(&socket, 1), true);
    assert!(!one.intersects(Features::SCALING), "nothing to choose");
    let other = Options { compat: Some(Compat::OvsDpdk), ..four(()) };
    assert!(!offers(other, true).0.intersects(Features::COMMANDED));
}

#[test]
fn the_configuration_space_tells_what_may_be_set() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("s");
    let _session = Session::open(options(&socket, 4)).unwrap();
    let mut frontend = Frontend::connect(&socket, 16).unwrap();
    frontend.set_owner().unwrap();
    frontend.get_features().unwrap();
    frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG).unwrap();
    let flags = VhostUserConfigFlags::WRITABLE;
    let (_, space) = frontend.get_config(17, 7, flags, &[0; 7]).unwrap();
    assert_eq!(space, [40, 128, 0, 0xff, 1, 0, 0]);
}

/// A restart of the switch took the guest's table, and the guest does not set it again.
#[test]
fn what_was_set_goes_on_in_the_next_process_and_ends_with_the_driver() {
    let folder = TempDir::new().unwrap();
    let (socket, before, after) = (folder.path().join("s"), Told::default(), Told::default());
    let mut session = Session::open(telling(&socket, &before)).unwrap();
    let mut guest = Guest::connect_with_commands(&socket, wanted().bits(), 4).unwrap();
    let macs = [&[1, 0, 0, 0, 2, 0, 0, 0, 0, 7][..], &[0; 4]].concat();
    let commands: [(u8, u8, &[u8]); 6] = [
        (4, 1, &table(3)),
        (4, 0, &[2, 0]),
        (4, 1, &table(2)),
        (0, 0, &[0]),
        (1, 0, &macs),
        (2, 0, &[9, 0]),
    ];
    for (class, command, content) in commands {
        assert!(guest.command(class, command, content), "{class}, {command}");
    }
    let before = told(&before);
    session.suspend();
    let record = session.suspended(Instant::now() + Duration::from_secs(10));
    let inherited = Inherited { listener: None, session: Some(record.unwrap()) };
    drop(session);
    let session = Session::open_with(telling(&socket, &after), inherited).unwrap();
    until("it goes on", || session.status().negotiated.pairs == 4);
    let now = told(&after);
    let (old, new) = (before.hash.as_ref().unwrap(), now.hash.as_ref().unwrap());
    assert_eq!((old.key(), old.types()), (new.key(), new.types()));
    assert_eq!(new.types(), HashTypes::TCPV4);
    assert_eq!((&before.table, &before.filter), (&now.table, &now.filter));
    let (table, filter) = (now.table.as_ref().unwrap(), now.filter.as_ref().unwrap());
    assert_eq!(table.queue(Some(5)), 2);
    let wants = |last| filter.wants(Mac([2, 0, 0, 0, 0, last]), Some(9), false);
    assert!(wants(7) && !filter.wants(Mac([2, 0, 0, 0, 0, 7]), Some(8), true));
    drop(guest);
    until("it ends with the front end", || told(&after).table.is_none());
}

/// A guest that was paused, whose driver knows nothing of it, lost its table and all queues but one;
/// a driver that was loaded anew had the table of the one before.
#[test]
fn a_pause_keeps_what_was_set_and_a_driver_that_begins_does_not() {
    let folder = TempDir::new().unwrap();
    let (socket, now) = (folder.path().join("s"), Told::default());
    let session = Session::open(telling(&socket, &now)).unwrap();
    let mut guest = Guest::connect_with_commands(&socket, wanted().bits(), 4).unwrap();
    assert!(guest.command(4, 1, &table(3)) && guest.command(0, 0, &[0]));
    guest.pause().unwrap();
    assert_eq!(session.status().negotiated.pairs, 0);
    guest.resume().unwrap();
    assert_eq!(session.status().negotiated.pairs, 4);
    assert!(told(&now).table.is_some() && told(&now).filter.is_some());
    let without = (wanted() | Features::PROTOCOL_FEATURES) - Features::CTRL_RX;
    let without = without.bits() & guest.features();
    guest.frontend().set_features(without).unwrap();
    assert!(told(&now).table.is_some() && told(&now).filter.is_none());
    guest.load_driver_anew().unwrap();
    assert!(told(&now).table.is_none());
    assert_eq!(session.status().negotiated.pairs, 1, "it has asked for no more yet");
}
