//! The thread that watches the links of a team's members.
//!
//! The kernel tells of a change by rtnetlink, and the thread asks all links how they are: a message says no more than that
//! it is time to look, so nothing is lost when there are too many. The kernel may hold the message back for up to a second
//! where a link changed several times, so links are also looked at every [`LOOK`]: carrier is read from the device itself.

use super::Inner;
use crate::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// Between two looks without a message.
const LOOK: Nanos = Nanos(50 * Nanos::MILLISECOND.0);

/// `RTMGRP_LINK` of `linux/rtnetlink.h`.
const LINKS: u32 = 1;

/// A socket that is readable when a link of this namespace changed.
pub(super) fn subscribe() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
    Ok(socket)
}

/// Runs until the team is closed.
pub(super) fn run(team: &Inner, links: &OwnedFd) {
    let mut mended = team.now();
    while !team.is_closing() {
        let now = team.now();
        let wait = team.next_look(now).map_or(LOOK, |due| due.min(LOOK));
        wait_for([links, &team.shared.state.kick], wait);
        team.look();
        if now.since(mended) >= Nanos::SECOND {
            mended = now;
            team.mend();
        }
    }
}

/// Waits until one of them is readable, and reads away what is there.
fn wait_for(descriptors: [&OwnedFd; 2], wait: Nanos) {
    let mut polled = descriptors.map(|fd| PollFd::new(fd, PollFlags::IN));
    let nanoseconds = i64::try_from(wait.0).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999) };
    let _ = poll(&mut polled, Some(&timeout));
    let [links, kick] = descriptors;
    let mut message = [0; 4096];
    // Lost messages are told as an error once; they say no more than the others.
    while matches!(
        recv(links, &mut message, RecvFlags::DONTWAIT),
        Ok(_) | Err(Errno::NOBUFS | Errno::INTR)
    ) {}
    let _ = rustix::io::read(kick, &mut message[..8]);
}
