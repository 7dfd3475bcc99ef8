//! Where each region goes in the reservation: arithmetic only, so that it can be tested with page
//! sizes this machine does not have.
//!
//! A huge page can only be mapped where the address and the file offset agree modulo the page size,
//! and a mapping of a huge page file is whole huge pages even where the region is not. So a
//! region's place is chosen by its file offset, never by its guest address, and the mapping may
//! start before the region and end after it.

use crate::{MemoryError, Region};

/// The smallest page, in bytes.
pub(crate) const PAGE: u64 = 4096;
/// Regions served: what QEMU's memory slots and vhost-user's `VHOST_USER_GET_MAX_MEM_SLOTS` can ask
/// of us.
pub(crate) const REGIONS: usize = 512;
/// The size of a transparent huge page: the kernel uses them for shared memory where address and
/// offset agree modulo it.
const TRANSPARENT: u64 = 2 << 20;

/// Returns a number of bytes as the host counts them.
#[allow(clippy::cast_possible_truncation, reason = "hosts have 64 bits, as asserted here")]
pub(crate) const fn native(bytes: u64) -> usize {
    const { assert!(usize::BITS == 64) };
    bytes as usize
}

/// Facts about the file behind a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileFacts {
    /// Bytes of the file.
    pub(crate) size: u64,
    /// Bytes of its pages: 4096, or more on hugetlbfs.
    pub(crate) page: u64,
}

/// One region's place; offsets are from the start of the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Where the region starts.
    pub(crate) start: u64,
    /// Where its mapping starts.
    pub(crate) map_start: u64,
    /// Bytes to map.
    pub(crate) map_len: u64,
    /// Where the mapping starts in the file.
    pub(crate) file_offset: u64,
    /// The region carries on where the one before it ends, in guest addresses and in the
    /// reservation.
    pub(crate) joins: bool,
}

/// The whole reservation.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// One a region, in the same order.
    pub(crate) places: Vec<Mapping>,
    /// Bytes to reserve.
    pub(crate) len: u64,
    /// Alignment of the reservation's start.
    pub(crate) align: u64,
}

/// Checks regions sorted by guest address and gives each its place; `limit`: most bytes to map,
/// whole pages.
pub(crate) fn plan(regions: &[(&Region, FileFacts)], limit: u64) -> Result<Layout, MemoryError> {
    if regions.len() > REGIONS {
        return Err(MemoryError::TooManyRegions(regions.len()));
    }
    for (region, facts) in regions {
        check(region, *facts)?;
    }
    for pair in regions.windows(2) {
        let [(first, _), (second, _)] = pair else { continue };
        if first.gpa.0 + first.size > second.gpa.0 {
            return Err(MemoryError::Overlap {
                first: first.gpa,
                first_size: first.size,
                second: second.gpa,
            });
        }
    }
    let layout = place_all(regions)?;
    // Whole pages, as they are mapped: of a huge page the region may be a small part.
    let seen = layout.places.iter().map(|place| place.map_len).sum();
    if seen > limit {
        return Err(MemoryError::TooMuch { seen, limit });
    }
    Ok(layout)
}

fn overflow(region: &Region) -> MemoryError {
    let Region { gpa, user, file_offset, size, .. } = *region;
    MemoryError::Overflow { gpa, user, file_offset, size }
}

fn check(region: &Region, facts: FileFacts) -> Result<(), MemoryError> {
    let Region { gpa, size, file_offset, .. } = *region;
    if size == 0 {
        return Err(MemoryError::Empty(gpa));
    }
    if !(gpa.0 | size | file_offset).is_multiple_of(PAGE) {
        return Err(MemoryError::Unaligned { gpa, size, file_offset });
    }
    let ends = [gpa.0, region.user.0, file_offset].map(|start| start.checked_add(size));
    let [Some(_), Some(_), Some(needed)] = ends else { return Err(overflow(region)) };
    if needed > facts.size {
        return Err(MemoryError::BeyondFile { gpa, needed, file_size: facts.size });
    }
    Ok(())
}

fn place_all(regions: &[(&Region, FileFacts)]) -> Result<Layout, MemoryError> {
    let mut layout = Layout { align: PAGE, ..Layout::default() };
    // Where the region before ends: in guest addresses, in the reservation.
    let mut before = None;
    for (region, facts) in regions {
        let neighbour = before == Some((region.gpa.0, layout.len));
        let place = place(region, *facts, layout.len, neighbour).ok_or_else(|| overflow(region))?;
        // `place` has checked this sum.
        layout.len = place.map_start + place.map_len;
        layout.align = layout.align.max(alignment(region, *facts));
        before = Some((region.gpa.0 + region.size, place.start + region.size));
        layout.places.push(place);
    }
    Ok(layout)
}

fn alignment(region: &Region, facts: FileFacts) -> u64 {
    let preferred = if region.size >= TRANSPARENT { TRANSPARENT } else { PAGE };
    facts.page.max(preferred)
}

