//! TCP's own books of one connection: TCP_INFO (tcp(7), linux/tcp.h).
//!
//! Segments are those of the wire, counted before the host merges them (GRO) and after it splits them (TSO), so bytes over
//! segments is the payload of an average frame. The kernel's fields of 32 bits wrap; differences are taken to wrap with them.
// UNSAFETY: rustix has neither TCP_INFO nor SIOCOUTQ nor SO_MAX_PACING_RATE.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::ops::AddAssign;

/// What is used of `struct tcp_info`. A field the kernel is too old for is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The connection's state, a number of the kernel's `net/tcp_states.h`.
    pub state: u8,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Segments sent again.
    pub total_retrans: u32,
    /// All segments sent.
    pub segs_out: u32,
    /// All segments received.
    pub segs_in: u32,
    /// Segments received that had payload.
    pub data_segs_in: u32,
    /// Segments sent that had payload.
    pub data_segs_out: u32,
    /// Payload whose arrival the peer has confirmed.
    pub bytes_acked: u64,
    /// Payload received in order.
    pub bytes_received: u64,
    /// Payload sent, retransmissions included.
    pub bytes_sent: u64,
}

/// States in which our FIN is on its way and not confirmed: FIN-WAIT-1, LAST-ACK, CLOSING.
const FIN_ON_ITS_WAY: [u8; 3] = [4, 9, 11];

/// Bytes of `struct tcp_info` up to and with `tcpi_bytes_retrans`.
const LENGTH: usize = 216;

impl TcpInfo {
    /// Reads the books of a TCP socket.
    ///
    /// # Errors
    /// Not a TCP socket.
    pub fn read(socket: impl AsFd) -> Result<TcpInfo, Errno> {
        let mut bytes = [0u8; LENGTH];
        let mut length = libc::socklen_t::try_from(LENGTH).unwrap_or(0);
        // SAFETY: the kernel writes at most `length` bytes into `bytes`, and the descriptor is open while borrowed.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(last_error());
        }
        Ok(TcpInfo::parse(&bytes))
    }

    /// Bytes that were given to a TCP socket and that its peer has not confirmed (SIOCOUTQ, tcp(7)), the FIN not counted.
    ///
    /// # Errors
    /// Not a TCP socket.
    pub fn undelivered(socket: impl AsFd) -> Result<u64, Errno> {
        let info = TcpInfo::read(&socket)?;
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one int to `bytes`, and the descriptor is open while borrowed.
        let result =
            unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result != 0 {
            return Err(last_error());
        }
        let fin = u64::from(FIN_ON_ITS_WAY.contains(&info.state));
        Ok(u64::try_from(bytes).unwrap_or(0).saturating_sub(fin))
    }

    fn parse(bytes: &[u8; LENGTH]) -> TcpInfo {
        let word = |at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        TcpInfo {
            state: bytes.first().copied().unwrap_or(0),
            rtt_us: word(68),
            total_retrans: word(100),
            bytes_acked: long(120),
            bytes_received: long(128),
            segs_out: word(136),
            segs_in: word(140),
            data_segs_in: word(152),
            data_segs_out: word(156),
            bytes_sent: long(200),
        }
    }

    /// What was added since an earlier reading of the same connection.
    pub fn since(&self, earlier: &TcpInfo) -> TcpTotals {
        let more = |now: u32, then: u32| u64::from(now.wrapping_sub(then));
        TcpTotals {
            connections: 1,
            starved: u64::from(
                self.bytes_acked == earlier.bytes_acked
                    && self.bytes_received == earlier.bytes_received,
            ),
            rtt_us_sum: u64::from(self.rtt_us),
            retransmits: more(self.total_retrans, earlier.total_retrans),
            segments_out: more(self.segs_out, earlier.segs_out),
            segments_in: more(self.segs_in, earlier.segs_in),
            data_segments_in: more(self.data_segs_in, earlier.data_segs_in),
            data_segments_out: more(self.data_segs_out, earlier.data_segs_out),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
            bytes_sent: self.bytes_sent.saturating_sub(earlier.bytes_sent),
        }
    }
}

