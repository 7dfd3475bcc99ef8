//! Tests `millrace top` on a real pseudo-terminal, against a daemon in process.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[allow(dead_code, reason = "unit tests share it")]
mod pty;
#[allow(dead_code, reason = "other tests share it")]
#[path = "../../../control/daemon/tests/it/test_daemon.rs"]
mod test_daemon;

use pty::Pty;
use std::process::Command;
use test_daemon::Daemon;

const TWO: &str = "\
[[port]]
name = \"web\"
tap = \"tap1\"

[[port]]
name = \"uplink0\"
packet = \"eth1\"
";

/// Starts `millrace top` in the daemon's directory.
fn top(daemon: &Daemon) -> Pty {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("top").env("MILLRACE_SOCKET", daemon.socket()).current_dir(daemon.path(""));
    Pty::start(&command)
}

#[test]
fn keys_lead_through_the_screen_and_the_terminal_is_left_as_it_was() {
    let daemon = Daemon::start(TWO);
    let mut top = top(&daemon);
    top.shows("2/2 ports up");
    top.press("/web\r");
    top.shows("PORT 1");
    top.press("\r");
    top.shows("ingress frames");
    top.press("t");
    top.shows("frame:");
    top.press("arp 10.0.0.1 > 10.0.0.2\r");
    top.shows("leaves through uplink0");
    top.press("c");
    top.shows("capturing web to web.pcapng; c ends it");
    top.press("c");
    top.shows("0 frames");
    assert!(daemon.path("web.pcapng").exists());
    top.press("q");
    assert!(top.ends().success());
    top.is_as_before();
}

#[test]
fn a_daemon_that_goes_is_told_and_found_again() {
    let daemon = Daemon::start(TWO);
    let mut top = top(&daemon);
    top.shows("2/2 ports up");
    let socket = daemon.socket();
    let moved = socket.with_extension("away");
    std::fs::rename(&socket, &moved).unwrap();
    top.shows("trying again");
    std::fs::rename(&moved, &socket).unwrap();
    top.shows("the daemon answers again");
    top.press("\x03");
    assert!(top.ends().success());
    top.is_as_before();
}

/// The capture's file is whole, and where it is stays on the terminal.
#[test]
fn a_signal_ends_captures_and_leaves_the_terminal_as_it_was() {
    let daemon = Daemon::start(TWO);
    let mut top = top(&daemon);
    top.shows("2/2 ports up");
    top.press("/uplink\rc");
    top.shows("capturing uplink0 to uplink0.pcapng");
    let id = rustix::process::Pid::from_child(&top.child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(top.ends().success());
    top.is_as_before();
    top.shows("bytes in uplink0.pcapng");
}
