//! The kernel's counters of one TCP connection: TCP_INFO (tcp(7), linux/tcp.h).
//!
//! Segments are those of the wire, counted before the host merges them (GRO) and after it splits
//! them (TSO), so bytes over segments is the payload of an average frame. The kernel's fields of 32
//! bits wrap, and so do differences of them.
// UNSAFETY: rustix has neither TCP_INFO nor SIOCOUTQ nor SO_MAX_PACING_RATE.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

/// TCP_INFO of one connection. Fields that an old kernel lacks are zero.
#[derive(Clone, Copy, Debug)]
pub struct TcpInfo(libc::tcp_info);

/// States in which our FIN is sent and not confirmed: FIN-WAIT-1, LAST-ACK, CLOSING.
const FIN_ON_ITS_WAY: [u8; 3] = [4, 9, 11];

impl TcpInfo {
    /// Reads TCP_INFO of a socket.
    ///
    /// # Errors
    /// Fails if it is not a TCP socket.
    pub fn read(socket: impl AsFd) -> Result<TcpInfo, Errno> {
        let mut info = TcpInfo::default();
        let mut length = libc::socklen_t::try_from(size_of::<TcpInfo>()).unwrap_or(0);
        // SAFETY: the kernel writes at most `length` bytes into `info`, and the descriptor is open
        // while borrowed.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info.0).cast(),
                &raw mut length,
            )
        };
        if result == 0 { Ok(info) } else { Err(last_error()) }
    }

    /// Returns the bytes given to a TCP socket that its peer has not confirmed (SIOCOUTQ, tcp(7)),
    /// the FIN not counted.
    ///
    /// # Errors
    /// Fails if it is not a TCP socket.
    pub fn undelivered(socket: impl AsFd) -> Result<u64, Errno> {
        let info = TcpInfo::read(&socket)?;
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one int to `bytes`, and the descriptor is open while borrowed.
        let result =
            unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result != 0 {
            return Err(last_error());
        }
        let fin = u64::from(FIN_ON_ITS_WAY.contains(&info.0.tcpi_state));
        Ok(u64::try_from(bytes).unwrap_or(0).saturating_sub(fin))
    }

    /// Returns what was added since an earlier reading of one connection.
    pub fn since(&self, earlier: &TcpInfo) -> TcpTotals {
        let (now, then) = (&self.0, &earlier.0);
        let more = |of: fn(&libc::tcp_info) -> u32| u64::from(of(now).wrapping_sub(of(then)));
        let moved = [now, then].map(|info| (info.tcpi_bytes_acked, info.tcpi_bytes_received));
        TcpTotals {
            connections: 1,
            starved: u64::from(moved[0] == moved[1]),
            rtt_us_sum: u64::from(now.tcpi_rtt),
            retransmits: more(|info| info.tcpi_total_retrans),
            segments_out: more(|info| info.tcpi_segs_out),
            segments_in: more(|info| info.tcpi_segs_in),
            data_segments_in: more(|info| info.tcpi_data_segs_in),
            data_segments_out: more(|info| info.tcpi_data_segs_out),
        }
    }
}

impl Default for TcpInfo {
    fn default() -> TcpInfo {
        // SAFETY: all fields are integers, for which zero is a value.
        TcpInfo(unsafe { std::mem::zeroed() })
    }
}

counters! {
    /// Sums over connections between two readings.
    pub struct TcpTotals {
        /// Connections in the sums.
        connections,
        /// Connections on which nothing arrived at either end.
        starved,
        /// Sum of the round-trip times at the end, in microseconds.
        rtt_us_sum,
        /// Segments sent again.
        retransmits,
        /// All segments sent.
        segments_out,
        /// All segments received.
        segments_in,
        /// Segments received that had payload.
        data_segments_in,
        /// Segments sent that had payload.
        data_segments_out,
    }
}

/// Limits what a socket sends, in bytes per second (SO_MAX_PACING_RATE, socket(7); the fq queueing
/// discipline or TCP itself paces).
///
/// # Errors
/// Fails if the kernel refuses the option.
pub fn set_pacing_rate(socket: impl AsFd, bytes_per_s: u64) -> Result<(), Errno> {
    // SAFETY: the kernel reads the 8 bytes of `bytes_per_s`, and the descriptor is open while
    // borrowed.
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

/// Limits the segments of a TCP socket that is not connected yet, in bytes without options.
///
/// # Errors
/// Fails if the kernel refuses the option.
pub fn set_largest_segment(socket: impl AsFd, bytes: u16) -> Result<(), Errno> {
    let bytes = i32::from(bytes);
    // SAFETY: the kernel reads the 4 bytes of `bytes`, and the descriptor is open while borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const bytes).cast(),
            4,
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
    fn the_fields_are_those_of_the_running_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        sender.write_all(&[7; 5000]).unwrap();
        receiver.read_exact(&mut [0; 5000]).unwrap();
        let (sent, received) = (TcpInfo::read(&sender).unwrap(), TcpInfo::read(&receiver).unwrap());
        assert_eq!((sent.0.tcpi_bytes_sent, received.0.tcpi_bytes_received), (5000, 5000));
        let totals = received.since(&TcpInfo::default());
        assert!(totals.data_segments_in >= 1 && totals.segments_in > totals.data_segments_in);
        let totals = sent.since(&TcpInfo::default());
        assert!(totals.data_segments_out >= 1 && totals.rtt_us_sum > 0);
        // The kernel counts the SYN too.
        assert!((1..=5001).contains(&sent.0.tcpi_bytes_acked));
        assert_eq!((totals.starved, sent.since(&sent).starved), (0, 1));
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
        // The second reading may have more in flight than the first, never less.
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
        let (mut before, mut after) = (TcpInfo::default(), TcpInfo::default());
        (before.0.tcpi_segs_in, after.0.tcpi_segs_in) = (u32::MAX - 4, 5);
        assert_eq!(after.since(&before).segments_in, 10);
    }

    #[test]
    fn a_datagram_socket_has_no_such_books() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(TcpInfo::read(&socket).is_err());
        set_pacing_rate(&socket, 1_000_000).unwrap();
    }
}
