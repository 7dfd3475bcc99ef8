//! The probe: a frame of a member to the other members of its team.
//!
//! It is a group frame of an EtherType for local experiments, so that physical switches flood it
//! and no station answers it. What a probe says is believed only with the team's token, which is
//! drawn when the team is opened.

use super::mask::Place;
use wire::Mac;
use wire::ethernet::ethertype;

/// Destination of a probe: a locally administered group address, so no station owns it. The
/// addresses that bridges keep to themselves (01-80-C2-00-00-0x) would not be flooded.
pub(super) const GROUP: Mac = Mac([0x03, 0x6d, 0x69, 0x6c, 0x6c, 0x01]);

/// Local Experimental EtherType 1 (IEEE 802-2014, table 9-1).
const ETHERTYPE: u16 = 0x88b5;

const MAGIC: [u8; 4] = *b"mill";

/// Bytes after the EtherType that say something; the rest is zero.
const SAID: usize = 29;

/// Length of a small probe, the least of an Ethernet frame without its checksum.
const SMALL: usize = 60;

/// Bytes that a reader needs of the frame: its addresses, a tag and [`SAID`].
pub(super) const START: usize = 18 + SAID;

/// How large a probe is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    /// The least that Ethernet allows.
    Small,
    /// The team's MTU.
    Full,
}

impl Size {
    pub(super) const ALL: [Size; 2] = [Size::Small, Size::Full];
}

/// What a probe says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// The team's token.
    pub(super) token: u128,
    /// Number of the round in which it was sent.
    pub(super) round: u32,
    /// The member that sent it.
    pub(super) sender: Place,
    /// The place of its VLAN among those probed in the round.
    pub(super) index: u8,
    /// Its VLAN when it was sent; 0 if it had no tag.
    pub(super) vlan: u16,
    pub(super) size: Size,
}

impl Probe {
    /// Returns the frame, with a tag unless the VLAN is 0. `mtu` is the largest IP packet in bytes.
    pub(super) fn frame(&self, source: Mac, mtu: u16) -> Vec<u8> {
        let mut frame = [GROUP.0, source.0].concat();
        if self.vlan != 0 {
            frame.extend(ethertype::VLAN.to_be_bytes());
            frame.extend(self.vlan.to_be_bytes());
        }
        frame.extend(ETHERTYPE.to_be_bytes());
        let full = frame.len() + usize::from(mtu);
        frame.extend(MAGIC);
        frame.extend(self.token.to_be_bytes());
        frame.extend(self.round.to_be_bytes());
        frame.extend([self.sender.0, self.index]);
        frame.extend(self.vlan.to_be_bytes());
        frame.push(u8::from(self.size == Size::Full));
        let len = if self.size == Size::Full { full } else { SMALL };
        frame.resize(len.max(SMALL), 0);
        frame
    }

    /// Reads the first [`START`] bytes of a frame. `None`: the frame is no probe.
    pub(super) fn read(frame: &[u8]) -> Option<Probe> {
        let (addresses, rest) = frame.split_first_chunk::<12>()?;
        let rest = match rest {
            [0x81, 0, _, _, rest @ ..] => rest,
            rest => rest,
        };
        let (kind, rest) = rest.split_first_chunk()?;
        let (magic, rest) = rest.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        let ([sender, index, high, low, size], _) = rest.split_first_chunk()?;
        let is_probe = addresses.starts_with(&GROUP.0)
            && u16::from_be_bytes(*kind) == ETHERTYPE
            && *magic == MAGIC;
        is_probe.then_some(Probe {
            token: u128::from_be_bytes(*token),
            round: u32::from_be_bytes(*round),
            sender: Place(*sender),
            index: *index,
            vlan: u16::from_be_bytes([*high, *low]),
            size: if *size == 0 { Size::Small } else { Size::Full },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A frame says what was written, also from its first bytes alone, and has its size.
        #[test]
        fn a_probe_is_read_as_it_was_written(
            token: u128,
            round: u32,
            sender in 0u8..8,
            index in 0u8..16,
            vlan in 0u16..4095,
            is_full: bool,
            mtu in 68u16..9200,
        ) {
            let size = Size::ALL[usize::from(is_full)];
            let probe = Probe { token, round, sender: Place(sender), index, vlan, size };
            let frame = probe.frame(Mac([2, 0, 0, 0, 0, 1]), mtu);
            prop_assert_eq!(Probe::read(&frame[..START.min(frame.len())]), Some(probe));
            let header = if vlan == 0 { 14 } else { 18 };
            prop_assert_eq!(frame.len(), if is_full { header + usize::from(mtu) } else { 60 });
        }

        /// Anybody can send such frames.
        #[test]
        fn any_bytes_are_read_without_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let frame = [&GROUP.0[..], &bytes].concat();
            let _ = Probe::read(&frame);
            prop_assert_eq!(Probe::read(&bytes), None);
        }
    }
}