/// Places a region. Returns `None` if the sum of all regions passes 64 bits.
fn place(region: &Region, facts: FileFacts, end: u64, neighbour: bool) -> Option<Mapping> {
    let file_offset = region.file_offset - region.file_offset % facts.page;
    let lead = region.file_offset - file_offset;
    let map_len = (lead + region.size).checked_next_multiple_of(facts.page)?;
    let joins = neighbour && lead == 0 && end.is_multiple_of(facts.page);
    let map_start = if joins {
        end
    } else {
        // One page that is never mapped stands between two spans.
        congruent(end.checked_add(PAGE)?, file_offset, alignment(region, facts))?
    };
    map_start.checked_add(map_len)?;
    Some(Mapping { start: map_start + lead, map_start, map_len, file_offset, joins })
}

/// Returns the first number from `from` on that equals `like` modulo `align`, a power of two.
fn congruent(from: u64, like: u64, align: u64) -> Option<u64> {
    from.checked_add(like.wrapping_sub(from) & (align - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpa, UserAddress};
    use proptest::prelude::*;
    use std::fs::File;
    use std::sync::Arc;

    fn region(gpa: u64, size: u64, file_offset: u64) -> Region {
        let file = Arc::new(File::open("/dev/null").unwrap().into());
        Region { gpa: Gpa(gpa), size, user: UserAddress(gpa), file_offset, file }
    }

    const LARGE: FileFacts = FileFacts { size: u64::MAX, page: PAGE };

    fn plan_small(regions: &[Region]) -> Result<Layout, MemoryError> {
        plan(&regions.iter().map(|region| (region, LARGE)).collect::<Vec<_>>(), u64::MAX)
    }

    /// Gaps and sizes in pages, one page size a region.
    fn regions() -> impl Strategy<Value = Vec<(Region, FileFacts)>> {
        let pages = prop_oneof![Just(PAGE), Just(2 << 20), Just(1 << 30)];
        let one = (0u64..3, 1u64..2000, 0u64..2000, pages);
        proptest::collection::vec(one, 1..12).prop_map(|list| {
            let mut gpa = 0;
            let make = |(gap, size, offset, page): (u64, u64, u64, u64)| {
                gpa += gap * 0x5000;
                let region = region(gpa, size * PAGE, offset * PAGE);
                gpa += size * PAGE;
                (region, FileFacts { size: u64::MAX, page })
            };
            list.into_iter().map(make).collect()
        })
    }

    proptest! {
        #[test]
        fn places_are_mappable_and_apart(regions in regions()) {
            let refs: Vec<_> = regions.iter().map(|(region, facts)| (region, *facts)).collect();
            let layout = plan(&refs, u64::MAX).unwrap();
            let mut end = 0;
            let mut host_end = None;
            for ((region, facts), place) in regions.iter().zip(&layout.places) {
                prop_assert!(place.map_start >= end, "mappings overlap");
                prop_assert_eq!(place.map_start % facts.page, 0);
                prop_assert_eq!(place.file_offset % facts.page, 0);
                prop_assert_eq!(place.map_len % facts.page, 0);
                prop_assert_eq!(layout.align % facts.page, 0);
                // The region's first byte is its own file offset, and its last byte is mapped.
                prop_assert_eq!(place.start - place.map_start, region.file_offset - place.file_offset);
                prop_assert!(place.start + region.size <= place.map_start + place.map_len);
                if place.joins {
                    prop_assert_eq!(host_end, Some((region.gpa.0, place.start)));
                } else {
                    prop_assert!(place.map_start > end, "no guard page");
                }
                end = place.map_start + place.map_len;
                host_end = Some((region.gpa.0 + region.size, place.start + region.size));
            }
            prop_assert_eq!(layout.len, end);
        }
    }

    #[test]
    fn small_neighbours_join() {
        let layout = plan_small(&[region(0, 0xa0000, 0), region(0xa0000, 0x1000, 0)]).unwrap();
        assert_eq!(
            layout.places.iter().map(|place| place.joins).collect::<Vec<_>>(),
            [false, true]
        );
    }

    #[test]
    fn what_is_refused() {
        let refuse = |regions: &[Region]| plan_small(regions).unwrap_err().to_string();
        assert!(refuse(&[region(0x1000, 0, 0)]).contains("size 0"));
        for odd in [region(1, PAGE, 0), region(0, 1, 0), region(0, PAGE, 1)] {
            assert!(refuse(&[odd]).contains("multiples of 0x1000"));
        }
        let top = !0xfff;
        for long in [region(top, PAGE, 0), region(0, PAGE, top)] {
            assert!(refuse(&[long]).contains("beyond 64 bits"));
        }
        let message = refuse(&[region(0, 0x3000, 0), region(0x2000, 0x1000, 0)]);
        assert!(message.contains("0x0 (size 0x3000) and 0x2000 overlap"), "{message}");
        assert!(refuse(&vec![region(0, PAGE, 0); REGIONS + 1]).contains("513 memory regions"));
        // Each fits, their sum does not.
        let half = region(0, 1 << 63, 0);
        let above = region(1 << 63, (1 << 63) - PAGE, 0);
        assert!(refuse(&[half, above]).contains("beyond 64 bits"));
    }

    #[test]
    fn a_region_lies_within_its_file() {
        let facts = FileFacts { size: 0x3000, page: PAGE };
        let plan = |region: &Region| plan(&[(region, facts)], u64::MAX);
        assert!(plan(&region(0, 0x2000, 0x1000)).is_ok());
        let message = plan(&region(0, 0x3000, 0x1000)).unwrap_err().to_string();
        assert!(message.contains("0x4000 bytes, it has 0x3000"), "{message}");
    }
}
