//! What the tests of packet and AF_XDP ports on a veth pair share: the addresses of its ends, and
//! waiting for a fault.

use crate::support::{self, Taken};
use ports::{Burst, IngressQueue, Nanos, PortFault};

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// Our address, then theirs.
pub(crate) const ADDRESSES: [[u8; 4]; 2] = [[10, 9, 0, 2], [10, 9, 0, 1]];
/// Nanoseconds after which a queue is long due to check its socket.
const LATER: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Returns whether a frame is from our end to the other one.
pub(crate) fn is_ours(frame: &Taken) -> bool {
    frame.bytes.get(..12) == Some(&[THEIR_MAC, OUR_MAC].concat()[..])
}

/// Returns a payload of this length.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..251u8).cycle().take(len).collect()
}

/// Takes until there is a fault; the kernel's own frames (neighbour discovery) may come first.
pub(crate) fn next_fault(queue: &mut IngressQueue) -> PortFault {
    for _ in 0..100 {
        let fault = queue.take(LATER, &mut Burst::new()).err();
        queue.release();
        if let Some(fault) = fault {
            return fault;
        }
        if !queue.arm() {
            support::wait(queue);
        }
    }
    panic!("no fault");
}
