//! The channel that a front end gives for messages to it (`VHOST_USER_SET_BACKEND_REQ_FD`), by which
//! its guest hears of a change of the configuration space with the connection kept.
//!
//! One message is sent, which has no content (`VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`): the guest's
//! driver reads the space anew. So it is never owed more than once, and nothing here waits for the
//! front end. Where it acknowledges messages, at most one is under way, and one that is owed
//! meanwhile follows the acknowledgement. Where it does not, a channel without room has one that was
//! not read yet, and no other is needed.
//!
//! The session's thread alone sends and reads: a front end that reads from this end of the channel
//! itself can hold up a read, and with it its own session.

use crate::closer::close_aside;
use crate::socket::is_unix_stream;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;
/// Version 1 of the protocol.
const REQUEST: u32 = 1;
/// Flag: a reply.
const REPLY: u32 = 1 << 2;
/// Flag: the sender waits for a reply.
const NEED_REPLY: u32 = 1 << 3;
/// The acknowledgement of a message that was carried out: its header, and a number that is 0.
const GRANTED: [u32; 5] = [CONFIG_CHANGE, REQUEST | REPLY, 8, 0, 0];
/// Bytes of an acknowledgement.
const REPLY_BYTES: usize = 20;

/// Why a channel is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the channel for messages to the front end has to be a Unix stream socket")]
    Kind,
    #[error("the front end refused the message, or sent what is no answer to it")]
    Refused,
    #[error("the front end closed its channel")]
    Closed,
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
    socket: Arc<OwnedFd>,
    /// Whether the front end acknowledges messages.
    acknowledges: bool,
    /// The awaited acknowledgement as far as it was read; `None` if none is awaited.
    awaited: Option<Vec<u8>>,
    /// Whether the message is to be sent once the awaited acknowledgement was read.
    is_owed: bool,
}

impl BackChannel {
    /// Wraps a front end's socket.
    ///
    /// # Errors
    /// It is no Unix stream socket: only those are written to and closed without asking another
    /// process.
    pub(crate) fn new(socket: OwnedFd, acknowledges: bool) -> Result<BackChannel, ChannelError> {
        if !is_unix_stream(&socket).unwrap_or(false) {
            close_aside(socket);
            return Err(ChannelError::Kind);
        }
        Ok(BackChannel { socket: Arc::new(socket), acknowledges, awaited: None, is_owed: false })
    }

    /// Returns the channel of an earlier process, and whether that one awaited an acknowledgement.
    ///
    /// # Errors
    /// It is no Unix stream socket.
    pub(crate) fn resume(
        socket: OwnedFd,
        acknowledges: bool,
        awaits: bool,
    ) -> Result<BackChannel, ChannelError> {
        let fresh = BackChannel::new(socket, acknowledges)?;
        Ok(BackChannel { awaited: awaits.then(Vec::new), ..fresh })
    }

    /// Returns the socket. It is readable when [`BackChannel::hear`] has something to read, or the
    /// front end has closed its end.
    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Whether an acknowledgement is awaited. One of which a part was read is never read by another
    /// process, so this is `None` then.
    pub(crate) fn awaits(&self) -> Option<bool> {
        match &self.awaited {
            Some(part) if !part.is_empty() => None,
            awaited => Some(awaited.is_some()),
        }
    }

