//! Messages of netlink: questions to the kernel about the network namespace of the thread that opens
//! the socket, to rtnetlink about links and addresses, and to sock_diag about [sockets](owner).
//!
//! A message is a header (length, kind, flags, sequence, sender), a struct by kind, and attributes
//! (length, kind, value), all in the host's byte order and padded to 4 bytes. See rtnetlink(7) and
//! `linux/rtnetlink.h`.

pub mod owner;

use rustix::io::{Errno, Result};
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `NLM_F_ACK`: the answer ends with an acknowledgement.
pub const ACK: u16 = 0x4;
/// `NLM_F_DUMP`: the answer has all entries.
pub const DUMP: u16 = 0x300;

const REQUEST: u16 = 0x1;
const HEADER: usize = 16;

/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// A netlink socket, which stays in the namespace it was opened in.
pub struct Socket(OwnedFd, RecvFlags);

impl Socket {
    /// Opens a socket of rtnetlink.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn open() -> Result<Socket> {
        // Protocol 0 is NETLINK_ROUTE.
        Socket::of(None, RecvFlags::empty())
    }

    /// Opens a socket of sock_diag. The kernel answers within the call that asks, so nothing waits.
    fn open_about_sockets() -> Result<Socket> {
        Socket::of(Some(SOCK_DIAG), RecvFlags::DONTWAIT)
    }

    fn of(protocol: Option<Protocol>, flags: RecvFlags) -> Result<Socket> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Socket(socket, flags))
    }

    /// Sends a message and reads until the answer ends. Returns the bodies of the messages in the
    /// answer.
    ///
    /// # Errors
    /// The kernel refuses the question, or its answer cannot be read.
    pub fn ask(&self, kind: u16, flags: u16, body: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let length = u32::try_from(HEADER + body.len()).map_err(|_| Errno::MSGSIZE)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let (mut bodies, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let (count, _) = recv(&self.0, &mut buffer[..], self.1)?;
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some((kind, body, next)) = split(rest) {
                match kind {
                    DONE => return Ok(bodies),
                    ERROR => return error_in(body).map_or(Ok(bodies), Err),
                    _ => bodies.push(body.to_vec()),
                }
                rest = next;
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Splits off the first message. Returns its kind, its body, and the bytes after it.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(number(bytes.get(..4)?)?).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, bytes.get(HEADER..length)?, next))
}

/// Returns the error in an error message; `None` if it is an acknowledgement (0).
fn error_in(body: &[u8]) -> Option<Errno> {
    match number(body.get(..4)?)?.cast_signed() {
        0 => None,
        code @ -4095..=-1 => Some(Errno::from_raw_os_error(-code)),
        _ => Some(Errno::PROTO),
    }
}

/// Returns the attributes in bytes, each as its kind and its value.
pub fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let Some(head) = bytes.first_chunk::<4>() {
        let [a, b, c, d] = *head;
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let Some(value) = bytes.get(4..length) else { break };
        // The upper bits say that attributes are nested in it.
        all.push((kind & 0x3fff, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// Returns the value of the first attribute of a kind.
pub fn of<'b>(attributes: &[(u16, &'b [u8])], kind: u16) -> Option<&'b [u8]> {
    attributes.iter().find(|(is, _)| *is == kind).map(|(_, value)| *value)
}

/// Appends an attribute to a message's body.
pub fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Reads a number of 4 bytes.
pub fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Reads an IPv4 or IPv6 address.
pub fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

/// Returns the bytes of an address.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Returns the number of an address's family.
pub fn family(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    u8::try_from(family.as_raw()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic(bytes: Vec<u8>) {
            let _ = (split(&bytes), attributes(&bytes), error_in(&bytes));
        }
    }
}
