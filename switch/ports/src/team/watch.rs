//! The thread that watches the links of a team's members.
//!
//! The kernel tells of a change by rtnetlink, and the thread asks all links how they are: a message
//! says no more than that it is time to look, so nothing is lost when there are too many. The
//! kernel may hold the message back for up to a second where links change often, so the thread also
//! glances at their flags every [`GLANCE`], and asks the devices themselves for their carrier every
//! [`LOOK`].

use super::handle::Inner;
use crate::Nanos;
use crate::namespace::{self, Wanted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, bind, recv};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Between two looks at the flags without a message.
const GLANCE: Nanos = Nanos(10 * Nanos::MILLISECOND.0);
/// Between two looks at the devices: the longest that a lost carrier goes unseen where the kernel's
/// message is late.
const LOOK: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// `RTMGRP_LINK` of `linux/rtnetlink.h`.
const LINKS: u32 = 1;

/// A socket that is readable when a link of a namespace changed, or of the calling thread's.
pub(super) fn subscribe(netns: Option<&Path>) -> io::Result<OwnedFd> {
    let socket = namespace::make(netns, Wanted::Changes)?;
    bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
    Ok(socket)
}

/// Runs until the team is closed.
pub(super) fn run(team: &Inner, links: &OwnedFd) {
    let (mut looked, mut mended) = (team.now(), team.now());
    while !team.is_closing() {
        let wait = team.next_look(team.now()).map_or(GLANCE, |due| due.min(GLANCE));
        let told = wait_for([links, &team.shared.state.kick], wait);
        let now = team.now();
        team.glance();
        if told || now.since(looked) >= LOOK {
            looked = now;
            team.look();
        }
        if now.since(mended) >= Nanos::SECOND {
            mended = now;
            team.mend();
        }
    }
}

/// Waits until one of them is readable, and reads away what is there. Whether one was.
fn wait_for(descriptors: [&OwnedFd; 2], wait: Nanos) -> bool {
    let mut polled = descriptors.map(|fd| PollFd::new(fd, PollFlags::IN));
    let nanoseconds = i64::try_from(wait.0).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999) };
    let told = poll(&mut polled, Some(&timeout)).is_ok_and(|readable| readable > 0);
    let [links, kick] = descriptors;
    let mut message = [0; 4096];
    // Lost messages are told as an error once; they say no more than the others.
    while matches!(
        recv(links, &mut message, RecvFlags::DONTWAIT),
        Ok(_) | Err(Errno::NOBUFS | Errno::INTR)
    ) {}
    let _ = rustix::io::read(kick, &mut message[..8]);
    told
}