/// Sums over connections between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpTotals {
    /// Connections that were added up.
    pub connections: u64,
    /// Of those, the ones on which nothing arrived at either end.
    pub starved: u64,
    /// Their round-trip times at the end, added up.
    pub rtt_us_sum: u64,
    /// See [`TcpInfo::total_retrans`].
    pub retransmits: u64,
    /// See [`TcpInfo::segs_out`].
    pub segments_out: u64,
    /// See [`TcpInfo::segs_in`].
    pub segments_in: u64,
    /// See [`TcpInfo::data_segs_in`].
    pub data_segments_in: u64,
    /// See [`TcpInfo::data_segs_out`].
    pub data_segments_out: u64,
    /// See [`TcpInfo::bytes_received`].
    pub bytes_received: u64,
    /// See [`TcpInfo::bytes_sent`].
    pub bytes_sent: u64,
}

impl AddAssign for TcpTotals {
    fn add_assign(&mut self, other: TcpTotals) {
        self.connections += other.connections;
        self.starved += other.starved;
        self.rtt_us_sum += other.rtt_us_sum;
        self.retransmits += other.retransmits;
        self.segments_out += other.segments_out;
        self.segments_in += other.segments_in;
        self.data_segments_in += other.data_segments_in;
        self.data_segments_out += other.data_segments_out;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
    }
}

/// Limits what a socket sends, in bytes per second (SO_MAX_PACING_RATE, socket(7); the fq queueing discipline or TCP itself
/// paces).
///
/// # Errors
/// What the kernel says.
pub fn set_pacing_rate(socket: impl AsFd, bytes_per_s: u64) -> Result<(), Errno> {
    // SAFETY: the kernel reads the 8 bytes of `bytes_per_s`, and the descriptor is open while borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_s).cast(),
            8,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn the_offsets_are_those_of_the_running_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        sender.write_all(&[7; 5000]).unwrap();
        receiver.read_exact(&mut [0; 5000]).unwrap();
        let (sent, received) = (TcpInfo::read(&sender).unwrap(), TcpInfo::read(&receiver).unwrap());
        assert_eq!((sent.bytes_sent, received.bytes_received), (5000, 5000));
        assert!(received.data_segs_in >= 1 && received.segs_in > received.data_segs_in);
        assert!(sent.data_segs_out >= 1 && sent.rtt_us > 0);
        // The kernel counts the SYN too.
        assert!((1..=5001).contains(&sent.bytes_acked));
        assert_eq!((sent.since(&TcpInfo::default()).starved, sent.since(&sent).starved), (0, 1));
    }

    #[test]
    fn what_a_peer_does_not_take_is_undelivered_to_the_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        sender.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = sender.write(&[7; 65_536]) {
            sent += count as u64;
        }
        sender.shutdown(std::net::Shutdown::Write).unwrap();
        // Of these moments the second may have more on its way than the first, never less.
        let waiting = || rustix::io::ioctl_fionread(&receiver).unwrap();
        let undelivered = TcpInfo::undelivered(&sender).unwrap();
        assert!(undelivered > 0 && undelivered + waiting() >= sent && waiting() < sent);
        assert_eq!(std::io::copy(&mut receiver, &mut std::io::sink()).unwrap(), sent);
        while TcpInfo::undelivered(&sender).unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn segment_counts_wrap_with_the_kernels() {
        let before = TcpInfo { segs_in: u32::MAX - 4, ..TcpInfo::default() };
        let after = TcpInfo { segs_in: 5, ..TcpInfo::default() };
        assert_eq!(after.since(&before).segments_in, 10);
    }

    #[test]
    fn a_datagram_socket_has_no_such_books() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(TcpInfo::read(&socket).is_err());
        set_pacing_rate(&socket, 1_000_000).unwrap();
    }
}
