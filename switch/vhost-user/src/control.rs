//! The control queue: commands of the guest's driver (virtio 1.2, section 5.1.6.5). QEMU and DPDK
//! serve this queue themselves and never start it here; user-mode Linux, OpenVMM and crosvm do.
//!
//! A command is copied before it is read ([`command`]), so that the guest cannot change it between
//! a check and its use.

mod command;
mod fields;
mod mac_table;
mod rss_command;

pub(crate) use command::{Command, Way};
pub(crate) use mac_table::MacTable;
pub(crate) use rss_command::{HashCommand, RssCommand, SUPPORTED_TYPES};

use crate::Running;
use std::time::Duration;

/// Most commands served in one step: a driver can add commands for ever, and the session serves
/// nothing else meanwhile.
pub(crate) const AT_A_TIME: usize = 16;
/// Commands take at most one part in `SHARE` of the session thread's time.
const SHARE: u32 = 10;
/// The longest pause between steps. A step that took longer may have waited for a processor.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// `VIRTIO_NET_OK`.
const OK: u8 = 0;
/// `VIRTIO_NET_ERR`.
const ERR: u8 = 1;

/// Serves at most [`AT_A_TIME`] waiting commands. `carry_out` carries a command out and returns what
/// it asks for, mostly nothing, if it is granted. Returns whether more commands wait; if not, the
/// driver kicks for the next.
pub(crate) fn serve(
    ring: &mut Running,
    mut carry_out: impl FnMut(Command) -> Option<Vec<u8>>,
) -> bool {
    let mut notify = false;
    for _ in 0..AT_A_TIME {
        let Ok(Some(request)) = ring.queue.take_control() else { break };
        let command = Command::read(&request.read(Command::LONGEST), request.len());
        let answer = match command.and_then(&mut carry_out) {
            Some(told) => [&[OK], &told[..]].concat(),
            None => vec![ERR],
        };
        let written = request.write(&answer);
        notify |= ring.queue.answer(written);
    }
    if notify {
        ring.notify();
    }
    ring.queue.arm()
}

/// Returns the pause after a step that took this long, so that endless commands of a guest do not
/// keep a processor of the host busy.
pub(crate) fn pause_after(step: Duration) -> Duration {
    step.saturating_mul(SHARE - 1).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vring::tests::ring;
    use guestmem::Gpa;
    use test_guest::driver::{Buffer, Driver, RingLayout, Shape};
    use virtqueue::{RingAddresses, Setup};

    /// While commands are served the session handles no message, and its status waited for the
    /// ring's lock.
    #[test]
    fn a_control_queue_that_never_empties_is_served_in_steps() {
        let (mut ring, memory, Setup { size, rings, .. }) = ring();
        let RingAddresses { descriptors, driver, device } = rings;
        let tables = Gpa(0x4000);
        let layout = RingLayout { size, descriptors, driver, device, tables, features: 0 };
        let mut driver = Driver::new(memory, layout);
        ring.queue.set_enabled(true);
        let command = Buffer { gpa: Gpa(0x3000), len: 3, writable: false };
        let answer = Buffer { gpa: Gpa(0x3100), len: 1, writable: true };
        let mut served = 0;
        for _ in 0..10 {
            while driver.add(&[command, answer], Shape::Direct).is_some() {}
            driver.publish();
            assert!(serve(&mut ring, |_| {
                served += 1;
                Some(Vec::new())
            }));
            while driver.reap().is_some() {}
        }
        assert_eq!(served, 10 * AT_A_TIME);
        while serve(&mut ring, |_| Some(Vec::new())) {}
    }
}
