//! Steering by our own eBPF program: the program, its maps, and their changes.

pub(crate) mod program;

use super::batch::{Arrivals, batches};
use super::fence::{Fence, Outcome};
use super::socket::PacketSocket;
use crate::bpf::{HashMap, MappedArray};
use crate::lock;
use crate::namespace::helper;
use crate::steering::{ENTRIES, EntryMove, Moved, Order, Steering, SteeringError, Table, Vnic};
use program::TABLE_BYTES;
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use wire::Mac;
use wire::toeplitz::{Key, Toeplitz};

/// Number of tables, including the default one: one for each port a switch can have.
const TABLES: usize = 1024;
/// Input bytes of the hash: two IPv6 addresses and two ports.
const INPUT: usize = 36;

/// An address in a VLAN.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Station {
    mac: Mac,
    vlan: u16,
}

impl Station {
    /// Returns the station's key in the program's map.
    fn key(self) -> [u8; 8] {
        let ([a, b, c, d, e, f], [g, h]) = (self.mac.0, self.vlan.to_ne_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// The program with its maps. Once attached it stays with its group of sockets, even when this is
/// dropped.
pub(super) struct ProgramSteering {
    queues: u8,
    vnics: HashMap<8>,
    tables: MappedArray,
    frames: MappedArray,
    key: MappedArray,
    program: OwnedFd,
    known_vnics: Mutex<KnownVnics>,
    fence: Arc<Fence>,
    /// One socket a queue, read for the kernel's drops while a queue is held.
    sockets: Vec<Arc<PacketSocket>>,
    /// Locked by each change of vNICs or entries, for the whole of a move too. Locked before
    /// `known_vnics`. Otherwise an entry could change, or its vNIC's number could go to another
    /// one, while the fence still relies on the old state.
    changes: Mutex<()>,
}

/// The vNICs that have tables.
struct KnownVnics {
    /// vNICs by number; the default vNIC has none.
    by_number: Vec<Option<(Vnic, Station)>>,
    /// vNICs that were removed so far: the generation of the next one.
    removed: u32,
}

impl KnownVnics {
    /// Returns the station of a vNIC that exists.
    fn of(&self, vnic: Vnic) -> Option<Station> {
        let (known, station) = (*self.by_number.get(usize::from(vnic.number))?)?;
        (known == vnic).then_some(station)
    }
}

/// A move of an entry, and the entry's byte.
type Store<'t> = (EntryMove, &'t AtomicU8);

/// Interval at which a move checks whether its round is over. The held queue's reader checks as
/// well, each time it would take.
const LOOK: Duration = Duration::from_micros(50);

impl ProgramSteering {
    /// Loads the program, with the queues in turn in the default table. Fails if the process may
    /// not load it.
    pub(super) fn load(queues: u8, key: &Key, fence: Arc<Fence>) -> io::Result<ProgramSteering> {
        let vnics = HashMap::create(TABLES)?;
        let tables = MappedArray::create(ENTRIES, TABLES)?;
        let frames = MappedArray::create(ENTRIES * size_of::<u64>(), TABLES)?;
        let words = MappedArray::create(INPUT * TABLE_BYTES, 1)?;
        let maps = [vnics.as_fd(), tables.as_fd(), frames.as_fd(), words.as_fd()];
        let program = helper::steering_program(maps)?;
        let known_vnics = Mutex::new(KnownVnics { by_number: vec![None], removed: 0 });
        let changes = Mutex::new(());
        let steering = ProgramSteering {
            queues,
            vnics,
            tables,
            frames,
            key: words,
            program,
            known_vnics,
            fence,
            sockets: Vec::new(),
            changes,
        };
        steering.set_key(key);
        let in_turn = (0..queues.max(1)).cycle();
        store(steering.row(Vnic::DEFAULT), in_turn);
        Ok(steering)
    }

    /// Sets the queues' sockets once they exist, so that a move can count the kernel's drops.
    pub(super) fn watching(self, sockets: Vec<Arc<PacketSocket>>) -> ProgramSteering {
        ProgramSteering { sockets, ..self }
    }

    /// Sets the key of the Toeplitz hash. Flows may change queues then, without keeping the order
    /// of their frames.
    fn set_key(&self, key: &Key) {
        let toeplitz = Toeplitz::new(key);
        for (byte, words) in self.key.bytes().chunks(TABLE_BYTES).enumerate() {
            for (value, word) in (0u8..=255).zip(words.chunks(4)) {
                // The word is what this byte alone adds to the hash.
                let mut input = [0; INPUT];
                input[byte] = value;
                store(word, toeplitz.hash(&input).to_ne_bytes());
            }
        }
    }

    /// Returns the program's descriptor, for `PACKET_FANOUT_DATA`.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Locks changes of vNICs. Fails with [`SteeringError::Busy`] during a move: the caller may
    /// hold locks that other threads wait for.
    fn change_now(&self) -> Result<MutexGuard<'_, ()>, SteeringError> {
        match self.changes.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => Err(SteeringError::Busy),
        }
    }

