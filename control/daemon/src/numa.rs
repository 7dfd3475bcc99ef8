//! The NUMA node of a guest's memory, from `/proc/self/numa_maps` (numa(7)).
//!
//! A line describes a mapping: its first address, and `N0=12` for 12 pages on node 0, of
//! `kernelpagesize_kB` each. It counts only pages that this process has touched: rings and buffers,
//! which are the ones that matter. It has no end address.

use std::collections::BTreeMap;
use std::ops::Range;

/// Returns the node that has three quarters or more of the pages in the given address ranges, each
/// of which is mapped as a whole. Returns `None` if no node has as many, or no page was touched.
pub(crate) fn home(numa_maps: &str, ranges: &[Range<u64>]) -> Option<usize> {
    let mappings: Vec<(u64, &str)> = numa_maps.lines().filter_map(mapping).collect();
    let ends = mappings.iter().skip(1).map(|(start, _)| *start).chain([u64::MAX]);
    let mut nodes: BTreeMap<usize, u64> = BTreeMap::new();
    for ((start, fields), end) in mappings.iter().zip(ends) {
        // No range covers the gap between a mapping and the next.
        if ranges.iter().any(|range| *start < range.end && range.start < end) {
            pages(fields).for_each(|(node, kib)| *nodes.entry(node).or_default() += kib);
        }
    }
    let all: u64 = nodes.values().sum();
    let most = nodes.into_iter().max_by_key(|(_, kib)| *kib);
    most.filter(|(_, kib)| kib * 4 >= all * 3).map(|(node, _)| node)
}

/// Returns a mapping's first address, and its fields.
fn mapping(line: &str) -> Option<(u64, &str)> {
    let (start, fields) = line.split_once(' ')?;
    Some((u64::from_str_radix(start, 16).ok()?, fields))
}

/// Returns the KiB of a mapping by node.
fn pages(fields: &str) -> impl Iterator<Item = (usize, u64)> {
    let number = |name| fields.split(' ').find_map(|field| field.strip_prefix(name)?.parse().ok());
    let size: u64 = number("kernelpagesize_kB=").unwrap_or(4);
    fields.split(' ').filter_map(move |field| {
        let (node, pages) = field.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse::<u64>().ok()? * size))
    })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a guest of one region")]
mod tests {
    use super::*;

    /// A machine of two nodes with a program, a guest of 4 KiB pages on both nodes, one of huge
    /// pages, and interleaved pages.
    const TWO_NODES: &str = "\
5581a0000000 default file=/usr/bin/millrace mapped=90 mapmax=2 N0=90 kernelpagesize_kB=4
7f1000000000 default file=/memfd:guest1\\040(deleted) dirty=1000 mapmax=2 N0=40 N1=960 kernelpagesize_kB=4
7f1040000000 default file=/memfd:guest1\\040(deleted) dirty=8 mapmax=2 N0=8 kernelpagesize_kB=4
7f2000000000 bind:1 file=/dev/hugepages/guest2\\040(deleted) huge dirty=3 N1=3 kernelpagesize_kB=2048
7f2040000000 default file=/memfd:guest2\\040(deleted) dirty=100 N0=100 kernelpagesize_kB=4
7f3000000000 interleave:0-1 file=/memfd:guest3\\040(deleted) dirty=500 N0=251 N1=249 kernelpagesize_kB=4
7f4000000000 default file=/memfd:guest4\\040(deleted)
7ffc10000000 default stack anon=9 dirty=9 N0=9 kernelpagesize_kB=4
";

    fn home_of(ranges: &[Range<u64>]) -> Option<usize> {
        home(TWO_NODES, ranges)
    }

    #[test]
    fn a_guest_is_at_home_where_three_quarters_of_its_touched_pages_are() {
        let [one, other] = [0x7f10_0000_0000..0x7f10_4000_0000, 0x7f10_4000_0000..0x7f10_8000_0000];
        assert_eq!(home_of(&[one.clone(), other.clone()]), Some(1));
        assert_eq!(home_of(&[other]), Some(0));
        // A region within a mapping that begins before it, as with huge pages.
        assert_eq!(home_of(&[0x7f10_0010_0000..0x7f10_0020_0000]), Some(1));
        let interleaved = 0x7f30_0000_0000..0x7f30_4000_0000;
        assert_eq!(home_of(&[interleaved]), None);
    }

    #[test]
    fn pages_count_by_their_size() {
        assert_eq!(home_of(&[0x7f20_0000_0000..0x7f20_8000_0000]), Some(1));
    }

    #[test]
    fn what_is_not_touched_not_there_or_not_understood_has_no_home() {
        assert_eq!(home_of(&[0x7f40_0000_0000..0x7f40_4000_0000]), None);
        assert_eq!(home_of(&[]), None);
        assert_eq!(home("", &[0..u64::MAX]), None);
        let odd = "x default N0=4\n7f00 default N=3 Nx=4 N1= N0=1x\nhuge\n";
        assert_eq!(home(odd, &[0..u64::MAX]), None);
    }
}
