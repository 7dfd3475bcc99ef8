//! What a guest's driver has set by commands about the frames that it receives: by which queue,
//! with which hash in their header, and which of them at all.
//!
//! The session makes them from the commands. A worker uses a snapshot.

use crate::receive_filter::ReceiveFilter;
use std::fmt;
use std::sync::Arc;
use wire::Parsed;
use wire::toeplitz::{HashTypes, Key, Toeplitz};

/// A guest's settings. What it has not set is `None`.
#[derive(Clone, Debug, Default)]
pub struct GuestSettings {
    /// By which queue it receives a frame.
    pub table: Option<Arc<GuestTable>>,
    /// The hash by which the table is read, and which is reported.
    pub hash: Option<Arc<GuestHash>>,
    /// Which frames it wants.
    pub filter: Option<Arc<ReceiveFilter>>,
}

/// A guest's hash, with the tables of its key.
pub struct GuestHash {
    key: Key,
    types: HashTypes,
    toeplitz: Toeplitz,
}

impl GuestHash {
    /// Makes the tables of a key, in some 10,000 steps.
    pub fn new(key: Key, types: HashTypes) -> GuestHash {
        GuestHash { key, types, toeplitz: Toeplitz::new(&key) }
    }

    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the types that are hashed.
    pub fn types(&self) -> HashTypes {
        self.types
    }

    /// Returns the hash of a frame and the type by which it was hashed; `None` if it has none.
    #[inline]
    pub fn of(&self, headers: &[u8], parsed: &Parsed) -> Option<(u32, HashTypes)> {
        self.toeplitz.hash_and_type(headers, parsed, self.types)
    }
}

impl fmt::Debug for GuestHash {
    /// Leaves the key out, which is a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GuestHash").field("types", &self.types).finish_non_exhaustive()
    }
}

/// A guest's indirection table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTable {
    entries: Vec<u16>,
    unclassified: u16,
}

impl GuestTable {
    /// Makes a table of a power of two of entries; `unclassified` is the queue of frames without a
    /// hash.
    pub fn new(entries: Vec<u16>, unclassified: u16) -> GuestTable {
        GuestTable { entries, unclassified }
    }

    /// Returns the queue of each entry.
    pub fn entries(&self) -> &[u16] {
        &self.entries
    }

    /// Returns the queue of frames without a hash.
    pub fn unclassified(&self) -> u16 {
        self.unclassified
    }

    /// Returns the queue of a frame with this hash.
    #[inline]
    pub fn queue(&self, hash: Option<u32>) -> usize {
        let entry = hash.map(|hash| hash as usize & self.entries.len().wrapping_sub(1));
        let named = entry.and_then(|entry| self.entries.get(entry));
        (*named.unwrap_or(&self.unclassified)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_bits_of_a_hash_name_the_entry() {
        let table = GuestTable::new(vec![3, 2, 1, 0], 7);
        let queues = [Some(0), Some(6), Some(u32::MAX), None].map(|hash| table.queue(hash));
        assert_eq!(queues, [3, 1, 0, 7]);
        assert_eq!(GuestTable::new(vec![5], 7).queue(Some(u32::MAX)), 5);
    }
}
