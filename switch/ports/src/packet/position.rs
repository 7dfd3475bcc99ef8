// UNSAFETY: a page of a memory file, which this process writes and the next one reads.
//! The position of a ring's reader, in a memory file that outlives the process as the ring's socket
//! does.
//!
//! The kernel does not tell which slot it fills next, and an empty ring looks the same at any
//! position. So a kept ring notes the oldest slot that was not given back, twice a burst: before
//! slots are given back, with their number, and afterwards. Each note is one word, so a process
//! that dies at any moment leaves one or the other.
#![allow(unsafe_code)]

use super::gate::Slots;
use super::ring::Shape;
use crate::kept::Flaw;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the file.
const SIZE: usize = 4096;

/// The mapped file: two words, the shape of the ring and the position.
pub(super) struct Position {
    words: NonNull<[AtomicU64; 2]>,
}

// SAFETY: the words are atomic, and mapped until this is dropped.
unsafe impl Send for Position {}

impl Position {
    /// Creates a new file for a ring from which nothing was taken. Returns it with its descriptor.
    /// Fails if the kernel refuses the file.
    pub(super) fn create(shape: Shape) -> io::Result<(Position, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("millrace-ring", flags)?;
        ftruncate(&file, SIZE as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let position = Position::map(&file)?;
        position.words()[0].store(packed(shape.slot_size, shape.slots), Ordering::Relaxed);
        Ok((position, file))
    }

    /// Maps the file of an earlier process with a ring of this shape. It may be any file with any
    /// bytes: fails if it does not fit.
    pub(super) fn adopt(file: impl AsFd, shape: Shape) -> Result<Position, Flaw> {
        // A file that can shrink would end this process at the next access.
        let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_sealed || !fstat(&file).is_ok_and(|facts| facts.st_size == SIZE.cast_signed() as i64)
        {
            return Err("its position is not in a memory file of ours".into());
        }
        let position = Position::map(&file)
            .map_err(|error| Flaw::of("its position cannot be mapped", &error))?;
        if position.words()[0].load(Ordering::Relaxed) != packed(shape.slot_size, shape.slots) {
            return Err(
                "its slots are of another size or number, as after a change of the MTU".into()
            );
        }
        Ok(position)
    }

    fn map(file: impl AsFd) -> io::Result<Position> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), SIZE, protection, MapFlags::SHARED, file, 0) }?;
        let words = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Position { words })
    }

    /// Notes that `count` slots from `oldest` on are being given back, calls `give_back`, and then
    /// notes `next` as the oldest slot not given back.
    pub(super) fn while_released(
        &self,
        oldest: u32,
        count: u32,
        next: u32,
        give_back: impl FnOnce(),
    ) {
        // The release stores of the slots' status words come after this store and before the next
        // one.
        self.words()[1].store(packed(oldest, count), Ordering::Relaxed);
        give_back();
        self.words()[1].store(packed(next, 0), Ordering::Release);
    }

    /// Returns the oldest slot that the earlier process had not given back. Fails if the position
    /// contradicts the slots.
    pub(super) fn find(&self, slots: &dyn Slots, processors: u64) -> Result<u32, &'static str> {
        let place = find(self.words()[1].load(Ordering::Acquire), slots, processors)?;
        u32::try_from(place).map_err(|_| NOT_THIS_RING)
    }

    fn words(&self) -> &[AtomicU64; 2] {
        // SAFETY: mapped until this is dropped, by a file that cannot shrink; aligned to a page,
        // and accessed atomically only.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing borrows any more.
        let unmapped = unsafe { munmap(self.words.as_ptr().cast(), SIZE) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping was ours");
    }
}

fn packed(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

const NOT_THIS_RING: &str = "its position is not one of this ring";

/// Finds the oldest slot that was not given back, from the word that the earlier process has left.
///
/// If it was not giving slots back, the word names the slot. If it was, the slots from `start` on
/// were given back one after the other, so the oldest one not given back is the first filled one.
/// That is wrong only if the kernel has come round and refilled given-back slots. It fills slots in
/// order, and each processor may be filling one, which looks empty. So if it had filled `start`
/// before the search, one of the `processors + 1` slots before would be filled after it.
fn find(word: u64, slots: &dyn Slots, processors: u64) -> Result<u64, &'static str> {
    let (start, giving) = (word & u64::from(u32::MAX), word >> 32);
    let (count, margin) = (slots.count(), processors + 1);
    if start >= count || giving > count {
        return Err(NOT_THIS_RING);
    }
    let mut oldest = start;
    if giving > 0 {
        let given = (0..giving).take_while(|place| !slots.is_filled(start + place)).count();
        let before = giving + margin <= count;
        if !before || (1..=margin).any(|back| slots.is_filled(start + count - back)) {
            return Err("the process died while it gave slots back, and the ring is full");
        }
        oldest = (start + given as u64) % count;
    }
    if is_filled_from(oldest, slots, processors) { Ok(oldest) } else { Err(NOT_THIS_RING) }
}

