//! Whether the other end of a veth pair is in another network namespace.
//!
//! The kernel tells by rtnetlink: a link's description has `IFLA_LINK_NETNSID` if what it is linked
//! with is elsewhere (`uapi/linux/if_link.h`).

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::io;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;

/// Bytes of `struct nlmsghdr` and `struct ifinfomsg`.
const HEADER: usize = 16;
const LINK: usize = 16;
const QUESTION: usize = HEADER + LINK;

/// Returns whether the other end of this interface, a veth of the calling thread's namespace, is in
/// another one. Fails if the kernel does not answer.
pub(super) fn is_peer_elsewhere(index: u32) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    // The kernel has answered when this is back.
    send(&socket, &question(index), SendFlags::empty())?;
    let mut answer = vec![0; 1 << 15];
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    attributes(answer)
        .map(|mut attributes| attributes.any(|kind| kind == IFLA_LINK_NETNSID))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn question(index: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(QUESTION);
    #[allow(clippy::cast_possible_truncation, reason = "32")]
    bytes.extend((QUESTION as u32).to_ne_bytes());
    bytes.extend(RTM_GETLINK.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    // Family and type, then the index, flags and change.
    bytes.extend([0; 4]);
    bytes.extend(index.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// Returns the kinds of a link's attributes. `None`: the message is another.
fn attributes(message: &[u8]) -> Option<impl Iterator<Item = u16> + '_> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let mut rest = message.get(HEADER + LINK..).filter(|_| kind == RTM_NEWLINK)?;
    Some(std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        rest = rest.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
        Some(kind)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_there_is_an_error() {
        assert!(is_peer_elsewhere(u32::MAX >> 1).is_err());
        assert!(!is_peer_elsewhere(1).unwrap(), "loopback has no other end");
    }

    #[test]
    fn attributes_of_any_length_end() {
        let mut message = vec![0; HEADER + LINK];
        message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        message.extend([4, 0, 37, 0, 0, 0, 9, 0]);
        assert_eq!(attributes(&message).unwrap().collect::<Vec<_>>(), [37, 9]);
    }
}
