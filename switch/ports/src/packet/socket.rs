// UNSAFETY: socket options, addresses and message lists of packet sockets, which rustix does not
// have.
//! A packet socket: its options, its address, its statistics, and sending many frames in one call.
#![allow(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "small constants, and sizes of small structs, that C declares with another integer type"
)]

use crate::closing;
use crate::namespace::{self, Refusal, Wanted};
use libc::{c_int, c_void};
use rustix::io::{Errno, IoSlice};
use rustix::net::sockopt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A raw packet socket.
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    /// Frames that arrived for its ring so far, including dropped ones; the kernel counts from the
    /// last reading on.
    packets: AtomicU64,
    drops: AtomicU64,
}

/// An option that takes an `int`.
#[derive(Clone, Copy)]
pub(super) enum Setting {
    /// `PACKET_VERSION` of the ring.
    RingVersion,
    /// `PACKET_VNET_HDR`: every frame has a virtio-net header of 10 bytes in front, both ways. Must
    /// be set before the ring.
    VnetHeader,
    /// `PACKET_IGNORE_OUTGOING`: frames sent through the interface are not shown.
    IgnoreOutgoing,
    /// `PACKET_COPY_THRESH`: frames longer than a slot can be received whole beside it.
    CopyThreshold,
    /// `SO_RCVBUFFORCE`, in bytes.
    ReceiveBuffer,
    /// `SO_SNDBUFFORCE`, in bytes.
    SendBuffer,
}

/// Properties of a socket that another process has opened.
#[derive(Clone, Copy)]
pub(super) enum Question {
    /// `PACKET_VERSION` of the ring.
    RingVersion,
    /// `PACKET_VNET_HDR`.
    VnetHeader,
    /// `PACKET_IGNORE_OUTGOING`.
    IgnoreOutgoing,
    /// `PACKET_FANOUT`: 0 without a group, since ours all have a flag.
    Group,
}

/// Frames that a socket shows.
#[derive(Clone, Copy)]
pub(super) enum Filter {
    /// None.
    Nothing,
    /// Frames that the interface received, and none that was sent through it.
    Received,
}

/// How a group of sockets shares frames.
#[derive(Clone, Copy)]
pub(super) enum Fanout {
    /// `PACKET_FANOUT_HASH`: by the kernel's hash of the flow.
    Hash = 0,
    /// `PACKET_FANOUT_EBPF`: a program names the socket's place.
    Program = 7,
}

impl Fanout {
    /// `PACKET_FANOUT_FLAG_UNIQUEID`: the kernel numbers a new group.
    const NEW: u32 = 0x2000;
    /// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`: a socket's own option of that name has no effect in a
    /// group. Before Linux 6.2 the kernel accepts the flag and does nothing; then
    /// [`Filter::Received`] has the same effect at a higher price.
    const IGNORE_OUTGOING: u32 = 0x4000;
}

const PACKET_FANOUT: c_int = 18;
const PACKET_FANOUT_DATA: c_int = 22;

/// Protocol 0: receives nothing.
pub(super) const NO_PROTOCOL: u16 = 0;
/// `ETH_P_ALL`.
pub(super) const ALL_PROTOCOLS: u16 = 3;

impl Setting {
    /// Returns the setting for a process without `CAP_NET_ADMIN` on the host (in a user namespace):
    /// the same buffer, up to the host's `net.core.rmem_max` or `wmem_max`.
    fn within_limit(self) -> Option<c_int> {
        match self {
            Setting::ReceiveBuffer => Some(libc::SO_RCVBUF),
            Setting::SendBuffer => Some(libc::SO_SNDBUF),
            _ => None,
        }
    }
}

impl PacketSocket {
    /// Opens a socket of a namespace, or of the calling thread's. It receives nothing until it is
    /// bound to a protocol. Fails if the process or its helper may not open it.
    pub(crate) fn open(netns: Option<&Path>) -> Result<PacketSocket, Refusal> {
        Ok(PacketSocket::of(namespace::make(netns, Wanted::Packet)?))
    }

    /// Wraps a socket that another process has opened. It may be of any kind.
    pub(super) fn of(fd: OwnedFd) -> PacketSocket {
        PacketSocket { fd, packets: AtomicU64::new(0), drops: AtomicU64::new(0) }
    }

