// UNSAFETY: registering a UMEM hands memory to the kernel, and rustix has no transmit budget.
//! An AF_XDP socket: its UMEM, its rings, its queue of the device, its statistics, and waking the
//! kernel.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "the size of an int")]

use super::ring::{Reader, Writer};
use super::umem::{METADATA, Umem};
use crate::closing;
use crate::link::Link;
use crate::namespace::{self, Wanted};
use crate::{Burst, Nanos};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{bind, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// `XDP_UMEM_TX_METADATA_LEN`: egress frames have metadata before them (Linux 6.8).
const UMEM_METADATA: u32 = 1 << 2;
/// `XDP_MAX_TX_SKB_BUDGET`: frames that the kernel takes in one call (Linux 6.17; 32 before).
const TRANSMIT_BUDGET: libc::c_int = 9;
/// Most bytes that may wait in the device, equal to that of a packet port.
const SEND_BUFFER: libc::c_int = 16 << 20;
/// How long the worker that reads the queue waits before it tries again to send frames that the
/// device did not take. The device may take none for long (PAUSE frames, a stalled back end), and
/// each try is a system call.
pub(super) const TRY_AGAIN: Nanos = Nanos(200_000);
/// How long a queue that was just released may stay busy: the kernel cleans up asynchronously.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Most frames that the driver may drop in one go; each takes a call. As many as a burst has: the
/// rest waits for the next burst, or for the worker that reads the queue.
pub(super) const MOST_DROPPED: usize = Burst::FRAMES;

/// An AF_XDP socket bound to one queue of a device, or about to be.
pub(super) struct XdpSocket {
    fd: OwnedFd,
    /// Whether the transmit ring holds frames that only a call sends. Stored by the egress side,
    /// read by the ingress side; it guards no data.
    unsent: AtomicBool,
    /// Frames that counted as sent and that the driver dropped later.
    sent_lost: AtomicU64,
    /// The interface, to read its carrier.
    link: Arc<Link>,
    /// A timer that is set while frames are unsent, to wake the worker that reads the queue: it may
    /// sleep while another one sends.
    retry_timer: OwnedFd,
    /// An epoll of the socket and the timer.
    ready: OwnedFd,
}

/// The rings of a socket.
pub(super) struct Rings {
    pub(super) fill: Writer<u64>,
    pub(super) receive: Reader<XdpDesc>,
    pub(super) transmit: Writer<XdpDesc>,
    pub(super) completion: Reader<u64>,
}

/// Source of a socket's UMEM.
pub(super) enum Share<'s> {
    /// The socket registered the UMEM itself.
    Own,
    /// Another socket registered the UMEM.
    With(&'s XdpSocket),
}

impl XdpSocket {
    /// Opens a socket without UMEM and queue, for an interface of a namespace, or of the calling
    /// thread's. Fails if the kernel or the namespace's helper refuses it.
    pub(super) fn open(link: Arc<Link>, netns: Option<&Path>) -> io::Result<XdpSocket> {
        let fd = namespace::make(netns, Wanted::Xdp)?;
        let retry_timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [&fd, &retry_timer] {
            epoll::add(&ready, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let (unsent, sent_lost) = (AtomicBool::new(false), AtomicU64::new(0));
        let socket = XdpSocket { fd, unsent, sent_lost, link, retry_timer, ready };
        // Either may be refused: then fewer frames wait in the device, and more calls are needed.
        let _ = socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER);
        Ok(socket)
    }

    /// Registers the UMEM, which must outlive the socket. Returns whether egress frames may have
    /// metadata. Fails if the kernel refuses the memory.
    pub(super) fn register(&self, umem: &Umem) -> io::Result<bool> {
        let (addr, len) = umem.range();
        let register = |flags, tx_metadata_len| {
            let chunk_size = umem.shape.chunk;
            let flags = XdpUmemRegFlags::from_bits_retain(flags);
            let area = XdpUmemReg { addr, len, chunk_size, headroom: 0, flags, tx_metadata_len };
            sockopt::set_xdp_umem_reg(&self.fd, area)
        };
        match register(UMEM_METADATA, METADATA) {
            Err(Errno::INVAL) => Ok(register(0, 0).map(|()| false)?),
            other => Ok(other.map(|()| true)?),
        }
    }

    /// Makes the rings for the chunks of a queue and maps them. Fails if the kernel refuses a ring.
    pub(super) fn map_rings(&self, umem: &Umem) -> io::Result<Rings> {
        let (ingress, egress) = (umem.shape.ingress, umem.shape.egress);
        sockopt::set_xdp_umem_fill_ring_size(&self.fd, ingress)?;
        sockopt::set_xdp_umem_completion_ring_size(&self.fd, egress)?;
        sockopt::set_xdp_rx_ring_size(&self.fd, ingress)?;
        sockopt::set_xdp_tx_ring_size(&self.fd, egress)?;
        let _ = self.set(libc::SOL_XDP, TRANSMIT_BUDGET, egress.min(256).cast_signed());
        let at = sockopt::xdp_mmap_offsets(&self.fd)?;
        let fd = self.fd.as_fd();
        Ok(Rings {
            fill: Writer::map(fd, XDP_UMEM_PGOFF_FILL_RING, ingress, at.fr)?,
            receive: Reader::map(fd, XDP_PGOFF_RX_RING, ingress, at.rx)?,
            transmit: Writer::map(fd, XDP_PGOFF_TX_RING, egress, at.tx)?,
            completion: Reader::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, egress, at.cr)?,
        })
    }

    /// Binds to a queue of an interface, and waits for a queue that was just released. With `copy`
    /// zero-copy is not tried; else the kernel tries it first. Fails with EBUSY if another socket
    /// has the queue.
    pub(super) fn bind(
        &self,
        (interface, queue): (u32, u32),
        share: Share<'_>,
        copy: bool,
    ) -> io::Result<()> {
        let start = Instant::now();
        loop {
            match self.try_bind((interface, queue), &share, copy) {
                Err(Errno::BUSY) if start.elapsed() < BUSY_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                other => return Ok(other?),
            }
        }
    }

    fn try_bind(
        &self,
        (interface, queue): (u32, u32),
        share: &Share<'_>,
        copy: bool,
    ) -> Result<(), Errno> {
        match share {
            Share::Own => {
                let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
                flags.set(SocketAddrXdpFlags::XDP_COPY, copy);
                bind(&self.fd, &SocketAddrXdp::new(flags, interface, queue))
            }
            // The other flags are those of the first socket.
            Share::With(first) => {
                let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
                let addr = SocketAddrXdp::new(flags, interface, queue);
                let shared_umem_fd = first.fd.as_fd();
                bind(&self.fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })
            }
        }
    }

    /// Whether the driver fills and reads the UMEM itself. Known after `bind`.
    pub(super) fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.fd)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Returns the frames that were lost: those the kernel dropped before the receive ring (no
    /// chunk, no room in the ring, too long for a chunk), and those of [`XdpSocket::count_lost`]. A
    /// driver counts its earlier drops itself, for want of a chunk in zero-copy or of a page.
    pub(super) fn lost(&self) -> u64 {
        let received = sockopt::xdp_statistics(&self.fd)
            .map_or(0, |counted| counted.rx_dropped + counted.rx_ring_full.unwrap_or_default());
        received + self.sent_lost.load(Relaxed)
    }

    /// Counts frames that the driver dropped after they counted as sent.
    pub(super) fn count_lost(&self, frames: usize) {
        if frames > 0 {
            self.sent_lost.fetch_add(frames as u64, Relaxed);
        }
    }

    /// Whether the interface has a carrier, `true` if unknown; the kernel may notice a change up to
    /// a second late. Takes no kernel lock that would hold up the data path.
    pub(super) fn has_carrier(&self) -> bool {
        self.link.has_carrier().unwrap_or(true)
    }

    /// Makes the kernel send what is in the transmit ring. Fails with EBUSY if the driver dropped a
    /// frame.
    pub(super) fn wake_transmit(&self) -> Result<(), Errno> {
        // SAFETY: no bytes are read from the null pointer.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent >= 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Notes that frames are left for [`XdpSocket::send_rest`], and sets the timer that wakes the
    /// ingress side for them.
    pub(super) fn note_unsent(&self) {
        // Set first: clearing the mark stops the timer. A timer set after the mark could stay set,
        // and keep the worker awake for ever.
        self.set_retry_timer(TRY_AGAIN);
        // Pairs with the acquire in `send_rest`, which sends what was published before the mark.
        self.unsent.store(true, Release);
    }

    /// Makes the kernel send what an earlier burst left in the transmit ring, if it left any.
    /// Returns whether something is still left.
    pub(super) fn send_rest(&self) -> bool {
        // Cleared before the call: frames left meanwhile are noted after it. Frames published
        // before their timer was stopped here go with this call, though their mark may come later.
        if !self.unsent.load(Relaxed) || !self.unsent.swap(false, Acquire) {
            return false;
        }
        self.set_retry_timer(Nanos(0));
        let mut dropped = 0;
        let answer = loop {
            let answer = self.wake_transmit();
            dropped += usize::from(answer == Err(Errno::BUSY));
            if answer != Err(Errno::BUSY) || dropped == MOST_DROPPED {
                break answer;
            }
        };
        self.count_lost(dropped);
        let busy = [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::BUSY];
        let left = answer.is_err_and(|error| busy.contains(&error));
        if left {
            self.note_unsent();
        }
        left
    }

    /// Takes what is left from [`XdpSocket::send_rest`], which then does not send it.
    pub(super) fn forget_unsent(&self) {
        // Cleared first: frames left and noted meanwhile keep their mark.
        if self.unsent.swap(false, Relaxed) {
            self.set_retry_timer(Nanos(0));
        }
    }

    /// Sets the retry_timer to ring once after this time, replacing an earlier setting; 0 stops it.
    fn set_retry_timer(&self, after: Nanos) {
        let value = Timespec { tv_sec: 0, tv_nsec: after.0.cast_signed() };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        // The call fails only for values that are not a time.
        let _ = timerfd_settime(&self.retry_timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Returns a descriptor that is readable when there are frames to take, or to send for the
    /// egress side.
    pub(super) fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Makes the driver look at the fill ring.
    pub(super) fn wake_fill(&self) {
        // SAFETY: no bytes are written to the null pointer. Whatever it answers, the driver has
        // looked.
        let _ =
            unsafe { libc::recv(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }

    /// Returns the socket's error, once: the interface is gone from its namespace.
    pub(super) fn take_error(&self) -> Option<Errno> {
        match sockopt::socket_error(&self.fd) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error),
        }
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let pointer = (&raw const value).cast();
        let length = size_of_val(&value) as libc::socklen_t;
        // SAFETY: each of these options reads one int.
        match unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, name, pointer, length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for XdpSocket {
    fn drop(&mut self) {
        closing::collect(self.fd.as_fd());
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::super::umem::{EgressChunks, Shape};
    use super::*;
    use crate::Outgoing;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::net::xdp::XdpDescOptions;
    use std::process::Command;

    fn ip(words: &str) {
        let output = Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {words}: {output:?}");
    }

    /// Whether the socket is ready within this many seconds.
    fn is_ready_within(socket: &XdpSocket, seconds: i64) -> bool {
        let (ready, timeout) = (socket.ready_fd(), Timespec { tv_sec: seconds, tv_nsec: 0 });
        poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    fn is_ready(socket: &XdpSocket) -> bool {
        is_ready_within(socket, 0)
    }

    /// Frames left in the transmit ring waited for the worker that reads the queue, which was not
    /// woken; and frames that the driver dropped of them were not counted anywhere.
    #[test]
    fn what_is_left_in_the_ring_wakes_the_reader_and_counts_where_the_driver_drops_it() {
        let test = || {
            ip("link add mill0 type veth peer name mill1");
            // Up and without a carrier: the driver drops each frame.
            ip("link set mill0 up");
            let umem = Arc::new(Umem::map(1, Shape::fitting(1500, 1 << 17).unwrap()).unwrap());
            let link = Arc::new(Link::open("mill0", None).unwrap());
            let socket = XdpSocket::open(link.clone(), None).unwrap();
            socket.register(&umem).unwrap();
            let Rings { mut transmit, .. } = socket.map_rings(&umem).unwrap();
            socket.bind((link.index().unwrap(), 0), Share::Own, true).unwrap();
            let mut chunks = EgressChunks::new(umem, 0);
            let vnet = wire::vnet::VnetHeader::default();
            let frame = Outgoing { vnet, header: &[2; 60], payload: &[], len: 60 };
            for _ in 0..3 {
                let addr = chunks.put([0; 16], &frame).unwrap();
                transmit.put(XdpDesc { addr, len: 60, options: XdpDescOptions::empty() });
            }
            transmit.publish();
            assert!(!is_ready(&socket) && !socket.send_rest());
            socket.note_unsent();
            assert!(is_ready_within(&socket, 10));
            socket.forget_unsent();
            assert!(!is_ready(&socket) && !socket.send_rest() && transmit.pending() == 3);
            socket.note_unsent();
            assert!(is_ready_within(&socket, 10));
            assert_eq!((socket.send_rest(), transmit.pending()), (false, 0));
            assert!(!socket.send_rest() && !is_ready(&socket));
            assert_eq!(socket.lost(), 3);
        };
        if let Err(error) = namespace::fresh(test) {
            eprintln!("skipped: needs the right to make a network namespace: {error}");
        }
    }
}
