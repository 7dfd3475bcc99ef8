//! Helpers of the tests with real devices: a namespace for each, commands in it, waiting for a
//! queue, UDP frames.

#![allow(dead_code, reason = "`allocation` uses a part")]
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "tests, though not in functions marked so"
)]

use ports::{Burst, EgressQueue, IngressQueue, Nanos, Outgoing, RawFrame, Slice};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};
use wire::vnet::{Flags, GsoType, VnetHeader};

/// Runs a test in its own network namespace, or prints why it cannot.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if let Err(error) = ports::namespace::fresh(test) {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}

/// Runs `ip` with words separated by blanks, in the namespace of the calling thread.
pub(crate) fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip, of iproute2");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A received frame with its bytes.
pub(crate) struct Taken {
    pub(crate) raw: RawFrame,
    pub(crate) bytes: Vec<u8>,
}

/// Longest wait of a test for an expected event.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes until `enough` frames that are `wanted` have arrived.
pub(crate) fn take_until(
    queue: &mut IngressQueue,
    enough: usize,
    wanted: impl Fn(&Taken) -> bool,
) -> Vec<Taken> {
    let (start, mut all) = (Instant::now(), Vec::new());
    while all.len() < enough {
        assert!(start.elapsed() < ARRIVAL_TIMEOUT, "{} of {enough} frames came", all.len());
        let mut burst = Burst::new();
        queue.take(Nanos(1), &mut burst).expect("take");
        for frame in burst.frames() {
            let mut bytes = Vec::new();
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            assert_eq!(bytes.len(), frame.len as usize);
            let taken = Taken { raw: frame.clone(), bytes };
            if wanted(&taken) {
                all.push(taken);
            }
        }
        let empty = burst.frames().is_empty();
        drop(burst);
        queue.release();
        if empty && !queue.arm() {
            wait(queue);
        }
    }
    all
}

/// Sleeps until the queue's descriptor is ready, at most a second.
pub(crate) fn wait(queue: &IngressQueue) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = queue.ready_fd().expect("a descriptor");
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&second)).expect("poll");
}

/// Returns an Ethernet, IPv4 and UDP header for `payload` bytes that the caller adds.
pub(crate) fn udp_header(
    to: [u8; 6],
    from: [u8; 6],
    addresses: [[u8; 4]; 2],
    payload: usize,
) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0]].concat();
    let total = u16::try_from(28 + payload).expect("a length").to_be_bytes();
    let mut ip = vec![0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 17, 0, 0];
    ip.extend(addresses.concat());
    let sum = !fold(&ip, 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(&ip);
    let udp_length = u16::try_from(8 + payload).expect("a length").to_be_bytes();
    // Pseudo-header alone: NEEDS_CSUM leaves the rest of the sum to be finished.
    let pseudo = [&ip[12..20], &[0, 17], &udp_length].concat();
    let pseudo_sum = fold(&pseudo, 0).to_be_bytes();
    frame.extend([0x10, 0x00, 0x20, 0x00]);
    frame.extend(udp_length);
    frame.extend(pseudo_sum);
    frame
}

/// Ports of [`udp_header`].
pub(crate) const FROM_PORT: u16 = 0x1000;
pub(crate) const TO_PORT: u16 = 0x2000;

/// Returns the virtio header for a frame of [`udp_header`]; `gso_size` 0 for a single frame.
pub(crate) fn udp_vnet(gso_size: u16) -> VnetHeader {
    let mut vnet = VnetHeader::default();
    vnet.set_flags(Flags::NEEDS_CSUM);
    vnet.set_gso(if gso_size > 0 { GsoType::UdpL4 } else { GsoType::None }, false);
    vnet.hdr_len.set(42);
    vnet.gso_size.set(gso_size);
    vnet.csum_start.set(34);
    vnet.csum_offset.set(6);
    vnet
}

fn fold(bytes: &[u8], start: u32) -> u16 {
    let mut sum = bytes.chunks(2).fold(start, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// Makes the kernel cut what a socket sends into datagrams of so many bytes.
pub(crate) fn segment_by(socket: &UdpSocket, bytes: u16) {
    let segment = libc::c_int::from(bytes);
    // SAFETY: UDP_SEGMENT reads one int.
    #[allow(unsafe_code, reason = "std has no UDP_SEGMENT")]
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const segment).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
}

/// Delivers one frame, which must be taken.
pub(crate) fn deliver(
    queue: &mut EgressQueue,
    vnet: VnetHeader,
    header: &[u8],
    payload: &[Slice<'_>],
) {
    let len = header.len() + payload.iter().map(Slice::len).sum::<usize>();
    let len = u32::try_from(len).expect("a length");
    let mut drops = Vec::new();
    queue.deliver(&[Outgoing { vnet, header, payload, len }], &mut drops).expect("deliver");
    assert_eq!(drops, []);
}
