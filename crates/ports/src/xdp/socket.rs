// UNSAFETY: registering a UMEM hands memory to the kernel, and rustix has no transmit budget.
//! An AF_XDP socket: its UMEM, its rings, its queue of the device, its statistics, and waking the kernel.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "the size of an int")]

use super::ring::{Reader, Writer};
use super::umem::{METADATA, Umem};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// `XDP_UMEM_TX_METADATA_LEN`: egress frames have metadata before them (Linux 6.8).
const UMEM_METADATA: u32 = 1 << 2;
/// `XDP_MAX_TX_SKB_BUDGET`: frames that the kernel takes in one call (Linux 6.17; 32 before).
const TRANSMIT_BUDGET: libc::c_int = 9;
/// What may wait in the device, as at a packet port.
const SEND_BUFFER: libc::c_int = 16 << 20;
/// How long a queue that was just given back may still be busy: the kernel cleans up on its own time.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct XdpSocket {
    fd: OwnedFd,
    /// The transmit ring holds frames that nothing but a call sends. Stored by the egress side, read by the ingress side; it
    /// guards no data.
    unsent: AtomicBool,
}

/// The rings of a socket.
pub(super) struct Rings {
    pub(super) fill: Writer<u64>,
    pub(super) receive: Reader<XdpDesc>,
    pub(super) transmit: Writer<XdpDesc>,
    pub(super) completion: Reader<u64>,
}

/// Whom a socket gets its UMEM from.
pub(super) enum Share<'s> {
    /// It registered it itself.
    Own,
    /// The socket that did.
    With(&'s XdpSocket),
}

impl XdpSocket {
    /// A socket without UMEM and queue.
    pub(super) fn open() -> io::Result<XdpSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let socket = XdpSocket { fd, unsent: AtomicBool::new(false) };
        // Either may be refused: then fewer frames wait in the device, and it takes more calls.
        let _ = socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER);
        Ok(socket)
    }

    /// Registers the UMEM, which must outlive the socket. Whether egress frames may have metadata.
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

    /// Makes its rings for the chunks of a queue and maps them.
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

    /// Binds to a queue of an interface. `copy`: without asking the driver for zero-copy, of which the kernel asks first by
    /// itself. A queue that was just given back is waited for.
    pub(super) fn bind(
        &self,
        (interface, queue): (u32, u32),
        share: Share<'_>,
        copy: bool,
    ) -> io::Result<()> {
        let start = Instant::now();
        loop {
            match self.try_bind((interface, queue), &share, copy) {
                Err(Errno::BUSY) if start.elapsed() < PATIENCE => {
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

    /// Whether the driver fills and reads the UMEM itself. Known once it is bound.
    pub(super) fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.fd)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Frames that the kernel dropped before the receive ring: no chunk or no room in the ring, or too long for a chunk.
    pub(super) fn lost(&self) -> u64 {
        sockopt::xdp_statistics(&self.fd)
            .map_or(0, |counted| counted.rx_dropped + counted.rx_ring_full.unwrap_or_default())
    }

    /// Has the kernel send what is in the transmit ring.
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

    /// Whether frames are left for [`XdpSocket::send_rest`].
    pub(super) fn note_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Relaxed);
    }

    /// Has the kernel send what an earlier burst left in the transmit ring, if it did. `true`: something is left still.
    pub(super) fn send_rest(&self) -> bool {
        // Cleared before the call: what is left meanwhile is noted after it.
        if !self.unsent.load(Relaxed) || !self.unsent.swap(false, Relaxed) {
            return false;
        }
        let busy = [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::BUSY];
        let left = self.wake_transmit().is_err_and(|error| busy.contains(&error));
        if left {
            self.note_unsent(true);
        }
        left
    }

    /// Has the driver look at the fill ring.
    pub(super) fn wake_fill(&self) {
        // SAFETY: no bytes are written to the null pointer. Whatever it answers, the driver has looked.
        let _ =
            unsafe { libc::recv(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }

    /// Whether the interface is gone from its namespace, which is told once.
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

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
