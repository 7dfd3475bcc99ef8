//! The command that sets the addresses which a guest receives (virtio 1.2, section 5.1.6.5.2).

use super::fields::Fields;
use wire::Mac;

/// The addresses that a driver wants frames to. A list of more than [`MacTable::MOST`] is `None`:
/// all of its kind are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MacTable {
    /// Besides the guest's own address.
    pub(crate) unicast: Option<Vec<Mac>>,
    pub(crate) multicast: Option<Vec<Mac>>,
}

impl Default for MacTable {
    /// Returns the table that a device has at first, without an address.
    fn default() -> MacTable {
        MacTable { unicast: Some(Vec::new()), multicast: Some(Vec::new()) }
    }
}

impl MacTable {
    /// Most addresses of each of the two lists.
    pub(crate) const MOST: usize = 256;
    /// Bytes of the longest table that is read.
    pub(super) const LONGEST: usize = 2 * (4 + 6 * Self::MOST);

    /// Reads the content of `VIRTIO_NET_CTRL_MAC_TABLE_SET`, of which `fields` has the first bytes
    /// and which has `len` in all.
    pub(super) fn read(fields: &mut Fields<'_>, len: usize) -> Option<MacTable> {
        let mut left = len;
        let (unicast, multicast) = (read_list(fields, &mut left)?, read_list(fields, &mut left)?);
        Some(MacTable { unicast, multicast })
    }
}

/// Reads a list with its count before it. `left` is what the command has from the list on. The
/// inner `None` means that the list is too long, or behind one that is.
fn read_list(fields: &mut Fields<'_>, left: &mut usize) -> Option<Option<Vec<Mac>>> {
    *left = left.checked_sub(4)?;
    let Some(count) = fields.u32() else { return Some(None) };
    let bytes = usize::try_from(count).ok()?.checked_mul(6)?;
    *left = left.checked_sub(bytes)?;
    let list = fields.bytes(bytes).filter(|_| bytes <= 6 * MacTable::MOST);
    if list.is_none() {
        // What follows is not looked for.
        fields.0 = &[];
    }
    Some(list.map(|bytes| bytes.as_chunks().0.iter().copied().map(Mac).collect()))
}
