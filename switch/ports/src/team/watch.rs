//! The thread that watches the links of a team's members.
//!
//! The kernel reports a change by rtnetlink, and the thread then checks all links. A message only
//! says that it is time to check, so lost messages do no harm. The kernel may delay the message by
//! up to a second if links change often. So the thread also reads the links' flags and carriers
//! every [`GLANCE`], and asks devices whose carrier cannot be read every [`LOOK`].

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

/// Interval between two reads of flags and carriers without a message.
const GLANCE: Nanos = Nanos(10 * Nanos::MILLISECOND.0);
/// Interval between two checks of the devices: the longest time that a lost carrier goes unseen if
/// the kernel's message is late and the carrier cannot be read.
const LOOK: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// `RTMGRP_LINK` of `linux/rtnetlink.h`.
const LINKS: u32 = 1;

/// Opens a socket that becomes readable when a link changes in the network namespace `netns`;
/// `None` is the calling thread's. Fails if the kernel or the helper refuses the socket.
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
            team.probe(now);
        }
    }
}

/// Waits until a descriptor is readable, and discards its contents. Returns whether one was.
fn wait_for(descriptors: [&OwnedFd; 2], wait: Nanos) -> bool {
    let mut polled = descriptors.map(|fd| PollFd::new(fd, PollFlags::IN));
    let nanoseconds = i64::try_from(wait.0).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999) };
    let told = poll(&mut polled, Some(&timeout)).is_ok_and(|readable| readable > 0);
    let [links, kick] = descriptors;
    let mut message = [0; 4096];
    // Lost messages show as one error, which means no more than a message does.
    while matches!(
        recv(links, &mut message, RecvFlags::DONTWAIT),
        Ok(_) | Err(Errno::NOBUFS | Errno::INTR)
    ) {}
    let _ = rustix::io::read(kick, &mut message[..8]);
    told
}
