// UNSAFETY: the kernel's error queue and the options of path MTU discovery are reached by `recvmsg`
// and `setsockopt` alone.
//! A UDP socket that never fragments its datagrams, and the reports of the kernel and of hops about
//! those that are too big.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// Size of a responder's receive buffer, in bytes.
const RECEIVE_BUFFER: i32 = 4 << 20;

/// A datagram that was too big.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooBig {
    /// It was too big for the device it should have left by, which has this MTU.
    Device(u16),
    /// It was too big for a hop on the path, by an ICMP message from this address with this MTU.
    Hop(IpAddr, u16),
}

/// A UDP socket that sends probes unfragmented.
pub(crate) struct ProbeSocket(UdpSocket);

impl ProbeSocket {
    /// Makes a socket that sends to one peer, from one address or from any.
    pub(crate) fn connect(from: Option<IpAddr>, to: SocketAddr) -> io::Result<ProbeSocket> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = from.filter(|from| from.is_ipv4() == to.is_ipv4()).unwrap_or(any);
        let socket = UdpSocket::bind((from, 0))?;
        // PROBE: earlier reports of hops do not limit what is sent now.
        let options: &[(i32, i32, i32)] = if to.is_ipv4() {
            &[
                (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
                (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            ]
        } else {
            &[
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
                (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
            ]
        };
        for (level, name, value) in options {
            set(&socket, *level, *name, *value)?;
        }
        socket.connect(to)?;
        Ok(ProbeSocket(socket))
    }

    /// Returns the socket, to send and receive.
    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.0
    }

    /// Returns the reports since the last call.
    pub(crate) fn errors(&self) -> Vec<TooBig> {
        std::iter::from_fn(|| next_error(&self.0)).flatten().collect()
    }
}

/// Gives a socket room for the probes of many peers at once, as far as the kernel allows.
pub(crate) fn widen(socket: &UdpSocket) {
    let force = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER);
    if force.is_err() {
        // An error is ignored: the default has room for a few peers, and lost probes are sent
        // again.
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER);
    }
}

/// Has the kernel say by which device each datagram arrives. If it does not, [`receive`] says 0.
pub(crate) fn tell_devices(socket: &UdpSocket) {
    let is_v4 = socket.local_addr().is_ok_and(|address| address.is_ipv4());
    let _ = match is_v4 {
        true => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        false => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    };
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) length: usize,
    pub(crate) from: SocketAddr,
    /// The kernel's number of the device it arrived by; 0 if it is not known.
    pub(crate) device: u32,
}

/// Waits for a datagram. Returns `None` if the socket was shut down, which ends the wait without a
/// datagram and without an address. [`UdpSocket::recv_from`] would then read an address that the
/// kernel did not write, and might panic.
///
/// # Errors
/// Fails if an acknowledgement was not delivered, among others. The next call may succeed.
pub(crate) fn receive(socket: &UdpSocket, room: &mut [u8]) -> io::Result<Option<Received>> {
    // Aligned as the kernel aligns control messages.
    let mut control = [0_u64; 16];
    // SAFETY: all fields of a `sockaddr_storage` may be zero.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut data = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: all fields of a `msghdr` may be zero.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of_val(&name)).unwrap_or_default();
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message names an address, `room` and a control buffer, each with its length; all
    // outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    if message.msg_namelen == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel wrote an address as long as its family says, into room for any.
    let Some(from) = (unsafe { read_address(&name) }) else { return Ok(None) };
    #[allow(clippy::unnecessary_cast, reason = "another C library has another type")]
    let used = message.msg_controllen as usize;
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let device = read_device(bytes.get(..used).unwrap_or(&bytes)).unwrap_or(0);
    Ok(Some(Received { length, from, device }))
}

/// # Safety
/// The address is as long as its family says.
unsafe fn read_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let address = (&raw const *name).cast::<libc::sockaddr>();
    // SAFETY: as the caller promises.
    let ip = unsafe { crate::interface::read(address) }?;
    // SAFETY: as the caller promises; the port is at the same place in both families.
    let port = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() }.sin_port;
    let port = u16::from_be(port);
    Some(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => {
            // SAFETY: as the caller promises, for this family.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            std::net::SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into()
        }
    })
}

/// Finds the device in an `in_pktinfo`, which begins with it, or an `in6_pktinfo`, which ends with
/// it.
fn read_device(bytes: &[u8]) -> Option<u32> {
    find_control(bytes, |which, data| {
        let place = match which {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => 0,
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => 16,
            _ => return None,
        };
        Some(u32::from_ne_bytes(*data.get(place..)?.first_chunk()?))
    })
}

