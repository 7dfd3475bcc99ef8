// UNSAFETY: `unshare` can separate threads from what they share; it is called while the process has
// one thread.
//! Network and user namespaces of this process.
#![allow(unsafe_code)]

use crate::LabError;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::process::{Command, Stdio};

/// Moves this process into new network and mount namespaces, so that it may name other processes'
/// namespaces. Call it before a second thread starts.
///
/// # Errors
/// The kernel refuses the namespaces.
pub(super) fn leave_network() -> std::io::Result<()> {
    // SAFETY: file descriptors stay shared, and threads that start later inherit both namespaces.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }?;
    // As on a host of its own, `/sys` shows its links. Without it, daemons ask the kernel instead.
    let script = "mount --make-rprivate / && mount -t sysfs sysfs /sys";
    let _ = Command::new("sh").args(["-c", script]).stderr(Stdio::null()).status();
    Ok(())
}

/// Returns whether this process may create namespaces without a user namespace.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes an ordinary user root in a new user namespace, so that the process may create network
/// namespaces. Call it before a second thread starts: the kernel refuses it afterwards.
///
/// # Errors
/// The kernel refuses the user namespace, or the mapping of its ids.
pub fn become_root() -> Result<(), LabError> {
    let refused = |error: std::io::Error| LabError::NamespaceRefused(error.to_string());
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // SAFETY: user ids and capabilities are per process; file descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(|errno| refused(errno.into()))?;
    let write = |path: &str, text: String| std::fs::write(path, text).map_err(refused);
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {user} 1"))?;
    write("/proc/self/gid_map", format!("0 {group} 1"))
}
