// UNSAFETY: binds a packet socket, for which `rustix` has no address.
//! The sender: TCP trains through a packet socket, which the kernel segments for the wire like
//! those of a connection.
//!
//! A train costs one system call, so the core sends several times as many segments as with one call
//! each. It sends as fast as it can, and ignores losses.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "sizes and constants of a few bytes")]

use super::veth::SENDER;
use crate::case::Case;
use crate::stream::{SEGMENTS, Side, Stream};
use anyhow::{Context, Result};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, netdevice, send, socket};
use std::io;
use wire::vnet::VnetHeader;

/// Bytes of the virtio header in a packet socket's format.
const HEADER: usize = VnetHeader::LEGACY_LEN;

/// A sending packet socket.
pub(super) struct Sender {
    socket: OwnedFd,
    stream: Stream,
    /// A train of each flow, after its virtio header.
    trains: Vec<Vec<u8>>,
    sequence: u32,
    /// Segments sent.
    pub(super) segments: u64,
}

impl Sender {
    /// Creates a sender of the second side's stream.
    pub(super) fn new(case: &Case) -> Result<Sender> {
        let stream = Stream::new(case, Side::Second);
        let header = stream.vnet_header().encode();
        let train = |flow: u16| [&header[..HEADER], &stream.frame(flow.into())].concat();
        let trains = (0..case.flows).map(train).collect();
        Ok(Sender { socket: open()?, stream, trains, sequence: 0, segments: 0 })
    }

    /// Returns the bytes of a train.
    pub(super) fn frame(&self, sequence: u32) -> Vec<u8> {
        self.stream.frame(sequence)
    }

    /// Sends a train of the next flow, unless the socket is full.
    pub(super) fn send(&mut self) -> Result<()> {
        let train = &mut self.trains[self.stream.flow(self.sequence)];
        self.stream.stamp(&mut train[HEADER..], self.sequence);
        match send(&self.socket, train, SendFlags::DONTWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(()),
            Err(error) => return Err(error).context("the sender's device takes no frame"),
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.segments += SEGMENTS as u64;
        Ok(())
    }
}

/// Opens a packet socket with virtio headers, bound to the sender's device and to no protocol, so
/// that it receives nothing.
fn open() -> Result<OwnedFd> {
    let socket = socket(AddressFamily::PACKET, SocketType::RAW, None).context("a packet socket")?;
    let index = netdevice::name_to_index(&socket, SENDER)?;
    // SAFETY: all bytes of the structure may be zero.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_ifindex = index.cast_signed();
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a `sockaddr_ll` of that length, and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    let on: libc::c_int = 1;
    let (level, name, length) =
        (libc::SOL_PACKET, libc::PACKET_VNET_HDR, size_of_val(&on) as libc::socklen_t);
    // SAFETY: the option reads one int, which outlives the call.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), length)
    })?;
    Ok(socket)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
