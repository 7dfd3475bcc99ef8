//! The commands of a driver, decoded from a private copy.

use super::fields::Fields;
use super::mac_table::MacTable;
use super::rss_command::{HashCommand, RssCommand};
use crate::Features;
use crate::hold::HoldWish;
use crate::receive_filter::Modes;

/// A command of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Acknowledges an announcement. It is granted and has no effect.
    Noted,
    /// Turns a receive mode on or off.
    SetMode(Modes, bool),
    /// Sets the addresses that the guest receives, besides its own.
    SetMacs(MacTable),
    /// Sets the guest's own address.
    SetMac([u8; 6]),
    /// Lets frames of a VLAN pass, or no longer.
    SetVlan(u16, bool),
    /// Sets the number of queue pairs in use, and leaves the choice of queues to the device.
    SetPairs(u16),
    /// Sets the receive-side scaling, and the number of queue pairs with it.
    SetRss(RssCommand),
    /// Sets the hash that is reported.
    SetHash(HashCommand),
    /// Sets the receive offloads.
    SetOffloads(Features),
    /// Asks that signals of all receiving rings are held back, or of all sending ones.
    SetHolds(Way, HoldWish),
    /// Asks that signals of a ring are held back.
    SetHold(u16, HoldWish),
    /// Asks what was asked for at a ring.
    GetHold(u16),
}

/// The rings of one direction, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Receive,
    Send,
}

impl Command {
    /// Bytes of the longest command that is read.
    pub(super) const LONGEST: usize = 2 + MacTable::LONGEST;

    /// Decodes a command of `len` bytes, of which `bytes` has the first [`Command::LONGEST`].
    /// `None` if it is unknown or too short. It may be longer than its content: DPDK's driver sends
    /// a structure with its padding.
    pub(crate) fn read(bytes: &[u8], len: usize) -> Option<Command> {
        let mut fields = Fields(bytes);
        let head: [u8; 2] = fields.array()?;
        Some(match head {
            [0, mode @ 0..=5] => Command::SetMode(Modes::from_bits(1 << mode)?, fields.flag()?),
            [1, 0] => Command::SetMacs(MacTable::read(&mut fields, len.checked_sub(2)?)?),
            [1, 1] => Command::SetMac(fields.array()?),
            [2, way @ (0 | 1)] => {
                let vlan = fields.u16().filter(|vlan| *vlan < 4096)?;
                Command::SetVlan(vlan, way == 0)
            }
            [3, 0] => Command::Noted,
            [4, 0] => Command::SetPairs(fields.u16()?),
            [4, 1] => Command::SetRss(RssCommand::read(&mut fields)?),
            [4, 2] => Command::SetHash(HashCommand::read(&mut fields)?),
            [5, 0] => {
                let known = Features::from_bits(fields.u64()?)?;
                let are_offloads = Features::GUEST_OFFLOADS.contains(known);
                are_offloads.then_some(Command::SetOffloads(known))?
            }
            [6, 0] => Command::SetHolds(Way::Send, read_hold(&mut fields)?),
            [6, 1] => Command::SetHolds(Way::Receive, read_hold(&mut fields)?),
            [6, 2] => {
                let ring = fields.u16()?;
                let _reserved = fields.u16()?;
                Command::SetHold(ring, read_hold(&mut fields)?)
            }
            [6, 3] => Command::GetHold(fields.u16()?),
            _ => return None,
        })
    }

    /// Returns the features of which a driver must have taken one before it sends the command.
    pub(crate) fn needs(&self) -> Features {
        match self {
            Command::Noted => Features::GUEST_ANNOUNCE,
            Command::SetMode(mode, _) if Modes::EXTRA.contains(*mode) => Features::CTRL_RX_EXTRA,
            Command::SetMode(..) | Command::SetMacs(_) => Features::CTRL_RX,
            Command::SetMac(_) => Features::CTRL_MAC_ADDR,
            Command::SetVlan(..) => Features::CTRL_VLAN,
            Command::SetPairs(_) => Features::MQ,
            Command::SetRss(_) => Features::RSS,
            Command::SetHash(_) => Features::HASH_REPORT,
            Command::SetOffloads(_) => Features::CTRL_GUEST_OFFLOADS,
            Command::SetHolds(..) => Features::NOTF_COAL,
            Command::SetHold(..) => Features::VQ_NOTF_COAL | Features::NOTF_COAL,
            Command::GetHold(_) => Features::VQ_NOTF_COAL,
        }
    }
}

