//! Messages that are handled here because the `vhost` crate does not.
//!
//! That crate decodes all other messages, so that we need no decoder of our own that would have to
//! be tested against every front end. But version 0.18 rejects `SEND_RARP`, `NET_SET_MTU`,
//! `SET_STATUS` and `GET_STATUS` as unknown, and has no way to add messages. So each message is
//! peeked at on the socket, and these are read and answered here. So is `SET_BACKEND_REQ_FD`: what
//! the crate makes of it cannot tell of a change of the configuration space, and waits.
//!
//! The crate also refuses `SET_VRING_ENABLE` before the features are negotiated. QEMU sends it when
//! it resets a vNIC before the driver has started, and waits for the acknowledgement; DPDK's
//! virtio-user sends it first on a new connection. The crate takes that message off the socket, and
//! the session then carries it out.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use vhost::vhost_user::message::VhostUserProtocolFeatures;

/// A message that the `vhost` crate leaves to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// `SET_VRING_ENABLE`: turns a ring on or off.
    Enable { ring: u32, enable: bool },
    /// `SEND_RARP`: the guest runs here from now on, with this address.
    Announce([u8; 6]),
    /// `NET_SET_MTU`: the MTU that the front end has announced to the guest.
    SetMtu(u64),
    /// `SET_STATUS`: the device status that the guest's driver has set.
    SetStatus(u64),
    /// `GET_STATUS`: asks for the device status.
    GetStatus,
    /// `SET_BACKEND_REQ_FD`: the channel for messages to the front end.
    SetChannel,
}

/// A request with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) request: Request,
    number: u32,
    /// Whether the front end waits for an acknowledgement.
    waits: bool,
    /// Bytes of the message with its header.
    len: usize,
}

/// Flags of a reply: version 1 of the protocol, and the reply bit.
const REPLY: u32 = 1 | 1 << 2;
/// Mask of the version and the reply bit in a message's flags.
const KIND: u32 = 0b111;
/// Flag: the sender waits for a reply.
const NEED_REPLY: u32 = 1 << 3;
/// Bytes of the header: request, flags and size.
const HEAD: usize = 12;
/// Bytes of the longest of these messages: a number of 8 bytes or two of 4 after the header.
const LONGEST: usize = HEAD + 8;

