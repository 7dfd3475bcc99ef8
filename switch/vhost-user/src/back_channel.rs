//! The channel that a front end gives for messages to it (`VHOST_USER_SET_BACKEND_REQ_FD`), by which
//! its guest hears of a change of the configuration space with the connection kept.
//!
//! One message is sent, which has no content (`VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`): the guest's
//! driver reads the space anew. It asks for no acknowledgement, and a channel without room has one
//! that was not read yet, so no other is needed.
//!
//! **Nothing is read from the channel.** A front end may keep a copy of this end and read from it
//! into memory whose pages it withholds; the kernel then holds the socket's lock, and a read here
//! would wait where no signal reaches it. For the same reason it is closed aside: what lies unread
//! in it may be files whose closing waits for another process.

use crate::closer::close_aside;
use crate::socket::is_unix_stream;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;
/// Version 1 of the protocol, and no flag.
const REQUEST: u32 = 1;

/// Why a channel is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the channel for messages to the front end has to be a Unix stream socket")]
    Kind,
    #[error("the channel for messages to the front end: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for ChannelError {
    fn from(error: Errno) -> ChannelError {
        ChannelError::Io(error.into())
    }
}

/// A front end's channel, as the head of this file explains.
#[derive(Debug)]
pub(crate) struct BackChannel {
    /// `None` only while it is dropped.
    socket: Option<OwnedFd>,
}

impl BackChannel {
    /// Wraps a front end's socket.
    ///
    /// # Errors
    /// It is no Unix stream socket: only those are written to without asking another process.
    pub(crate) fn new(socket: OwnedFd) -> Result<BackChannel, ChannelError> {
        let is_stream = is_unix_stream(&socket).unwrap_or(false);
        let channel = BackChannel { socket: Some(socket) };
        if is_stream { Ok(channel) } else { Err(ChannelError::Kind) }
    }

    /// Returns the socket, for another process.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Has the guest's driver read the configuration space anew. Never waits.
    ///
    /// # Errors
    /// The channel is of no use any more: the front end closed it.
    pub(crate) fn tell_change(&self) -> Result<(), ChannelError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let head = [CONFIG_CHANGE, REQUEST, 0].map(u32::to_ne_bytes);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // The kernel takes a message of this size whole or not at all.
        match send(socket, head.as_flattened(), flags) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for BackChannel {
    fn drop(&mut self) {
        close_aside(self.socket.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn channel() -> (BackChannel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (BackChannel::new(ours.into()).unwrap(), theirs)
    }

    /// A send that waited would stop the session for as long as the front end likes.
    #[test]
    fn a_front_end_that_never_reads_holds_up_nothing() {
        let (channel, mut theirs) = channel();
        for _ in 0..10_000 {
            channel.tell_change().unwrap();
        }
        let mut bytes = Vec::new();
        let _ = theirs.read_to_end(&mut bytes);
        let (words, rest) = bytes.as_chunks::<4>();
        let words: Vec<_> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        let unread = words.as_chunks::<3>().0;
        assert!(rest.is_empty() && (1..10_000).contains(&unread.len()), "it was full");
        assert!(unread.iter().all(|message| *message == [2, 1, 0]));
    }

    #[test]
    fn a_channel_that_was_closed_is_of_no_use_and_what_it_says_is_not_read() {
        let (channel, mut theirs) = channel();
        theirs.write_all(&[0; 20]).unwrap();
        channel.tell_change().unwrap();
        drop(theirs);
        assert!(channel.tell_change().is_err());
    }

    #[test]
    fn only_a_stream_is_taken() {
        let datagram = UnixDatagram::unbound().unwrap();
        assert!(matches!(BackChannel::new(datagram.into()), Err(ChannelError::Kind)));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(matches!(BackChannel::new(pipe), Err(ChannelError::Kind)));
    }
}
