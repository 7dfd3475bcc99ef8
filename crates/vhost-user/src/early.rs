//! The one message that front ends send earlier than the protocol's letter allows.
//!
//! `SET_VRING_ENABLE` is for after the features are agreed on. QEMU sends it when it resets a vNIC whose driver has not started
//! yet, and waits for the acknowledgement; DPDK's virtio-user sends it first thing on a new connection. The `vhost` crate
//! refuses it there, after it has taken it off the socket; the session then does what was asked.

use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::AsFd;

/// A ring to be turned on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Early {
    pub(crate) ring: u32,
    pub(crate) enable: bool,
    /// The front end waits for an acknowledgement.
    waits: bool,
}

/// `VHOST_USER_SET_VRING_ENABLE`.
const REQUEST: u32 = 18;
/// Version 1 of the protocol, and that this is a reply.
const REPLY: u32 = 1 | 1 << 2;
/// The sender waits for a reply.
const NEED_REPLY: u32 = 1 << 3;
/// Request, flags and size; then the ring's number and its state.
const LENGTH: usize = 20;

impl Early {
    /// The next message, left where it is, if it is this one.
    pub(crate) fn peek(connection: impl AsFd) -> Option<Early> {
        let mut bytes = [0; LENGTH];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, count) = recv(connection, &mut bytes[..], flags).ok()?;
        (count == LENGTH).then(|| Early::read(&bytes)).flatten()
    }

    fn read(bytes: &[u8; LENGTH]) -> Option<Early> {
        let (words, _) = bytes.as_chunks::<4>();
        match words.iter().map(|word| u32::from_ne_bytes(*word)).collect::<Vec<_>>()[..] {
            [REQUEST, flags, 8, ring, state @ (0 | 1)] => {
                Some(Early { ring, enable: state == 1, waits: flags & NEED_REPLY != 0 })
            }
            _ => None,
        }
    }

    /// Tells the front end that it is done, where it waits for that.
    pub(crate) fn acknowledge(self, connection: impl AsFd) -> io::Result<()> {
        if !self.waits {
            return Ok(());
        }
        // A number of 8 bytes, which is 0 for success.
        let words = [REQUEST, REPLY, 8, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        send(connection, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn message(words: [u32; 5]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_message_is_seen_left_alone_and_acknowledged() {
        let (mut front, mut back) = UnixStream::pair().unwrap();
        assert_eq!(Early::peek(&back), None);
        let sent = message([18, 1 | 1 << 3, 8, 3, 1]);
        front.write_all(&sent).unwrap();
        let early = Early::peek(&back).unwrap();
        assert_eq!(early, Early { ring: 3, enable: true, waits: true });
        let mut seen = [0; LENGTH];
        back.read_exact(&mut seen).unwrap();
        assert_eq!(seen[..], sent);
        early.acknowledge(&back).unwrap();
        front.read_exact(&mut seen).unwrap();
        assert_eq!(seen[..], message([18, 1 | 1 << 2, 8, 0, 0]));
    }

    #[test]
    fn who_does_not_wait_is_told_nothing() {
        let (front, back) = UnixStream::pair().unwrap();
        let early = Early { ring: 0, enable: false, waits: false };
        early.acknowledge(&back).unwrap();
        front.set_nonblocking(true).unwrap();
        assert!((&front).read(&mut [0]).is_err());
    }

    #[test]
    fn other_messages_are_none_of_ours() {
        for words in [[17, 1, 8, 0, 1], [18, 1, 8, 0, 2], [18, 1, 4, 0, 1]] {
            let bytes = message(words).try_into().unwrap();
            assert_eq!(Early::read(&bytes), None, "{words:?}");
        }
    }
}