impl Message {
    /// Returns the next message if it is one of these, and leaves it in the socket.
    pub(crate) fn peek(connection: impl AsFd) -> Option<Message> {
        let mut bytes = [0; LONGEST];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, count) = recv(connection, &mut bytes[..], flags).ok()?;
        Message::read(bytes.get(..count)?)
    }

    fn read(bytes: &[u8]) -> Option<Message> {
        let (words, _) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_ne_bytes(*word));
        let (number, flags, size) = (words.next()?, words.next()?, words.next()?);
        let long = || Some((words.clone().next()?, words.clone().nth(1)?));
        let whole = || long().map(|(low, high)| u64::from(high) << 32 | u64::from(low));
        let request = match (number, size) {
            (18, 8) => match long()? {
                (ring, state @ (0 | 1)) => Request::Enable { ring, enable: state == 1 },
                _ => return None,
            },
            (19, 8) => Request::Announce(*bytes.get(HEAD..)?.first_chunk()?),
            (20, 8) => Request::SetMtu(whole()?),
            (39, 8) => Request::SetStatus(whole()?),
            (40, 0) => Request::GetStatus,
            (21, 0) => Request::SetChannel,
            _ => return None,
        };
        let is_request = flags & KIND == 1;
        let (waits, len) = (flags & NEED_REPLY != 0, HEAD + size as usize);
        is_request.then_some(Message { request, number, waits, len })
    }

    /// Returns the protocol feature that the message needs; `None` if the `vhost` crate handles it
    /// first.
    pub(crate) fn needs(self) -> Option<VhostUserProtocolFeatures> {
        match self.request {
            Request::Enable { .. } => None,
            Request::Announce(_) => Some(VhostUserProtocolFeatures::RARP),
            Request::SetMtu(_) => Some(VhostUserProtocolFeatures::MTU),
            Request::SetStatus(_) | Request::GetStatus => Some(VhostUserProtocolFeatures::STATUS),
            Request::SetChannel => Some(VhostUserProtocolFeatures::BACKEND_REQ),
        }
    }

    /// Takes the message off the socket. Returns the files sent with it, at most two: the kernel
    /// closes any others.
    pub(crate) fn take(self, connection: impl AsFd) -> io::Result<Vec<OwnedFd>> {
        let mut bytes = [0; LONGEST];
        let own = bytes.get_mut(..self.len).unwrap_or_default();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(connection, &mut [IoSliceMut::new(own)], &mut control, flags)?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        // A front end writes a message in one go, and one that was seen whole is read whole.
        let is_whole = received.bytes == self.len;
        is_whole.then_some(files).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends the answer to a question, or the result (0 is success) if the front end waits for an
    /// acknowledgement.
    pub(crate) fn reply(self, connection: impl AsFd, answer: u64) -> io::Result<()> {
        if !self.waits && self.request != Request::GetStatus {
            return Ok(());
        }
        let head = [self.number, REPLY, 8].map(u32::to_ne_bytes);
        let bytes = [head.as_flattened(), &answer.to_ne_bytes()].concat();
        send(connection, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn message(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_message_is_seen_left_alone_and_acknowledged() {
        let (mut front, mut back) = UnixStream::pair().unwrap();
        assert_eq!(Message::peek(&back), None);
        let sent = message(&[18, 1 | 1 << 3, 8, 3, 1]);
        front.write_all(&sent).unwrap();
        let early = Message::peek(&back).unwrap();
        assert_eq!(early.request, Request::Enable { ring: 3, enable: true });
        let mut seen = [0; LONGEST];
        back.read_exact(&mut seen).unwrap();
        assert_eq!(seen[..], sent);
        early.reply(&back, 0).unwrap();
        front.read_exact(&mut seen).unwrap();
        assert_eq!(seen[..], message(&[18, 1 | 1 << 2, 8, 0, 0]));
    }

    #[test]
    fn one_that_is_taken_leaves_the_next() {
        let (mut front, back) = UnixStream::pair().unwrap();
        front.write_all(&message(&[40, 1, 0])).unwrap();
        front.write_all(&message(&[19, 1, 8, 0x0403_0201, 0x0605])).unwrap();
        let question = Message::peek(&back).unwrap();
        assert_eq!((question.request, question.len), (Request::GetStatus, HEAD));
        assert!(question.take(&back).unwrap().is_empty());
        question.reply(&back, 7).unwrap();
        let mut seen = [0; LONGEST];
        front.read_exact(&mut seen).unwrap();
        assert_eq!(seen[..], message(&[40, 1 | 1 << 2, 8, 7, 0]));
        let Request::Announce(mac) = Message::peek(&back).unwrap().request else { panic!() };
        assert_eq!(mac, 0x0605_0403_0201u64.to_ne_bytes()[..6]);
    }

    #[test]
    fn one_who_does_not_wait_is_told_nothing() {
        let (front, back) = UnixStream::pair().unwrap();
        let early = Message::read(&message(&[18, 1, 8, 0, 0])).unwrap();
        early.reply(&back, 0).unwrap();
        front.set_nonblocking(true).unwrap();
        assert!((&front).read(&mut [0]).is_err());
    }

    #[test]
    fn other_messages_are_none_of_ours() {
        let others: [&[u32]; 8] = [
            &[17, 1, 8, 0, 1],
            &[18, 1, 8, 0, 2],
            &[18, 1, 4, 0, 1],
            // Cut short, another version, a reply, a question with an answer in it.
            &[19, 1, 8, 0],
            &[19, 2, 8, 0, 0],
            &[39, 5, 8, 0, 0],
            &[40, 1, 8, 0, 0],
            &[40, 1],
        ];
        for words in others {
            assert_eq!(Message::read(&message(words)), None, "{words:?}");
        }
    }
}