    /// Sets an option. Fails if the kernel refuses it.
    pub(super) fn set(&self, setting: Setting, value: c_int) -> io::Result<()> {
        let (level, name) = match setting {
            Setting::RingVersion => (libc::SOL_PACKET, libc::PACKET_VERSION),
            Setting::VnetHeader => (libc::SOL_PACKET, libc::PACKET_VNET_HDR),
            Setting::IgnoreOutgoing => (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING),
            Setting::CopyThreshold => (libc::SOL_PACKET, libc::PACKET_COPY_THRESH),
            Setting::ReceiveBuffer => (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
            Setting::SendBuffer => (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
        };
        // SAFETY: each of these options reads one int.
        match (unsafe { self.set_raw(level, name, &value) }, setting.within_limit()) {
            (Err(error), Some(name)) if error.kind() == io::ErrorKind::PermissionDenied => {
                // SAFETY: as above.
                unsafe { self.set_raw(level, name, &value) }
            }
            (result, _) => result,
        }
    }

    /// Requests a ring of received frames. Fails if the kernel lacks the memory.
    pub(super) fn request_ring(&self, request: &libc::tpacket_req) -> io::Result<()> {
        // SAFETY: with ring version 2 the option reads one `tpacket_req`.
        unsafe { self.set_raw(libc::SOL_PACKET, libc::PACKET_RX_RING, request) }
    }

    /// Makes the interface take frames for any address as long as the socket lives. Fails if there
    /// is no such interface.
    pub(crate) fn make_promiscuous(&self, index: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: index.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: the option reads one `packet_mreq`.
        unsafe { self.set_raw(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership) }
    }

    /// Binds to an interface and a protocol. Fails if there is no such interface.
    pub(super) fn bind(&self, index: u32, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::c_ushort,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is a `sockaddr_ll` of that length, and outlives the call.
        result(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Sends a frame through the interface that it is bound to. Fails if the interface is down or
    /// gone.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        match rustix::io::write(&self.fd, frame) {
            Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Shows only frames that pass the filter from now on. Fails if the kernel refuses the filter.
    pub(super) fn filter(&self, filter: Filter) -> io::Result<()> {
        // Code, jump where true and where false, operand: see the kernel's `filter.rst`.
        let instruction = |(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k };
        let keep = |bytes| (6, 0, 0, bytes);
        let mut program = match filter {
            Filter::Nothing => vec![keep(0)],
            Filter::Received => {
                let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
                let is_outgoing = (0x15, 0, 1, u32::from(libc::PACKET_OUTGOING));
                vec![(0x30, 0, 0, kind), is_outgoing, keep(0), keep(u32::MAX)]
            }
        }
        .into_iter()
        .map(instruction)
        .collect::<Vec<_>>();
        let len = program.len() as libc::c_ushort;
        let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
        // SAFETY: the option reads one `sock_fprog` and its `len` instructions, which outlive the
        // call.
        unsafe { self.set_raw(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
    }

    /// Shows only frames that this program lets pass, from now on. Fails if the kernel refuses the
    /// program.
    pub(crate) fn judge(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the option reads one int, a descriptor.
        unsafe { self.set_raw(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_raw_fd()) }
    }

    /// Shows all frames from now on. Fails if the kernel refuses it.
    pub(super) fn remove_filter(&self) -> io::Result<()> {
        // SAFETY: the option reads one int, and ignores it.
        match unsafe { self.set_raw(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0) } {
            // The socket has no filter.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Joins a group of sockets bound alike; `None` makes a new one. Fails if the sockets differ or
    /// the link must be up.
    pub(super) fn join(&self, fanout: Fanout, group: Option<u16>) -> io::Result<()> {
        let flags = Fanout::IGNORE_OUTGOING | group.map_or(Fanout::NEW, |_| 0);
        let value = u32::from(group.unwrap_or(0)) | (fanout as u32 | flags) << 16;
        // SAFETY: the option reads one int.
        unsafe { self.set_raw(libc::SOL_PACKET, PACKET_FANOUT, &value) }
    }

    /// Returns the number of its group. Fails if the socket is of another kind.
    pub(super) fn group(&self) -> io::Result<u16> {
        self.ask(Question::Group).map(|value| value as u16)
    }

    /// Returns the kernel's answer. Fails if the socket is of another kind.
    pub(super) fn ask(&self, question: Question) -> io::Result<c_int> {
        let name = match question {
            Question::RingVersion => libc::PACKET_VERSION,
            Question::VnetHeader => libc::PACKET_VNET_HDR,
            Question::IgnoreOutgoing => libc::PACKET_IGNORE_OUTGOING,
            Question::Group => PACKET_FANOUT,
        };
        let mut value: c_int = 0;
        // SAFETY: each of these options writes one int.
        unsafe { get_raw(&self.fd, libc::SOL_PACKET, name, &mut value) }?;
        Ok(value)
    }

    /// Returns the interface and the protocol that it is bound to. Fails if the kernel refuses the
    /// question.
    pub(super) fn bound_to(&self) -> io::Result<(u32, u16)> {
        // SAFETY: an address of zeros is one.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: writes at most `length` bytes, the beginning of an address that is longer.
        result(unsafe {
            libc::getsockname(self.fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
        })?;
        Ok((address.sll_ifindex.cast_unsigned(), u16::from_be(address.sll_protocol)))
    }

    /// Makes an eBPF program steer its group. Fails if the group is of another kind.
    pub(super) fn steer(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: in a group of this kind the option reads one int, a descriptor.
        unsafe { self.set_raw(libc::SOL_PACKET, PACKET_FANOUT_DATA, &program.as_raw_fd()) }
    }

    /// Returns the frames that arrived for its ring since it was opened, and those of them that the
    /// kernel dropped. Costs a system call each time.
    pub(super) fn statistics(&self) -> (u64, u64) {
        let mut new = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        // SAFETY: with ring version 2 the option writes one `tpacket_stats`. If it fails, they stay
        // zero.
        let _ = unsafe { get_raw(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut new) };
        let add = |sum: &AtomicU64, new: u32| {
            sum.fetch_add(new.into(), Ordering::Relaxed).wrapping_add(new.into())
        };
        (add(&self.packets, new.tp_packets), add(&self.drops, new.tp_drops))
    }

    /// Returns the memory of frames that the device has not sent yet. Fails if the kernel refuses
    /// the question.
    pub(super) fn unsent(&self) -> io::Result<usize> {
        let mut bytes: c_int = 0;
        // SAFETY: `SIOCOUTQ` writes one int.
        result(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Returns the pending error of the socket, such as the interface having gone down; it is
    /// reported once.
    pub(super) fn take_error(&self) -> Option<Errno> {
        match sockopt::socket_error(&self.fd) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error),
        }
    }

    /// Sets an option from a value.
    ///
    /// # Safety
    /// The option must read a `T`.
    unsafe fn set_raw<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let pointer: *const c_void = std::ptr::from_ref(value).cast();
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is valid for `length` bytes until the call is back; its type is the
        // caller's word.
        result(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, name, pointer, length) })
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        closing::collect(self.fd.as_fd());
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the number of a socket's network namespace, unique since the host has started (Linux
/// 5.14). Fails on older kernels.
pub(crate) fn namespace(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    // SAFETY: the option writes one u64.
    unsafe { get_raw(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie) }?;
    Ok(cookie)
}

/// Reads an option into `value`.
///
/// # Safety
/// The option must write at most a `T`, and any bytes must be one.
unsafe fn get_raw<T>(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (socket, pointer) = (socket.as_fd().as_raw_fd(), std::ptr::from_mut(value).cast());
    // SAFETY: writes at most `length` bytes, which `value` has; its type is the caller's word.
    result(unsafe { libc::getsockopt(socket, level, name, pointer, &raw mut length) })
}

/// Returns the number of processors that the kernel may run on, which may be more than this process
/// may use.
pub(super) fn processors() -> usize {
    // SAFETY: reads a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1)
}

fn result(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The frames of one `sendmmsg`.
pub(super) struct Batch<'a> {
    messages: [libc::mmsghdr; Batch::FRAMES],
    len: usize,
    pieces: PhantomData<&'a [IoSlice<'a>]>,
}

impl<'a> Batch<'a> {
    /// Most frames of a batch.
    pub(super) const FRAMES: usize = 64;

    /// Prepares frames from their pieces, one behind the other, and the number of pieces of each
    /// frame.
    pub(super) fn new(
        mut pieces: &'a [IoSlice<'a>],
        counts: impl Iterator<Item = usize>,
    ) -> Batch<'a> {
        // SAFETY: a message header of zeros is one without address, pieces and control data.
        let mut messages: [libc::mmsghdr; Batch::FRAMES] = unsafe { std::mem::zeroed() };
        let mut len = 0;
        for (message, count) in messages.iter_mut().zip(counts) {
            let (mine, rest) = pieces.split_at(count.min(pieces.len()));
            pieces = rest;
            // `IoSlice` is laid out as iovec; the kernel only reads through it.
            message.msg_hdr.msg_iov = mine.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_iovlen = mine.len() as _;
            len += 1;
        }
        Batch { messages, len, pieces: PhantomData }
    }

    /// Sends frames from the given one on. Returns how many were sent. Fails if the first of them
    /// was not.
    pub(super) fn send(&mut self, socket: &PacketSocket, from: usize) -> Result<usize, Errno> {
        let messages = self.messages.get_mut(from..self.len).unwrap_or_default();
        // SAFETY: `messages` are valid headers, and their pieces live for 'a.
        let sent = unsafe {
            libc::sendmmsg(
                socket.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent)
            .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// A process that passes a socket may have left a filter, and the kernel does not tell.
    #[test]
    fn without_its_filter_a_socket_shows_frames_again() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = here.local_addr().unwrap();
        let socket = PacketSocket::of(here.try_clone().unwrap().into());
        let shows = |patience: u64| {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1], to).unwrap();
            here.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
            here.recv(&mut [0]).is_ok()
        };
        assert!(shows(10_000));
        socket.filter(Filter::Nothing).unwrap();
        assert!(!shows(100));
        socket.remove_filter().unwrap();
        assert!(shows(10_000));
        socket.remove_filter().unwrap();
    }
}
