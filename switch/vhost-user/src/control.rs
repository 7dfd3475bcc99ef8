//! The control queue: commands of the guest's driver (virtio 1.2, section 5.1.6.5). QEMU and DPDK
//! serve this queue themselves and never start it here; user-mode Linux does.

use crate::{Features, Running};
use std::time::Duration;

/// Most bytes of a command that are read. MAC tables may be longer, but their content is not used.
const LONGEST: usize = 64;
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

/// A command of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Sets receive modes or filters, or acknowledges an announcement. It is granted and has no
    /// effect: the switch delivers only frames for the guest anyway.
    Noted,
    /// Sets the guest's own address.
    SetMac([u8; 6]),
    /// Sets the number of queue pairs in use.
    SetPairs(u16),
    /// Sets the receive offloads.
    SetOffloads(Features),
}

impl Command {
    /// Decodes a command; `None` if it is unknown or too short.
    pub(crate) fn read(bytes: &[u8]) -> Option<Command> {
        let (class, rest) = bytes.split_first()?;
        let (command, data) = rest.split_first()?;
        match (class, command) {
            // RX modes; filter by MAC table; VLAN add and remove; announcement acknowledged.
            (0, 0..=5) | (1, 0) | (2, 0 | 1) | (3, 0) => Some(Command::Noted),
            (1, 1) => Some(Command::SetMac(*data.first_chunk()?)),
            (4, 0) => Some(Command::SetPairs(u16::from_le_bytes(*data.first_chunk()?))),
            (5, 0) => {
                let bits = u64::from_le_bytes(*data.first_chunk()?);
                let known = Features::from_bits(bits)?;
                Features::GUEST_OFFLOADS.contains(known).then_some(Command::SetOffloads(known))
            }
            _ => None,
        }
    }
}

/// Serves at most [`AT_A_TIME`] waiting commands. `carry_out` carries a command out and returns
/// whether it is granted. Returns whether more commands wait; if not, the driver kicks for the
/// next.
pub(crate) fn serve(ring: &mut Running, mut carry_out: impl FnMut(Command) -> bool) -> bool {
    let mut notify = false;
    for _ in 0..AT_A_TIME {
        let Ok(Some(request)) = ring.queue.take_control() else { break };
        let granted = Command::read(&request.read(LONGEST)).is_some_and(&mut carry_out);
        let written = request.write(&[if granted { OK } else { ERR }]);
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

    #[test]
    fn commands_of_the_standard_are_understood() {
        assert_eq!(Command::read(&[0, 0, 1]), Some(Command::Noted));
        assert_eq!(
            Command::read(&[1, 1, 2, 0, 0, 0, 0, 9]),
            Some(Command::SetMac([2, 0, 0, 0, 0, 9]))
        );
        assert_eq!(Command::read(&[4, 0, 3, 0]), Some(Command::SetPairs(3)));
        let tso4 = (1u64 << 7).to_le_bytes();
        let set = [&[5, 0][..], &tso4].concat();
        assert_eq!(Command::read(&set), Some(Command::SetOffloads(Features::GUEST_TSO4)));
    }

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
                true
            }));
            while driver.reap().is_some() {}
        }
        assert_eq!(served, 10 * AT_A_TIME);
        while serve(&mut ring, |_| true) {}
    }

    #[test]
    fn what_is_short_or_unknown_is_refused() {
        let host_tso4 = [&[5, 0][..], &(1u64 << 11).to_le_bytes()].concat();
        for bytes in [&[][..], &[1], &[1, 1, 2, 0], &[4, 0, 3], &[9, 0], &[5, 0, 1], &host_tso4] {
            assert_eq!(Command::read(bytes), None, "{bytes:?}");
        }
    }
}
