//! Frames whose headers lie in pages that the kernel may share with their sender are the switch's:
//! what is judged could change before it is carried.
//!
//! Hardly anything makes such frames on purpose. A TAP with `IFF_NAPI_FRAGS` does: each piece of a
//! `writev` behind the first gets a page of its own, unless GRO gathers the headers.

use crate::kernel_path::{Bed, flow, numbers, port};
use crate::support::{in_namespace, ip, udp_header};
use crate::veth::{ADDRESSES, OUR_MAC, THEIR_MAC};
use ports::kernel_path::{Offer, Start};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

const TAP: &str = "millc0";

/// Opens a TAP without headers of its own, whose frames have the pages that their writer chooses.
#[allow(unsafe_code, reason = "neither std nor rustix has TUNSETIFF")]
fn open_tap() -> File {
    /// `struct ifreq`: a name, the flags, and the rest of a union.
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        flags: i16,
        rest: [u8; 22],
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_NAPI | libc::IFF_NAPI_FRAGS;
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags: i16::try_from(flags).expect("16 bits"),
        rest: [0; 22],
    };
    request.name[..TAP.len()].copy_from_slice(TAP.as_bytes());
    let tap = OpenOptions::new().read(true).write(true).open("/dev/net/tun").expect("a TAP");
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `Request` is, and nothing else.
    let set = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    tap
}

/// Sends a frame of the flow with this number as its payload, in pieces that end at these places.
fn send(tap: &mut File, number: u16, ends: &[usize]) {
    let payload = number.to_be_bytes();
    let mut frame = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, payload.len());
    // Over IPv4 a checksum of 0 is none.
    frame[40..42].fill(0);
    frame.extend(payload);
    let begins = [&[0], ends].concat();
    let pieces: Vec<_> = begins
        .iter()
        .zip(ends.iter().chain([&frame.len()]))
        .map(|(begin, end)| IoSlice::new(&frame[*begin..*end]))
        .collect();
    assert_eq!(tap.write_vectored(&pieces).expect("the TAP takes it"), frame.len());
}

#[test]
fn a_frame_whose_headers_lie_in_pages_is_the_switch_s() {
    in_namespace(|| {
        if let Err(error) = OpenOptions::new().write(true).open("/dev/net/tun") {
            return eprintln!("skipped: needs /dev/net/tun: {error}");
        }
        let Some(mut bed) = Bed::make() else { return };
        if let Some(reason) = bed.path.unchecked() {
            return eprintln!("skipped: the kernel's own description of frames: {reason}");
        }
        let mut tap = open_tap();
        let off = Command::new("ethtool").args(["-K", TAP, "gro", "off"]).status();
        if !off.is_ok_and(|status| status.success()) {
            return eprintln!("skipped: needs ethtool");
        }
        ip(&format!("link set {TAP} up"));
        let mut port = port(&bed.path, TAP);
        let hook = port.device.hook.clone().expect("a hook");
        let offer =
            Offer { key: flow(), vlan: 1, mtu: 1500, moment: hook.moment(), start: Start::Now };
        assert!(hook.offer(bed.hooks()[1], offer));
        // In one piece, and with all headers in the first piece: carried.
        send(&mut tap, 1, &[]);
        send(&mut tap, 2, &[42]);
        assert_eq!(numbers(bed.at_receiver(), 2), [1, 2]);
        bed.path.extend_lease();
        // Behind the Ethernet header, inside of IP's, between IP and UDP, inside of UDP's.
        let inside = [14, 20, 34, 38, 41];
        for (number, end) in (3..).zip(inside) {
            send(&mut tap, number, &[end]);
        }
        send(&mut tap, 8, &[14, 34]);
        let left = numbers(&mut port.device.ingress[0], inside.len() + 1);
        assert_eq!(left, [3, 4, 5, 6, 7, 8], "and none of those that were carried");
        bed.path.extend_lease();
        send(&mut tap, 9, &[]);
        assert_eq!(numbers(bed.at_receiver(), 1), [9], "and none of those that were left");
    });
}
