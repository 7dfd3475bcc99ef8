//! Guest memory over real files: what is written through a translated pointer is found in the file,
//! and the other way round; changes, truncation and the dirty log.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]
#![allow(clippy::unwrap_used, reason = "what goes wrong here fails the test")]

use guestmem::{DirtyLog, Gpa, GuestMemory, MemoryError, Region, Translator, UserAddress};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const PAGE: u64 = 4096;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn file(bytes: u64) -> Arc<OwnedFd> {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    Arc::new(file)
}

fn region(gpa: u64, size: u64, file: &Arc<OwnedFd>, file_offset: u64) -> Region {
    Region {
        gpa: Gpa(gpa),
        size,
        user: UserAddress(gpa + (1 << 40)),
        file_offset,
        file: file.clone(),
    }
}

/// Regions of one file, with a hole of 0 to 2 pages before each, and the guest page of each file
/// page.
fn guest() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0u64..3, 1u64..6), 1..8)
}

fn build(list: &[(u64, u64)]) -> (Arc<OwnedFd>, Arc<GuestMemory>, Vec<Option<u64>>) {
    let file = file(list.iter().map(|(_, size)| size * PAGE).sum());
    let (mut pages, mut regions, mut offset) = (Vec::new(), Vec::new(), 0);
    for (hole, size) in list {
        pages.extend(std::iter::repeat_n(None, *hole as usize));
        regions.push(region(pages.len() as u64 * PAGE, size * PAGE, &file, offset));
        pages.extend((0..*size).map(|page| Some(offset + page * PAGE)));
        offset += size * PAGE;
    }
    (file, GuestMemory::map(regions).unwrap(), pages)
}

/// A file system in user space answers a page fault when it pleases, and a worker would wait for
/// it.
#[test]
fn only_memory_backs_a_guest() {
    let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let refused = GuestMemory::map(vec![region(0, PAGE, &Arc::new(disk.into()), 0)]).unwrap_err();
    let message = refused.to_string();
    assert!(matches!(refused, MemoryError::Backing { .. }), "{message}");
    assert!(message.contains("memory-") && message.contains("hugetlbfs"), "{message}");
    let (read, _write) = rustix::pipe::pipe().unwrap();
    let memory = GuestMemory::map(vec![region(0, PAGE, &file(PAGE), 0)]).unwrap();
    let refused = DirtyLog::map(read.as_fd(), 0, PAGE, &memory).unwrap_err();
    assert!(matches!(refused, MemoryError::Backing { .. }), "{refused}");
}