    /// Has the guest's driver read the configuration space anew. Never waits.
    ///
    /// # Errors
    /// The channel is of no use any more.
    pub(crate) fn tell_change(&mut self) -> Result<(), ChannelError> {
        if self.awaited.is_some() {
            self.is_owed = true;
            return Ok(());
        }
        let wants = if self.acknowledges { NEED_REPLY } else { 0 };
        let head = [CONFIG_CHANGE, REQUEST | wants, 0].map(u32::to_ne_bytes);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, head.as_flattened(), flags) {
            // The kernel takes a message of this size whole or not at all.
            Ok(_) => self.awaited = self.acknowledges.then(Vec::new),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Reads the acknowledgement as far as it is there, and sends what is owed.
    ///
    /// # Errors
    /// The channel is of no use any more: the front end closed it, refused the message, or sent
    /// something else.
    pub(crate) fn hear(&mut self) -> Result<(), ChannelError> {
        let mut bytes = [0; REPLY_BYTES];
        let missing = REPLY_BYTES - self.awaited.as_ref().map_or(0, Vec::len);
        let rest = bytes.get_mut(..missing).unwrap_or_default();
        let count = match recv(self.socket.as_fd(), rest, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            received => received?.0,
        };
        if count == 0 {
            return Err(ChannelError::Closed);
        }
        let awaited = self.awaited.as_mut().ok_or(ChannelError::Refused)?;
        awaited.extend_from_slice(bytes.get(..count).unwrap_or_default());
        if awaited.len() < REPLY_BYTES {
            return Ok(());
        }
        if awaited[..] != *GRANTED.map(u32::to_ne_bytes).as_flattened() {
            return Err(ChannelError::Refused);
        }
        self.awaited = None;
        if std::mem::take(&mut self.is_owed) { self.tell_change() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn channel(acknowledges: bool) -> (BackChannel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (BackChannel::new(ours.into(), acknowledges).unwrap(), theirs)
    }

    /// Returns the numbers of the next messages, and their flags.
    fn messages(theirs: &mut UnixStream) -> Vec<[u32; 3]> {
        let mut bytes = Vec::new();
        let _ = theirs.read_to_end(&mut bytes);
        let (words, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty());
        let words: Vec<_> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        words.as_chunks().0.to_vec()
    }

    fn answer(number: u32) -> Vec<u8> {
        let mut words = GRANTED;
        words[3] = number;
        words.map(u32::to_ne_bytes).as_flattened().to_vec()
    }

    /// Changes while the front end is slow are one more message, however many they are.
    #[test]
    fn one_message_is_under_way_and_one_owed() {
        let (mut channel, mut theirs) = channel(true);
        for _ in 0..10_000 {
            channel.tell_change().unwrap();
        }
        let whole = answer(0);
        assert_eq!(messages(&mut theirs), [[2, 0b1001, 0]]);
        for part in [&whole[..13], &whole[13..]] {
            theirs.write_all(part).unwrap();
            channel.hear().unwrap();
        }
        assert_eq!(messages(&mut theirs), [[2, 0b1001, 0]], "the one that was owed");
        theirs.write_all(&whole).unwrap();
        channel.hear().unwrap();
        assert_eq!(messages(&mut theirs), [[0; 3]; 0]);
        assert_eq!(channel.awaits(), Some(false));
    }

    /// A send that waited would stop the session for as long as the front end likes.
    #[test]
    fn a_front_end_that_never_reads_holds_up_nothing() {
        let (mut channel, mut theirs) = channel(false);
        for _ in 0..10_000 {
            channel.tell_change().unwrap();
        }
        let unread = messages(&mut theirs);
        assert!((1..10_000).contains(&unread.len()), "it was full, and has one to read");
        assert!(unread.iter().all(|message| *message == [2, 1, 0]));
    }

    #[test]
    fn what_is_no_acknowledgement_ends_the_channel() {
        let (mut refused, mut theirs) = channel(true);
        refused.tell_change().unwrap();
        theirs.write_all(&answer(1)).unwrap();
        assert!(matches!(refused.hear(), Err(ChannelError::Refused)));
        let (mut unasked, mut theirs) = channel(true);
        unasked.hear().unwrap();
        theirs.write_all(&answer(0)).unwrap();
        assert!(matches!(unasked.hear(), Err(ChannelError::Refused)));
        let (mut closed, theirs) = channel(true);
        closed.tell_change().unwrap();
        drop(theirs);
        assert!(closed.hear().is_err());
        assert!(closed.tell_change().is_err() || closed.awaits() == Some(true));
    }

    #[test]
    fn only_a_stream_is_taken() {
        let datagram = UnixDatagram::unbound().unwrap();
        assert!(matches!(BackChannel::new(datagram.into(), true), Err(ChannelError::Kind)));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(matches!(BackChannel::new(pipe, true), Err(ChannelError::Kind)));
    }
}
