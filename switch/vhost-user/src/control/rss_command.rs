//! The commands of receive-side scaling and hash reports (virtio 1.2, sections 5.1.6.5.7 and
//! 5.1.6.5.6.4).

use super::fields::Fields;
use wire::toeplitz::{HashTypes, Key};

/// The types that a driver may ask for, as the configuration space tells it.
pub(crate) const SUPPORTED_TYPES: HashTypes = HashTypes::all();

/// The hash that a driver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashCommand {
    /// None of them: no hash.
    pub(crate) types: HashTypes,
    /// Filled up with zeros where the driver's is shorter.
    pub(crate) key: Key,
}

/// The scaling that a driver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RssCommand {
    /// `None` turns the scaling off.
    pub(crate) hash: Option<HashCommand>,
    /// The queue of each entry: a power of two, at most [`RssCommand::LONGEST_TABLE`].
    table: Vec<u16>,
    /// The queue of frames without a hash.
    pub(crate) unclassified: u16,
    /// How many of its transmit queues the driver uses.
    pub(crate) pairs: u16,
}

impl HashCommand {
    /// Reads the content of `VIRTIO_NET_CTRL_MQ_HASH_CONFIG`.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<HashCommand> {
        let types = read_types(fields)?;
        let _reserved: [u8; 8] = fields.array()?;
        HashCommand::new(types, read_key(fields)?)
    }

    /// Returns `None` for types without a key.
    fn new(types: HashTypes, key: Option<Key>) -> Option<HashCommand> {
        let key = key.or(types.is_empty().then_some(Key([0; 40])))?;
        Some(HashCommand { types, key })
    }
}

impl RssCommand {
    /// The longest key, in bytes.
    pub(crate) const LONGEST_KEY: u8 = 40;
    /// The longest table, in entries.
    pub(crate) const LONGEST_TABLE: u16 = 128;

    /// Returns `None` if no driver may ask for such a table.
    pub(crate) fn new(
        hash: Option<HashCommand>,
        table: Vec<u16>,
        unclassified: u16,
        pairs: u16,
    ) -> Option<RssCommand> {
        let fits = table.len().is_power_of_two() && table.len() <= Self::LONGEST_TABLE.into();
        fits.then_some(RssCommand { hash, table, unclassified, pairs })
    }

    /// Reads the content of `VIRTIO_NET_CTRL_MQ_RSS_CONFIG`.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<RssCommand> {
        let types = read_types(fields)?;
        let (mask, unclassified) = (fields.u16()?, fields.u16()?);
        let entries = usize::from(mask) + 1;
        let table = fields.bytes(2 * entries)?.as_chunks().0;
        let table = table.iter().map(|entry| u16::from_le_bytes(*entry)).collect();
        let pairs = fields.u16()?;
        let hash = match read_key(fields)? {
            None if types.is_empty() => None,
            key => Some(HashCommand::new(types, key)?),
        };
        RssCommand::new(hash, table, unclassified, pairs)
    }

    pub(crate) fn table(&self) -> &[u16] {
        &self.table
    }

    /// Returns how many queue pairs the command needs, from the first on; `None` if more than
    /// `most`, or none.
    pub(crate) fn pairs_of(&self, most: u16) -> Option<u16> {
        let queues = self.table.iter().chain([&self.unclassified]).max()?;
        let pairs = self.pairs.max(queues.checked_add(1)?);
        (self.pairs > 0 && pairs <= most).then_some(pairs)
    }
}

fn read_types(fields: &mut Fields<'_>) -> Option<HashTypes> {
    let types = HashTypes::from_bits(u16::try_from(fields.u32()?).ok()?)?;
    SUPPORTED_TYPES.contains(types).then_some(types)
}

/// Reads a key with its length before it. The inner `None` means that its length is 0.
fn read_key(fields: &mut Fields<'_>) -> Option<Option<Key>> {
    let len = fields.u8().filter(|len| *len <= RssCommand::LONGEST_KEY)?;
    let bytes = fields.bytes(len.into())?;
    let mut key = [0; 40];
    key.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    Some((len > 0).then_some(Key(key)))
}
