// UNSAFETY: sets signals aside and closes descriptors by number, at the start of a process that has
// nothing else yet.
//! The helper that enters the network namespaces of ports. It is a separate process, so that the
//! daemon can give up CAP_SYS_ADMIN.
//!
//! The daemon starts its own program again, before it restricts itself, with a hidden command and
//! the helper's end of a socket as standard input. The helper gives up what it does not need, and
//! then serves the requests of [`ports::namespace::helper`].
#![allow(unsafe_code)]

use super::{calls, files, privilege};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::CapabilitySet;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The capability for entering namespaces.
pub(super) const ENTERING: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Capabilities that the helper keeps. It needs them to enter namespaces and to make packet and
/// AF_XDP sockets there. The last two, which the unit does not have, open the namespaces of other
/// users and of processes with more capabilities.
const KEPT: CapabilitySet = ENTERING
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_PTRACE);

/// Starts this program again as the helper, with `arguments` and behind them the directories with
/// namespaces. From then on the helper enters namespaces for this process. Returns the helper's
/// process ID.
///
/// # Errors
/// The socket pair cannot be made, or the program cannot be started.
pub(super) fn start(arguments: &[&str], directories: &[PathBuf]) -> io::Result<u32> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut helper = Command::new("/proc/self/exe");
    // The environment is cleared: it names systemd's notify socket and the descriptors passed to
    // the daemon.
    helper.args(arguments).args(directories).env_clear();
    let process = helper.stdin(its).stdout(Stdio::null()).spawn()?;
    let number = process.id();
    ports::namespace::helper::use_for_all(ours, process);
    Ok(number)
}

/// Runs as the helper until the daemon ends. Without directories it opens any file that its user
/// may: then the daemon has a port in a process's namespace, which Landlock would close to it.
///
/// # Errors
/// The process cannot restrict itself, or its socket fails.
pub fn run(directories: &[PathBuf]) -> io::Result<()> {
    leave_the_daemon_s()?;
    rustix::thread::set_name(c"millrace-netns")?;
    privilege::keep(KEPT)?;
    if !directories.is_empty() {
        // As for the daemon, a kernel without Landlock is good enough, and `status` says so.
        let _ = files::allow_namespaces(directories);
    }
    calls::refuse(calls::Role::Helper).map_err(|error| io::Error::other(error.to_string()))?;
    ports::namespace::helper::when_closed(io::stdin(), || std::process::exit(0))?;
    ports::namespace::helper::serve(io::stdin())
}

/// Closes descriptors that the daemon left open, such as those that systemd passed: a device is
/// busy as long as any process has one of its descriptors. Ignores the signals that end or reload a
/// daemon, which a terminal or systemd sends to both processes.
pub(super) fn leave_the_daemon_s() -> io::Result<()> {
    // SAFETY: this process has opened nothing but its standard streams, and has one thread.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed == -1 {
        return Err(io::Error::last_os_error());
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler is set, so none can run at a wrong time.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    Ok(())
}
