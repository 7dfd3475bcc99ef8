//! Gives up capabilities for good.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};
use std::fs;
use std::io;

/// Returns whether this thread may use a capability.
pub(super) fn has(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|mine| mine.effective.contains(wanted))
}

/// Gives up all capabilities but these, in this thread and in the threads and programs that it
/// starts.
///
/// # Errors
/// The kernel refuses the change.
pub(super) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let mine = capabilities(None)?;
    for given_up in mine.permitted.difference(kept).iter() {
        // This takes CAP_SETPCAP, which the unit's user lacks. Without it the bounding set gives
        // nothing back either: no program can be started any more.
        let _ = remove_capability_from_bounding_set(given_up);
    }
    // A capability that is no longer permitted and inheritable leaves the ambient set as well.
    set_capabilities(
        None,
        CapabilitySets {
            effective: mine.effective.intersection(kept),
            permitted: mine.permitted.intersection(kept),
            inheritable: mine.inheritable.intersection(kept),
        },
    )?;
    Ok(())
}

/// Gives up one capability, in this thread. Call it before any other thread has the capability.
///
/// # Errors
/// The kernel refuses the change, or another thread still has the capability.
pub(super) fn give_up(given_up: CapabilitySet) -> io::Result<()> {
    keep(given_up.complement())?;
    for thread in fs::read_dir("/proc/self/task")? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        if permitted(&status).is_none_or(|permitted| permitted.intersects(given_up)) {
            let name = status.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!("a thread keeps it ({name})")));
        }
    }
    Ok(())
}

/// Returns the capabilities that proc(5) reports for a thread.
fn permitted(status: &str) -> Option<CapabilitySet> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t"))?;
    Some(CapabilitySet::from_bits_retain(u64::from_str_radix(line, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_of_a_thread_is_what_it_has() {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let mine = capabilities(None).unwrap().permitted;
        assert_eq!(permitted(&status), Some(mine));
        assert_eq!(permitted("Name:\tmillrace\n"), None);
    }

    /// Runs in a new thread, so that no other test loses its capabilities.
    #[test]
    fn one_is_given_up_in_this_thread_and_seen_where_another_keeps_it() {
        let mine = capabilities(None).unwrap().permitted;
        let Some(one) = mine.iter().next() else {
            return println!("skipped: needs a capability to give up");
        };
        let thread = std::thread::spawn(move || {
            let told = give_up(one).unwrap_err().to_string();
            (told, capabilities(None).unwrap())
        });
        let (told, left) = thread.join().unwrap();
        assert!(told.contains("a thread keeps it"), "{told}");
        assert_eq!(left.permitted, mine.difference(one));
        assert!(!left.effective.contains(one) && !left.inheritable.contains(one));
    }
}
