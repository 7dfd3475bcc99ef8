// UNSAFETY: `unshare` can part threads from what they share; here it is called while there is one
// thread only.
//! Namespaces of our own.
#![allow(unsafe_code)]

use crate::LabError;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this process a network namespace of its own, and a view of the file system in which it may
/// name the namespaces of others. Call it before there is a second thread.
pub(super) fn leave_network() -> std::io::Result<()> {
    // SAFETY: no descriptor is parted from anyone, and threads started later inherit both
    // namespaces.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }?)
}

/// Whether this process may make namespaces as it is.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes an ordinary user root in a user namespace, and nowhere else, so that network namespaces
/// can be had. Call it before there is a second thread: the kernel refuses it afterwards.
pub fn become_root() -> Result<(), LabError> {
    let refused = |error: std::io::Error| LabError::NamespaceRefused(error.to_string());
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // SAFETY: user ids and capabilities are per process; no descriptor is parted from anyone.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(|errno| refused(errno.into()))?;
    let write = |path: &str, text: String| std::fs::write(path, text).map_err(refused);
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {user} 1"))?;
    write("/proc/self/gid_map", format!("0 {group} 1"))
}
