//! The device configuration of a virtio-net device (`struct virtio_net_config`, virtio 1.2, section
//! 5.1.4).

use crate::control::{RssCommand, SUPPORTED_TYPES};
use crate::{Features, Options};
use wire::toeplitz::HashTypes;

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;
/// The speed is not known.
const UNKNOWN_SPEED: u32 = u32::MAX;
/// The largest speed that is known.
const LARGEST_SPEED: u32 = i32::MAX.cast_unsigned();
/// Both directions at a time.
const FULL_DUPLEX: u8 = 1;
/// The duplex mode is not known.
const UNKNOWN_DUPLEX: u8 = 0xff;

/// The fields that change while a guest runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    /// Mb/s, if the port has a rate.
    pub(crate) speed: Option<u32>,
}

/// Returns `size` bytes from `offset` on. Past the end they are zeros: later versions of the
/// standard have fields there.
pub(crate) fn read(options: &Options, link: Link, offset: u32, size: u32) -> Vec<u8> {
    let mut space = Vec::with_capacity(24);
    let scales = options.offered().intersects(Features::SCALING);
    let (key, table, types) = match scales {
        true => (RssCommand::LONGEST_KEY, RssCommand::LONGEST_TABLE, SUPPORTED_TYPES),
        false => (0, 0, HashTypes::empty()),
    };
    space.extend_from_slice(&options.mac.unwrap_or_default());
    let (speed, duplex) = match link.speed {
        Some(speed) => (speed.min(LARGEST_SPEED), FULL_DUPLEX),
        None => (UNKNOWN_SPEED, UNKNOWN_DUPLEX),
    };
    space.extend_from_slice(&(if link.is_up { LINK_UP } else { 0 }).to_le_bytes());
    space.extend_from_slice(&options.pairs.to_le_bytes());
    space.extend_from_slice(&options.mtu.to_le_bytes());
    space.extend_from_slice(&speed.to_le_bytes());
    space.push(duplex);
    space.push(key);
    space.extend_from_slice(&table.to_le_bytes());
    space.extend_from_slice(&u32::from(types.bits()).to_le_bytes());
    let wanted = space.into_iter().chain(std::iter::repeat(0));
    wanted.skip(offset as usize).take(size as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, SocketRole};

    fn options() -> Options {
        Options {
            socket: "s".into(),
            role: SocketRole::Server,
            access: Access::default(),
            pairs: 4,
            mtu: 9000,
            mac: Some([2, 0, 0, 0, 0, 9]),
            memory_limit: u64::MAX,
            speed: None,
            compat: None,
            changed: Box::new(|_| {}),
            commanded: Box::new(|_| {}),
            replaced: Box::new(|| {}),
            announcement: Box::new(|_| Vec::new()),
        }
    }

    const UP: Link = Link { is_up: true, speed: None };

    #[test]
    fn what_changes_is_told_as_it_is_now() {
        let fields = |link| {
            let bytes = read(&options(), link, 0, 17);
            (bytes[6], u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()), bytes[16])
        };
        assert_eq!(fields(UP), (1, u32::MAX, 0xff), "not limited");
        assert_eq!(fields(Link { is_up: false, speed: Some(2500) }), (0, 2500, 1));
        let most = Link { speed: Some(u32::MAX - 1), ..UP };
        assert_eq!(fields(most), (1, 0x7fff_ffff, 1));
    }

    #[test]
    fn fields_stand_where_the_standard_has_them() {
        let read = |options: &Options, offset, size| read(options, UP, offset, size);
        let whole = read(&options(), 0, 60);
        assert_eq!(whole.len(), 60);
        assert_eq!(whole[..12], [2, 0, 0, 0, 0, 9, 1, 0, 4, 0, 9000u16.to_le_bytes()[0], 0x23]);
        assert_eq!(read(&options(), 8, 2), [4, 0]);
        assert_eq!(whole[17..24], [40, 128, 0, 0xff, 0x01, 0, 0], "key, table and types of RSS");
        let one = Options { pairs: 1, ..options() };
        assert_eq!(read(&one, 17, 7), [0; 7], "of one queue pair");
        assert_eq!(read(&options(), 100, 3), [0, 0, 0]);
    }
}
