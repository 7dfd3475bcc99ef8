//! Places for connections: a user who holds all it may have keeps only itself from the page.

use super::{AT, WEB, get};
use crate::access::as_user;
use crate::heard::Heard;
use crate::sandbox::{Need, story};
use crate::switch::Switch;
use std::io::Read;
use std::process::{Child, Stdio};
use waiting::until;

const HOLDER: u32 = 3000;
const OTHER: u32 = 3001;

/// Holds 40 connections that have sent a request, and sends another on each every half second,
/// because an idle one is closed.
const HOLD: &str = "use Socket; $| = 1; $SIG{PIPE} = 'IGNORE'; for (1..40) { \
    socket(my $s, AF_INET, SOCK_STREAM, 0); connect($s, sockaddr_in(9478, inet_aton('127.0.0.1'))) or die; \
    push @held, $s; syswrite $s, \"HEAD / HTTP/1.1\\r\\nHost: 127.0.0.1:9478\\r\\n\\r\\n\" } \
    print 'held'; while (1) { select(undef, undef, undef, 0.5); for (@held) { \
    syswrite $_, \"HEAD / HTTP/1.1\\r\\nHost: 127.0.0.1:9478\\r\\n\\r\\n\" } }";

fn hold() -> Child {
    let mut command = as_user(HOLDER, "");
    let mut holder = command.args(["perl", "-e", HOLD]).stdout(Stdio::piped()).spawn().unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    holder
}

/// Returns whether a program of this user gets the page.
fn is_served(user: u32) -> bool {
    let page = format!("http://{AT}/");
    let mut command = as_user(user, "");
    command.args(["curl", "-sf", "-m", "10", "-o", "/dev/null", &page]).heard().status.success()
}

#[test]
fn a_user_who_holds_connections_keeps_no_other_user_from_the_page() {
    story(
        &[Need::Program("setpriv"), Need::Program("curl"), Need::Program("perl"), Need::Root],
        || {
            let _switch = Switch::start(WEB);
            get("/");
            assert!(is_served(HOLDER));
            let mut holder = hold();
            until("the holder has all its places", || (!is_served(HOLDER)).then_some(()));
            assert!(is_served(OTHER), "another user is kept out");
            assert!(is_served(0), "root is kept out");
            holder.kill().unwrap();
            holder.wait().unwrap();
            until("the places are free", || is_served(HOLDER).then_some(()));
        },
    );
}
