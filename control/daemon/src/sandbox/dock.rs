//! The process that starts [ferries](ports::vhost::dock): one for each guest that runs here before
//! its memory has arrived.
//!
//! The daemon starts its own program again, before it restricts itself, with a hidden command and
//! one end of a link as standard input. It keeps no capability, and opens no file; a ferry makes
//! still fewer system calls.

use super::helper::leave_the_daemon_s;
use super::{calls, files, privilege};
use rustix::thread::CapabilitySet;
use std::io;
use std::process::Command;

/// Starts this program again with these arguments. From then on front ends may migrate guests here
/// by post-copy, unless the kernel does not allow it.
pub(crate) fn start(arguments: &[&str]) {
    let mut dock = Command::new("/proc/self/exe");
    // As of the helper: the environment is the daemon's.
    dock.args(arguments).env_clear();
    if let Err(error) = ports::vhost::dock::start(dock) {
        tracing::info!(target: "control::sandbox", "guests cannot migrate here by post-copy: {error}");
    }
}

/// Runs as the dock until the daemon ends.
///
/// # Errors
/// The process cannot restrict itself, or its standard input is no link.
pub fn run() -> io::Result<()> {
    leave_the_daemon_s()?;
    rustix::thread::set_name(c"millrace-dock")?;
    privilege::keep(CapabilitySet::empty())?;
    // As for the daemon, a kernel without Landlock is good enough.
    let _ = files::allow_none();
    ports::vhost::dock::serve(|| {
        calls::refuse(calls::Role::Ferry).map_err(|error| io::Error::other(error.to_string()))
    })
}
