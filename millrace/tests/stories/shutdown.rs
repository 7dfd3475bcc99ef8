//! A daemon that is told to stop leaves nothing behind.

use crate::sandbox::{Need, run, story};
use crate::switch::{SOCKET, Switch};
use rustix::process::Signal;
use std::path::Path;

#[test]
fn sigterm_leaves_nothing_behind() {
    story(&[Need::Tap], || leaves_nothing_behind(Signal::TERM));
}

#[test]
fn sigint_leaves_nothing_behind() {
    story(&[Need::Tap], || leaves_nothing_behind(Signal::INT));
}

#[test]
fn a_killed_daemon_is_followed_by_another() {
    story(&[Need::Tap], || {
        let configuration = "[[port]]\nname = 'vm1'\ntap = 'tap1'\n";
        Switch::start(configuration).end(Signal::KILL);
        assert!(Path::new(SOCKET).exists(), "a killed daemon cannot clean up");
        let switch = Switch::start(configuration);
        assert_ne!(switch.state("vm1").0, "broken");
    });
}

fn leaves_nothing_behind(signal: Signal) {
    let before = (links(), processes());
    let switch = Switch::start("[[port]]\nname = 'vm1'\ntap = 'tap1'\nqueues = 2\n");
    assert_ne!((links(), processes()), before);
    let status = switch.end(signal);
    assert_eq!(status.code(), Some(0));
    assert!(!Path::new(SOCKET).exists(), "the socket is still there");
    assert_eq!((links(), processes()), before);
}

/// Returns the names of all network devices.
fn links() -> String {
    run("ip -brief link show")
}

/// Returns the IDs of all processes. The story has a PID namespace of its own, so it sees no
/// others.
fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
}