/// Whether filled slots follow from this slot on without gaps, except slots being filled. Says
/// nothing about an empty ring.
fn is_filled_from(oldest: u64, slots: &dyn Slots, processors: u64) -> bool {
    let mut empty = 0;
    (oldest..oldest + slots.count()).all(|place| {
        let is_filled = slots.is_filled(place);
        empty += u64::from(!is_filled);
        !is_filled || empty <= processors
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::AtomicBool;

    const PROCESSORS: u64 = 2;
    const SHAPE: Shape = Shape { slot_size: 2048, slots: 32 };

    /// A ring in the state that the kernel and a reader leave.
    struct Model {
        filled: Vec<AtomicBool>,
        /// Slots filled, and given back, since the beginning.
        head: u64,
        given: u64,
    }

    impl Slots for Model {
        fn count(&self) -> u64 {
            self.filled.len() as u64
        }

        fn is_filled(&self, place: u64) -> bool {
            self.slot(place).load(Ordering::Relaxed)
        }
    }

    impl Model {
        /// Returns an empty ring that has turned by this many slots.
        fn new(turned: u64) -> Model {
            let filled = (0..SHAPE.slots).map(|_| AtomicBool::new(false)).collect();
            Model { filled, head: turned, given: turned }
        }

        fn slot(&self, place: u64) -> &AtomicBool {
            &self.filled[usize::try_from(place % self.count()).unwrap()]
        }

        /// Fills slots as the kernel does, as many as there is room for; the last ones stay
        /// unfinished.
        fn fill(&mut self, count: u64, making: u64) {
            let count = count.min(self.given + self.count() - self.head);
            (self.head..self.head + count.saturating_sub(making))
                .for_each(|place| self.slot(place).store(true, Ordering::Relaxed));
            self.head += count;
        }

        fn give(&mut self, count: u64) {
            (self.given..self.given + count)
                .for_each(|place| self.slot(place).store(false, Ordering::Relaxed));
            self.given += count;
        }
    }

    proptest! {
        /// The reader had taken some slots and given back part of them when it died; meanwhile more
        /// frames arrived.
        #[test]
        fn a_reader_that_dies_at_any_moment_is_followed_at_its_oldest_slot_or_not_at_all(
            turned in 0u64..100, first in 0u64..40, taken in 0u64..40, part in 0u64..=40, more in 0u64..80, making in 0u64..=2,
        ) {
            let mut ring = Model::new(turned);
            ring.fill(first, 0);
            let taken = taken.min(ring.head - ring.given);
            let (part, start) = (part.min(taken), turned % ring.count());
            let word = start | taken << 32;
            ring.give(part);
            let room = ring.given + ring.count() - ring.head;
            ring.fill(more, making);
            match find(word, &ring, PROCESSORS) {
                Ok(found) => prop_assert_eq!(found, ring.given % ring.count()),
                // The kernel had come near to the first slot of those given back.
                Err(_) => prop_assert!(more + PROCESSORS + 1 >= room - part || taken + PROCESSORS >= ring.count()),
            }
            // Had it died before it gave any back, its word would name the slot whatever the ring
            // looks like.
            let mut ring = Model::new(turned);
            ring.fill(first, 0);
            ring.fill(more, making);
            prop_assert_eq!(find(start, &ring, PROCESSORS), Ok(start));
        }

        #[test]
        fn any_word_is_a_slot_of_the_ring_or_refused(word in any::<u64>(), low in 0u64..40, high in 0u64..40, filled in any::<u32>()) {
            let ring = Model::new(0);
            (0..32).for_each(|place| ring.slot(place).store(filled >> place & 1 == 1, Ordering::Relaxed));
            for word in [word, low | high << 32] {
                prop_assert!(find(word, &ring, PROCESSORS).map_or(true, |place| place < 32));
            }
        }
    }

    /// The positions that a process leaves if it dies before it gives slots back, meanwhile, or
    /// afterwards.
    #[test]
    fn a_release_can_be_followed_at_each_moment() {
        let (position, _file) = Position::create(SHAPE).unwrap();
        let mut ring = Model::new(0);
        ring.fill(20, 0);
        assert_eq!(position.find(&ring, PROCESSORS), Ok(0));
        position.while_released(0, 8, 8, || {
            for given in 0..8 {
                assert_eq!(position.find(&ring, PROCESSORS), Ok(given));
                ring.give(1);
            }
            assert_eq!(position.find(&ring, PROCESSORS), Ok(8));
            ring.fill(5, 0);
            assert_eq!(position.find(&ring, PROCESSORS), Ok(8));
        });
        assert_eq!(position.find(&ring, PROCESSORS), Ok(8));
    }

    #[test]
    fn a_place_among_filled_slots_or_away_from_them_is_refused() {
        let mut ring = Model::new(10);
        ring.fill(8, 0);
        assert_eq!(find(10, &ring, PROCESSORS), Ok(10));
        for wrong in [0, 7, 11, 17, 18, 31, 32, 1 << 31] {
            assert_eq!(find(wrong, &ring, PROCESSORS), Err(NOT_THIS_RING), "{wrong}");
        }
    }

    #[test]
    fn another_process_finds_what_was_noted_and_no_other_file_is_taken() {
        let (position, file) = Position::create(SHAPE).unwrap();
        position.while_released(4, 3, 7, || {});
        let find = |file: BorrowedFd<'_>, shape| {
            Position::adopt(file, shape).map(|position| position.find(&Model::new(0), PROCESSORS))
        };
        assert_eq!(find(file.as_fd(), SHAPE), Ok(Ok(7)));
        let other = Shape { slot_size: 4096, slots: 16 };
        let flaw = |file: BorrowedFd<'_>, shape| match find(file, shape).unwrap_err() {
            Flaw::Unfit(flaw) => flaw,
            Flaw::Shortage(number) => panic!("error {number}"),
        };
        assert!(flaw(file.as_fd(), other).contains("slots"));
        let unsealed = memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, SIZE as u64).unwrap();
        let empty = memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
        fcntl_add_seals(&empty, SealFlags::SHRINK).unwrap();
        let device: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        for other in [unsealed, empty, device] {
            assert!(flaw(other.as_fd(), SHAPE).contains("memory file"));
        }
    }
}