/// The kernel maps whole huge pages, past what is reserved for the log.
#[test]
fn a_log_in_huge_pages_is_refused() {
    let memory = GuestMemory::map(vec![region(0, PAGE, &file(PAGE), 0)]).unwrap();
    // A kernel without huge pages has no such file to offer.
    let Ok(huge) = memfd_create("log", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else { return };
    ftruncate(&huge, 2 << 20).unwrap();
    for pages in 1..5 {
        let refused = DirtyLog::map(huge.as_fd(), 0, pages * PAGE, &memory).unwrap_err();
        assert!(matches!(refused, MemoryError::LogPage { .. }), "{refused}");
    }
}

/// A worker made each of them when it touched it first, 8192 in a burst.
#[test]
fn huge_pages_are_there_before_a_worker_touches_them() {
    let Ok(huge) = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else { return };
    let huge = Arc::new(huge);
    let made = || rustix::fs::fstat(&huge).unwrap().st_blocks * 512;
    ftruncate(&huge, 4 << 20).unwrap();
    match GuestMemory::map(vec![region(0, 4 << 20, &huge, 0)]) {
        Ok(_memory) => assert_eq!(made(), 4 << 20),
        // A host without huge pages to give.
        Err(refused) => {
            assert!(matches!(refused, MemoryError::HugePages { .. }), "{refused}");
            assert!(refused.to_string().contains("nr_hugepages"), "{refused}");
        }
    }
}

/// It made those of all regions, also what a balloon had given back: of n regions n * n / 2.
#[test]
fn a_hot_plug_makes_the_huge_pages_of_what_is_new() {
    const HUGE: u64 = 2 << 20;
    let Ok(huge) = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else { return };
    let huge = Arc::new(huge);
    ftruncate(&huge, 2 * HUGE).unwrap();
    let made = || rustix::fs::fstat(&huge).unwrap().st_blocks.cast_unsigned() * 512;
    let give_back = |offset| fallocate(&huge, PUNCH, offset, HUGE).unwrap();
    // A host without huge pages to give.
    let Ok(memory) = GuestMemory::map(vec![region(0, HUGE, &huge, 0)]) else { return };
    give_back(0);
    let Ok(more) = memory.with_region(region(HUGE, HUGE, &huge, HUGE)) else { return };
    assert_eq!(made(), HUGE, "the new one's alone");
    give_back(HUGE);
    more.without_region(Gpa(0), HUGE, UserAddress(1 << 40)).unwrap();
    assert_eq!(made(), 0, "nothing is new");
}

/// A sparse file has any size: its pages were charged to the switch when touched, and its addresses
/// were used up.
#[test]
fn memory_stays_within_its_limit_region_by_region() {
    let file = file(1 << 50);
    let refused = GuestMemory::map_within(8 * PAGE, vec![region(0, 1 << 46, &file, 0)]);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("70368744177664 bytes is") && message.contains("limit is 32768"));
    let memory = GuestMemory::map_within(8 * PAGE, vec![region(0, 4 * PAGE, &file, 0)]).unwrap();
    let full = memory.with_region(region(8 * PAGE, 4 * PAGE, &file, 0)).unwrap();
    let refused = full.with_region(region(16 * PAGE, PAGE, &file, 0)).unwrap_err();
    assert!(matches!(refused, MemoryError::TooMuch { seen: 36864, limit: 32768 }), "{refused}");
    let less = full.without_region(Gpa(0), 4 * PAGE, UserAddress(1 << 40)).unwrap();
    assert!(less.with_region(region(16 * PAGE, 5 * PAGE, &file, 0)).is_err(), "the limit stays");
    assert!(less.with_region(region(16 * PAGE, 4 * PAGE, &file, 0)).is_ok());
}

/// What the front end says could be all addresses of the process.
#[test]
fn a_log_stays_within_the_limit() {
    let memory = GuestMemory::map_within(1 << 30, vec![region(0, PAGE, &file(PAGE), 0)]).unwrap();
    let log = file(1 << 50);
    let refused = DirtyLog::map(log.as_fd(), 0, 1 << 46, &memory).unwrap_err();
    assert!(matches!(refused, MemoryError::TooMuch { .. }), "{refused}");
    assert!(DirtyLog::map(log.as_fd(), 0, 1 << 30, &memory).is_ok());
}

/// QEMU gives the log before the memory that it is for, and with room for 128 MiB more.
#[test]
fn a_log_covers_memory_that_comes_later() {
    let memory = GuestMemory::map(vec![region(0, PAGE, &file(PAGE), 0)]).unwrap();
    let bits = file(2 * PAGE);
    let log = DirtyLog::map(bits.as_fd(), 0, 2 * PAGE, &memory).unwrap();
    let last = 2 * PAGE * 8 - 1;
    log.mark(Gpa(last * PAGE), 1);
    let mut byte = [0];
    rustix::io::pread(&bits, &mut byte, last / 8).unwrap();
    assert_eq!(byte, [0x80]);
}

/// A huge page is mapped and made as a whole, however little of it a region has.
#[test]
fn huge_pages_count_whole() {
    let Ok(huge) = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else { return };
    let huge = Arc::new(huge);
    ftruncate(&huge, 4 << 20).unwrap();
    let small = (0..2).map(|n| region(n * PAGE, PAGE, &huge, n << 21)).collect();
    let refused = GuestMemory::map_within(1 << 20, small).unwrap_err();
    assert!(matches!(refused, MemoryError::TooMuch { seen: 0x40_0000, .. }), "{refused}");
}