    /// Returns the table of a vNIC. Fails if it does not exist.
    fn known(&self, vnic: Vnic) -> Result<&[AtomicU8], SteeringError> {
        let is_known = vnic == Vnic::DEFAULT || lock(&self.known_vnics).of(vnic).is_some();
        is_known.then(|| self.row(vnic)).ok_or(SteeringError::NoSuchVnic(vnic.number))
    }

    /// Returns the byte of an entry. Fails if the vNIC, the entry or its new queue does not exist.
    fn entry(&self, moving: EntryMove) -> Result<&AtomicU8, SteeringError> {
        let EntryMove { vnic, entry, queue } = moving;
        if queue >= self.queues {
            return Err(SteeringError::NoSuchQueue { queue, queues: self.queues });
        }
        self.known(vnic)?.get(entry).ok_or(SteeringError::NoSuchEntry(entry))
    }

    /// Returns the frames that the kernel dropped at a queue so far.
    fn drops(&self, queue: usize) -> u64 {
        self.sockets.get(queue).map_or(0, |socket| socket.statistics().1)
    }

    /// Waits up to `timeout` until some of the moves can begin, see [`Fence::fits`]. Returns the
    /// first batch of these, and the others.
    fn next_batch<'t>(
        &self,
        moves: Vec<Store<'t>>,
        timeout: Duration,
    ) -> (Vec<Arrivals<Store<'t>>>, Vec<Store<'t>>) {
        let end = Instant::now() + timeout;
        let queues = |(moving, entry): &Store<'_>| {
            (entry.load(Ordering::Relaxed).into(), moving.queue.into())
        };
        loop {
            let fits = self.fence.fits(moves.iter().map(queues));
            if !fits.contains(&true) && Instant::now() < end {
                std::thread::sleep(LOOK);
                continue;
            }
            let (mut begin, mut others) = (Vec::new(), Vec::new());
            for (moving, fits) in moves.into_iter().zip(fits) {
                if fits { begin.push(moving) } else { others.push(moving) }
            }
            let moves = begin.into_iter().map(|moving| {
                let (from, to) = queues(&moving);
                (from, to, moving)
            });
            let mut batches = batches(moves).into_iter();
            let first = batches.next().unwrap_or_default();
            let later = batches.flatten().flat_map(|arrivals| arrivals.moves);
            return (first, later.chain(others).collect());
        }
    }

    /// Moves a batch of entries to their new queues by the procedure in [`super::fence`]. Returns
    /// one [`Moved`] for each new queue, in the order of the batch.
    fn move_batch(&self, batch: Vec<Arrivals<Store<'_>>>, timeout: Duration) -> Vec<Moved> {
        let drops_before: Vec<u64> = batch.iter().map(|arrivals| self.drops(arrivals.to)).collect();
        self.hold_and_store(&batch, Instant::now() + timeout);
        // Closes the last gap: when this returns, all programs that read an old entry have ended,
        // and their frames are in their slots. Meanwhile the held queues' readers run the rounds.
        let closed = membarrier(MembarrierCommand::Global);
        self.fence.grace_is_over();
        let outcomes = loop {
            self.fence.advance();
            if let Some(outcomes) = self.fence.outcomes() {
                break outcomes;
            }
            std::thread::sleep(LOOK);
        };
        let moved = |((arrivals, outcome), drops_before): ((Arrivals<Store<'_>>, Outcome), u64)| {
            let Outcome { held_frames, held, given_up } = outcome;
            let order = match closed {
                _ if given_up => Order::GivenUp,
                Ok(()) => Order::Kept,
                Err(_) => Order::NearlySure,
            };
            let lost_frames = self.drops(arrivals.to) - drops_before;
            let entries = arrivals.moves.iter().map(|(moving, _)| (moving.vnic, moving.entry));
            Moved { entries: entries.collect(), order, held_frames, lost_frames, held }
        };
        batch.into_iter().zip(outcomes).zip(drops_before).map(moved).collect()
    }

    /// Stops the readers of the new queues. Stores the entries that move to a queue as soon as that
    /// queue's reader has stopped.
    fn hold_and_store(&self, batch: &[Arrivals<Store<'_>>], deadline: Instant) {
        batch.iter().for_each(|arrivals| self.fence.hold(arrivals.to, deadline));
        let mut waiting: Vec<_> = batch.iter().collect();
        while !waiting.is_empty() {
            waiting.retain(|arrivals| !self.store_stopped(arrivals, deadline));
            std::thread::yield_now();
        }
    }

    /// Stores the entries that move to a queue, and begins its rounds, if its reader has stopped or
    /// the deadline has come. Returns whether it did.
    fn store_stopped(&self, arrivals: &Arrivals<Store<'_>>, deadline: Instant) -> bool {
        let is_time = self.fence.is_stopped(arrivals.to) || Instant::now() >= deadline;
        if is_time {
            let stores = arrivals.moves.iter();
            stores.for_each(|(moving, entry)| entry.store(moving.queue, Ordering::Release));
            self.fence.begin(arrivals.to, &arrivals.from);
        }
        is_time
    }

    fn row(&self, vnic: Vnic) -> &[AtomicU8] {
        let start = usize::from(vnic.number) * ENTRIES;
        self.tables.bytes().get(start..start + ENTRIES).unwrap_or_default()
    }
}

impl Steering for ProgramSteering {
    fn queues(&self) -> u8 {
        self.queues
    }

    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError> {
        let station = Station { mac, vlan };
        let _one_at_a_time = self.change_now()?;
        let mut known = lock(&self.known_vnics);
        let places = &known.by_number;
        if places.iter().flatten().any(|(_, other)| *other == station) {
            return Err(SteeringError::InUse { mac, vlan });
        }
        let free = places.iter().skip(1).position(Option::is_none).map(|place| place + 1);
        let place = free.unwrap_or(places.len());
        let number = u16::try_from(place).ok().filter(|_| place < TABLES);
        let number = number.ok_or(SteeringError::Full(TABLES - 1))?;
        let vnic = Vnic { number, generation: known.removed };
        // The table first, then the address: no frame meets an unfilled table.
        store(self.row(vnic), copy(self.row(Vnic::DEFAULT)));
        self.vnics
            .insert(station.key(), number.into())
            .map_err(|source| SteeringError::Io { doing: "steer the vNIC", source })?;
        match known.by_number.get_mut(place) {
            Some(free) => *free = Some((vnic, station)),
            None => known.by_number.push(Some((vnic, station))),
        }
        Ok(vnic)
    }

    fn remove_vnic(&self, vnic: Vnic) -> Result<(), SteeringError> {
        let _one_at_a_time = self.change_now()?;
        let mut known = lock(&self.known_vnics);
        let station = known.of(vnic).ok_or(SteeringError::NoSuchVnic(vnic.number))?;
        self.vnics
            .remove(station.key())
            .map_err(|source| SteeringError::Io { doing: "forget the vNIC", source })?;
        known.removed = known.removed.wrapping_add(1);
        known.by_number.get_mut(usize::from(vnic.number)).into_iter().for_each(|it| *it = None);
        Ok(())
    }

    fn table(&self, vnic: Vnic) -> Result<Table, SteeringError> {
        self.known(vnic).map(copy)
    }

    fn frames(&self, vnic: Vnic) -> Result<[u64; ENTRIES], SteeringError> {
        self.known(vnic)?;
        let counts = self.frames.words().iter().skip(usize::from(vnic.number) * ENTRIES);
        let mut frames = [0; ENTRIES];
        frames.iter_mut().zip(counts).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        Ok(frames)
    }

    fn set_entry(&self, vnic: Vnic, entry: usize, queue: u8) -> Result<(), SteeringError> {
        let _one_at_a_time = lock(&self.changes);
        self.entry(EntryMove { vnic, entry, queue })?.store(queue, Ordering::Release);
        Ok(())
    }

    fn move_entries(
        &self,
        moves: &[EntryMove],
        timeout: Duration,
    ) -> Result<Vec<Moved>, SteeringError> {
        let _one_at_a_time = lock(&self.changes);
        let (mut stores, mut seen) = (Vec::new(), HashSet::new());
        for &moving in moves.iter().filter(|moving| self.known(moving.vnic).is_ok()) {
            let entry = self.entry(moving)?;
            let is_there = entry.load(Ordering::Relaxed) == moving.queue;
            if seen.insert((moving.vnic, moving.entry)) && !is_there {
                stores.push((moving, entry));
            }
        }
        let mut moved = Vec::new();
        while !stores.is_empty() {
            let (batch, others) = self.next_batch(stores, timeout);
            if batch.is_empty() {
                moved.push(stayed(&others));
                break;
            }
            moved.extend(self.move_batch(batch, timeout));
            stores = others;
        }
        Ok(moved)
    }
}

/// Returns the result for entries that could not move.
fn stayed(moves: &[Store<'_>]) -> Moved {
    let entries = moves.iter().map(|(moving, _)| (moving.vnic, moving.entry)).collect();
    let (held_frames, lost_frames, held) = Default::default();
    Moved { entries, order: Order::Stayed, held_frames, lost_frames, held }
}

fn store(to: &[AtomicU8], from: impl IntoIterator<Item = u8>) {
    to.iter().zip(from).for_each(|(to, from)| to.store(from, Ordering::Release));
}

fn copy(row: &[AtomicU8]) -> Table {
    let mut table = [0; ENTRIES];
    table.iter_mut().zip(row).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    table
}

#[cfg(test)]
mod tests;
