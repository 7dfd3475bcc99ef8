//! How far a packed ring is, in memory that outlives this process (`VHOST_USER_SET_INFLIGHT_FD`).
//!
//! A split ring is resumed by its used index. A packed ring has none: when a device is killed in
//! the middle of a batch, the ring does not tell which chains were marked as used, because marks
//! overwrite descriptors. So a batch is noted here before it is marked, and the position of the
//! next one after that. The next device marks the noted batch again, unless its first descriptor,
//! which is marked last, shows that the whole batch was handed over.
//!
//! The layout is our own, and 8 bytes a chain: the region that the vhost-user specification
//! describes for packed rings takes 32 bytes a descriptor, most of them for devices that use
//! buffers in another order than they came.

use crate::SetupError;
use crate::chain::Chain;
use crate::packed_area::Position;
use crate::shared::{JournalCell, Shared};
use guestmem::{Gpa, GuestMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bits 48 to 63 of the state: the mark of this program. An unwritten region is zero.
const OURS: u64 = 0x4d52 << 48;
/// Where the position is in the state; below it, the number of chains that are noted.
const POSITION: u32 = 32;

/// A ring's journal.
#[derive(Debug)]
pub struct InflightJournal {
    /// Owner, position, and number of chains.
    state: Shared<AtomicU64>,
    cells: Shared<[JournalCell]>,
}

/// Notes of the device before us.
#[derive(Debug)]
pub(crate) struct Noted {
    /// Where the ring's unused descriptors began.
    pub(crate) position: Position,
    /// Chains that were about to be marked as used from there on.
    pub(crate) chains: Vec<Chain>,
    /// Their slots.
    pub(crate) slots: u16,
}

impl InflightJournal {
    /// The first bytes of a journal that says nothing.
    pub const EMPTY: [u8; 8] = [0; 8];

    /// Returns the number of bytes that the journal of a ring of `size` takes.
    pub fn bytes(size: u16) -> u64 {
        (size_of::<AtomicU64>() + usize::from(size) * size_of::<JournalCell>()) as u64
    }

    /// Finds a journal in the memory that the front end keeps for us.
    ///
    /// # Errors
    /// Fails if it is not aligned or not inside this memory.
    pub fn new(
        memory: &Arc<GuestMemory>,
        gpa: Gpa,
        size: u16,
    ) -> Result<InflightJournal, SetupError> {
        let cells = Gpa(gpa.0 + size_of::<AtomicU64>() as u64);
        Ok(InflightJournal {
            state: Shared::one(memory, "journal", gpa)?,
            cells: Shared::many(memory, "journal", cells, size)?,
        })
    }

    /// Returns what is noted for a ring of this size, if anything. Fails if the journal belongs to
    /// another ring.
    pub(crate) fn read(&self, size: u16) -> Result<Option<Noted>, SetupError> {
        let state = self.state.load(Ordering::Acquire);
        if state == 0 {
            return Ok(None);
        }
        let strange = SetupError::Journal(state);
        #[allow(clippy::cast_possible_truncation, reason = "the fields of the word")]
        let (position, count) = (Position::from_packed((state >> POSITION) as u16), state as u32);
        let is_ours = state >> 48 == OURS >> 48 && position.slot() < usize::from(size);
        if !is_ours || count > u32::from(size) {
            return Err(strange);
        }
        let chains: Vec<_> = self.cells.iter().take(count as usize).map(chain).collect();
        let slots: u32 = chains.iter().map(|chain| u32::from(chain.slots)).sum();
        let slots = u16::try_from(slots).ok().filter(|slots| *slots <= size).ok_or(strange)?;
        Ok(Some(Noted { position, chains, slots }))
    }

    /// Notes what is to be marked as used from `position` on.
    #[inline(never)]
    pub(crate) fn begin(&self, position: Position, chains: &[Chain]) {
        for (cell, chain) in self.cells.iter().zip(chains) {
            cell.id.store(chain.id, Ordering::Relaxed);
            cell.slots.store(chain.slots, Ordering::Relaxed);
            cell.written.store(chain.written, Ordering::Relaxed);
        }
        self.write(position, chains.len());
        // Orders the journal before the first mark: the words of a mark are stored relaxed.
        fence(Ordering::Release);
    }

    /// Notes that all chains are marked. The next begin at `position`.
    pub(crate) fn end(&self, position: Position) {
        self.write(position, 0);
    }

    /// Stores the state after everything stored before it (release).
    fn write(&self, position: Position, count: usize) {
        let position = u64::from(position.packed()) << POSITION;
        self.state.store(OURS | position | count as u64, Ordering::Release);
    }
}

fn chain(cell: &JournalCell) -> Chain {
    Chain {
        id: cell.id.load(Ordering::Relaxed),
        slots: cell.slots.load(Ordering::Relaxed),
        written: cell.written.load(Ordering::Relaxed),
        bytes: 0,
        end: 0,
    }
}
