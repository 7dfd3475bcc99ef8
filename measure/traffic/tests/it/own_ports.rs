//! Ports that no other test has at the same time, in this process or in another one.
//!
//! A port that is only tried is free for the next test as well, so ranges are reserved: each by a
//! Unix socket of its name in the abstract namespace, which belongs to the network namespace as the
//! ports do, and which the kernel removes with the process.

use std::net::{IpAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;

/// Ports in a range.
const LENGTH: u16 = 10;
/// The first ports of ranges, below the ephemeral ports. The tokens of a range have the ports of
/// another one.
const FIRST: std::ops::Range<u16> = 12_000..31_000;
/// How far the ports of tokens are above those of the data.
const TOKENS: u16 = 1000;

/// The ranges of this process.
static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// Returns a port that is this test's own until its process ends, with the one below, `count - 1`
/// above, and those of their tokens.
pub(crate) fn base_port(host: IpAddr, count: u16) -> u16 {
    assert!(count + 2 <= LENGTH, "{count} ports");
    let ranges = usize::from((FIRST.end - FIRST.start) / LENGTH);
    // Processes that start together begin at different ranges, and seldom meet.
    let begin = std::process::id() as usize * 7 % ranges;
    let all = FIRST.step_by(LENGTH.into()).cycle().skip(begin).take(ranges);
    let is_free = |port: u16| TcpListener::bind((host, port)).is_ok();
    for first in all {
        let Some(reserved) = reserve(first).zip(reserve(first + TOKENS)) else { continue };
        if [first, first + TOKENS].iter().all(|at| (*at..*at + count + 1).all(is_free)) {
            RESERVED.lock().unwrap().extend([reserved.0, reserved.1]);
            return first + 1;
        }
    }
    panic!("no range of {count} free ports");
}

/// Reserves a range; `None` if it is another test's.
fn reserve(first: u16) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("millrace-test-ports-{first}")).unwrap();
    UnixDatagram::bind_addr(&name).ok()
}

#[test]
fn a_reserved_range_is_given_to_no_other_test() {
    let host = IpAddr::from([127, 0, 0, 1]);
    let mut bases: Vec<u16> = (0..40).map(|_| base_port(host, 8)).collect();
    for base in &bases {
        assert!(reserve(base - 1).is_none() && reserve(base - 1 + TOKENS).is_none(), "{base}");
    }
    bases.extend(bases.clone().iter().map(|base| base + TOKENS));
    bases.sort_unstable();
    assert!(bases.windows(2).all(|pair| pair[1] - pair[0] >= LENGTH), "{bases:?}");
}