fn read_hold(fields: &mut Fields<'_>) -> Option<HoldWish> {
    Some(HoldWish { packets: fields.u32()?, microseconds: fields.u32()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use wire::Mac;
    use wire::toeplitz::{HashTypes, Key};

    fn word(count: usize) -> u16 {
        count.try_into().expect("few")
    }

    fn read(bytes: &[u8]) -> Option<Command> {
        Command::read(bytes, bytes.len())
    }

    /// Returns a command as a driver sends it.
    fn rss(types: u32, table: &[u16], unclassified: u16, pairs: u16, key: &[u8]) -> Vec<u8> {
        let mask = word(table.len() - 1);
        let mut bytes = vec![4, 1];
        bytes.extend(types.to_le_bytes());
        [mask, unclassified].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        table.iter().for_each(|queue| bytes.extend(queue.to_le_bytes()));
        bytes.extend(pairs.to_le_bytes());
        bytes.push(key.len().try_into().expect("short"));
        bytes.extend(key);
        bytes
    }

    fn macs(unicast: &[[u8; 6]], multicast: &[[u8; 6]]) -> Vec<u8> {
        let mut bytes = vec![1, 0];
        for list in [unicast, multicast] {
            bytes.extend(u32::from(word(list.len())).to_le_bytes());
            bytes.extend(list.as_flattened());
        }
        bytes
    }

    #[test]
    fn commands_of_the_standard_are_understood() {
        assert_eq!(read(&[3, 0]), Some(Command::Noted));
        assert_eq!(read(&[0, 0, 1]), Some(Command::SetMode(Modes::PROMISCUOUS, true)));
        assert_eq!(read(&[0, 5, 0]), Some(Command::SetMode(Modes::NO_BROADCAST, false)));
        assert_eq!(read(&[1, 1, 2, 0, 0, 0, 0, 9]), Some(Command::SetMac([2, 0, 0, 0, 0, 9])));
        assert_eq!(read(&[2, 0, 7, 1]), Some(Command::SetVlan(263, true)));
        assert_eq!(read(&[2, 1, 255, 15]), Some(Command::SetVlan(4095, false)));
        assert_eq!(read(&[4, 0, 3, 0]), Some(Command::SetPairs(3)));
        let hash = [&[4, 2, 3, 0, 0, 0][..], &[0xff; 8], &[2, 7, 8]].concat();
        let Some(Command::SetHash(HashCommand { types, key })) = read(&hash) else { panic!() };
        assert_eq!(types, HashTypes::IPV4 | HashTypes::TCPV4);
        assert_eq!((&key.0[..3], key.0[39]), (&[7, 8, 0][..], 0));
        let tso4 = (1u64 << 7).to_le_bytes();
        let set = [&[5, 0][..], &tso4].concat();
        assert_eq!(read(&set), Some(Command::SetOffloads(Features::GUEST_TSO4)));
    }

    /// Linux sends 309 bytes, of which 64 were read; DPDK sends one byte of padding behind them.
    #[test]
    fn a_table_as_drivers_send_it_is_read_whole() {
        let table: Vec<u16> = (0..128).map(|entry| entry % 4).collect();
        let bytes = rss(0x1ff, &table, 3, 4, &[9; 40]);
        assert_eq!(bytes.len(), 309);
        for bytes in [bytes.clone(), [&bytes[..], &[0]].concat()] {
            let Some(Command::SetRss(command)) = read(&bytes) else { panic!("{bytes:?}") };
            assert_eq!(command.table(), table);
            assert_eq!((command.unclassified, command.pairs), (3, 4));
            let key = Key([9; 40]);
            assert_eq!(command.hash, Some(HashCommand { types: HashTypes::all(), key }));
        }
        let off = read(&rss(0, &[0], 0, 2, &[]));
        assert!(matches!(off, Some(Command::SetRss(RssCommand { hash: None, .. }))), "{off:?}");
    }

    #[test]
    fn what_is_short_or_unknown_is_refused() {
        let host_tso4 = [&[5, 0][..], &(1u64 << 11).to_le_bytes()].concat();
        let others: [&[u8]; 12] = [
            &[],
            &[1],
            &[0, 0],
            &[0, 6, 1],
            &[1, 1, 2, 0],
            &[1, 0, 0, 0, 0, 0],
            &[2, 0, 1],
            &[2, 0, 0, 16],
            &[4, 0, 3],
            &[9, 0],
            &[5, 0, 1],
            &host_tso4,
        ];
        for bytes in others {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
        let key = [0; 40];
        let refused = [
            rss(0x200, &[0], 0, 1, &key),
            rss(1 << 16, &[0], 0, 1, &key),
            rss(1, &[0], 0, 1, &[]),
            rss(1, &[0; 3], 0, 1, &key),
            rss(1, &[0; 256], 0, 1, &key),
            rss(1, &[0], 0, 1, &[0; 41]),
        ];
        for bytes in refused {
            assert_eq!(read(&bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_table_of_too_many_addresses_means_all_of_their_kind() {
        let (few, many) = (vec![[2; 6]; 3], vec![[3; 6]; MacTable::MOST + 1]);
        let lists = |unicast: &[[u8; 6]], multicast: &[[u8; 6]]| {
            let bytes = macs(unicast, multicast);
            let read = bytes.get(..Command::LONGEST).unwrap_or(&bytes);
            match Command::read(read, bytes.len()) {
                Some(Command::SetMacs(MacTable { unicast, multicast })) => {
                    (unicast.map(|list| list.len()), multicast.map(|list| list.len()))
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(lists(&few, &few), (Some(3), Some(3)));
        assert_eq!(lists(&few, &many), (Some(3), None));
        assert_eq!(lists(&many, &few), (None, None));
        let most = vec![[4; 6]; MacTable::MOST];
        assert_eq!(lists(&most, &most), (Some(MacTable::MOST), Some(MacTable::MOST)));
    }

    proptest! {
        /// No length that the command names is believed beyond its bytes.
        #[test]
        fn a_command_cut_short_is_refused(
            table in 0..8u32, key in vec(any::<u8>(), 1..=40), addresses in 1..40usize, cut: prop::sample::Index,
        ) {
            let table = vec![0; 1 << table];
            let list = vec![[2; 6]; addresses];
            for bytes in [rss(0x1ff, &table, 0, 1, &key), macs(&list, &list)] {
                prop_assert!(read(&bytes).is_some());
                let short = bytes.get(..cut.index(bytes.len())).unwrap_or_default();
                prop_assert_eq!(read(short), None);
            }
        }

        #[test]
        fn whatever_is_read_is_within_its_bounds(head in prop::sample::select(vec![[1, 0], [4, 1], [4, 2], [0, 0]]), rest in vec(any::<u8>(), 0..700)) {
            let bytes = [&head[..], &rest].concat();
            match read(&bytes) {
                Some(Command::SetMacs(MacTable { unicast, multicast })) => {
                    let all = |list: Option<Vec<Mac>>| list.map_or(0, |list| list.len());
                    prop_assert!(8 + 6 * (all(unicast) + all(multicast)) <= rest.len());
                }
                Some(Command::SetRss(command)) => {
                    prop_assert!(command.table().len() <= 128 && 11 + 2 * command.table().len() <= rest.len());
                }
                _ => {}
            }
        }
    }
}