fn set(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or_default();
    // SAFETY: the option's value is an `int`, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the next entry of the error queue; `None` if there is none. The inner `None` means that
/// the entry is about something else.
fn next_error(socket: &UdpSocket) -> Option<Option<TooBig>> {
    // Aligned as the kernel aligns control messages.
    let mut control = [0_u64; 64];
    // SAFETY: all fields of a `msghdr` may be zero.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message names no data and a control buffer of the length given, which outlives
    // the call.
    let received = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if received < 0 {
        return None;
    }
    #[allow(clippy::unnecessary_cast, reason = "another C library has another type")]
    let used = message.msg_controllen as usize;
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Some(read_control(bytes.get(..used).unwrap_or(&bytes)))
}

/// Finds the `sock_extended_err` among control messages.
fn read_control(bytes: &[u8]) -> Option<TooBig> {
    const ERRORS: [(i32, i32); 2] =
        [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
    let found =
        find_control(bytes, |which, data| ERRORS.contains(&which).then(|| read_error(data)));
    found.flatten()
}

/// Returns what `read` finds in the first of the control messages in which it finds something: each
/// is a length, a level, a type, and data, aligned to 8 bytes.
fn find_control<T>(mut bytes: &[u8], read: impl Fn((i32, i32), &[u8]) -> Option<T>) -> Option<T> {
    loop {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (level, rest) = rest.split_first_chunk::<4>()?;
        let (kind, _) = rest.split_first_chunk::<4>()?;
        let length = usize::from_ne_bytes(*length);
        let which = (i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind));
        if let Some(found) = read(which, bytes.get(16..length)?) {
            return Some(found);
        }
        bytes = bytes.get(length.next_multiple_of(8).max(16)..)?;
    }
}

/// `struct sock_extended_err`: errno, origin, type, code, a byte of padding, info, data; then the
/// address of the offender.
fn read_error(error: &[u8]) -> Option<TooBig> {
    let number = |at: usize| Some(u32::from_ne_bytes(*error.get(at..)?.first_chunk()?));
    if number(0)? != libc::EMSGSIZE.unsigned_abs() {
        return None;
    }
    let mtu = u16::try_from(number(8)?).unwrap_or(u16::MAX);
    let offender = error.get(16..).unwrap_or_default();
    match *error.get(4)? {
        libc::SO_EE_ORIGIN_LOCAL => Some(TooBig::Device(mtu)),
        libc::SO_EE_ORIGIN_ICMP => {
            let octets: [u8; 4] = *offender.get(4..)?.first_chunk()?;
            Some(TooBig::Hop(IpAddr::from(octets), mtu))
        }
        libc::SO_EE_ORIGIN_ICMP6 => {
            let octets: [u8; 16] = *offender.get(8..)?.first_chunk()?;
            Some(TooBig::Hop(IpAddr::from(octets).to_canonical(), mtu))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::net::{Shutdown, shutdown};

    /// Loopback's MTU is 65536, so nothing is too big for it; but it takes no packet with more than
    /// UDP can say.
    #[test]
    fn a_datagram_reaches_its_peer_whole() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let probe = ProbeSocket::connect(None, peer.local_addr().unwrap()).unwrap();
        assert_eq!(probe.socket().send(&[7; 9000]).unwrap(), 9000);
        let mut room = [0; 10_000];
        assert_eq!(peer.recv(&mut room).unwrap(), 9000);
        assert_eq!(probe.errors(), []);
    }

    /// `UdpSocket::recv_from` panicked there, with the family of the sender before: `millrace mtu
    /// check` aborted when it had probed.
    #[test]
    fn a_socket_that_is_shut_down_has_received_nothing() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            let own = socket.local_addr().unwrap();
            socket.send_to(&[7], own).unwrap();
            let received = Received { length: 1, from: own, device: 0 };
            assert_eq!(receive(&socket, &mut [0; 100]).unwrap(), Some(received));
            let _ = shutdown(&socket, Shutdown::Both);
            assert_eq!(receive(&socket, &mut [0; 100]).unwrap(), None);
        }
    }

    #[test]
    fn what_is_received_has_its_length_its_sender_and_its_device() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(here) = UdpSocket::bind(address) else { continue };
            let there = UdpSocket::bind(address).unwrap();
            tell_devices(&here);
            there.send_to(&[7; 40], here.local_addr().unwrap()).unwrap();
            let received = receive(&here, &mut [0; 100]).unwrap().unwrap();
            assert_eq!((received.length, received.from), (40, there.local_addr().unwrap()));
            let device = rustix::net::netdevice::index_to_name(&here, received.device);
            assert_eq!(device.as_deref(), Ok("lo"));
        }
    }

    proptest! {
        #[test]
        fn control_messages_of_any_kind_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = (read_control(&bytes), read_error(&bytes), read_device(&bytes));
        }
    }
}