proptest! {
    #[test]
    fn translation_agrees_with_a_page_table(
        list in guest(),
        asks in proptest::collection::vec((0u64..50 * PAGE, 0u32..3 * 4096), 1..60),
    ) {
        let (file, memory, pages) = build(&list);
        let mut translator = Translator::new(memory.clone());
        for (gpa, len) in asks {
            let last = gpa + u64::from(len.max(1)) - 1;
            let table = (gpa / PAGE..=last / PAGE)
                .map(|page| pages.get(page as usize).copied().flatten())
                .collect::<Option<Vec<_>>>();
            let found = translator.translate(Gpa(gpa), len);
            prop_assert_eq!(found, memory.translate(Gpa(gpa), len));
            // Pages of one file in order are neighbours here, so "all there" is "without a hole".
            prop_assert_eq!(found.is_some(), table.is_some(), "{} bytes at {:#x}", len, gpa);
            let Some(table) = table else { continue };
            let mark = (gpa as u32 ^ len).to_ne_bytes();
            if len >= 4 {
                prop_assert!(memory.write(Gpa(gpa), &mark));
                let mut back = [0; 4];
                pread(&*file, &mut back, table[0] + gpa % PAGE).unwrap();
                prop_assert_eq!(back, mark);
            }
        }
    }

    #[test]
    fn extreme_asks_are_refused(list in guest(), gpa in any::<u64>(), len in any::<u32>()) {
        let (_, memory, pages) = build(&list);
        let mut translator = Translator::new(memory);
        let end = pages.len() as u64 * PAGE;
        let inside = gpa < end && u64::from(len) <= end - gpa;
        prop_assert!(inside || translator.translate(Gpa(gpa), len).is_none());
        prop_assert!(translator.translate(Gpa(gpa | 1 << 63), u32::MAX).is_none());
    }

    #[test]
    fn the_log_has_the_pages_written(writes in proptest::collection::vec((0u64..40 * PAGE, 0u64..9000), 0..20)) {
        let memory = GuestMemory::map(vec![region(0, 40 * PAGE, &file(40 * PAGE), 0)]).unwrap();
        let map = file(2 * PAGE);
        let log = DirtyLog::map(map.as_fd(), 100, 5, &memory).unwrap();
        let mut expected = [0u8; 5];
        for (gpa, len) in writes {
            let len = len.min(40 * PAGE - gpa);
            let host = memory.translate(Gpa(gpa), len as u32).unwrap();
            memory.mark_written(&log, host, len as usize);
            for page in (gpa..gpa + len).map(|byte| byte / PAGE) {
                expected[page as usize / 8] |= 1 << (page % 8);
            }
        }
        let mut found = [0; 7];
        pread(&*map, &mut found, 99).unwrap();
        prop_assert_eq!(&found[1..6], &expected);
        prop_assert_eq!((found[0], found[6]), (0, 0), "bits outside the log");
    }
}

#[test]
fn user_addresses_lead_to_guest_addresses() {
    let file = file(8 * PAGE);
    let regions = vec![region(0x10000, 2 * PAGE, &file, 0), region(0x20000, PAGE, &file, PAGE)];
    let memory = GuestMemory::map(regions).unwrap();
    let ask = |user, len| memory.guest_address(UserAddress(user), len);
    assert_eq!(ask((1 << 40) + 0x11000, 4096), Some(Gpa(0x11000)));
    assert_eq!(ask((1 << 40) + 0x11000, 4097), None);
    assert_eq!(ask((1 << 40) + 0x20fff, 1), Some(Gpa(0x20fff)));
    assert_eq!(ask(0x10000, 1), None);
    assert_eq!(memory.end(), Gpa(0x21000));
}

#[test]
fn hot_plug_leaves_the_old_snapshot_alone() {
    let file = file(8 * PAGE);
    let old = GuestMemory::map(vec![region(0, 2 * PAGE, &file, 0)]).unwrap();
    let pointer = old.translate(Gpa(0), 8192).unwrap();
    let new = old.with_region(region(2 * PAGE, PAGE, &file, 4 * PAGE)).unwrap();
    // Both show the same file, and only the new one has the new page, joined to the old ones.
    assert!(new.write(Gpa(0x1ffe), &[1, 2, 3, 4]));
    assert!(old.translate(Gpa(0x1ffe), 4).is_none());
    let mut both = [0; 2];
    assert!(old.read(Gpa(0x1ffe), &mut both));
    assert_eq!(both, [1, 2]);
    let third = new.without_region(Gpa(0), 2 * PAGE, UserAddress(1 << 40)).unwrap();
    drop(new);
    assert!(third.translate(Gpa(0), 1).is_none());
    assert!(third.translate(Gpa(2 * PAGE), 1).is_some());
    assert_eq!(old.translate(Gpa(0), 1), Some(pointer));
    let message = third.without_region(Gpa(0), 1, UserAddress(0)).unwrap_err().to_string();
    assert!(message.contains("no memory region at guest address 0x0"), "{message}");
}

