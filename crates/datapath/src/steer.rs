//! Which egress queue of a port a flow takes: the Toeplitz hash through the port's indirection table (RSS).

use crate::view::Port;
use std::sync::LazyLock;
use wire::Parsed;
use wire::toeplitz::{Key, Toeplitz};

/// Entries of an indirection table.
const ENTRIES: usize = 128;

/// Microsoft's key, which guests and other tools can reproduce.
static KEY: LazyLock<Toeplitz> = LazyLock::new(|| Toeplitz::new(&Key::MICROSOFT));

/// The queue of a frame, of those in use; the first where none is. A port of one queue costs nothing.
#[inline]
pub(crate) fn queue(port: &Port, header: &[u8], parsed: &Parsed) -> usize {
    match port.shared.egress.len() {
        0 | 1 => 0,
        most => of_many(most.min(port.shared.live.queues().into()), header, parsed),
    }
}

/// One queue, so that every frame takes it.
pub(crate) fn has_no_choice(port: &Port) -> bool {
    port.shared.egress.len() < 2
}

#[inline(never)]
fn of_many(queues: usize, header: &[u8], parsed: &Parsed) -> usize {
    if queues < 2 {
        return 0;
    }
    KEY.hash_flow(header, parsed) as usize % ENTRIES % queues
}
