//! The socket between a session and its ferry, or the daemon and the dock: each message is one
//! descriptor.

use crate::carrier::{Reader, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Returns both ends of a new one.
    pub(crate) fn pair() -> io::Result<(Link, Link)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Link(one), Link(other)))
    }

    pub(crate) fn of(socket: OwnedFd) -> Link {
        Link(socket)
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.0
    }

    /// Sends a descriptor.
    pub(crate) fn pass(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, flags)?;
        Ok(())
    }

    /// Waits for a descriptor. `None` if the other end is closed.
    pub(crate) fn take(&self) -> io::Result<Option<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let pieces = &mut [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = retry_on_intr(|| recvmsg(&self.0, pieces, &mut control, flags))?;
        let mut files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        match (message.bytes, files.next().and_then(|mut files| files.next())) {
            (0, _) => Ok(None),
            (_, Some(file)) => Ok(Some(file)),
            _ => Err(io::Error::other("a message without its descriptor")),
        }
    }

    /// Sends numbers and descriptors.
    pub(crate) fn send(&self, record: Writer<'_>) -> io::Result<()> {
        self.pass(record.close()?.as_fd())
    }

    /// Waits for numbers and descriptors. `None` if the other end is closed.
    pub(crate) fn receive(&self) -> io::Result<Option<Reader>> {
        let Some(record) = self.take()? else { return Ok(None) };
        Reader::open(&record).map(Some).map_err(io::Error::other)
    }

    /// Waits until a message is there, or the other end is closed, or `stop` can be read, or so long.
    /// Returns whether it is one of the first two.
    pub(crate) fn is_ready(&self, stop: &OwnedFd, timeout: &Timespec) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut polled, Some(timeout)) {}
        let [ours, stop] = polled;
        stop.revents().is_empty() && !ours.revents().is_empty()
    }

    /// Ends the process at the other end.
    pub(crate) fn shut_down(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