/// QEMU 7.2 adds each region once for each queue pair, and was cut off for an overlap.
#[test]
fn a_region_is_known_by_its_addresses_and_its_file() {
    let (own, other) = (file(4 * PAGE), file(4 * PAGE));
    let memory = GuestMemory::map(vec![region(0, 2 * PAGE, &own, PAGE)]).unwrap();
    let again = Arc::new(own.try_clone().unwrap());
    assert!(memory.has_region(&region(0, 2 * PAGE, &again, PAGE)));
    let moved = Region { user: UserAddress(0), ..region(0, 2 * PAGE, &own, PAGE) };
    for another in [
        region(0, 2 * PAGE, &other, PAGE),
        region(0, 2 * PAGE, &own, 0),
        region(0, PAGE, &own, PAGE),
        region(PAGE, 2 * PAGE, &own, PAGE),
        moved,
    ] {
        assert!(!memory.has_region(&another), "{another:?}");
        assert!(memory.with_region(another.clone()).is_err(), "{another:?} overlaps");
    }
}

#[test]
fn a_region_past_its_file_is_refused() {
    let error = GuestMemory::map(vec![region(0, 2 * PAGE, &file(PAGE), 0)]).unwrap_err();
    assert!(matches!(error, MemoryError::BeyondFile { needed: 0x2000, file_size: 0x1000, .. }));
}

#[test]
fn a_file_that_cannot_be_mapped_is_refused() {
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    assert!(GuestMemory::map(vec![region(0, PAGE, &Arc::new(pipe), 0)]).is_err());
}

#[test]
fn a_truncated_file_breaks_its_own_guest_only() {
    let (file, other) = (file(4 * PAGE), file(PAGE));
    let memory = GuestMemory::map(vec![region(0, 4 * PAGE, &file, 0)]).unwrap();
    let neighbour = GuestMemory::map(vec![region(0, PAGE, &other, 0)]).unwrap();
    assert!(neighbour.write(Gpa(0), &[9]));
    pwrite(&*file, &[7; 4], 0).unwrap();
    ftruncate(&*file, PAGE).unwrap();
    let mut bytes = [0; 4];
    assert!(memory.read(Gpa(0), &mut bytes));
    assert_eq!((bytes, memory.is_broken()), ([7; 4], false), "what is left of the file is sound");
    // Written from several threads at a time: each gets over its fault.
    std::thread::scope(|scope| {
        for page in 1..4 {
            let memory = &memory;
            scope.spawn(move || assert!(memory.write(Gpa(page * PAGE), &[1; 64])));
        }
    });
    assert!(memory.is_broken());
    assert!(!neighbour.is_broken());
    assert!(neighbour.read(Gpa(0), &mut bytes[..1]));
    assert_eq!(bytes[0], 9);
    // A place among the watched reservations is clean for its next owner.
    drop(memory);
    let next = GuestMemory::map(vec![region(0, PAGE, &other, 0)]).unwrap();
    assert!(!next.is_broken());
}

#[test]
fn a_log_covers_all_memory_and_lies_in_its_file() {
    let memory = GuestMemory::map(vec![region(0, 40 * PAGE, &file(40 * PAGE), 0)]).unwrap();
    let log = file(PAGE);
    let message = DirtyLog::map(log.as_fd(), 0, 4, &memory).unwrap_err().to_string();
    assert!(
        message.contains("has 0x4 bytes, memory up to guest address 0x28000 needs 0x5"),
        "{message}"
    );
    assert!(DirtyLog::map(log.as_fd(), 4090, 7, &memory).is_err());
    assert!(DirtyLog::map(log.as_fd(), u64::MAX, 5, &memory).is_err());
}
