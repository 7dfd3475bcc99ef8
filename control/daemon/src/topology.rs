//! Reads from sysfs which core and NUMA node a processor belongs to.

use std::fs;

/// Returns the first of the SMT siblings that share the processor's core; the processor itself if
/// sysfs does not say.
pub(crate) fn core(cpu: usize) -> usize {
    let siblings = fs::read_to_string(format!(
        "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    ));
    siblings.ok().and_then(|list| first(&list)).unwrap_or(cpu)
}

/// Returns the first number of a list such as `3,7-9`.
fn first(list: &str) -> Option<usize> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

/// Returns the processor's NUMA node; 0 if sysfs does not say.
pub(crate) fn node(cpu: usize) -> usize {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    names.filter_map(node).next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_what_is_missing_is_survived() {
        assert_eq!([first("3,7-9\n"), first("4-5"), first("")], [Some(3), Some(4), None]);
        assert_eq!((core(1_000_000), node(1_000_000)), (1_000_000, 0));
    }
}
